//! Counts the memory of each thread: what it holds, the most that it held, and its largest block.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is left to the system's allocator; memory is moved by the default `realloc`, so that
// old and new count together.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.get() + layout.size() as isize;
        LIVE.set(live);
        PEAK.set(PEAK.get().max(live));
        LARGEST.set(LARGEST.get().max(layout.size()));
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as isize);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What some work needed: its largest block, and the most that it held at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needed {
    pub(crate) largest: usize,
    pub(crate) peak: usize,
}

/// Does some work and says what it needed of this thread.
pub(crate) fn measure<T>(work: impl FnOnce() -> T) -> (T, Needed) {
    let before = LIVE.get();
    PEAK.set(before);
    LARGEST.set(0);
    let result = work();
    let peak = usize::try_from(PEAK.get() - before).unwrap_or(0);
    let largest = LARGEST.get();
    (result, Needed { largest, peak })
}

#[test]
fn the_counter_counts() {
    let ((), needed) = measure(|| {
        drop(std::hint::black_box(vec![1_u8; 3 << 20]));
        drop(std::hint::black_box(vec![1_u8; 1 << 20]));
    });
    assert_eq!((needed.largest, needed.peak), (3 << 20, 3 << 20));
    let (_, needed) = measure(|| std::hint::black_box([vec![1_u8; 1 << 20], vec![1; 2 << 20]]));
    assert_eq!((needed.largest, needed.peak), (2 << 20, 3 << 20));
}
