//! Tensors `[B, H, T, D]` in any layout, read and written in rows of `D`.

#![expect(unsafe_code, reason = "tasks write disjoint rows of one output")]

use crate::float::Float;
use crate::{Disjoint, KernelError, View};
use highwater_graph::Layout;
use std::ops::Range;

/// Queries or keys that are worked on at once.
pub(super) const BLOCK: usize = 64;

/// The least multiple of 16 that is not less.
pub(super) const fn padded(n: usize) -> usize {
    n.next_multiple_of(16)
}

/// Batch and head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head(pub(super) usize, pub(super) usize);

/// Positions of rows in a storage.
#[derive(Debug, Clone, Copy)]
struct Positions {
    offset: usize,
    strides: [usize; 4],
    width: usize,
}

impl Positions {
    /// Of rank 4, or of rank 3 for rows of one number.
    fn new(layout: &Layout) -> Self {
        let mut strides = [0; 4];
        for (to, &stride) in strides.iter_mut().zip(layout.strides()) {
            *to = stride;
        }
        Self {
            offset: layout.offset(),
            strides,
            width: layout.shape().get(3).copied().unwrap_or(1),
        }
    }

    fn row(&self, Head(b, h): Head, t: usize) -> usize {
        let [sb, sh, st, _] = self.strides;
        self.offset + b * sb + h * sh + t * st
    }
}

/// A tensor to read.
#[derive(Debug)]
pub(super) struct Rows<'a, T> {
    data: &'a [T],
    at: Positions,
}

impl<'a, T: Float> Rows<'a, T> {
    /// The rows of a view.
    pub(super) fn new(view: &'a View<'_>) -> Result<Self, KernelError> {
        Ok(Self {
            data: view.storage()?,
            at: Positions::new(view.layout()),
        })
    }

    /// Copies rows to dense ones of the padded width, filled up with zeros, and adds rows of zeros
    /// up to the padded number of them.
    pub(super) fn pack(&self, head: Head, rows: Range<usize>, to: &mut [f32]) {
        let Positions { strides, width, .. } = self.at;
        if width == 0 {
            return;
        }
        let (n, wide) = (rows.len(), padded(width));
        for (t, to) in rows.zip(to.chunks_exact_mut(wide)) {
            let from = &self.data[self.at.row(head, t)..];
            if strides[3] == 1 {
                T::widen(&from[..width], &mut to[..width]);
            } else {
                for (d, to) in to[..width].iter_mut().enumerate() {
                    *to = from[d * strides[3]].wide();
                }
            }
            to[width..].fill(0.0);
        }
        to[n * wide..padded(n) * wide].fill(0.0);
    }

    /// The first number of a row.
    pub(super) fn first(&self, head: Head, t: usize) -> f32 {
        self.data[self.at.row(head, t)].wide()
    }
}

/// A tensor to write, from several threads at once.
#[derive(Debug)]
pub(super) struct RowsMut<'a, T> {
    data: &'a Disjoint<'a, T>,
    at: Positions,
}

impl<'a, T: Float> RowsMut<'a, T> {
    /// The rows that a layout makes of a storage.
    pub(super) fn new(data: &'a Disjoint<'a, T>, layout: &Layout) -> Self {
        Self {
            data,
            at: Positions::new(layout),
        }
    }

    /// Calls `f(i, d, element)` for the elements of rows.
    ///
    /// # Safety
    /// No other thread may be at the same rows.
    pub(super) unsafe fn each_row(
        &self,
        head: Head,
        rows: Range<usize>,
        mut f: impl FnMut(usize, usize, &mut [T]),
    ) {
        let Positions { strides, width, .. } = self.at;
        for (i, t) in rows.enumerate() {
            let start = self.at.row(head, t);
            if strides[3] == 1 {
                // SAFETY: this row is the caller's.
                f(i, 0, unsafe { self.data.part(start, width) });
            } else {
                for d in 0..width {
                    // SAFETY: as above.
                    f(i, d, unsafe { self.data.part(start + d * strides[3], 1) });
                }
            }
        }
    }

    /// Copies rows from dense ones of the padded width.
    ///
    /// # Safety
    /// No other thread may be at the same rows.
    pub(super) unsafe fn unpack(&self, head: Head, rows: Range<usize>, from: &[f32]) {
        let wide = padded(self.at.width);
        let copy = |i: usize, d: usize, to: &mut [T]| {
            T::round(&from[i * wide + d..][..to.len()], to);
        };
        // SAFETY: the caller's.
        unsafe { self.each_row(head, rows, copy) }
    }

    /// Copies rows to dense ones of the padded width, filled up with zeros.
    ///
    /// # Safety
    /// No other thread may be at the same rows.
    pub(super) unsafe fn pack(&self, head: Head, rows: Range<usize>, to: &mut [f32]) {
        let wide = padded(self.at.width);
        let copy = |i: usize, d: usize, from: &mut [T]| {
            T::widen(from, &mut to[i * wide + d..][..from.len()]);
        };
        // SAFETY: the caller's.
        unsafe { self.each_row(head, rows, copy) }
    }
}

/// Cuts memory into parts.
#[derive(Debug)]
pub(super) struct Scratch<'a>(pub(super) &'a mut [f32]);

impl<'a> Scratch<'a> {
    /// The next `len` elements.
    pub(super) fn take(&mut self, len: usize) -> &'a mut [f32] {
        let (part, rest) = std::mem::take(&mut self.0).split_at_mut(len);
        self.0 = rest;
        part
    }
}
