//! Operations on what is there.

use super::Generator;
use super::start::fill;
use crate::functions::broadcast;
use crate::program::{Dtype, Op, Operand, Statement};

impl Generator {
    pub(super) fn pointwise(&mut self) {
        let (x, _, _, dtype) = self.any();
        if dtype != Dtype::F32 {
            self.apply(Op::ToF32, vec![x]);
            return;
        }
        let by = *self
            .choices
            .of(&[2.0, 0.5, 3.0, -1.0, 0.1, 7.0, 1000.0, 0.0]);
        let op = match self.choices.below(20) {
            0 => Op::AddScalar(by),
            1 => Op::SubScalar(by),
            2 | 3 => Op::MulScalar(by),
            4 | 5 => Op::DivScalar(if by == 0.0 { 6.0 } else { by }),
            6 => Op::Neg,
            7 | 8 => Op::Relu,
            9 => Op::Tanh,
            10 => Op::Sigmoid,
            11 => Op::Exp,
            12 => Op::Log,
            13 => Op::Sqrt,
            14 => Op::Gelu,
            15 => Op::GeluTanh,
            16 => Op::Softmax,
            17 => Op::LayerNorm {
                affine: false,
                eps: *self.choices.of(&[1e-5, 0.1]),
            },
            18 => Op::Round(*self.choices.of(&[Dtype::Bf16, Dtype::F16])),
            _ => Op::ToF32,
        };
        if matches!(op, Op::Log | Op::Sqrt) {
            // Of a square and something, so that it is above zero.
            let Some(square) = self.apply(Op::Mul, vec![x, x]) else {
                return;
            };
            let Some(above) = self.apply(Op::AddScalar(0.5), vec![square]) else {
                return;
            };
            self.apply(op, vec![above]);
            return;
        }
        self.apply(op, vec![x]);
    }

    pub(super) fn binary(&mut self) {
        let (x, shape, ..) = self.any();
        let y = if self.choices.once_in(6) {
            x
        } else {
            match self.that(|other| broadcast(&shape, other).is_some()) {
                Some(y) => y,
                None => return,
            }
        };
        let op = match self.choices.below(8) {
            0 | 1 => Op::Add,
            2 => Op::Sub,
            3 => Op::Div,
            _ => Op::Mul,
        };
        let on = if self.choices.once_in(2) {
            vec![x, y]
        } else {
            vec![y, x]
        };
        self.apply(op, on);
    }

    pub(super) fn view(&mut self) {
        let (x, shape, ..) = self.any();
        let rank = shape.len();
        let dim = self.choices.below(rank);
        let op = match self.choices.below(9) {
            0 | 1 if rank > 1 => Op::Transpose(rank - 1, self.choices.below(rank)),
            2 if rank > 1 => {
                let mut order: Vec<usize> = (0..rank).collect();
                order.rotate_left(1 + self.choices.below(rank - 1));
                Op::Permute(order)
            }
            3 if rank > 0 => {
                let start = self.choices.below(shape[dim]);
                Op::Narrow {
                    dim,
                    start,
                    length: 1 + self.choices.below(shape[dim] - start),
                }
            }
            4 if rank > 0 => {
                let chunks = *self.choices.of(&[1, 2, 3, shape[dim].max(1)]);
                Op::Chunk {
                    chunks,
                    dim,
                    index: self.choices.below(chunks),
                }
            }
            5 => Op::Expand(self.expanded(&shape)),
            6 => Op::Reshape(self.reshaped(&shape)),
            7 => Op::Contiguous,
            8 => Op::Detach,
            _ => return,
        };
        // The handle of a parameter is the parameter.
        if op == Op::Contiguous && matches!(x, Operand::P(_)) {
            return;
        }
        self.apply(op, vec![x]);
    }

    fn expanded(&mut self, shape: &[usize]) -> Vec<usize> {
        let mut to = shape.to_vec();
        for extent in &mut to {
            if *extent == 1 {
                *extent = *self.choices.of(&self.extents);
            }
        }
        if to.len() < 4 && self.choices.once_in(2) {
            to.insert(0, *self.choices.of(&self.extents));
        }
        if to.iter().product::<usize>() > self.size.elements_most() {
            shape.to_vec()
        } else {
            to
        }
    }

    fn reshaped(&mut self, shape: &[usize]) -> Vec<usize> {
        let count: usize = shape.iter().product();
        match self.choices.below(3) {
            0 => vec![count],
            1 => {
                let fits = |extent: &usize| *extent > 0 && count.is_multiple_of(*extent);
                let extents: Vec<usize> = [2, 3, 4, 10].into_iter().filter(fits).collect();
                match extents.first() {
                    Some(&extent) => vec![extent, count / extent],
                    None => vec![count, 1],
                }
            }
            _ => {
                let mut turned = shape.to_vec();
                turned.reverse();
                turned
            }
        }
    }

    pub(super) fn reduction(&mut self) {
        let (x, shape, ..) = self.any();
        let whole = shape.is_empty() || self.choices.once_in(2);
        let dims = if whole {
            Vec::new()
        } else {
            vec![self.choices.below(shape.len())]
        };
        let keepdim = self.choices.once_in(3);
        let op = if self.choices.once_in(2) {
            Op::Sum { dims, keepdim }
        } else {
            Op::Mean { dims, keepdim }
        };
        self.apply(op, vec![x]);
    }

