#![expect(unsafe_code, reason = "bytes are copied here")]

use super::*;

#[test]
fn what_is_copied_in_comes_out_and_what_was_unmapped_is_zeros() {
    let system = HostSystem;
    let page = system.page_bytes();
    let memory = system.reserve(8 * page).unwrap();
    memory.map(page..4 * page).unwrap();
    let mut read = vec![7; 300];
    // SAFETY: mapped above, and only this thread uses it.
    unsafe { memory.copy_out(page, &mut read).unwrap() };
    assert!(read.iter().all(|&byte| byte == 0));
    let bytes: Vec<u8> = (0..=255).collect();
    for at in [page, 2 * page - 100, 4 * page - 256] {
        // SAFETY: as above.
        unsafe { memory.copy_in(at, &bytes).unwrap() };
        // SAFETY: as above.
        unsafe { memory.copy_out(at, &mut read[..256]).unwrap() };
        assert_eq!(read[..256], bytes);
    }
    memory.unmap(2 * page..3 * page).unwrap();
    memory.map(2 * page..3 * page).unwrap();
    // SAFETY: as above.
    unsafe { memory.copy_out(2 * page, &mut read).unwrap() };
    assert!(read.iter().all(|&byte| byte == 0));
    // SAFETY: as above.
    unsafe { memory.copy_out(4 * page - 256, &mut read[..256]).unwrap() };
    assert_eq!(read[..256], bytes);
}

#[test]
fn a_script_refuses_its_call_alone_or_with_all_that_follow() {
    for persistent in [false, true] {
        let system = ScriptedSystem::refusing(2, persistent);
        let memory = system.reserve(1 << 20).unwrap();
        memory.map(0..1 << 16).unwrap();
        assert!(memory.map(1 << 16..1 << 17).is_err());
        assert_eq!(system.admit_thread().is_err(), persistent);
        assert_eq!(memory.unmap(0..1 << 16).is_err(), persistent);
        assert_eq!(system.calls(), 5);
    }
}
