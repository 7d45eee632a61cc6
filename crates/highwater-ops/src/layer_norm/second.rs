//! Gradients of the gradients of `layer_norm` and `rms_norm`, and of their statistics, from other
//! operations.
//!
//! With `n = (x - mean) rstd`, where a norm without a mean takes it as 0, `a = g weight` and
//! `L(v) = rstd (v - mean v - n mean(n v))`, the first gradients are `L(a)` in the input, the sum of rows of
//! `g n` in the weight, and that of `g` in the bias. Given `h`, `k` and `l`, their gradients, and
//! `q = g k - rstd (h mean(n a) + a mean(n h))`, the gradient in `n`:
//! - in `g`: `weight L(h) + k n + l`; in the weight: the sum of rows of `g L(h)`
//! - in the input: `q rstd`; in the mean: the negative of its sum
//! - in `rstd`: `sum(h L(a) + q n) / rstd`

use crate::pointwise::{add_result as add, reduce_to, times};
use crate::softmax::line_sum;
use crate::{Add, Cast, Div, DivScalar, Mean, Neg, Square, Sub};
use highwater_graph::{Backward, Op, OpError, Operand};
use smallvec::SmallVec;

/// A norm's backward, as its gradients want to know it.
pub(crate) struct Second<O> {
    /// Whether there is a mean, behind `g` and the input.
    pub(crate) mean: bool,
    /// Whether there is a weight, the last input.
    pub(crate) affine: bool,
    /// Which of the gradients in input, weight and bias were outputs.
    pub(crate) wanted: [bool; 3],
    /// The operation that computes `L`.
    pub(crate) linear: O,
}

/// Inputs of the backward operation in the dtype of the statistics, and what is made of them.
struct Parts {
    inputs: SmallVec<[Operand; 5]>,
    /// As a column.
    rstd: Operand,
    n: Operand,
    a: Operand,
    /// What the inputs get.
    grads: SmallVec<[Option<Operand>; 5]>,
}

impl Parts {
    /// Adds to the gradient of the `i`-th input, if it is wanted.
    fn add(
        &mut self,
        backward: &mut Backward<'_>,
        i: usize,
        make: impl FnOnce(&Self, &mut Backward<'_>) -> Result<Operand, OpError>,
    ) -> Result<(), OpError> {
        if !backward.needs(i) {
            return Ok(());
        }
        let grad = make(self, backward)?;
        let sum = match self.grads[i].take() {
            Some(so_far) => backward.emit_one(Add, &[so_far, grad])?,
            None => grad,
        };
        self.grads[i] = Some(sum);
        Ok(())
    }
}

impl<O: Op + Clone> Second<O> {
    const X: usize = 1;
    const MEAN: usize = 2;

    fn rstd(&self) -> usize {
        2 + usize::from(self.mean)
    }

    fn weight(&self) -> Option<usize> {
        self.affine.then(|| self.rstd() + 1)
    }

    pub(crate) fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let statistic = backward.input(self.rstd());
        let mut outputs = 0;
        let mut grad_of = |wanted: bool| {
            outputs += usize::from(wanted);
            let grad = wanted.then(|| backward.grad(outputs - 1)).flatten();
            grad.map(|grad| cast(backward, grad, &statistic))
                .transpose()
        };
        let [h, k, l] = self.wanted;
        let (h, k, l) = (grad_of(h)?, grad_of(k)?, grad_of(l)?);
        let mut parts = self.parts(backward)?;
        if let Some(h) = &h {
            self.of_input_grad(backward, &mut parts, h)?;
        }
        if let Some(k) = &k {
            parts.add(backward, 0, |parts, b| times(b, &parts.n, k))?;
        }
        if let Some(l) = &l {
            parts.add(backward, 0, |parts, _| {
                let shape = parts.inputs[0].shape();
                let repeated = l.spec.layout.expand(shape);
                let refused = || OpError::shape("norm", shape.to_string(), l.spec.to_string());
                Ok(l.with_layout(repeated.ok_or_else(refused)?))
            })?;
        }
        self.through_rows(backward, &mut parts, [h, k])?;
        for (i, grad) in parts.grads.into_iter().enumerate() {
            if let Some(grad) = grad {
                let input = backward.input(i);
                let grad = cast(backward, grad, &input)?;
                backward.set(i, seen_as(&grad, input.shape())?);
            }
        }
        Ok(())
    }

