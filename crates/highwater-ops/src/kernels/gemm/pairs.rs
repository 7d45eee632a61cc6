//! Factors of `bf16` as pairs: two elements of the depth in a word, which the processor multiplies in
//! one instruction.
//!
//! Half the multiplications, and half the panels' bytes, of widened factors: at GPT-2's shapes 1.9 to
//! 2.1 times the speed of `f32`. Left factors whose pairs lie side by side are read where they are. Of a weight
//! gradient on two threads packing the left factor takes 4 to 5%, the right one 4 to 8, tiles 85; before rows were
//! interleaved by vectors, with lines asked for ahead, it was 18 and 7 of 69.

#![expect(unsafe_code, reason = "blocks are transposed by vectors")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::left;
use super::matrix::Mat;
use super::tile::Pairs;
use super::words::{PANEL, Pack};
use crate::kernels::vector::{Simd, Task, Version, dispatch, prefetch};
use half::bf16;

/// Two elements in a word.
#[inline(always)]
fn word(first: bf16, second: bf16) -> u32 {
    u32::from(first.to_bits()) | u32::from(second.to_bits()) << 16
}

/// Words of the first numbers of two rows, as many as a vector has lanes.
#[inline(always)]
fn interleave<S: Simd>(s: S, first: &[bf16], second: &[bf16]) -> S::V {
    let (first, second) = (&first[..S::LANES], &second[..S::LANES]);
    // SAFETY: as many numbers as lanes, each 16 bits.
    unsafe { s.interleave(first.as_ptr().cast(), second.as_ptr().cast()) }
}

impl Mat<'_, bf16> {
    /// Elements `2 k` and `2 k + 1` of a row, or of a column if transposed.
    #[inline(always)]
    fn pair(&self, row: usize, k: usize) -> u32 {
        let at = |k: usize| self.data[row * self.row_stride + k * self.col_stride];
        let second = if 2 * k + 1 < self.cols {
            at(2 * k + 1)
        } else {
            bf16::ZERO
        };
        word(at(2 * k), second)
    }
}

impl Pack<bf16, bf16> for Pairs {
    /// Where words lie whole: the last of an odd row would reach into what is behind it.
    fn is_ready(a: &Mat<'_, bf16>) -> bool {
        a.col_stride == 1 && a.cols.is_multiple_of(2) && !a.rows_collide()
    }

    fn rows<S: Simd, const R: usize>(s: S, from: Mat<'_, bf16>, to: &mut [f32]) {
        if from.col_stride == 1 {
            return copy_rows(from, bytemuck::cast_slice_mut(to));
        }
        let (height, from) = (from.rows, Steps(from));
        s.call(left::Rows::<_, R> { from, height, to });
    }

    fn panels(version: Version, from: Mat<'_, bf16>, to: &mut [f32]) {
        dispatch(version, Panels { from, to });
    }
}

/// Words of a left factor.
struct Steps<'a>(Mat<'a, bf16>);

impl left::Steps for Steps<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.0.cols.div_ceil(2)
    }

    #[inline(always)]
    fn begin(&mut self, step: usize) {
        let ahead = 2 * (step + left::AHEAD);
        self.0.fetch_column(ahead);
        self.0.fetch_column(ahead + 1);
    }

    #[inline(always)]
    fn vector<S: Simd>(&self, s: S, step: usize, row: usize) -> Option<S::V> {
        let first = self.0.lanes(s, row, 2 * step)?;
        let second = self.0.lanes(s, row, 2 * step + 1)?;
        Some(interleave(s, first, second))
    }

    #[inline(always)]
    fn word(&self, step: usize, row: usize) -> f32 {
        f32::from_bits(self.0.pair(row, step))
    }
}

