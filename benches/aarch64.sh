#!/usr/bin/env bash
# The tests of another processor: built for aarch64, run by qemu's user mode. Kernels take their NEON or plain
# forms there, and no `io_uring`. It takes some fifty times as long as here, so tests try a part of their
# samples: `benches/aarch64.sh`, or a part of it, `benches/aarch64.sh ops`.
#
# Wants the packages `gcc-aarch64-linux-gnu` and `qemu-user` (Debian's names), of qemu 8 or later: earlier ones
# keep a table of all pages that are reserved, tens of GiB. Debian 12 has it in its backports; `QEMU` may name a
# program that is elsewhere.
set -euo pipefail
target=aarch64-unknown-linux-gnu
export QEMU=${QEMU:-qemu-aarch64}
# Seconds that one test may take.
export LIMIT=${LIMIT:-3600}

emulated() { timeout "$LIMIT" nice "$QEMU" -L /usr/aarch64-linux-gnu "$@"; }

# A test, in a process of its own: what it takes, and what it says if it fails.
one() {
    local begin=$SECONDS told code=0
    told=$(emulated "$1" --exact "$2" --include-ignored 2>&1) || code=$?
    case $code in
    0) echo "ok $2 ($((SECONDS - begin)) s)" ;;
    124) echo "FAILED $2: over $LIMIT s" ;;
    *) printf '%s\nFAILED %s\n' "$told" "$2" ;;
    esac
    return $code
}

# The names of tests, in order.
names() { emulated "$@" --list --format terse | sed -n 's/: test$//p' | sort; }

# All tests of a program that are asked for: those that are ignored only with `--ignored`, as without this.
# Cargo calls this, in the folder that the tests want.
each() {
    case " $* " in
    *" --ignored "*) names "$@" ;;
    *) comm -23 <(names "$@") <(names "$@" --ignored) ;;
    esac | xargs -r -P "$(nproc)" -I{} "$0" one "$1" {}
}

case ${1:-all} in
one | each) "$@" && exit || exit ;;
esac

cd "$(dirname "$0")/.."
rustup target add $target >/dev/null
for tool in "$QEMU" aarch64-linux-gnu-gcc; do
    command -v "$tool" >/dev/null || {
        echo "$tool is missing: apt-get install qemu-user gcc-aarch64-linux-gnu" >&2
        exit 1
    }
done
version=$("$QEMU" --version | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
if [ "$version" -lt 8 ]; then
    echo "qemu $version takes tens of GiB for the address space of an engine: 8 or later is wanted" >&2
    exit 1
fi
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$PWD/benches/aarch64.sh each"
# Of samples, seeds and budgets one of so many is tried: an odd number, where kinds take turns.
export ONE_OF=${ONE_OF:-7} PROPTEST_CASES=4 CARGO_INCREMENTAL=0

run() { nice cargo test --no-fail-fast --target $target "$@"; }

ops() {
    # All kernels against their references, in all dtypes, and against PyTorch's answers.
    run -p highwater-ops --lib --test bits --test state --test fixtures
    # A part of the laws' samples, which all together take hours there.
    ONE_OF=20 run -p highwater-ops --test laws
}

engine() {
    # The same bits in every budget, for all that an engine does, in `f32` and in halves. Left out, here and below:
    # what starts its own program anew, which only the emulator can, or denies it system calls, which the emulator
    # needs; and what measures the whole process (tests `alloc`, `disk`, `host`), the emulator with it.
    run -p highwater --lib --test it --test optim --test table --test fuzz --test data -- \
        --skip refusals::address_space_may_be_short
}

rest() {
    # What is around the engine; models beside PyTorch's answers. Which pages are in memory the emulator does not tell.
    run -p highwater-graph -p highwater-plan -p highwater-data -p highwater-text -p highwater-models --tests
    run -p highwater-memory --lib -- --skip memory_in_use_never_exceeds_the_height
}

program() {
    # The program: the same model with much memory and with little. Its peak is that of the emulator too.
    nice cargo build --target $target -p highwater-cli
    local built=${CARGO_TARGET_DIR:-target}/$target/debug/highwater out precision memory
    out=$(mktemp -d)
    for precision in f32 bf16; do
        for memory in 1GiB 60MiB; do
            emulated "$built" train --steps 4 --held-out 0 --precision $precision --memory $memory --out "$out/$memory"
        done
        cmp "$out"/{1GiB,60MiB}/final/model.safetensors
        echo "ok program in $precision"
        rm -r "$out"/*
    done
    rmdir "$out"
}

case ${1:-all} in
all)
    ops
    engine
    rest
    program
    ;;
ops | engine | rest | program) "$1" ;;
*)
    echo "usage: $0 [ops|engine|rest|program|all]" >&2
    exit 2
    ;;
esac
