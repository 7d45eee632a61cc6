#!/usr/bin/env bash
# The protocols between threads in every order that they can take, by loom: the pool's (a caller, a lead,
# helpers) and the board's (kernels beside transfers). Some ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
# A build of its own, without the kernels' optimizations.
export CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}/loom") RUSTFLAGS="--cfg loom"
# In a copy: nothing else needs loom, so it is not among what everybody's build locks.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 cp --parents --no-dereference --target-directory "$copy"
cd "$copy"
for package in highwater-ops highwater; do
    cargo add --quiet --dev --package $package loom@0.7.2
done
plain=(--config profile.dev.opt-level=1 --config 'profile.dev.package.highwater-ops.opt-level=0')
cargo test "${plain[@]}" -p highwater-ops --lib -- pool::team::model
cargo test "${plain[@]}" -p highwater --lib -- run::board::model
