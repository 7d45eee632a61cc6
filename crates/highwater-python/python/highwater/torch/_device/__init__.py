"""The CPU and GPUs: how memory and time are measured there, copies to the host, which kernels may write over an input."""
