//! Reverse-mode differentiation that is too simple to be wrong: a list of full copies.
//!
//! There are few kinds of entries. All views, broadcasts, lookups and concatenations are one of them,
//! whose reverse is the other one, sums.

use crate::array::{Array, UNIT, is_f32, loose, rounded};
use crate::special;
use std::collections::BTreeMap;

/// Number of an entry.
pub(crate) type Id = usize;

/// Whose gradient a leaf's is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Parameter(usize),
    Input(u32),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Unary {
    Neg,
    Relu,
    Tanh,
    Sigmoid,
    Exp,
    Log,
    Sqrt,
    Gelu,
    GeluTanh,
    /// Plus a number that `f32` holds.
    Offset(f64),
    /// Times a number that `f32` holds.
    Scale(f64),
    /// Divided by a number that `f32` holds.
    Over(f64),
    /// To 8 or 11 bits, and back.
    Round(i32),
}

#[derive(Debug, Clone)]
enum How {
    Leaf(Option<Owner>),
    /// `out[i] = from[part[i]][index[i]]`.
    Gather {
        from: Vec<Id>,
        part: Vec<u32>,
        index: Vec<u32>,
    },
    /// `out[map[i]] += from[i]`.
    Sum {
        from: Id,
        map: Vec<u32>,
    },
    Unary {
        from: Id,
        f: Unary,
    },
    Add(Id, Id),
    Mul(Id, Id),
    Div(Id, Id),
    MatMul {
        a: Id,
        b: Id,
        extents: [usize; 4],
    },
}

#[derive(Debug, Clone)]
struct Entry {
    value: Array,
    how: How,
    requires: bool,
    /// Of which step.
    epoch: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Tape {
    entries: Vec<Entry>,
    pub(crate) epoch: u32,
    pub(crate) no_grad: bool,
}

/// A gradient reached what an earlier step had consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Consumed;

impl Tape {
    fn push(&mut self, value: Array, how: How, requires: bool) -> Id {
        let requires = requires && !self.no_grad;
        self.entries.push(Entry {
            value,
            how,
            requires,
            epoch: self.epoch,
        });
        self.entries.len() - 1
    }

    pub(crate) fn leaf(&mut self, value: Array, owner: Option<Owner>) -> Id {
        self.entries.push(Entry {
            value,
            how: How::Leaf(owner),
            requires: owner.is_some(),
            epoch: self.epoch,
        });
        self.entries.len() - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets what was added since.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.entries.truncate(len);
    }

    pub(crate) fn value(&self, id: Id) -> &Array {
        &self.entries[id].value
    }

    pub(crate) fn shape(&self, id: Id) -> &[usize] {
        &self.entries[id].value.shape
    }

    pub(crate) fn requires(&self, id: Id) -> bool {
        self.entries[id].requires
    }

    /// A copy without history.
    pub(crate) fn detach(&mut self, id: Id) -> Id {
        let value = self.value(id).clone();
        self.leaf(value, None)
    }

    pub(crate) fn is_leaf(&self, id: Id) -> bool {
        matches!(self.entries[id].how, How::Leaf(_))
    }

    pub(crate) fn gather(&mut self, from: Id, shape: &[usize], index: Vec<u32>) -> Id {
        self.gather_of(vec![from], shape, vec![0; index.len()], index)
    }

    pub(crate) fn gather_of(
        &mut self,
        from: Vec<Id>,
        shape: &[usize],
        part: Vec<u32>,
        index: Vec<u32>,
    ) -> Id {
        let at = part.iter().zip(&index).map(|(&part, &index)| {
            let array = self.value(from[part as usize]);
            (array.value[index as usize], array.error[index as usize])
        });
        let (value, error) = at.unzip();
        let value = Array {
            shape: shape.to_vec(),
            value,
            error,
        };
        let requires = from.iter().any(|&id| self.requires(id));
        self.push(value, How::Gather { from, part, index }, requires)
    }

    pub(crate) fn sum(&mut self, from: Id, shape: &[usize], map: Vec<u32>) -> Id {
        let value = self.value(from).scatter(shape, &map);
        let requires = self.requires(from);
        self.push(value, How::Sum { from, map }, requires)
    }

    pub(crate) fn unary(&mut self, from: Id, f: Unary) -> Id {
        let value = self.value(from).map(|v, e| f.apply(v, e));
        let requires = self.requires(from);
        self.push(value, How::Unary { from, f }, requires)
    }

    pub(crate) fn add(&mut self, a: Id, b: Id) -> Id {
        let value = self
            .value(a)
            .zip(self.value(b), |(a, ea), (b, eb)| rounded(a + b, ea + eb));
        let requires = self.requires(a) || self.requires(b);
        self.push(value, How::Add(a, b), requires)
    }

