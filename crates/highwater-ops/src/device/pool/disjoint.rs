//! A slice that threads write at once.

#![expect(unsafe_code, reason = "threads write disjoint parts of one slice")]

use std::marker::PhantomData;

/// A slice that several tasks write at once, each its own part.
#[derive(Debug)]
pub struct Disjoint<'a, T> {
    data: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are handed out by `part`, whose contract is that they do not overlap.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above; `shared` asks that elements may be seen by several threads.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Shares a slice.
    pub fn new(data: &'a mut [T]) -> Self {
        Self {
            data: data.as_mut_ptr(),
            len: data.len(),
            memory: PhantomData,
        }
    }

    /// The part from `start` of `len` elements.
    ///
    /// # Panics
    /// If it ends behind the slice.
    ///
    /// # Safety
    /// No other part that is alive may overlap it.
    pub unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(
            start <= self.len && len <= self.len - start,
            "a part must end inside the slice"
        );
        // SAFETY: in bounds by the assertion, unaliased by the caller's contract.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }

    /// The part from `start` of `len` elements, to read.
    ///
    /// # Panics
    /// If it ends behind the slice.
    ///
    /// # Safety
    /// No part to write that is alive may overlap it.
    pub unsafe fn shared(&self, start: usize, len: usize) -> &'a [T]
    where
        T: Sync,
    {
        assert!(
            start <= self.len && len <= self.len - start,
            "a part must end inside the slice"
        );
        // SAFETY: in bounds by the assertion, not written by the caller's contract.
        unsafe { std::slice::from_raw_parts(self.data.add(start), len) }
    }
}
