//! Indices along a dimension, read a few at a time and checked on the way.

use crate::kernels::indices::Indices;
use crate::kernels::lines::Lines;
use crate::kernels::strided::{Runs, gather_runs, runs};
use crate::{KernelError, View};
use highwater_graph::DType;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Indices that are read at a time.
const PIECE: usize = 64;

/// Indices in the row-major order of their shape, some at a time, checked as they are read.
pub(crate) struct Places<'a> {
    view: &'a View<'a>,
    wide: Option<&'a [i64]>,
    narrow: &'a [u32],
    offset: usize,
    runs: Runs,
    /// Whether an index stands for all columns behind the dimension.
    pub(crate) repeated: bool,
    below: usize,
    /// The first that is out of range.
    wrong: AtomicUsize,
}

impl<'a> Places<'a> {
    /// Of a tensor of indices below `below`, along a dimension.
    pub(crate) fn new(view: &'a View<'a>, dim: usize, below: usize) -> Result<Self, KernelError> {
        let layout = view.layout();
        let is_wide = view.spec().dtype == DType::I64;
        let behind = layout.shape().iter().zip(layout.strides()).skip(dim + 1);
        let mut behind = behind.filter(|&(&extent, _)| extent > 1).peekable();
        Ok(Self {
            view,
            wide: is_wide.then(|| view.storage()).transpose()?,
            narrow: if is_wide { &[] } else { view.storage()? },
            offset: layout.offset(),
            runs: runs(layout),
            repeated: behind.peek().is_some() && behind.all(|(_, &stride)| stride == 0),
            below,
            wrong: AtomicUsize::new(usize::MAX),
        })
    }

    /// Reads indices from the `start`-th on. What is out of range is noted, and is 0.
    pub(crate) fn read(&self, start: usize, to: &mut [usize]) {
        match self.wide {
            Some(storage) => self.read_from(storage, start, to),
            None => self.read_from(self.narrow, start, to),
        }
    }

    fn read_from<N: bytemuck::Pod + Into<i64>>(
        &self,
        storage: &[N],
        start: usize,
        to: &mut [usize],
    ) {
        let mut buffer = [N::zeroed(); PIECE];
        for (piece, to) in to.chunks_mut(PIECE).enumerate() {
            let (start, numbers) = (start + piece * PIECE, &mut buffer[..to.len()]);
            gather_runs(storage, self.offset, &self.runs, start, numbers);
            for (i, (to, &number)) in to.iter_mut().zip(&*numbers).enumerate() {
                let index: i64 = number.into();
                *to = index as usize;
                if index as u64 >= self.below as u64 {
                    self.wrong.fetch_min(start + i, Ordering::Relaxed);
                    *to = 0;
                }
            }
        }
    }

    /// The one index for a whole row of columns.
    pub(crate) fn one(&self, start: usize) -> usize {
        let mut one = [0];
        self.read(start, &mut one);
        one[0]
    }

    /// Whether all that were read are in range.
    pub(crate) fn verdict(&self, lines: Lines) -> Result<(), KernelError> {
        let flat = self.wrong.load(Ordering::Relaxed);
        if flat == usize::MAX {
            return Ok(());
        }
        Err(KernelError::IndexOutOfRange {
            index: Indices::of(self.view)?.get(flat),
            // Among the indices that are different ones.
            position: if self.repeated {
                flat / lines.inner
            } else {
                flat
            },
            below: self.below,
        })
    }
}

/// Checks that indices are in range, for the plain references.
pub(crate) fn check(indices: &View<'_>, below: usize) -> Result<(), KernelError> {
    Indices::of(indices)?.check(below, None).map(|_| ())
}
