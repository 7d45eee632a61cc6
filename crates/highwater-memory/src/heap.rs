//! The heap of the process.

#![expect(unsafe_code, reason = "the C library's own call")]

/// Gives pages of the heap that nobody uses back to the system, where the allocator has a call for
/// that. Worth it after something that took much memory for a short time.
pub fn release_unused() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: takes a number and touches only the allocator's own books, under its own locks.
        let _ = unsafe { malloc_trim(0) };
    }
}

/// Has every block of at least a mebibyte mapped by itself and given back when it is freed, where the
/// allocator has a call for that. Otherwise the C library learns from large blocks to keep them, and
/// the heap of each thread grows by tens of mebibytes that nobody planned.
pub fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// glibc's number of the setting.
        const M_MMAP_THRESHOLD: i32 = -3;
        unsafe extern "C" {
            fn mallopt(param: i32, value: i32) -> i32;
        }
        // SAFETY: takes two numbers and touches only the allocator's own settings.
        let _ = unsafe { mallopt(M_MMAP_THRESHOLD, 1 << 20) };
    }
}
