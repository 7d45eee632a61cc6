//! Tensors of indices or labels.

use crate::{KernelError, View};
use highwater_graph::{DType, Layout};

/// Storage position of the `flat`-th element, in row-major order, of some dimensions.
pub(crate) fn position(dims: &[usize], strides: &[usize], mut flat: usize) -> usize {
    let mut position = 0;
    for (&extent, &stride) in dims.iter().zip(strides).rev() {
        position += flat % extent * stride;
        flat /= extent;
    }
    position
}

/// The storage of a tensor of whole numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Integers<'a> {
    I64(&'a [i64]),
    U32(&'a [u32]),
}

impl<'a> Integers<'a> {
    /// The storage of a view.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] for another dtype than I64 and U32.
    pub(crate) fn of(view: &'a View<'_>) -> Result<Self, KernelError> {
        Ok(match view.spec().dtype {
            DType::U32 => Self::U32(view.storage()?),
            _ => Self::I64(view.storage()?),
        })
    }

    /// The number at a position.
    pub(crate) fn at(&self, position: usize) -> i64 {
        match self {
            Self::I64(data) => data[position],
            Self::U32(data) => i64::from(data[position]),
        }
    }
}

/// A tensor of indices or labels, as one list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Indices<'a> {
    integers: Integers<'a>,
    layout: &'a Layout,
}

impl<'a> Indices<'a> {
    /// The indices that a tensor holds.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] for another dtype than I64 and U32.
    pub(crate) fn of(view: &'a View<'_>) -> Result<Self, KernelError> {
        Ok(Self {
            integers: Integers::of(view)?,
            layout: view.layout(),
        })
    }

    /// Number of indices.
    pub(crate) fn len(&self) -> usize {
        self.layout.numel()
    }

    /// The `i`-th index.
    pub(crate) fn get(&self, i: usize) -> i64 {
        let layout = self.layout;
        let at = layout.offset() + position(layout.shape().dims(), layout.strides(), i);
        self.integers.at(at)
    }

    /// Checks that every index is below `below`, but for those equal to `ignored`; gives the
    /// number of the others.
    ///
    /// # Errors
    /// [`KernelError::IndexOutOfRange`] for the first that is not.
    pub(crate) fn check(&self, below: usize, ignored: Option<i64>) -> Result<usize, KernelError> {
        let mut count = 0;
        for position in 0..self.len() {
            let index = self.get(position);
            if Some(index) == ignored {
                continue;
            }
            if usize::try_from(index).map_or(true, |index| index >= below) {
                return Err(KernelError::IndexOutOfRange {
                    index,
                    position,
                    below,
                });
            }
            count += 1;
        }
        Ok(count)
    }
}
