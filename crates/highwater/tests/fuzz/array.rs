//! Arrays of numbers as they should be, each with a bound of what arithmetic in `f32` may be off by.
//!
//! The bound follows from magnitudes as the value is computed: a rounding is half a unit in the last
//! place, and what was off before is carried on by the derivative. A bound of zero says that every
//! sound way to compute the value in `f32` gives exactly this.

/// The unit roundoff of `f32`.
pub(crate) const UNIT: f64 = 1.0 / (1_u64 << 24) as f64;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) value: Vec<f64>,
    pub(crate) error: Vec<f64>,
}

/// How many roundings of a sum of `n` add up: they are as often up as down.
fn roundings(n: usize) -> f64 {
    if n <= 1 {
        0.0
    } else {
        4.0 * (n as f64).sqrt() + 4.0
    }
}

/// Whether `f32` holds it.
pub(crate) fn is_f32(value: f64) -> bool {
    f64::from(value as f32).to_bits() == value.to_bits() || value == 0.0
}

/// The step of which all are multiples, as the number of bits behind the point; `None` for very fine ones.
fn grain(values: &[f64]) -> Option<i32> {
    let mut bits = 0;
    for &value in values {
        while (value * f64::from(2.0_f32.powi(bits))).fract() != 0.0 {
            bits += 1;
            if bits > 22 {
                return None;
            }
        }
    }
    Some(bits)
}

