//! Matrix products, summed in `f32`.
//!
//! The depth is cut into slices of equal length, as few as can be, of at most 384 words. An element
//! of a product is the sum, in order, of its slices, each of which is one chain of fused
//! multiply-adds. Its bits depend on the numbers and the depth alone: not on the other extents,
//! storage orders, threads, addresses or how the work is cut.
//!
//! A word is one number in `f32`. Where both factors are `bf16` and the processor multiplies pairs of
//! them in one instruction ([`Level::Avx512Bf16`]), it is two of them, so that a slice has twice as many
//! elements; the chain adds the second product of a pair first. Bits are others there than where
//! `bf16` is widened.
//!
//! The right factor is packed, a slice of its depth and some columns at a time, into panels that
//! all threads read. A task takes some rows of the left factor, which stay in the second cache, and
//! multiplies them by some panels, each of which stays in the first (the scheme of Goto and van de
//! Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). Rows of the left factor are
//! read where they lie; one that is stored by columns is packed by the task.
//!
//! Factors of narrower types are widened as they are packed, both of them, where they are not taken in
//! pairs. An output of a narrower type is filled a strip of columns at a time: tasks sum it in staging
//! memory of the caller's, and round what they have summed while it is in their caches (`round.rs`).
//!
//! `sums.rs` says what is summed at once, `product.rs` cuts that into tasks, `stages.rs` runs them, `pack.rs`,
//! `pairs.rs` and `left.rs` pack, `tile.rs` is the innermost loop. `one_row.rs` packs nothing, where a single row is
//! multiplied. What all of them share is in `matrix.rs` and `words.rs`. Packed operands lie in buffers that the pool
//! keeps (`pool/buffers.rs`).

#![expect(unsafe_code, reason = "tasks write tiles of one output")]

mod coded;
mod grid;
mod left;
mod matrix;
mod one_row;
mod pack;
mod pairs;
mod product;
mod round;
mod stages;
mod sums;
pub(crate) mod tile;
mod words;

use crate::Pool;
#[cfg(doc)]
use crate::device::cpu::Level;
use crate::kernels::float::{Float, is_f32};
use crate::kernels::vector::Version;
use matrix::At;
use round::Target;
use sums::Sums;

pub(crate) use coded::{Coded, Decode, Factor};
pub(crate) use grid::{Grid, grid_staging_len};
pub(crate) use matrix::{Mat, MatMut, Plus};
pub(crate) use round::staging_len;
pub(crate) use words::{PACK, PANEL};

/// Below this many multiplications a product runs on one thread.
const PARALLEL: usize = 1 << 16;

/// `out = a · b`, plus what `plus` says, on the threads of `pool`. For an output of a narrower type
/// than `f32`, `staging` has [`staging_len`] elements.
///
/// # Panics
/// If the extents do not fit together.
pub(crate) fn gemm<T: Float, A: Float, B: Float>(
    pool: &Pool,
    out: MatMut<'_, T>,
    a: Mat<'_, A>,
    b: Mat<'_, B>,
    plus: Plus<'_, T>,
    staging: &mut [f32],
) {
    let factors = [(Factor::Plain(a), Factor::Plain(b))];
    on_threads(pool, out, factors, plus, staging);
}

/// [`gemm`] of factors that may be decoded as they are packed.
pub(crate) fn gemm_coded<T: Float, A: Float, B: Float>(
    pool: &Pool,
    out: MatMut<'_, T>,
    a: Factor<'_, A>,
    b: Factor<'_, B>,
    plus: Plus<'_, T>,
    staging: &mut [f32],
) {
    on_threads(pool, out, [(a, b)], plus, staging);
}

/// [`gemm`] on the thread that calls, in the memory of `pool`.
pub(crate) fn gemm_serial<T: Float, A: Float, B: Float>(
    pool: &Pool,
    mut out: MatMut<'_, T>,
    a: Mat<'_, A>,
    b: Mat<'_, B>,
    plus: Plus<'_, T>,
    staging: &mut [f32],
) {
    products(
        pool,
        Version::Best,
        &mut out,
        [(Factor::Plain(a), Factor::Plain(b))],
        plus,
        staging,
        false,
    );
}

/// Adds up products, in their order, into `out`, which is zero everywhere; `staging` as for [`gemm`].
///
/// # Panics
/// If the extents do not fit together.
pub(crate) fn gemm_sum<'a, T: Float>(
    pool: &Pool,
    out: MatMut<'_, T>,
    factors: impl IntoIterator<Item = (Mat<'a, T>, Mat<'a, T>), IntoIter: Clone + Sync>,
    staging: &mut [f32],
) {
    let factors = factors
        .into_iter()
        .map(|(a, b)| (Factor::Plain(a), Factor::Plain(b)));
    on_threads(pool, out, factors, Plus::output_if(is_f32::<T>()), staging);
}

