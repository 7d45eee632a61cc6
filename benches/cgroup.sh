#!/usr/bin/env bash
# Trains GPT-2 (124 M parameters) at batch 4 x 512, or another preset (MODEL, BATCH, SEQ), with a budget,
# inside a memory cgroup of exactly that size without swap, and shows that the limit was never hit:
# failcnt (cgroup v1) or the "max" and "oom" events (v2) must be 0, and the page cache at most 16 MiB.
# The budget may be `floor`: the least that `plan` tells. Then asks for one MiB under that, which must be
# refused with exit code 3. PROGRAM is what is run, if no release is to be built. Where no cgroup can be made, which
# takes root, the largest resident set must be at most the budget, files that are mapped included.
#
#   [MODEL=gpt2] [BATCH=4] [SEQ=512] benches/cgroup.sh [MEMORY (3GiB)] [STEPS (3)] [more flags of `train`]
set -euo pipefail
cd "$(dirname "$0")/.."
memory=${1:-3GiB}
steps=${2:-3}
shift $(($# < 2 ? $# : 2))

highwater=${PROGRAM:-}
if [ -z "$highwater" ]; then
    cargo build --release
    highwater=$(cargo metadata --format-version 1 --no-deps | python3 -c \
        'import json, sys; print(json.load(sys.stdin)["target_directory"])')/release/highwater
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/highwater.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Bytes, which are tokens of every preset.
python3 -c 'import random, struct, sys
random.seed(1)
sys.stdout.buffer.write(b"".join(struct.pack("<H", random.randrange(256)) for _ in range(65536)))' \
    >"$work/tokens.bin"
flags=(--model "${MODEL:-gpt2}" --data "$work/tokens.bin" --batch "${BATCH:-4}" --seq "${SEQ:-512}" --lr 1e-4 "$@")
# What does not fit is told as well.
told=$("$highwater" plan "${flags[@]}" --memory "${memory/floor/64GiB}" --json || [ $? = 3 ])
figure() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1" <<<"$told"; }
floor=$(figure floor_bytes)
bytes=$(figure budget_bytes)
if [ "$memory" = floor ]; then
    # A cgroup counts whole pages.
    bytes=$(((floor + 4095) / 4096 * 4096))
    memory=$bytes
fi

refused() { # one MiB less than the floor must be
    local under=$((floor - (1 << 20))) code=0
    "$highwater" train "${flags[@]}" --memory "$under" --steps 1 --out "$work/under" || code=$?
    echo "floor $floor; one MiB under it: exit code $code"
    [ $code = 3 ] || { echo "FAILED: expected exit code 3"; exit 1; }
    echo "passed"
}

train=("$highwater" train "${flags[@]}" --memory "$memory" --steps "$steps" --out "$work/run")
groups=/sys/fs/cgroup version=2 limit=memory.max
[ -f $groups/cgroup.controllers ] || groups=$groups/memory version=1 limit=memory.limit_in_bytes
group=$groups/highwater-$$
if mkdir "$group" 2>/dev/null; then
    trap 'rmdir "$group"; rm -rf "$work"' EXIT
else
    group=
fi
if [ -z "$group" ] || ! echo "$bytes" 2>/dev/null >"$group/$limit"; then
    echo "no cgroup with a limit can be made here: the resident set is measured"
    python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[2:], check=True)
limit, peak = int(sys.argv[1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(f"limit {limit}, resident set at most {peak}")
sys.exit("FAILED: over the limit" if peak > limit else 0)' "$bytes" "${train[@]}"
    refused
    exit
fi
if [ $version = 2 ]; then
    echo 0 >"$group/memory.swap.max" 2>/dev/null || true
else
    echo "$bytes" >"$group/memory.memsw.limit_in_bytes" 2>/dev/null || true
    echo 0 >"$group/memory.swappiness" 2>/dev/null || true
fi

cache_bytes() { # the group's page cache now
    if [ $version = 2 ]; then
        awk '$1 == "file" {print $2}' "$group/memory.stat"
    else
        awk '$1 == "total_cache" {print $2}' "$group/memory.stat"
    fi
}

# The child enters the group before it becomes the program, so that every page counts.
sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$group" "${train[@]}" &
child=$!
cache_max=0
while kill -0 $child 2>/dev/null; do
    cache=$(cache_bytes)
    cache_max=$((cache > cache_max ? cache : cache_max))
    sleep 0.05
done
wait $child

if [ $version = 2 ]; then
    hits=$(awk '$1 == "max" || $1 == "oom" {n += $2} END {print n + 0}' "$group/memory.events")
    peak=$(cat "$group/memory.peak" 2>/dev/null || echo unknown)
else
    hits=$(cat "$group/memory.failcnt")
    peak=$(cat "$group/memory.max_usage_in_bytes")
fi
echo "limit $bytes, peak $peak, limit hit $hits times, page cache at most $cache_max"
[ "$hits" = 0 ] || { echo "FAILED: the limit was hit"; exit 1; }
[ "$cache_max" -le $((16 << 20)) ] || { echo "FAILED: over 16 MiB of page cache"; exit 1; }

refused
