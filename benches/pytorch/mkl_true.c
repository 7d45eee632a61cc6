/* Preloaded, makes MKL take its AVX-512 kernels on processors that aren't Intel's; README.md has how. */
int mkl_serv_intel_cpu_true(void) { return 1; }
