"""Times PyTorch's matrix products at GPT-2's shapes, to be set beside `cargo bench --bench gemm`.

    python3 matmul.py [--threads 2] [--repeat 12] [--dtype bfloat16]

Prints GFLOP/s, the median and the best of the repetitions: y = x w^T, dx = y w, dw = y^T x.
"""

import argparse
import statistics
import time

import torch

SHAPES = [(2048, 2304, 768), (2048, 768, 768), (2048, 3072, 768), (2048, 768, 3072), (256, 50257, 768)]


def rate(product, flops: int, repeat: int) -> str:
    product()
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        product()
        seconds.append(time.perf_counter() - start)
    return f"{flops / statistics.median(seconds) / 1e9:.0f} ({flops / min(seconds) / 1e9:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=12)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    torch.set_num_threads(options.threads)
    for rows, outs, width in SHAPES:
        x, w, y = (torch.randn(shape).to(dtype) for shape in [(rows, width), (outs, width), (rows, outs)])
        flops = 2 * rows * outs * width
        forward, to_x, to_w = torch.empty_like(y), torch.empty_like(x), torch.empty_like(w)
        rates = {
            "y": rate(lambda: torch.mm(x, w.t(), out=forward), flops, options.repeat),
            "dx": rate(lambda: torch.mm(y, w, out=to_x), flops, options.repeat),
            "dw": rate(lambda: torch.mm(y.t(), x, out=to_w), flops, options.repeat),
        }
        print(f"{rows}x{outs}x{width}", *(f"{name} {value}" for name, value in rates.items()))


if __name__ == "__main__":
    main()