/// Rows whose words do not lie as tiles read them, one after the other.
fn copy_rows(from: Mat<'_, bf16>, to: &mut [u32]) {
    let words = from.cols.div_ceil(2);
    for (row, to) in to.chunks_exact_mut(words.max(1)).enumerate() {
        // An odd row ends with half a word.
        let (whole, last) = to.split_at_mut(from.cols / 2);
        let whole: &mut [bf16] = bytemuck::cast_slice_mut(whole);
        whole.copy_from_slice(&from.from(row)[..whole.len()]);
        for to in last {
            *to = from.pair(row, words - 1);
        }
    }
}

/// [`Pack::panels`] of pairs.
struct Panels<'a> {
    from: Mat<'a, bf16>,
    to: &'a mut [f32],
}

impl Task for Panels<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (words, cols) = (self.from.rows.div_ceil(2), self.from.cols);
        if self.from.col_stride == 1 {
            for k in 0..words {
                self.copy(s, k);
            }
            return;
        }
        for col in (0..cols).step_by(PANEL) {
            let mut done = 0;
            if self.from.row_stride == 1 && col + PANEL <= cols {
                while done + S::LANES <= self.from.rows / 2 {
                    self.transpose(s, done, col);
                    done += S::LANES;
                }
            }
            for k in done..words {
                self.step(k, col);
            }
        }
    }
}

