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

/// Keeps the heap no larger than what is in use, where the allocator has calls for that. Every block of
/// at least a mebibyte is mapped by itself and given back when it is freed; and all threads share one heap.
/// Otherwise the C library learns from large blocks to keep them, and each thread has a heap that grows by
/// mebibytes that nobody planned and others cannot use. Kernels allocate nothing, so that no speed is lost.
pub fn keep_small() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// glibc's numbers of the settings.
        const M_MMAP_THRESHOLD: i32 = -3;
        const M_ARENA_MAX: i32 = -8;
        unsafe extern "C" {
            fn mallopt(param: i32, value: i32) -> i32;
        }
        for (setting, value) in [(M_MMAP_THRESHOLD, 1 << 20), (M_ARENA_MAX, 1)] {
            // SAFETY: takes two numbers and touches only the allocator's own settings.
            let _ = unsafe { mallopt(setting, value) };
        }
    }
}
