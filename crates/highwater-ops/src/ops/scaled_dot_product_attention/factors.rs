//! What factors of products are made of: numbers of `f32`, or pairs of `bf16`.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::rows::{Head, Rows};
use crate::kernels::float::Float;
use crate::kernels::gemm::tile::{Pairs, Singles, Words};
use crate::kernels::vector::{Simd, Version};
use half::bf16;
use highwater_graph::DType;
use std::ops::Range;

/// Whether kernels multiply pairs. They scale scores after some were hidden: a scale that is not above 0 would
/// show those again.
pub(super) fn in_pairs<T: Float>(version: Version, scale: f64) -> bool {
    T::is(DType::BF16) && version.has_pairs() && scale as f32 > 0.0
}

/// Elements that a row of so many takes at most.
pub(super) fn wide<T: Float>(width: usize) -> usize {
    if T::is(DType::BF16) {
        <Pairs as Factors<bf16>>::padded(width)
    } else {
        <Singles as Factors<T>>::padded(width)
    }
}

/// Words as factors of products of tensors of `T`. A word of several elements lies along a row, or down the
/// rows: in a step.
pub(super) trait Factors<T: Float>: Words {
    /// Whether rows are steps as they lie.
    const ALIKE: bool = Self::ELEMENTS == 1;

    /// What elements of rows, and rows of a block, are filled up to: whole vectors of words.
    #[inline(always)]
    fn padded(n: usize) -> usize {
        n.next_multiple_of(16 * Self::ELEMENTS)
    }

    /// Words of so many elements.
    #[inline(always)]
    fn words(n: usize) -> usize {
        n.div_ceil(Self::ELEMENTS)
    }

    /// Packs rows, filled up with zeros both ways.
    fn rows(from: &Rows<'_, T>, head: Head, rows: Range<usize>, to: &mut [f32]);

    /// Packs steps of rows, each as wide as a row, filled up with zeros.
    fn steps(from: &Rows<'_, T>, head: Head, rows: Range<usize>, to: &mut [f32]);

    /// Splits the scale of scores: what queries are multiplied by as they are packed, and what scores are.
    fn split(scale: f32) -> (Option<f32>, f32);

    /// Words of vectors of so many rows.
    fn down<S: Simd>(s: S, rows: [S::V; 2]) -> S::V;
}

impl<T: Float> Factors<T> for Singles {
    #[inline(always)]
    fn rows(from: &Rows<'_, T>, head: Head, rows: Range<usize>, to: &mut [f32]) {
        let wide = <Self as Factors<T>>::padded(from.width());
        let to = &mut to[..<Self as Factors<T>>::padded(rows.len()) * wide];
        from.widen(head, rows, to, wide);
    }

    #[inline(always)]
    fn steps(from: &Rows<'_, T>, head: Head, rows: Range<usize>, to: &mut [f32]) {
        <Self as Factors<T>>::rows(from, head, rows, to);
    }

    #[inline(always)]
    fn split(scale: f32) -> (Option<f32>, f32) {
        (Some(scale), 1.0)
    }

    #[inline(always)]
    fn down<S: Simd>(_: S, [row, _]: [S::V; 2]) -> S::V {
        row
    }
}

impl Factors<bf16> for Pairs {
    #[inline(always)]
    fn rows(from: &Rows<'_, bf16>, head: Head, rows: Range<usize>, to: &mut [f32]) {
        let wide = Self::padded(from.width());
        let to: &mut [bf16] = bytemuck::cast_slice_mut(to);
        let to = &mut to[..Self::padded(rows.len()) * wide];
        from.pack(
            head,
            rows,
            (to, wide),
            |from, to| to.copy_from_slice(from),
            |x| x,
        );
    }

    #[inline(always)]
    fn steps(from: &Rows<'_, bf16>, head: Head, rows: Range<usize>, to: &mut [f32]) {
        let (width, wide) = (from.width(), Self::padded(from.width()));
        let to: &mut [u32] = bytemuck::cast_slice_mut(to);
        let word =
            |low: bf16, high: bf16| u32::from(low.to_bits()) | u32::from(high.to_bits()) << 16;
        for (t, to) in rows.clone().step_by(2).zip(to.chunks_exact_mut(wide)) {
            let (to, padding) = to.split_at_mut(width);
            let both = [t, t + 1].map(|t| rows.contains(&t).then(|| from.dense(head, t)).flatten());
            if let [Some(low), Some(high)] = both {
                for ((to, &low), &high) in to.iter_mut().zip(low).zip(high) {
                    *to = word(low, high);
                }
            } else {
                for (d, to) in to.iter_mut().enumerate() {
                    let at = |t: usize| rows.contains(&t).then(|| from.at(head, t, d));
                    *to = word(from.at(head, t, d), at(t + 1).unwrap_or(bf16::ZERO));
                }
            }
            padding.fill(0);
        }
    }

    /// A query times the scale would have to be rounded.
    #[inline(always)]
    fn split(scale: f32) -> (Option<f32>, f32) {
        (None, scale)
    }

    #[inline(always)]
    fn down<S: Simd>(s: S, [low, high]: [S::V; 2]) -> S::V {
        s.pair(low, high)
    }
}
