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

    touch_code();
    let whole = Reserve::measure(&[&arena]).unwrap();
    let settled = Reserve::measure_settled(&[&arena], 2).unwrap();
    let now = Reserve::measure(&[&arena]).unwrap();
    assert!(settled.code < whole.code, "{whole:?} {settled:?}");
    assert!(now.code < whole.code, "{whole:?} {now:?}");
}

/// Reads each page of the program's own file that is mapped.
#[expect(unsafe_code, reason = "pages are reached by address")]
fn touch_code() {
    let program = std::env::current_exe().expect("a program");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
    for line in maps
        .lines()
        .filter(|line| line.ends_with(program.to_str().expect("UTF-8")))
    {
        let (from, to) = line
            .split_once(' ')
            .expect("fields")
            .0
            .split_once('-')
            .expect("addresses");
        let address = |text| usize::from_str_radix(text, 16).expect("an address");
        for page in (address(from)..address(to)).step_by(4096) {
            // SAFETY: mapped, and readable as all of a program's file is.
            unsafe { std::ptr::with_exposed_provenance::<u8>(page).read_volatile() };
        }
    }
}
