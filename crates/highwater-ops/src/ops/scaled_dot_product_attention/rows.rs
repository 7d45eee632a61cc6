//! Tensors `[B, H, T, D]` in any layout, read and written in rows of `D`.

#![expect(unsafe_code, reason = "tasks write disjoint rows of one output")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::float::Float;
use crate::kernels::vector::prefetch;
use crate::{Disjoint, KernelError, View};
use highwater_graph::Layout;
use std::ops::Range;

/// Queries or keys that are worked on at once.
pub(super) const BLOCK: usize = 64;

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

    /// Elements of a row.
    #[inline(always)]
    pub(super) fn width(&self) -> usize {
        self.at.width
    }

    /// Copies rows to dense ones of `wide` elements, filled up with zeros, and fills with zeros the rows
    /// that are left. `all` converts elements, `one` an element.
    #[inline(always)]
    pub(super) fn pack<U: Float>(
        &self,
        head: Head,
        rows: Range<usize>,
        (to, wide): (&mut [U], usize),
        all: impl Fn(&[T], &mut [U]),
        one: impl Fn(T) -> U,
    ) {
        let Positions { strides, width, .. } = self.at;
        let (copied, left) = to.split_at_mut(rows.len() * wide);
        for (t, to) in rows.zip(copied.chunks_exact_mut(wide)) {
            let from = &self.data[self.at.row(head, t)..];
            if strides[3] == 1 {
                all(&from[..width], &mut to[..width]);
            } else {
                for (d, to) in to[..width].iter_mut().enumerate() {
                    *to = one(from[d * strides[3]]);
                }
            }
            to[width..].fill(U::zeroed());
        }
        left.fill(U::zeroed());
    }

    /// Asks for rows that are packed soon: they lie too far apart for the processor to follow.
    #[inline(always)]
    pub(super) fn fetch(&self, head: Head, rows: Range<usize>) {
        const LINE: usize = 64;
        if self.at.strides[3] != 1 {
            return;
        }
        for t in rows {
            let row = self.data[self.at.row(head, t)..].as_ptr();
            for byte in (0..self.at.width * size_of::<T>()).step_by(LINE) {
                prefetch(row.wrapping_byte_add(byte).cast());
            }
        }
    }

    /// Like [`Rows::pack`], into `f32`.
    #[inline(always)]
    pub(super) fn widen(&self, head: Head, rows: Range<usize>, to: &mut [f32], wide: usize) {
        self.pack(head, rows, (to, wide), T::widen, T::wide);
    }

    /// A row, where its elements lie side by side.
    #[inline(always)]
    pub(super) fn dense(&self, head: Head, t: usize) -> Option<&'a [T]> {
        let row = || &self.data[self.at.row(head, t)..][..self.at.width];
        (self.at.strides[3] == 1).then(row)
    }

    /// An element of a row.
    #[inline(always)]
    pub(super) fn at(&self, head: Head, t: usize, d: usize) -> T {
        self.data[self.at.row(head, t) + d * self.at.strides[3]]
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

    /// Copies rows from dense ones of `wide` elements.
    ///
    /// # Safety
    /// No other thread may be at the same rows.
    pub(super) unsafe fn unpack(
        &self,
        head: Head,
        rows: Range<usize>,
        (from, wide): (&[f32], usize),
    ) {
        let copy = |i: usize, d: usize, to: &mut [T]| {
            T::round(&from[i * wide + d..][..to.len()], to);
        };
        // SAFETY: the caller's.
        unsafe { self.each_row(head, rows, copy) }
    }

    /// Copies rows to dense ones of `wide` elements; those behind a row's stay as they are.
    ///
    /// # Safety
    /// No other thread may be at the same rows.
    pub(super) unsafe fn pack(
        &self,
        head: Head,
        rows: Range<usize>,
        (to, wide): (&mut [f32], usize),
    ) {
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