/// Fills rows, `row_stride` apart, whose columns lie on a grid, with `a · b`, plus the element of its
/// own that `bias` has for each row. `staging` has [`grid_staging_len`] elements.
///
/// # Panics
/// If the extents do not fit together, or the output ends behind `out`.
pub(crate) fn gemm_on_grid<T: Float>(
    pool: &Pool,
    (out, row_stride, grid): (&mut [T], usize, Grid),
    a: Factor<'_, T>,
    b: Factor<'_, T>,
    bias: Option<&[T]>,
    staging: &mut [f32],
) {
    let ([rows, depth], cols) = (a.extents(), grid.columns());
    if rows == 0 || cols == 0 {
        return;
    }
    assert!(
        b.extents() == [depth, cols] && bias.is_none_or(|bias| bias.len() == rows),
        "the extents of a product must fit together"
    );
    assert!(
        (rows - 1) * row_stride + grid.reach() <= out.len(),
        "a matrix must end inside its data"
    );
    let parallel = pool.threads() > 1 && rows * cols * depth >= PARALLEL;
    let mut run = || {
        let target = Target {
            to: At {
                data: out.as_mut_ptr(),
                row_stride,
                col_stride: 1,
            },
            from: bias.map(|bias| At {
                data: bias.as_ptr(),
                row_stride: 1,
                col_stride: 0,
            }),
            grid: Some((grid, 0)),
        };
        let sums = Sums {
            pool,
            version: Version::Best,
            parallel,
            staging,
        };
        // SAFETY: the target is the output, which is borrowed mutably and reaches no further.
        unsafe { sums.fill(target, [rows, cols], std::iter::once((a, b))) }
    };
    if parallel {
        pool.run(run);
    } else {
        run();
    }
}

/// [`products`] by the best instructions, on all threads where that is worth it.
fn on_threads<'a, T: Float, A: Float, B: Float>(
    pool: &Pool,
    mut out: MatMut<'_, T>,
    factors: impl IntoIterator<Item = (Factor<'a, A>, Factor<'a, B>), IntoIter: Clone + Sync>,
    plus: Plus<'_, T>,
    staging: &mut [f32],
) {
    let factors = factors.into_iter();
    let work = factors
        .clone()
        .map(|(a, _)| out.rows * out.cols * a.extents()[1]);
    let parallel = pool.threads() > 1 && work.sum::<usize>() >= PARALLEL;
    let mut run = || {
        let factors = factors.clone();
        products(
            pool,
            Version::Best,
            &mut out,
            factors,
            plus,
            staging,
            parallel,
        );
    };
    if parallel {
        pool.run(run);
    } else {
        run();
    }
}

