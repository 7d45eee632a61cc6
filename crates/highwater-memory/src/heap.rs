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