    fn parts(&self, backward: &mut Backward<'_>) -> Result<Parts, OpError> {
        let like = backward.input(self.rstd());
        let mut inputs: SmallVec<[Operand; 5]> = SmallVec::new();
        for i in 0..backward.inputs() {
            let input = backward.input(i);
            inputs.push(cast(backward, input, &like)?);
        }
        let x = inputs[Self::X].clone();
        let mean = self.mean.then(|| inputs[Self::MEAN].clone());
        let rstd = column(backward, inputs[self.rstd()].clone(), &x)?;
        let n = normalised(backward, x, mean, &rstd)?;
        let a = match self.weight() {
            Some(weight) => times(backward, &inputs[0], &inputs[weight])?,
            None => inputs[0].clone(),
        };
        Ok(Parts {
            grads: inputs.iter().map(|_| None).collect(),
            inputs,
            rstd,
            n,
            a,
        })
    }

    /// What `h` brings to `g` and the weight.
    fn of_input_grad(
        &self,
        backward: &mut Backward<'_>,
        parts: &mut Parts,
        h: &Operand,
    ) -> Result<(), OpError> {
        let of_h = self.linear(backward, parts, h)?;
        let weight = self.weight();
        parts.add(backward, 0, |parts, b| match weight {
            Some(weight) => times(b, &of_h, &parts.inputs[weight]),
            None => Ok(of_h.clone()),
        })?;
        match weight {
            Some(weight) => parts.add(backward, weight, |parts, b| {
                let rows = times(b, &parts.inputs[0], &of_h)?;
                reduce_to(b, rows, parts.inputs[weight].shape())
            }),
            None => Ok(()),
        }
    }

    /// The gradients in input and statistics.
    fn through_rows(
        &self,
        backward: &mut Backward<'_>,
        parts: &mut Parts,
        [h, k]: [Option<Operand>; 2],
    ) -> Result<(), OpError> {
        let of_rstd = self.rstd();
        let needs = (Self::X..=of_rstd).any(|i| backward.needs(i));
        let q = if needs {
            q(backward, parts, [&h, &k])?
        } else {
            None
        };
        let Some(q) = q else {
            return Ok(());
        };
        let by_rstd = times(backward, &q, &parts.rstd)?;
        parts.add(backward, Self::X, |_, _| Ok(by_rstd.clone()))?;
        if self.mean {
            parts.add(backward, Self::MEAN, |_, b| {
                let sum = sum_of_rows(b, by_rstd)?;
                b.emit_one(Neg, &[sum])
            })?;
        }
        parts.add(backward, of_rstd, |parts, b| {
            let mut all = times(b, &q, &parts.n)?;
            if let Some(h) = &h {
                let of_a = self.linear(b, parts, &parts.a)?;
                let product = times(b, h, &of_a)?;
                all = b.emit_one(Add, &[product, all])?;
            }
            let sum = sum_of_rows(b, all)?;
            b.emit_one(Div, &[sum, parts.rstd.clone()])
        })
    }

    /// `L(v)`
    fn linear(
        &self,
        backward: &mut Backward<'_>,
        parts: &Parts,
        v: &Operand,
    ) -> Result<Operand, OpError> {
        let mut inputs = vec![v.clone()];
        inputs.extend_from_slice(&parts.inputs[Self::X..=self.rstd()]);
        backward.emit_one(self.linear.clone(), &inputs)
    }
}

/// The gradient in `n`.
fn q(
    backward: &mut Backward<'_>,
    parts: &Parts,
    [h, k]: [&Option<Operand>; 2],
) -> Result<Option<Operand>, OpError> {
    let Parts {
        inputs, rstd, n, a, ..
    } = parts;
    let of_k = match k {
        Some(k) => Some(times(backward, &inputs[0], k)?),
        None => None,
    };
    let Some(h) = h else {
        return Ok(of_k);
    };
    let mean_a = mean_of_product(backward, n, a)?;
    let mean_h = mean_of_product(backward, n, h)?;
    let first = times(backward, h, &mean_a)?;
    let second = times(backward, a, &mean_h)?;
    let sum = backward.emit_one(Add, &[first, second])?;
    let scaled = times(backward, &sum, rstd)?;
    let q = match of_k {
        Some(of_k) => backward.emit_one(Sub, &[of_k, scaled])?,
        None => backward.emit_one(Neg, &[scaled])?,
    };
    Ok(Some(q))
}