    pub(super) fn product(&mut self) {
        let (x, shape, ..) = self.any();
        let Some(&last) = shape.last() else { return };
        let bias = self.choices.once_in(2);
        match self.choices.below(3) {
            0 if shape.len() > 1 => {
                let width = *self.choices.of(&self.extents);
                let found = self.that(|other| other.len() > 1 && other[other.len() - 2] == last);
                let y = match found {
                    Some(y) => Some(y),
                    None => self.of_shape(&[last, width]),
                };
                if let Some(y) = y {
                    self.apply(Op::MatMul, vec![x, y]);
                }
            }
            1 | 2 => {
                let width = *self.choices.of(&self.extents);
                let found = self.that(|other| other.len() == 2 && other[1] == last);
                let Some(weight) = (match found {
                    Some(weight) => Some(weight),
                    None => self.of_shape(&[width, last]),
                }) else {
                    return;
                };
                let rows = self
                    .known()
                    .into_iter()
                    .find(|k| k.0 == weight)
                    .map_or(1, |k| k.1[0]);
                let mut on = vec![x, weight];
                if bias {
                    let Some(bias) = self.of_shape(&[rows]) else {
                        return;
                    };
                    on.push(bias);
                }
                self.apply(Op::Linear { bias }, on);
            }
            _ => {}
        }
    }

    pub(super) fn composite(&mut self) {
        let (x, shape, ..) = self.any();
        match self.choices.below(6) {
            0 if !shape.is_empty() => {
                let width = [*shape.last().unwrap_or(&1)];
                if let (Some(w), Some(b)) = (self.of_shape(&width), self.of_shape(&width)) {
                    self.apply(
                        Op::LayerNorm {
                            affine: true,
                            eps: 1e-2,
                        },
                        vec![x, w, b],
                    );
                }
            }
            1 if !shape.is_empty() => {
                let dim = self.choices.below(shape.len());
                let mut on = vec![x, x];
                if let Some(y) = self.of_shape(&shape) {
                    on[self.choices.below(2)] = y;
                }
                self.apply(Op::Cat { dim }, on);
            }
            2 => self.embedding(x, &shape),
            3 => self.labelled(x, &shape),
            4 => self.attention(x, &shape),
            _ => {
                let all = [
                    Op::Tanh,
                    Op::Relu,
                    Op::MulScalar(0.5),
                    Op::Sigmoid,
                    Op::Neg,
                    Op::AddScalar(1.0),
                ];
                let ops: Vec<Op> = (0..2 + self.choices.below(3))
                    .map(|_| self.choices.of(&all).clone())
                    .collect();
                let segments = 1 + self.choices.below(ops.len());
                self.push(Statement::Sequential {
                    to: self.next,
                    ops,
                    on: x,
                    segments,
                });
            }
        }
    }

    fn labels(&mut self, shape: &[usize], below: usize, ignore: bool) -> Option<Operand> {
        let made = Operand::T(self.next);
        let fill = fill(&mut self.choices);
        let labels = Statement::Labels {
            to: self.next,
            shape: shape.to_vec(),
            fill,
            below,
            ignore,
        };
        self.push(labels).then_some(made)
    }

    fn embedding(&mut self, weight: Operand, shape: &[usize]) {
        let &[rows, _] = shape else { return };
        let of = *self.choices.of(&self.extents);
        if let Some(labels) = self.labels(&[of.min(40)], rows, false) {
            self.apply(Op::Embedding, vec![weight, labels]);
        }
    }

    fn labelled(&mut self, x: Operand, shape: &[usize]) {
        let Some((&width, lead)) = shape.split_last() else {
            return;
        };
        let ignore = self.choices.once_in(2);
        if self.choices.once_in(2) {
            if let Some(labels) = self.labels(lead, width, ignore) {
                self.apply(Op::CrossEntropy, vec![x, labels]);
            }
            return;
        }
        let classes = *self.choices.of(&self.extents);
        let Some(weight) = self.of_shape(&[classes, width]) else {
            return;
        };
        if let Some(labels) = self.labels(lead, classes, ignore) {
            self.apply(Op::LinearCrossEntropy, vec![x, weight, labels]);
        }
    }

    fn attention(&mut self, x: Operand, shape: &[usize]) {
        let count: usize = shape.iter().product();
        let Some(&width) = shape.last() else { return };
        if !(1..=256).contains(&width) {
            return;
        }
        let long = [1, 1, count / width, width];
        let x = if shape.len() == 4 {
            Some(x)
        } else {
            self.apply(Op::Reshape(long.to_vec()), vec![x])
        };
        let shape = if shape.len() == 4 {
            shape.to_vec()
        } else {
            long.to_vec()
        };
        // The interpreter keeps every score.
        if shape.iter().rev().skip(1).product::<usize>() * shape[2] > 1 << 20 {
            return;
        }
        let Some(q) = x else { return };
        let Some(k) = self.of_shape(&shape) else {
            return;
        };
        let v = if self.choices.once_in(3) {
            Some(k)
        } else {
            self.of_shape(&shape)
        };
        if let Some(v) = v {
            let causal = self.choices.once_in(2);
            self.apply(Op::Attention { causal }, vec![q, k, v]);
        }
    }
}
