//! The peak of a real process. The only test in its process: others' memory would count.
#![cfg(target_os = "linux")]

use highwater_memory::{Usage, process};

#[test]
fn the_peak_rises_and_starts_anew() {
    const SIZE: u64 = 64 << 20;
    let before = Usage::read().unwrap();
    drop(std::hint::black_box(vec![1_u8; SIZE as usize]));
    let after = Usage::read().unwrap();
    assert!(
        after.peak >= before.resident + SIZE - (4 << 20),
        "{before:?} {after:?}"
    );
    // Some containers do not permit it.
    if process::reset_peak().is_ok() {
        let anew = Usage::read().unwrap();
        assert!(anew.peak <= anew.resident + (4 << 20), "{anew:?}");
    }
}
