#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "an arena is reached by raw addresses")]

use super::*;
use crate::system::ScriptedSystem;

/// As the host has them.
const HUGE_PAGE: usize = 2 << 20;

const MIB: u64 = 1 << 20;

/// Writes to each page below the height.
fn touch(arena: &Arena) {
    for offset in (0..arena.height()).step_by(4096) {
        // SAFETY: the byte lies below the height, and only this thread uses the arena.
        unsafe { arena.address(offset, 1).unwrap().as_ptr().write(1) };
    }
}

/// Reads one byte.
fn byte(arena: &Arena, offset: u64) -> u8 {
    // SAFETY: the byte lies below the height, and only this thread uses the arena.
    unsafe { arena.address(offset, 1).unwrap().as_ptr().read() }
}

/// The arena's accessible addresses, relative to its base, from the system's own list.
fn accessible(arena: &Arena) -> Vec<Range<i64>> {
    let all = arena.addresses();
    let mut found: Vec<Range<i64>> = Vec::new();
    for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).unwrap());
        if to <= all.start || from >= all.end || rest.starts_with("---p") {
            continue;
        }
        assert!(rest.starts_with("rw-p"), "{line}");
        let base = arena.base().as_ptr().addr() as i64;
        let range = from as i64 - base..to as i64 - base;
        match found.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => found.push(range),
        }
    }
    found
}

/// The bytes that the arena has in huge pages.
fn huge_bytes(arena: &Arena) -> u64 {
    let (mut inside, mut bytes) = (false, 0);
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        if let Some((from, _)) = line.split_once('-')
            && let Ok(from) = usize::from_str_radix(from, 16)
        {
            inside = arena.addresses().contains(&from);
        } else if let Some(kilobytes) = line.strip_prefix("AnonHugePages:").filter(|_| inside) {
            bytes += crate::process::parse_kilobytes(kilobytes).unwrap();
        }
    }
    bytes
}

#[test]
fn exactly_the_height_is_accessible_between_guards() {
    let arena = Arena::reserve(64 * MIB).unwrap();
    let page = arena.round_up(1);
    assert_eq!(arena.base().as_ptr().addr() % HUGE_PAGE, 0);
    let (base, all) = (arena.base().as_ptr().addr(), arena.addresses());
    assert!(all.start + page as usize <= base);
    assert!(base + (64 * MIB + page) as usize <= all.end);
    for height in [
        1,
        5 * MIB + 1,
        64 * MIB,
        2 * MIB,
        0,
        3 * MIB - 1,
        page,
        page + 1,
    ] {
        arena.set_height(height).unwrap();
        assert_eq!(arena.height(), height);
        assert_eq!(arena.mapped_bytes(), height.next_multiple_of(page));
        let expected = (height > 0).then(|| 0..arena.mapped_bytes() as i64);
        assert_eq!(accessible(&arena), Vec::from_iter(expected));
    }
}

#[test]
fn memory_in_use_never_exceeds_the_height() {
    let arena = Arena::reserve(64 * MIB).unwrap();
    assert_eq!(arena.resident_bytes().unwrap(), 0);
    for height in [
        1,
        2 * MIB + 4097,
        64 * MIB,
        33 * MIB + 5,
        31 * MIB,
        4096,
        62 * MIB + 1,
        0,
    ] {
        arena.set_height(height).unwrap();
        assert!(arena.resident_bytes().unwrap() <= arena.mapped_bytes());
        touch(&arena);
        assert_eq!(
            arena.resident_bytes().unwrap(),
            arena.mapped_bytes(),
            "{height}"
        );
    }
}

#[test]
fn what_is_below_the_new_height_stays_and_what_was_above_is_gone() {
    let arena = Arena::reserve(16 * MIB).unwrap();
    arena.set_height(16 * MIB).unwrap();
    touch(&arena);
    arena.set_height(5 * MIB + 100).unwrap();
    arena.set_height(16 * MIB).unwrap();
    for offset in (0..16 * MIB).step_by(4096) {
        assert_eq!(
            byte(&arena, offset),
            u8::from(offset < 5 * MIB + 100),
            "{offset}"
        );
    }
}