    pub(crate) fn mul(&mut self, a: Id, b: Id) -> Id {
        let product = |(a, ea): (f64, f64), (b, eb): (f64, f64)| {
            rounded(a * b, a.abs() * eb + ea * b.abs() + ea * eb)
        };
        let value = self.value(a).zip(self.value(b), product);
        let requires = self.requires(a) || self.requires(b);
        self.push(value, How::Mul(a, b), requires)
    }

    pub(crate) fn div(&mut self, a: Id, b: Id) -> Id {
        let value = self.value(a).zip(self.value(b), |a, b| {
            let (value, error) = quotient(a, b);
            rounded(value, error)
        });
        let requires = self.requires(a) || self.requires(b);
        self.push(value, How::Div(a, b), requires)
    }

    pub(crate) fn matmul(&mut self, a: Id, b: Id, extents: [usize; 4], shape: &[usize]) -> Id {
        let value = self.value(a).matmul(self.value(b), extents, shape);
        let requires = self.requires(a) || self.requires(b);
        self.push(value, How::MatMul { a, b, extents }, requires)
    }

    /// The gradients of the leaves that have an owner, where that of `root` is one.
    pub(crate) fn backward(&self, root: Id) -> Result<BTreeMap<Owner, Array>, Consumed> {
        let mut grads: Vec<Vec<Array>> = vec![Vec::new(); root + 1];
        grads[root].push(Array::full(self.shape(root), 1.0));
        let mut owners: BTreeMap<Owner, Vec<Array>> = BTreeMap::new();
        for id in (0..=root).rev() {
            let entry = &self.entries[id];
            let contributions = std::mem::take(&mut grads[id]);
            if !entry.requires || contributions.is_empty() {
                continue;
            }
            if let How::Leaf(Some(owner)) = entry.how {
                owners.entry(owner).or_default().extend(contributions);
                continue;
            }
            if entry.epoch < self.epoch {
                return Err(Consumed);
            }
            let grad = total(contributions);
            for (to, grad) in self.pass(entry, &grad) {
                if self.requires(to) {
                    grads[to].push(grad);
                }
            }
        }
        Ok(owners
            .into_iter()
            .map(|(owner, grads)| (owner, total(grads)))
            .collect())
    }

    /// What an entry's gradient is to what it came from.
    fn pass(&self, entry: &Entry, grad: &Array) -> Vec<(Id, Array)> {
        match &entry.how {
            How::Leaf(_) => Vec::new(),
            How::Gather { from, part, index } => {
                let one = |(number, &to): (usize, &Id)| {
                    let of_part = |i: &usize| part[*i] as usize == number;
                    let mine: Vec<u32> =
                        (0..part.len()).filter(of_part).map(|i| i as u32).collect();
                    let map: Vec<u32> = mine.iter().map(|&i| index[i as usize]).collect();
                    (
                        to,
                        grad.gather(&[mine.len()], &mine)
                            .scatter(self.shape(to), &map),
                    )
                };
                from.iter().enumerate().map(one).collect()
            }
            How::Sum { from, map } => vec![(*from, grad.gather(self.shape(*from), map))],
            // The gradient goes through the same dtype.
            How::Unary {
                from,
                f: Unary::Round(bits),
            } => {
                vec![(*from, grad.map(|v, e| to_bits(v, e, *bits)))]
            }
            How::Unary { from, f } => {
                let values = self.value(*from).map(|v, e| f.derivative(v, e));
                vec![(*from, grad.times(&values))]
            }
            How::Add(a, b) => vec![(*a, grad.clone()), (*b, grad.clone())],
            How::Mul(a, b) => {
                vec![
                    (*a, grad.times(self.value(*b))),
                    (*b, grad.times(self.value(*a))),
                ]
            }
            How::Div(a, b) => {
                let over = |(a, ea), b| {
                    let (value, error) = quotient((a, ea), b);
                    (value, error + 4.0 * UNIT * value.abs())
                };
                let for_a = grad.zip(self.value(*b), over);
                let for_b = for_a
                    .times(&entry.value)
                    .map(|v, e| (-v, e + 4.0 * UNIT * v.abs()));
                vec![(*a, for_a), (*b, for_b)]
            }
            How::MatMul {
                a,
                b,
                extents: [batch, m, k, n],
            } => {
                let (a_t, b_t) = (
                    turned(self.value(*a), *batch, *m, *k),
                    turned(self.value(*b), *batch, *k, *n),
                );
                let for_a = grad.matmul(&b_t, [*batch, *m, *n, *k], self.shape(*a));
                let for_b = a_t.matmul(grad, [*batch, *k, *m, *n], self.shape(*b));
                vec![(*a, for_a), (*b, for_b)]
            }
        }
    }
}

/// Each matrix of a batch with rows for columns.
fn turned(array: &Array, batch: usize, rows: usize, columns: usize) -> Array {
    let mut map = Vec::with_capacity(array.len());
    for matrix in 0..batch {
        for column in 0..columns {
            map.extend((0..rows).map(|row| ((matrix * rows + row) * columns + column) as u32));
        }
    }
    array.gather(&[batch, columns, rows], &map)
}

fn total(mut grads: Vec<Array>) -> Array {
    if grads.len() == 1 {
        return grads.remove(0);
    }
    let (shape, count) = (grads[0].shape.clone(), grads[0].len());
    let map: Vec<u32> = (0..grads.len() * count)
        .map(|i| (i % count) as u32)
        .collect();
    let value = grads.iter().flat_map(|g| g.value.iter().copied()).collect();
    let error = grads.iter().flat_map(|g| g.error.iter().copied()).collect();
    let all = Array {
        shape: vec![map.len()],
        value,
        error,
    };
    all.scatter(&shape, &map)
}

/// A quotient of uncertain numbers, without the rounding of the division itself.
pub(crate) fn quotient((a, ea): (f64, f64), (b, eb): (f64, f64)) -> (f64, f64) {
    let value = a / b;
    let least = b.abs() - eb;
    if least <= 0.0 {
        return (value, f64::INFINITY);
    }
    (value, (ea + value.abs() * eb) / least)
}

/// How far a monotonous function moves while its argument does.
fn spread(f: impl Fn(f64) -> f64, v: f64, e: f64) -> f64 {
    if e == 0.0 {
        return 0.0;
    }
    let at = f(v);
    (f(v + e) - at).abs().max((f(v - e) - at).abs())
}

/// What a good kernel of a transcendental function may be off by.
fn transcendental(value: f64, error: f64) -> (f64, f64) {
    (value, error + UNIT * (8.0 * value.abs() + 2.0))
}

impl Unary {
    fn apply(self, v: f64, e: f64) -> (f64, f64) {
        match self {
            Self::Neg => (-v, e),
            Self::Relu => (v.max(0.0), if v + e <= 0.0 { 0.0 } else { e }),
            Self::Tanh => transcendental(v.tanh(), spread(f64::tanh, v, e)),
            Self::Sigmoid => transcendental(special::sigmoid(v), spread(special::sigmoid, v, e)),
            Self::Exp => transcendental(v.exp(), spread(f64::exp, v, e)),
            Self::Log => transcendental(v.ln(), spread(f64::ln, v, e)),
            Self::Sqrt => rounded(v.sqrt(), spread(|x| x.max(0.0).sqrt(), v, e)),
            Self::Gelu => transcendental(special::gelu(v).0, 1.2 * e),
            Self::GeluTanh => transcendental(special::gelu_tanh(v).0, 1.2 * e),
            Self::Offset(by) => rounded(v + by, e),
            Self::Scale(by) => rounded(v * by, e * by.abs()),
            Self::Over(by) => rounded(v / by, e / by.abs()),
            Self::Round(bits) => to_bits(v, e, bits),
        }
    }

