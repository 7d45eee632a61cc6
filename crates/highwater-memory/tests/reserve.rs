//! What a real process costs beside its arenas. The only test in its process: others' memory would
//! count.
#![cfg(target_os = "linux")]

use highwater_memory::{Arena, Reserve};

#[test]
#[expect(unsafe_code, reason = "an arena is reached by raw addresses")]
fn an_arena_does_not_count() {
    const SIZE: u64 = 64 << 20;
    let arena = Arena::reserve(SIZE).unwrap();
    arena.set_height(SIZE).unwrap();
    let before = Reserve::measure(&[&arena]).unwrap();
    // SAFETY: the bytes lie below the height, and only this thread uses the arena.
    unsafe {
        arena
            .address(0, SIZE)
            .unwrap()
            .as_ptr()
            .write_bytes(1, SIZE as usize);
    };
    let after = Reserve::measure(&[&arena]).unwrap();
    assert!(
        before.code > 0 && before.heap > 0 && before.total() < 64 << 20,
        "{before:?}"
    );
    assert!(
        after.total() < before.total() + (4 << 20),
        "{before:?} {after:?}"
    );
    let everything = Reserve::measure(&[]).unwrap().total();
    assert!(
        everything >= after.total() + SIZE - (4 << 20),
        "{everything}"
    );
}
