#!/usr/bin/env bash
# All that may go wrong with files and disks, in full: stops after every step, a hundred kills, a fault at
# every call, ten thousand flipped bits; and what a system may refuse. `.ci/run` takes samples of the same,
# and has every kind of fault at every call of one training step, and of saving and resuming. Prints what
# each test did.
#
#   benches/faults.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# As in the tests that `.ci/run` starts: sums that overflow are found.
full() { cargo test "$@" --nocapture --test-threads=1; }
full -p highwater --test it -- --ignored in_full
full -p highwater-cli --test it -- --ignored in_full
full -p highwater --test disk --
full -p highwater-cli --test folders --
full -p highwater-memory --test spill --
