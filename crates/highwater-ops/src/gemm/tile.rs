//! The innermost loop: a tile of a product, summed in registers.

#![expect(unsafe_code, reason = "register tiles read and write through strides")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::vector::{Simd, Task, prefetch};
use std::hint::black_box;

/// The left factor: element (row, k) lies at `data + row * self.row + k * self.step`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    pub(crate) data: *const f32,
    pub(crate) row: usize,
    pub(crate) step: usize,
}

/// The right factor: row k lies at `data + k * self.step`, its columns side by side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Right {
    pub(crate) data: *const f32,
    pub(crate) step: usize,
}

/// Rows with their columns side by side, `row` elements apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<P> {
    pub(crate) data: P,
    pub(crate) row: usize,
}

/// `to = left right`, or `to = from + left right`, for `R` rows (at most 14) and `V` vectors of
/// columns.
///
/// An element of the product is one chain of fused multiply-adds in the order of the depth,
/// starting from 0.
///
/// # Safety
/// Whatever the extents reach through the pointers must be valid; `from` may be `to`.
#[inline(always)]
pub(crate) unsafe fn tile<S: Simd, const R: usize, const V: usize>(
    s: S,
    left: Left,
    right: Right,
    depth: usize,
    from: Option<Rows<*const f32>>,
    to: Rows<*mut f32>,
) {
    s.call(Tile::<R, V> {
        left,
        right,
        depth,
        from,
        to,
    });
}

/// What [`tile`] is asked for: a function of its own, so that all registers are free for it. Made
/// there only.
struct Tile<const R: usize, const V: usize> {
    left: Left,
    right: Right,
    depth: usize,
    from: Option<Rows<*const f32>>,
    to: Rows<*mut f32>,
}

impl<const R: usize, const V: usize> Task for Tile<R, V> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            left, right, to, ..
        } = self;
        for r in 0..R {
            // A vector is at most a cache line.
            for v in 0..V {
                prefetch(to.data.wrapping_add(r * to.row + v * S::LANES));
            }
        }
        let mut sums = [[s.splat(0.0); V]; R];
        // Each reaches three rows by scaled addressing. The compiler must not see how they are
        // related: it would step from row to row, one addition waiting for the other.
        let mut lefts: [*const f32; 5] =
            std::array::from_fn(|i| black_box(left.data.wrapping_add(3 * i * left.row)));
        let mut b = right.data;
        for _ in 0..self.depth {
            // SAFETY: inside the extents, which the caller of `tile` vouches for.
            unsafe {
                let row: [S::V; V] = std::array::from_fn(|v| s.load_at(b.add(v * S::LANES)));
                // Unrolled by hand, since the compiler gives up on so many sums.
                macro_rules! rows {
                    ($($r:literal)*) => {$(
                        if $r < R {
                            let a = s.splat(*lefts[$r / 3].add($r % 3 * left.row));
                            for (sum, &b) in sums[$r].iter_mut().zip(&row) {
                                *sum = s.fma(a, b, *sum);
                            }
                        }
                    )*};
                }
                rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
            }
            lefts = lefts.map(|l| l.wrapping_add(left.step));
            b = b.wrapping_add(right.step);
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, &sum) in sums.iter().enumerate() {
                // SAFETY: as above.
                unsafe {
                    let sum = match self.from {
                        Some(from) => {
                            s.add(s.load_at(from.data.add(r * from.row + v * S::LANES)), sum)
                        }
                        None => sum,
                    };
                    s.store_at(to.data.add(r * to.row + v * S::LANES), sum);
                }
            }
        }
    }
}

/// Rows in groups as tiles take them, `R` or 8, 4, 2 or 1: the first of each, and how many.
#[inline(always)]
pub(crate) fn groups<const R: usize>(rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut row = 0;
    std::iter::from_fn(move || {
        let size = match rows - row {
            0 => return None,
            left if left >= R => R,
            left => 1 << left.ilog2(),
        };
        row += size;
        Some((row - size, size))
    })
}

/// Calls a method that is generic over the instruction set and the rows of a tile with the size of
/// a group of [`groups`].
macro_rules! with_rows {
    ($size:expr, $this:ident.$method:ident::<$isa:ident, $most:ident $(, $vectors:ident)?>($($arg:expr),*)) => {
        match $size {
            1 => $this.$method::<$isa, 1 $(, $vectors)?>($($arg),*),
            2 => $this.$method::<$isa, 2 $(, $vectors)?>($($arg),*),
            4 => $this.$method::<$isa, 4 $(, $vectors)?>($($arg),*),
            8 => $this.$method::<$isa, 8 $(, $vectors)?>($($arg),*),
            _ => $this.$method::<$isa, $most $(, $vectors)?>($($arg),*),
        }
    };
}
pub(crate) use with_rows;
