//! Memory for packed operands.

use super::product::{BLOCK, COLS, DEPTH};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// A cache line, so that no vector lies across two.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Buffers for packed operands. There are as many as were ever needed at once, one of each kind
/// for each thread at most, and they stay; each is taken for one piece of work.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    left: Mutex<Vec<Vec<Line>>>,
    right: Mutex<Vec<Vec<Line>>>,
}

impl Buffers {
    /// A buffer for a block of rows of a left factor.
    pub(super) fn left(&self) -> Buffer<'_> {
        Buffer::take(&self.left, BLOCK)
    }

    /// A buffer for panels of a right factor.
    pub(super) fn right(&self) -> Buffer<'_> {
        Buffer::take(&self.right, COLS * DEPTH)
    }
}

/// A buffer, until it is dropped. Holds whatever lay there before.
#[derive(Debug)]
pub(super) struct Buffer<'a> {
    data: Vec<Line>,
    home: &'a Mutex<Vec<Vec<Line>>>,
}

impl<'a> Buffer<'a> {
    fn take(home: &'a Mutex<Vec<Vec<Line>>>, len: usize) -> Self {
        let free = home.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let data = free.unwrap_or_else(|| vec![Line([0.0; 16]); len.div_ceil(16)]);
        Self { data, home }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let data = std::mem::take(&mut self.data);
        let mut free = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(data);
    }
}

impl Deref for Buffer<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(&self.data)
    }
}

impl DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.data)
    }
}
