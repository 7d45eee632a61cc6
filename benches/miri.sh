#!/usr/bin/env bash
# Undefined behaviour looked for by Miri: what holds memory by address, and what decodes bytes of others.
# Mappings are memory of the heap there (highwater-memory/src/system/host/heap.rs), rings of the kernel and
# real files are left out. Takes some ten minutes: `benches/miri.sh`, or `benches/miri.sh memory`.
set -euo pipefail
cd "$(dirname "$0")/.."
toolchain=${TOOLCHAIN:-nightly}
rustup component add miri rust-src --toolchain "$toolchain" >/dev/null
# A build of its own: Miri's is for another machine.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/miri
export MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-disable-isolation"
export PROPTEST_CASES=4 RUST_BACKTRACE=0

miri() {
    local crate=$1
    shift
    echo "miri: $crate: $*"
    cargo +"$toolchain" miri test -p "$crate" --lib -- "$@"
}

memory() {
    # The memory beneath arenas, arenas, slots, rooms; headers, hashes, whole payloads of what is on disk, and
    # manifests.
    miri highwater-memory system:: places:: slots:: rooms::tests::address_space_ends \
        arena::tests::addresses arena::tests::a_refusal arena::tests::refusals arena::tests::an_arena_can \
        spill::header spill::hash spill::tests::extents_of_others spill::tests::moves saved::manifest
}

graph() {
    miri highwater-graph layout
}

ops() {
    # Views, the pool and its slices, and the pointwise path without vectors of the processor.
    miri highwater-ops pool:: kernel:: blocks:: strided::
}

case ${1:-all} in
all)
    memory
    graph
    ops
    ;;
memory | graph | ops) "$1" ;;
*)
    echo "usage: $0 [memory|graph|ops|all]" >&2
    exit 2
    ;;
esac