impl Panels<'_> {
    /// Words from `k` on of the panel from column `col` on.
    #[inline(always)]
    fn part(&mut self, k: usize, words: usize, col: usize) -> &mut [f32] {
        let depth = self.from.rows.div_ceil(2);
        &mut self.to[col * depth + k * PANEL..][..words * PANEL]
    }

    /// A word of each column, where rows are dense.
    #[inline(always)]
    fn copy<S: Simd>(&mut self, s: S, k: usize) {
        let (from, rows) = (self.from, self.from.t());
        // Rows of a few panels end too soon for the processor to fetch ahead by itself.
        rows.fetch_column(2 * (k + left::AHEAD));
        rows.fetch_column(2 * (k + left::AHEAD) + 1);
        let whole = if 2 * k + 1 < from.rows {
            from.cols / PANEL * PANEL
        } else {
            0
        };
        let first = &from.data[2 * k * from.row_stride..];
        let second = &from.data[((2 * k + 1) * from.row_stride).min(from.data.len())..];
        let panels = first[..whole]
            .chunks_exact(PANEL)
            .zip(second[..whole].chunks_exact(PANEL));
        for (i, (first, second)) in panels.enumerate() {
            let to = self.part(k, 1, i * PANEL);
            for c in (0..PANEL).step_by(S::LANES) {
                s.store(&mut to[c..], interleave(s, &first[c..], &second[c..]));
            }
        }
        (whole..from.cols)
            .step_by(PANEL)
            .for_each(|col| self.step(k, col));
    }

    #[inline(always)]
    fn step(&mut self, k: usize, col: usize) {
        let from = self.from;
        let width = PANEL.min(from.cols - col);
        let to = self.part(k, 1, col);
        to[width..].fill(0.0);
        let from = from.t();
        (to[..width].iter_mut().enumerate())
            .for_each(|(c, to)| *to = f32::from_bits(from.pair(col + c, k)));
    }

    /// As many words as a vector has, side by side in columns that are dense.
    #[inline(always)]
    fn transpose<S: Simd>(&mut self, s: S, k: usize, col: usize) {
        let Mat {
            data, col_stride, ..
        } = self.from;
        let to = self.part(k, S::LANES, col);
        for c in (0..PANEL).step_by(S::LANES) {
            let source = &data[(col + c) * col_stride + 2 * k..];
            for c in 0..S::LANES {
                // Two blocks ahead: there are more columns than the processor follows by itself.
                let ahead = source.as_ptr().wrapping_add(c * col_stride + 4 * S::LANES);
                prefetch(ahead.cast());
            }
            // SAFETY: `LANES` columns of as many whole words lie in the matrix, whose bounds
            // `Mat::new` checked; as many steps in the panel.
            unsafe {
                s.transpose(
                    (source.as_ptr().cast(), size_of::<bf16>() * col_stride),
                    (to[c..].as_mut_ptr(), PANEL),
                    None,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Factor, MatMut, Plus, Sums};
    use super::*;
    use crate::Pool;

    fn numbers(len: usize, seed: u32) -> Vec<bf16> {
        let mut state = seed;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bf16::from_f32((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    /// An element: slices of equal length, each a chain of pairs, the second of a pair first.
    fn element(terms: &[(f32, f32)]) -> f32 {
        let words = terms.len().div_ceil(2);
        let slice = 2 * words.div_ceil(words.div_ceil(384).max(1)).max(1);
        let chain = |terms: &[(f32, f32)]| {
            terms.chunks(2).fold(0.0_f32, |sum, pair| {
                pair.iter().rev().fold(sum, |sum, (a, b)| sum + a * b)
            })
        };
        let mut slices = terms.chunks(slice).map(chain);
        let first = slices.next().unwrap_or(0.0);
        slices.fold(first, |sum, slice| sum + slice)
    }

    /// In every storage order, on each instruction set; with numbers behind rows that must not be read.
    #[test]
    fn products_of_pairs_have_the_bits_of_their_chains() {
        let mut versions = vec![Version::Best, Version::Portable];
        if crate::device::cpu::level() >= crate::device::cpu::Level::Avx2 {
            versions.push(Version::Avx2);
        }
        let pool = Pool::new(2).unwrap();
        let shapes = [
            [1, 1, 1],
            [3, 40, 7],
            [37, 65, 131],
            [17, 33, 1601],
            [100, 300, 64],
            [5, 3, 0],
        ];
        for [m, n, k] in shapes {
            for orders in 0..8 {
                let place = |bit: usize, rows: usize, cols: usize| match orders >> bit & 1 {
                    0 => [cols + 1, 1],
                    _ => [1, rows + 1],
                };
                let (sa, sb, sc) = (place(0, m, k), place(1, k, n), place(2, m, n));
                let holes = |rows: usize, cols: usize, strides: [usize; 2], seed| {
                    let len = (rows + 1) * (cols + 1);
                    let mut data = vec![bf16::INFINITY; len];
                    let numbers = numbers(rows * cols, seed);
                    for i in 0..rows * cols {
                        data[i / cols * strides[0] + i % cols * strides[1]] = numbers[i];
                    }
                    data
                };
                let (a, b) = (holes(m, k, sa, 1), holes(k, n, sb, 2));
                let (ma, mb) = (Mat::new(&a, [m, k], sa), Mat::new(&b, [k, n], sb));
                for &version in &versions {
                    let mut c = vec![f32::NAN; (m + 1) * (n + 1)];
                    let target = MatMut::new(&mut c, [m, n], sc).target(Plus::Nothing);
                    let sums = Sums {
                        pool: &pool,
                        version,
                        parallel: orders % 2 == 0,
                        staging: &mut [],
                    };
                    // SAFETY: as large as the output.
                    unsafe {
                        if sc[0] < sc[1] {
                            sums.run::<Pairs, _, _>(
                                Factor::Plain(mb.t()),
                                Factor::Plain(ma.t()),
                                None,
                                target.t().to,
                                None,
                            );
                        } else {
                            let (a, b) = (Factor::Plain(ma), Factor::Plain(mb));
                            sums.run::<Pairs, _, _>(a, b, None, target.to, None);
                        }
                    }
                    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).step_by(5) {
                        let a = |l: usize| a[i * sa[0] + l * sa[1]].to_f32();
                        let b = |l: usize| b[l * sb[0] + j * sb[1]].to_f32();
                        let terms: Vec<_> = (0..k).map(|l| (a(l), b(l))).collect();
                        let (got, want) = (c[i * sc[0] + j * sc[1]], element(&terms));
                        let place = format!("{m} {n} {k} {orders} {version:?} {i} {j}");
                        assert!(got.to_bits() == want.to_bits(), "{place}: {got} for {want}");
                    }
                }
            }
        }
    }
}
