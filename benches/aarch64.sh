#!/usr/bin/env bash
# The tests of another processor: built for aarch64, run by qemu's user mode. Kernels take their NEON or plain
# forms there, and no `io_uring`. Slow, so in a bounded form: `benches/aarch64.sh`, or `benches/aarch64.sh ops`.
# Wants the packages `qemu-user` and `gcc-aarch64-linux-gnu` (Debian's names).
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
rustup target add $target >/dev/null
for tool in qemu-aarch64 aarch64-linux-gnu-gcc; do
    command -v $tool >/dev/null || {
        echo "$tool is missing: apt-get install qemu-user gcc-aarch64-linux-gnu" >&2
        exit 1
    }
done
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
export PROPTEST_CASES=4 CARGO_INCREMENTAL=0

run() { nice cargo test --target $target "$@"; }

ops() {
    # All kernels against their references, in all dtypes, and against PyTorch's answers.
    run -p highwater-ops --lib --test bits --test state --test fixtures
    # A part of the laws' samples, which all together take hours there.
    run -p highwater-ops --test laws -- --ignored
}

engine() {
    # The same bits in every budget; GPT-2 beside PyTorch.
    run -p highwater --test it -- budget halves
    run -p highwater-models --test oracle
}

case ${1:-all} in
all)
    ops
    engine
    ;;
ops | engine) "$1" ;;
*)
    echo "usage: $0 [ops|engine|all]" >&2
    exit 2
    ;;
esac
