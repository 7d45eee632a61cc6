//! Extents that move down, on disks that fail in the middle.

use super::*;
use crate::spill::Moved;

/// Moves down by so many blocks, with a fault at one call; answers whether that came to pass.
fn moves(bytes: usize, blocks: u64, fault: Option<(usize, Fault, bool)>) -> bool {
    let (payload, capacity) = (payload(bytes), bytes as u64);
    let from = Extent {
        offset: (blocks + 1) * BLOCK as u64,
        capacity,
    };
    let to = Extent {
        offset: BLOCK as u64,
        capacity,
    };
    let footprint = Extent::footprint(capacity) as usize / BLOCK;
    let mut spill = Spill::new(Scripted::of(blocks as usize + footprint + 2), RUN);
    spill.write(from, TAG, &payload).unwrap();
    spill.disk.calls = Mutex::new(0);
    match fault {
        Some((call, fault, true)) => spill.disk.for_good = Some((call, fault)),
        Some((call, fault, false)) => _ = spill.disk.faults.insert(call, fault),
        None => {}
    }
    let mut moved = Moved::none(from.offset);
    let failed = spill.lower(TAG.cell, to, &mut moved);
    // From here on all goes well.
    (spill.disk.for_good, spill.disk.faults) = (None, BTreeMap::new());
    let mut read = vec![0; bytes];
    spill.read_moved(to, moved, TAG, &mut read).unwrap();
    assert_eq!(read, payload, "{fault:?}");
    if let Err(error) = &failed {
        assert!(matches!(error, SpillError::Transfer { .. }), "{error}");
        spill.lower(TAG.cell, to, &mut moved).unwrap();
    }
    read.fill(0);
    spill.read(to, TAG, &mut read).unwrap();
    assert_eq!(read, payload, "{fault:?}");
    failed.is_err()
}

#[test]
fn what_moves_is_there_whenever_the_disk_fails() {
    let mut sizes = vec![0, 1, BLOCK, 5 * BLOCK + 17, 150 * BLOCK + 3];
    let mut calls = vec![0, 1, 2, 3, 4, 5, 8, 9, 14, 15, 100, 101];
    let mut all_blocks = vec![1, 2, 3, 64, 200];
    if cfg!(miri) {
        (sizes, calls) = (vec![2 * BLOCK + 17], vec![0, 3]);
        all_blocks = vec![1];
    }
    for bytes in sizes {
        for &blocks in &all_blocks {
            assert!(!moves(bytes, blocks, None));
            let faults = [
                Fault::Error(ErrorKind::StorageFull),
                Fault::Error(ErrorKind::Other),
                Fault::Short(BLOCK),
                Fault::Short(100),
            ];
            for fault in faults {
                for for_good in [false, true] {
                    // Two calls for each step, of a block at least.
                    for &call in &calls {
                        moves(bytes, blocks, Some((call, fault, for_good)));
                    }
                }
            }
            let fault = Fault::Error(ErrorKind::Other);
            assert!(moves(bytes, blocks, Some((0, fault, false))));
            assert!(moves(bytes, blocks, Some((1, fault, true))));
        }
    }
}