impl Array {
    /// Numbers that are as they are.
    pub(crate) fn exact(shape: &[usize], value: Vec<f64>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), value.len());
        let error = vec![0.0; value.len()];
        Self {
            shape: shape.to_vec(),
            value,
            error,
        }
    }

    pub(crate) fn full(shape: &[usize], value: f64) -> Self {
        Self::exact(shape, vec![value; shape.iter().product()])
    }

    pub(crate) fn len(&self) -> usize {
        self.value.len()
    }

    fn is_exact(&self) -> bool {
        self.error.iter().all(|&error| error == 0.0)
    }

    /// Each element from a value and how far it may be off.
    pub(crate) fn map(&self, f: impl Fn(f64, f64) -> (f64, f64)) -> Self {
        let pairs = self.value.iter().zip(&self.error).map(|(&v, &e)| f(v, e));
        let (value, error) = pairs.unzip();
        Self {
            shape: self.shape.clone(),
            value,
            error,
        }
    }

    pub(crate) fn zip(
        &self,
        other: &Self,
        f: impl Fn((f64, f64), (f64, f64)) -> (f64, f64),
    ) -> Self {
        assert_eq!(self.len(), other.len());
        let own = self.value.iter().copied().zip(self.error.iter().copied());
        let others = other.value.iter().copied().zip(other.error.iter().copied());
        let (value, error) = own.zip(others).map(|(a, b)| f(a, b)).unzip();
        Self {
            shape: self.shape.clone(),
            value,
            error,
        }
    }

    /// Sum of two, in any order among others: exact only where nothing is rounded.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.zip(other, |(a, ea), (b, eb)| loose(a + b, ea + eb))
    }

    /// Product of two in a formula that is not said to be one multiplication.
    pub(crate) fn times(&self, other: &Self) -> Self {
        self.zip(other, |(a, ea), (b, eb)| {
            loose(a * b, a.abs() * eb + ea * b.abs() + ea * eb)
        })
    }

    pub(crate) fn scaled(&self, factor: f64) -> Self {
        // Who computes in `f32` has another factor, if that is not one of its numbers.
        let slack = if is_f32(factor) {
            0.0
        } else {
            UNIT * factor.abs()
        };
        self.map(|v, e| loose(v * factor, e * factor.abs() + slack * v.abs()))
    }

    /// `out[i] = self[map[i]]`.
    pub(crate) fn gather(&self, shape: &[usize], map: &[u32]) -> Self {
        let value = map.iter().map(|&i| self.value[i as usize]).collect();
        let error = map.iter().map(|&i| self.error[i as usize]).collect();
        Self {
            shape: shape.to_vec(),
            value,
            error,
        }
    }

    /// `out[map[i]] += self[i]`, in any order.
    pub(crate) fn scatter(&self, shape: &[usize], map: &[u32]) -> Self {
        let count = shape.iter().product();
        let (mut value, mut error) = (vec![0.0; count], vec![0.0; count]);
        let (mut sizes, mut terms) = (vec![0.0_f64; count], vec![0_usize; count]);
        for (i, &to) in map.iter().enumerate() {
            let to = to as usize;
            value[to] += self.value[i];
            error[to] += self.error[i];
            sizes[to] += self.value[i].abs();
            terms[to] += 1;
        }
        let grain = if self.is_exact() {
            grain(&self.value)
        } else {
            None
        };
        for to in 0..count {
            let exact =
                grain.is_some_and(|bits| sizes[to] * f64::from(2.0_f32.powi(bits)) <= 16_777_216.0);
            if !exact {
                error[to] += roundings(terms[to]) * UNIT * (sizes[to] + error[to]);
            }
        }
        Self {
            shape: shape.to_vec(),
            value,
            error,
        }
    }

    /// Batches of `[m, k]` times `[k, n]`, one beside the other.
    pub(crate) fn matmul(
        &self,
        other: &Self,
        [batch, m, k, n]: [usize; 4],
        shape: &[usize],
    ) -> Self {
        let (mut value, mut error) = (vec![0.0; batch * m * n], vec![0.0; batch * m * n]);
        let grains = if self.is_exact() && other.is_exact() {
            grain(&self.value).zip(grain(&other.value))
        } else {
            None
        };
        let mut sizes = vec![0.0; n];
        for row in 0..batch * m {
            let out = row * n..(row + 1) * n;
            sizes.fill(0.0);
            for i in 0..k {
                let (a, ea) = (self.value[row * k + i], self.error[row * k + i]);
                let at = (row / m * k + i) * n;
                let (b, eb) = (&other.value[at..at + n], &other.error[at..at + n]);
                let (value, error) = (&mut value[out.clone()], &mut error[out.clone()]);
                for j in 0..n {
                    value[j] += a * b[j];
                    sizes[j] += (a * b[j]).abs();
                    error[j] += a.abs() * eb[j] + ea * (b[j].abs() + eb[j]);
                }
            }
            for (j, at) in out.enumerate() {
                let exact = grains.is_some_and(|(a, b)| {
                    sizes[j] * f64::from(2.0_f32.powi(a)) * f64::from(2.0_f32.powi(b))
                        <= 16_777_216.0
                });
                if !exact {
                    error[at] += roundings(k + 1) * UNIT * (sizes[j] + error[at]);
                }
            }
        }
        Self {
            shape: shape.to_vec(),
            value,
            error,
        }
    }

    /// The largest bound, relative to one or to the number itself where that is more.
    pub(crate) fn looseness(&self) -> f64 {
        let one = |(v, e): (&f64, &f64)| {
            if v.is_finite() {
                e / v.abs().max(1.0)
            } else {
                f64::INFINITY
            }
        };
        self.value
            .iter()
            .zip(&self.error)
            .map(one)
            .fold(0.0, f64::max)
    }

    pub(crate) fn largest(&self) -> f64 {
        self.value.iter().map(|v| v.abs()).fold(0.0, |a, b| {
            if b.is_nan() { f64::INFINITY } else { a.max(b) }
        })
    }
}

/// A value that one operation of IEEE arithmetic rounds: exactly known where what goes in is.
pub(crate) fn rounded(value: f64, error: f64) -> (f64, f64) {
    if error == 0.0 {
        (f64::from(value as f32), 0.0)
    } else {
        (value, error + UNIT * (value.abs() + error))
    }
}

/// A value that some formula computes: exact where nothing needs rounding.
pub(crate) fn loose(value: f64, error: f64) -> (f64, f64) {
    if error == 0.0 && is_f32(value) {
        (value, 0.0)
    } else {
        (value, error + 2.0 * UNIT * (value.abs() + error))
    }
}
