//! The innermost loop: a tile of a product, summed in registers.
//!
//! With 512-bit vectors a tile is 14 rows of two vectors: 28 sums, two vectors of the right factor that
//! are loaded once a step, and elements of the left factor broadcast from memory by the
//! multiplications themselves fill the 32 registers. With 16 registers it is 6 rows of two vectors.
//! Rows of the left factor are reached from five pointers, three rows each by scaled addressing: one
//! pointer a row would not fit the registers, and one pointer for all would make additions wait for
//! one another. Outputs are fetched ahead, as nothing else touches them before they are stored. By itself
//! that comes to 98 to 99% of what the units do from registers, with factors in the second cache (9 rows of three
//! vectors and 6 of four are no faster); in whole products, to 94 to 97% of the time that tiles take.

#![expect(unsafe_code, reason = "register tiles read and write through strides")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::vector::{Simd, Task, prefetch};
use std::hint::black_box;
use std::marker::PhantomData;

/// The left factor: word (row, k) lies `row * self.row + k * self.step` bytes behind `data`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    pub(crate) data: *const f32,
    pub(crate) row: usize,
    pub(crate) step: usize,
}

impl Left {
    /// Words of `f32`, rows and steps so many words apart.
    #[inline(always)]
    pub(crate) fn words(data: &[f32], row: usize, step: usize) -> Self {
        const WORD: usize = size_of::<f32>();
        Self {
            data: data.as_ptr(),
            row: WORD * row,
            step: WORD * step,
        }
    }
}

/// What the words of factors are.
pub(crate) trait Words {
    /// Elements of the depth in a word.
    const ELEMENTS: usize;
    /// `sum` plus the products of the elements of two words, in each lane.
    fn multiply<S: Simd>(s: S, a: S::V, b: S::V, sum: S::V) -> S::V;
}

/// A word is one number in `f32`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Singles;

impl Words for Singles {
    const ELEMENTS: usize = 1;

    #[inline(always)]
    fn multiply<S: Simd>(s: S, a: S::V, b: S::V, sum: S::V) -> S::V {
        s.fma(a, b, sum)
    }
}

/// A word is two numbers in `bf16`, the first in its lower half.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pairs;

impl Words for Pairs {
    const ELEMENTS: usize = 2;

    #[inline(always)]
    fn multiply<S: Simd>(s: S, a: S::V, b: S::V, sum: S::V) -> S::V {
        s.dot(a, b, sum)
    }
}

/// The right factor: words of step k lie at `data + k * self.step`, its columns side by side.
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
/// An element of the product is one chain of [`Words::multiply`] in the order of the depth, starting
/// from 0.
///
/// # Safety
/// Whatever the extents reach through the pointers must be valid; `from` may be `to`.
#[inline(always)]
pub(crate) unsafe fn tile<W: Words, S: Simd, const R: usize, const V: usize>(
    s: S,
    left: Left,
    right: Right,
    depth: usize,
    from: Option<Rows<*const f32>>,
    to: Rows<*mut f32>,
) {
    s.call(Tile::<W, R, V> {
        left,
        right,
        depth,
        from,
        to,
        words: PhantomData,
    });
}

/// What [`tile`] is asked for: a function of its own, so that all registers are free for it. Made
/// there only.
struct Tile<W, const R: usize, const V: usize> {
    left: Left,
    right: Right,
    depth: usize,
    from: Option<Rows<*const f32>>,
    to: Rows<*mut f32>,
    words: PhantomData<W>,
}

impl<W: Words, const R: usize, const V: usize> Task for Tile<W, R, V> {
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
            std::array::from_fn(|i| black_box(left.data.wrapping_byte_add(3 * i * left.row)));
        let mut b = right.data;
        for _ in 0..self.depth {
            // SAFETY: inside the extents, which the caller of `tile` vouches for.
            unsafe {
                let row: [S::V; V] = std::array::from_fn(|v| s.load_at(b.add(v * S::LANES)));
                // Unrolled by hand, since the compiler gives up on so many sums.
                macro_rules! rows {
                    ($($r:literal)*) => {$(
                        if $r < R {
                            let word = lefts[$r / 3].byte_add($r % 3 * left.row);
                            let a = s.splat(word.read_unaligned());
                            for (sum, &b) in sums[$r].iter_mut().zip(&row) {
                                *sum = W::multiply(s, a, b, *sum);
                            }
                        }
                    )*};
                }
                rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
            }
            lefts = lefts.map(|l| l.wrapping_byte_add(left.step));
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