/// The sum of products, in their order, plus what `plus` says, into an output of either storage order.
fn products<'a, T: Float, A: Float, B: Float>(
    pool: &Pool,
    version: Version,
    out: &mut MatMut<'_, T>,
    factors: impl IntoIterator<Item = (Factor<'a, A>, Factor<'a, B>), IntoIter: Clone>,
    plus: Plus<'_, T>,
    staging: &mut [f32],
    parallel: bool,
) {
    let (rows, cols) = (out.rows, out.cols);
    let factors = factors.into_iter().inspect(|(a, b)| {
        assert!(
            a.extents()[0] == rows && b.extents() == [a.extents()[1], cols],
            "the extents of a product must fit together"
        );
    });
    let target = out.target(plus);
    let sums = Sums {
        pool,
        version,
        parallel,
        staging,
    };
    if rows == 0 || cols == 0 {
        return;
    }
    // SAFETY: the target is the output, which is borrowed mutably; factors are checked one by one.
    unsafe {
        if out.row_stride < out.col_stride {
            // A column-major output is a row-major output of the transposed product.
            let factors = factors.map(|(a, b)| (b.t(), a.t()));
            sums.fill(target.t(), [cols, rows], factors);
        } else {
            sums.fill(target, [rows, cols], factors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    const SHAPES: [[usize; 3]; 9] = [
        [1, 1, 1],
        [1, 300, 129],
        [300, 1, 129],
        [5, 7, 2],
        [37, 65, 130],
        [64, 64, 1000],
        [130, 257, 513],
        [2100, 33, 40],
        [33, 2100, 600],
    ];

    #[test]
    fn products_are_right_in_every_storage_order() {
        let pool = Pool::new(2).unwrap();
        for [m, n, k] in SHAPES {
            let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
            for orders in 0..8 {
                let strides = |bit: usize, rows: usize, cols: usize| match orders >> bit & 1 {
                    0 => [cols, 1],
                    _ => [1, rows],
                };
                let (sa, sb, sc) = (strides(0, m, k), strides(1, k, n), strides(2, m, n));
                let mut c = vec![0.5_f32; m * n];
                gemm(
                    &pool,
                    MatMut::new(&mut c, [m, n], sc),
                    Mat::new(&a, [m, k], sa),
                    Mat::new(&b, [k, n], sb),
                    Plus::output_if(orders % 3 == 0),
                    &mut [],
                );
                let start = if orders % 3 == 0 { 0.5 } else { 0.0 };
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).step_by(7) {
                    let want: f64 = (0..k)
                        .map(|l| {
                            let a = a[i * sa[0] + l * sa[1]];
                            f64::from(a) * f64::from(b[l * sb[0] + j * sb[1]])
                        })
                        .sum();
                    let got = f64::from(c[i * sc[0] + j * sc[1]]);
                    let wrong = (got - want - start).abs();
                    assert!(wrong < 1e-4, "{m} {n} {k} {orders}: {got} for {want}");
                }
            }
        }
    }

    #[test]
    fn bits_do_not_depend_on_threads_or_alignment() {
        for [m, n, k] in SHAPES {
            let (a, b) = (numbers(m * k, 3), numbers(k * n, 4));
            for column_major in [false, true] {
                let mut first: Option<Vec<u32>> = None;
                for (threads, shift) in [(1, 0), (2, 0), (3, 1), (4, 3), (1, 7), (2, 5)] {
                    let pool = Pool::new(threads).unwrap();
                    let shifted = |data: &[f32]| [&vec![0.0; shift], data].concat();
                    let (a, b, mut c) = (shifted(&a), shifted(&b), vec![1.0; shift + m * n]);
                    let strides = if column_major { [1, m] } else { [n, 1] };
                    for accumulate in [false, true] {
                        gemm(
                            &pool,
                            MatMut::new(&mut c[shift..], [m, n], strides),
                            Mat::dense(&a[shift..], m, k),
                            Mat::dense(&b[shift..], k, n),
                            Plus::output_if(accumulate),
                            &mut [],
                        );
                    }
                    let bits: Vec<u32> = c[shift..].iter().map(|x| x.to_bits()).collect();
                    assert_eq!(*first.get_or_insert_with(|| bits.clone()), bits);
                }
            }
        }
    }

    /// All rows at once, in either storage order, or row by row; on each instruction set.
    #[test]
    fn bits_depend_on_numbers_and_depth_alone() {
        let pool = Pool::new(2).unwrap();
        for [m, n, k] in SHAPES {
            let (a, b) = (numbers(m * k, 5), numbers(k * n, 6));
            let (whole_a, b) = (Mat::dense(&a, m, k), Mat::dense(&b, k, n));
            let multiply = |version, strides: [usize; 2], rows: usize| {
                let mut c = vec![0.25; m * n];
                for row in (0..m).step_by(rows) {
                    let rows = rows.min(m - row);
                    let mut c = MatMut::new(&mut c[row * strides[0]..], [rows, n], strides);
                    let a = whole_a.rows(row, rows);
                    let (plus, parallel) = (Plus::Output, m % 2 == 0);
                    products(
                        &pool,
                        version,
                        &mut c,
                        [(Factor::Plain(a), Factor::Plain(b))],
                        plus,
                        &mut [],
                        parallel,
                    );
                }
                let at = |i: usize| i / n * strides[0] + i % n * strides[1];
                (0..m * n).map(|i| c[at(i)].to_bits()).collect::<Vec<_>>()
            };
            let want = multiply(Version::Best, [n, 1], m);
            assert_eq!(want, multiply(Version::Best, [1, m], m), "{m} {n} {k}");
            assert_eq!(want, multiply(Version::Best, [n, 1], 5), "{m} {n} {k}");
            if crate::device::cpu::level() >= crate::device::cpu::Level::Avx2 {
                assert_eq!(want, multiply(Version::Avx2, [n, 1], m), "{m} {n} {k}");
            }
            let plain = multiply(Version::Portable, [n, 1], m).into_iter();
            for (want, got) in want.iter().zip(plain) {
                let (want, got) = (f32::from_bits(*want), f32::from_bits(got));
                assert!((want - got).abs() < 1e-4, "{m} {n} {k}: {got} for {want}");
            }
        }
    }

    #[test]
    fn no_depth_gives_zero_and_no_rows_give_nothing() {
        let pool = Pool::new(1).unwrap();
        let mut c = [7.0; 6];
        let empty = Mat::<f32>::dense(&[], 2, 0);
        gemm(
            &pool,
            MatMut::dense(&mut c, 2, 3),
            empty,
            Mat::<f32>::dense(&[], 0, 3),
            Plus::Nothing,
            &mut [],
        );
        assert!(c.iter().all(|x| x.to_bits() == 0));
        for version in [Version::Best, Version::Portable] {
            let mut wide = [7.0; 80];
            let (a, b) = (Mat::<f32>::dense(&[], 2, 0), Mat::<f32>::dense(&[], 0, 40));
            products(
                &pool,
                version,
                &mut MatMut::dense(&mut wide, 2, 40),
                [(Factor::Plain(a), Factor::Plain(b))],
                Plus::Nothing,
                &mut [],
                false,
            );
            assert!(wide.iter().all(|x| x.to_bits() == 0), "{version:?}");
        }
        gemm(
            &pool,
            MatMut::<f32>::dense(&mut [], 0, 3),
            Mat::<f32>::dense(&[], 0, 2),
            Mat::dense(&c, 2, 3),
            Plus::Nothing,
            &mut [],
        );
    }
}