/// Adds to the gradient of a norm's input, the first, what its statistics' gradients add:
/// `(of mean - of rstd rstd^2 n) / width`.
pub(crate) fn of_statistics(
    backward: &mut Backward<'_>,
    mean: Option<usize>,
    rstd: usize,
) -> Result<(), OpError> {
    let of_mean = mean.and_then(|i| backward.grad(i));
    let of_rstd = backward.grad(rstd);
    if !backward.needs(0) || of_mean.is_none() && of_rstd.is_none() {
        return Ok(());
    }
    let x = backward.input(0);
    let width = x.shape().last().copied().unwrap_or(1);
    let by_width = DivScalar {
        value: width as f64,
    };
    if let Some(grad) = of_mean {
        let grad = column(backward, grad, &x)?;
        let grad = backward.emit_one(by_width, &[grad])?;
        let repeated = grad.spec.layout.expand(x.shape());
        let refused = || OpError::shape("norm", x.spec.to_string(), grad.spec.to_string());
        add(backward, 0, grad.with_layout(repeated.ok_or_else(refused)?))?;
    }
    if let Some(grad) = of_rstd {
        let grad = column(backward, grad, &x)?;
        let mean = mean.map(|i| backward.output(i));
        let rstd = backward.output(rstd);
        let rstd = column(backward, rstd, &x)?;
        let n = normalised(backward, x, mean, &rstd)?;
        let square = backward.emit_one(Square, &[rstd])?;
        let factor = times(backward, &grad, &square)?;
        let factor = backward.emit_one(by_width, &[factor])?;
        let product = times(backward, &n, &factor)?;
        let grad = backward.emit_one(Neg, &[product])?;
        add(backward, 0, grad)?;
    }
    Ok(())
}

/// `(x - mean) rstd`
fn normalised(
    backward: &mut Backward<'_>,
    mut x: Operand,
    mean: Option<Operand>,
    rstd: &Operand,
) -> Result<Operand, OpError> {
    if let Some(mean) = mean {
        let mean = column(backward, mean, &x)?;
        x = backward.emit_one(Sub, &[x, mean])?;
    }
    times(backward, &x, rstd)
}

/// The mean of a product along the last dimension, which stays.
fn mean_of_product(
    backward: &mut Backward<'_>,
    a: &Operand,
    b: &Operand,
) -> Result<Operand, OpError> {
    let product = times(backward, a, b)?;
    let mean = Mean {
        dims: vec![product.shape().rank() - 1],
        keepdim: true,
    };
    backward.emit_one(mean, &[product])
}

/// Sums along the last dimension, which stays.
fn sum_of_rows(backward: &mut Backward<'_>, rows: Operand) -> Result<Operand, OpError> {
    let last = rows.shape().rank() - 1;
    line_sum(backward, rows, last)
}

/// A statistic as a column, in the dtype of the rows.
fn column(
    backward: &mut Backward<'_>,
    statistic: Operand,
    rows: &Operand,
) -> Result<Operand, OpError> {
    let statistic = cast(backward, statistic, rows)?;
    let lead = statistic.shape().iter().copied();
    let shape = lead.chain([1]).collect();
    seen_as(&statistic, &shape)
}

fn cast(backward: &mut Backward<'_>, x: Operand, like: &Operand) -> Result<Operand, OpError> {
    let dtype = like.spec.dtype;
    if x.spec.dtype == dtype {
        return Ok(x);
    }
    backward.emit_one(Cast { dtype }, &[x])
}

fn seen_as(x: &Operand, shape: &highwater_graph::Shape) -> Result<Operand, OpError> {
    let layout = x.spec.layout.reshape(shape);
    let refused = || OpError::shape("norm", shape.to_string(), x.spec.to_string());
    Ok(x.with_layout(layout.ok_or_else(refused)?))
}
