#!/usr/bin/env bash
# The wheels that are released, into a folder (target/wheels): for Linux on x86_64 and aarch64, from glibc 2.17
# (manylinux2014) and Python 3.10 on. Each is checked; the one for this machine is installed and tried.
# Wants rustup, or both targets, and Python with `venv`; Zig, which links for both, comes from PyPI.
# Usage: crates/highwater-python/wheels.sh [FOLDER]
set -euo pipefail
out=$(realpath -m "${1:-$(dirname "$0")/../../target/wheels}")
cd "$(dirname "$0")"
python=${PYTHON:-python3}
targets=(x86_64 aarch64)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet 'maturin[zig]>=1.9,<2' 'auditwheel>=6.4' abi3audit twine
export PATH=$work/tools/bin:$PATH

fail() {
    echo "$1" >&2
    exit 1
}

check() { # WHEEL ARCHITECTURE
    local wheel=$1 architecture=$2 file
    twine check --strict "$wheel"
    # The library is for this architecture, and wants no symbol that is younger than its label.
    auditwheel show "$wheel" >"$work/shown"
    tr -s '\n' ' ' <"$work/shown" | grep -q "platform tag: \"manylinux_2_17_$architecture\"" || fail "$(cat "$work/shown")"
    abi3audit --strict --assume-minimum-abi3 3.10 "$wheel"
    python -m zipfile -l "$wheel" | sed 's/ .*//' >"$work/files"
    # All that is Python's, types included, and no more libraries than one.
    for file in $(cd python && git ls-files) highwater/_native.abi3.so; do
        grep -qx "$file" "$work/files" || fail "$wheel: no $file"
    done
    for file in METADATA entry_points.txt licenses/LICENSE-APACHE licenses/LICENSE-MIT; do
        grep -q "\.dist-info/$file\$" "$work/files" || fail "$wheel: no $file"
    done
    [ "$(grep -c '\.so$' "$work/files")" = 1 ] || fail "$wheel: more than one library"
}

try() { # WHEEL: its planner's tests, in an environment without PyTorch
    "$python" -m venv "$work/fresh"
    "$work/fresh/bin/pip" install --quiet "$1[test]"
    "$work/fresh/bin/python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is not None)'
    "$work/fresh/bin/pytest" -q tests/test_planner.py
}

mkdir -p "$out"
for architecture in "${targets[@]}"; do
    target=$architecture-unknown-linux-gnu
    rustup target add "$target" >/dev/null 2>&1 || true
    maturin build --release --locked --zig --target "$target" --compatibility manylinux2014 --out "$work/wheels"
    wheel=$(echo "$work"/wheels/*_"$architecture".whl)
    check "$wheel" "$architecture"
    [ "$architecture" != "$(uname -m)" ] || try "$wheel"
done
mv "$work"/wheels/*.whl "$out"
ls -l "$out"