    fn derivative(self, v: f64, e: f64) -> (f64, f64) {
        match self {
            Self::Neg => (-1.0, 0.0),
            Self::Relu if v - e > 0.0 => (1.0, 0.0),
            Self::Relu if v + e < 0.0 || e == 0.0 => (0.0, 0.0),
            Self::Relu => (f64::from(u8::from(v > 0.0)), 1.0),
            Self::Tanh => {
                let slope = |x: f64| 1.0 - x.tanh() * x.tanh();
                transcendental(slope(v), e)
            }
            Self::Sigmoid => {
                let y = special::sigmoid(v);
                transcendental(y * (1.0 - y), e)
            }
            Self::Exp => transcendental(v.exp(), spread(f64::exp, v, e)),
            Self::Log => transcendental(1.0 / v, quotient((1.0, 0.0), (v, e)).1),
            Self::Sqrt => {
                let (root, error) = Self::Sqrt.apply(v, e);
                let (value, error) = quotient((0.5, 0.0), (root, error));
                transcendental(value, error)
            }
            Self::Gelu => transcendental(special::gelu(v).1, 1.2 * e),
            Self::GeluTanh => transcendental(special::gelu_tanh(v).1, 1.2 * e),
            Self::Offset(_) | Self::Round(_) => (1.0, 0.0),
            Self::Scale(by) => (by, 0.0),
            Self::Over(by) => loose(1.0 / by, 0.0),
        }
    }
}

/// Rounded to so many bits: the number itself is known where what goes in is.
pub(crate) fn to_bits(v: f64, e: f64, bits: i32) -> (f64, f64) {
    if v == 0.0 && e == 0.0 {
        return (0.0, 0.0);
    }
    let mut unit = 2.0_f64.powi(v.abs().max(e).log2().floor() as i32 - bits + 1);
    if bits == 11 {
        // F16 has few exponents.
        unit = unit.max(2.0_f64.powi(-24));
    }
    if e == 0.0 && is_f32(v) {
        let steps = v / unit;
        let below = steps.floor();
        let up = match steps - below {
            rest if rest > 0.5 => 1.0,
            rest if rest < 0.5 => 0.0,
            _ => below.rem_euclid(2.0),
        };
        return ((below + up) * unit, 0.0);
    }
    (v, e + unit)
}
