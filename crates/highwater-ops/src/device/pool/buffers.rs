//! Memory for the packed operands of matrix products.

use crate::device::error::PoolError;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Elements of a buffer for a block of rows and its sums, for the panels of a product on one thread, or for a
/// part of a factor that is decoded.
pub(crate) const SMALL: usize = 256 * 384;
/// Elements of a buffer for the panels that all threads read.
pub(crate) const LARGE: usize = 1024 * 384;

/// A cache line, so that no vector lies across two.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Buffers for packed operands. There are as many as were ever needed at once, and they stay; each
/// is taken for one product or task.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// For a block of rows, or for the panels of a product on one thread.
    small: Mutex<Vec<Vec<Line>>>,
    /// For the panels that all threads read.
    large: Mutex<Vec<Vec<Line>>>,
}

impl Buffers {
    pub(crate) fn small(&self) -> Buffer<'_> {
        Buffer::take(&self.small, SMALL)
    }

    pub(crate) fn large(&self) -> Buffer<'_> {
        Buffer::take(&self.large, LARGE)
    }

    /// Makes all that kernels on a number of threads can ever need at once: a product on all
    /// threads has two sets of panels and a block of rows for each thread, a product on one thread
    /// has two sets of panels and a block of rows.
    ///
    /// # Errors
    /// [`PoolError::Buffers`] where there is no memory for them.
    pub(crate) fn make_all(&self, threads: usize) -> Result<(), PoolError> {
        let homes = [&self.large, &self.small];
        for (home, (count, len)) in homes.into_iter().zip(Self::all(threads)) {
            let mut free = home.lock().unwrap_or_else(PoisonError::into_inner);
            while free.len() < count {
                let mut data = Vec::new();
                let lines = len.div_ceil(16);
                let bytes = lines * size_of::<Line>();
                let refused = |_| PoolError::Buffers { bytes, threads };
                data.try_reserve_exact(lines).map_err(refused)?;
                data.resize(lines, Line([0.0; 16]));
                free.push(data);
            }
        }
        Ok(())
    }

    /// Bytes of all that [`Buffers::make_all`] makes.
    pub(crate) fn all_bytes(threads: usize) -> u64 {
        let bytes = |(count, len): (usize, usize)| (count * len * size_of::<f32>()) as u64;
        Self::all(threads).map(bytes).iter().sum()
    }

    /// How many large ones, and small ones, of which length.
    fn all(threads: usize) -> [(usize, usize); 2] {
        [(2, LARGE), (3 * threads, SMALL)]
    }
}

/// A buffer, until it is dropped. Holds whatever lay there before.
#[derive(Debug)]
pub(crate) struct Buffer<'a> {
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
