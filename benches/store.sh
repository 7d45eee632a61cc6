#!/usr/bin/env bash
# Compares sequential spill and fetch of the spill store with fio on the same disk: direct, requests of
# 1 MiB, 16 under way, extents of 64 MiB, memory in huge pages where there are some. In turn, so that
# what else the machine does meets both; fio writes its file once before, as the store does.
#
#   benches/store.sh [DIR (a new folder below the current one)] [ROUNDS (3)] [GiB (4)] [BACKEND (auto)]
set -euo pipefail
dir=${1:-}
rounds=${2:-3}
gib=${3:-4}
backend=${4:-auto}
command -v fio >/dev/null || { echo "needs fio: apt-get install fio"; exit 1; }
repository=$(dirname "$0")/..
(cd "$repository" && cargo build --quiet --release -p highwater-memory --example store)
store=$(cd "$repository" && cargo metadata --format-version 1 --no-deps | python3 -c \
    'import json, sys; print(json.load(sys.stdin)["target_directory"])')/release/examples/store
work=$(mktemp -d "${dir:-.}/store.XXXXXX")
trap 'rm -rf "$work"' EXIT

# fio's buffers come from malloc: huge pages for it, as the engine's arenas ask for them.
measure_fio() { # write or read; MB/s
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=store --filename="$work/file" \
        --size="${gib}g" --bs=1m --iodepth=16 --ioengine=io_uring --direct=1 --mem=malloc \
        --rw="$1" --output-format=json | python3 -c 'import json, sys
job = json.load(sys.stdin)["jobs"][0]
print(round(job[sys.argv[1]]["bw_bytes"] / 1e6))' "$1"
}

measure_fio write >/dev/null
for round in $(seq "$rounds"); do
    spilled=$("$store" "$work" 64MiB "${gib}GiB" "$backend")
    written=$(measure_fio write)
    read=$(measure_fio read)
    python3 - "$round" "$spilled" "$written" "$read" <<'PYTHON'
import re, sys
number, text, written, read = sys.argv[1:]
backend = text.split(":")[0]
spill, first, fetch = map(int, re.search(
    r"spill (\d+) MB/s \(first time (\d+)\), fetch (\d+)", text).groups())
written, read = int(written), int(read)
print(f"round {number}, {backend}: spill {spill} (first time {first}), fio {written}, "
      f"ratio {spill / written:.2f}; fetch {fetch}, fio {read}, ratio {fetch / read:.2f} (MB/s)")
PYTHON
done
