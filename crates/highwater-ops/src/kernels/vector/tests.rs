//! Vectors beside plain numbers, on each instruction set.

#![expect(unsafe_code, reason = "vectors are read and written by address")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::{Simd, Task, Version, dispatch, exp2, word};

const VERSIONS: [Version; 3] = [Version::Best, Version::Avx2, Version::Portable];

/// Fills `y` with `2^x`; both are of whole vectors.
struct Powers<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Task for Powers<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for at in (0..self.x.len()).step_by(S::LANES) {
            let power = exp2(s, s.load(&self.x[at..]));
            s.store(&mut self.y[at..], power);
        }
    }
}

fn powers(version: Version, x: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    dispatch(version, Powers { x, y: &mut y });
    y
}

#[test]
fn powers_of_two_are_those_of_the_library() {
    let x: Vec<f32> = (0..1 << 16)
        .map(|i| -126.0 + 253.0 * i as f32 / 65_536.0)
        .collect();
    for version in VERSIONS {
        for (&x, y) in x.iter().zip(powers(version, &x)) {
            let exact = f64::from(x).exp2();
            let ulp = f64::from((exact as f32).next_up()) - f64::from(exact as f32);
            let error = (f64::from(y) - exact).abs() / ulp;
            assert!(error <= 1.5, "{version:?}, {x}: {error} ulp");
        }
    }
}

#[test]
fn powers_beyond_all_numbers_are_zero_and_infinity() {
    let mut x = [0.0; 16];
    x[..6].copy_from_slice(&[-128.0, -1e30, f32::NEG_INFINITY, 129.0, 1e30, f32::INFINITY]);
    (x[6], x[8]) = (3.0, f32::NAN);
    let infinity = f32::INFINITY;
    let want = [0.0, 0.0, 0.0, infinity, infinity, infinity, 8.0, 1.0].map(f32::to_bits);
    for version in VERSIONS {
        let y = powers(version, &x);
        let got: Vec<u32> = y[..8].iter().map(|y| y.to_bits()).collect();
        assert_eq!(got, want, "{version:?}");
        assert!(y[8].is_nan(), "{version:?}");
    }
}

/// What is moved and put together, of 16 numbers in each row.
struct Moves<'a> {
    rows: &'a [[f32; 16]; 16],
    /// The rows transposed, and the same times 0.5.
    turned: [&'a mut [[f32; 16]; 16]; 2],
    /// Words of the halves of the first row's bits and of the second's, of the numbers of both rows, and the
    /// larger of these.
    made: [&'a mut [f32; 16]; 3],
}

impl Task for Moves<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (rows, bytes) = (self.rows.as_ptr().cast::<f32>(), 16 * size_of::<f32>());
        let [interleaved, pairs, larger] = self.made;
        for (to, factor) in self.turned.into_iter().zip([None, Some(s.splat(0.5))]) {
            let to = to.as_mut_ptr().cast::<f32>();
            for (i, j) in (0..16 / S::LANES).flat_map(|i| (0..16 / S::LANES).map(move |j| (i, j))) {
                let (i, j) = (i * S::LANES, j * S::LANES);
                // SAFETY: a block of as many rows and columns as a vector has lanes, inside 16 of both.
                unsafe {
                    let from = rows.add(i * 16 + j);
                    s.transpose((from, bytes), (to.add(j * 16 + i), 16), factor);
                }
            }
        }
        let [first, second] = [&self.rows[0], &self.rows[1]];
        let halves: [&[u16]; 2] = [first, second].map(|row| bytemuck::cast_slice(&row[..]));
        for at in (0..16).step_by(S::LANES) {
            // SAFETY: of the 32 halves of a row as many as a vector has lanes, of the first 16.
            let words = unsafe { s.interleave(halves[0][at..].as_ptr(), halves[1][at..].as_ptr()) };
            s.store(&mut interleaved[at..], words);
            let [a, b] = [first, second].map(|row| s.load(&row[at..]));
            s.store(&mut pairs[at..], s.pair(a, b));
            s.store(&mut larger[at..], s.max(a, b));
        }
    }
}

#[test]
fn moves_are_those_of_numbers_one_by_one() {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 65_536.0 - 128.0
    };
    let rows: [[f32; 16]; 16] = std::array::from_fn(|_| std::array::from_fn(|_| next()));
    for version in VERSIONS {
        let mut turned = [[[0.0; 16]; 16]; 2];
        let mut made = [[0.0; 16]; 3];
        dispatch(
            version,
            Moves {
                rows: &rows,
                turned: turned.each_mut(),
                made: made.each_mut(),
            },
        );
        for (i, row) in rows.iter().enumerate() {
            for (j, x) in row.iter().enumerate() {
                let got = [turned[0][j][i], turned[1][j][i]].map(f32::to_bits);
                assert_eq!(got, [*x, x * 0.5].map(f32::to_bits), "{version:?}, {i} {j}");
            }
        }
        let halves: [&[u16]; 2] = [0, 1].map(|row: usize| bytemuck::cast_slice(&rows[row][..]));
        for i in 0..16 {
            let [a, b] = [rows[0][i], rows[1][i]];
            let interleaved = u32::from(halves[0][i]) | u32::from(halves[1][i]) << 16;
            let want = [interleaved, word(a, b).to_bits(), a.max(b).to_bits()];
            let got = made.map(|made| made[i].to_bits());
            assert_eq!(got, want, "{version:?}, {i}");
        }
    }
}