#[test]
fn huge_pages_are_used_and_split_for_good_when_lowered_in_the_middle() {
    let arena = Arena::reserve(32 * MIB).unwrap();
    arena.set_height(32 * MIB).unwrap();
    touch(&arena);
    if huge_bytes(&arena) < 32 * MIB {
        return; // No huge pages on this system, or none free.
    }
    let splits = || {
        let counters = std::fs::read_to_string("/proc/vmstat").unwrap();
        let field = counters
            .lines()
            .find_map(|line| line.strip_prefix("thp_split_page "));
        field.unwrap().parse::<u64>().unwrap()
    };
    let before = splits();
    arena.set_height(17 * MIB).unwrap();
    assert!(splits() > before);
    assert_eq!(huge_bytes(&arena), 16 * MIB);
    assert_eq!(arena.resident_bytes().unwrap(), 17 * MIB);
}

#[test]
fn addresses_are_bounds_checked() {
    let arena = Arena::reserve(MIB).unwrap();
    arena.set_height(1000).unwrap();
    assert_eq!(arena.address(0, 1000).unwrap(), arena.base());
    assert_eq!(
        arena.address(1000, 0).unwrap().as_ptr().addr(),
        arena.base().as_ptr().addr() + 1000
    );
    for (offset, len) in [
        (0, 1001),
        (1000, 1),
        (1001, 0),
        (u64::MAX, 2),
        (8, u64::MAX),
    ] {
        let error = arena.address(offset, len).unwrap_err();
        assert!(
            matches!(error, ArenaError::OutOfBounds { height: 1000, .. }),
            "{error}"
        );
    }
}

#[test]
fn refusals_are_typed_and_change_nothing() {
    for bytes in [u64::MAX, u64::MAX - 4096, 1 << 62] {
        assert!(matches!(
            Arena::reserve(bytes),
            Err(ArenaError::Reserve { .. })
        ));
    }
    let arena = Arena::reserve(10_000).unwrap();
    arena.set_height(10_000).unwrap();
    let error = arena.set_height(10_001).unwrap_err();
    assert!(matches!(
        error,
        ArenaError::Height {
            asked: 10_001,
            capacity: 10_000
        }
    ));
    assert_eq!(arena.height(), 10_000);
    let empty = Arena::reserve(0).unwrap();
    empty.set_height(0).unwrap();
    assert!(empty.address(0, 0).is_ok() && empty.address(0, 1).is_err());
}

#[test]
fn a_refusal_leaves_nothing_below_the_height_that_cannot_be_used() {
    for refused in 1..8 {
        for persistent in [false, true] {
            let system = ScriptedSystem::refusing(refused, persistent);
            let arena = Arena::reserve_on(&system, 8 * MIB).unwrap();
            for height in [3 * MIB, MIB, 5 * MIB, 2 * MIB, 0, MIB] {
                if let Err(error) = arena.set_height(height) {
                    assert!(matches!(error, ArenaError::Change { .. }), "{error}");
                } else {
                    assert_eq!(arena.height(), height);
                }
                touch(&arena);
            }
        }
    }
}

#[test]
fn an_arena_can_be_shared_between_threads() {
    let arena = Arena::reserve(8 * MIB).unwrap();
    arena.set_height(8 * MIB).unwrap();
    std::thread::scope(|scope| {
        for part in 0..8 {
            let arena = &arena;
            scope.spawn(move || {
                let own = arena.address(part * MIB, MIB).unwrap().as_ptr();
                // SAFETY: the range lies below the height, and no other thread uses it.
                unsafe { own.write_bytes(part as u8, 1 << 20) };
            });
        }
    });
    assert!((0..8).all(|part| byte(&arena, part * MIB + 77) == part as u8));
}
