#!/usr/bin/env bash
# The protocols between threads in every order that they can take, by loom: the pool's (a caller, a lead,
# helpers) and the board's (kernels beside transfers). Some ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom"
# A build of its own, without the kernels' optimizations.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/loom
plain=(--config profile.dev.opt-level=1 --config 'profile.dev.package.highwater-ops.opt-level=0')
cargo test "${plain[@]}" -p highwater-ops --lib -- pool::team::model
cargo test "${plain[@]}" -p highwater --lib -- run::board::model
