//! Gradients of the gradients of norms, along rows and of channels, and of their statistics, from other
//! operations.
//!
//! With `n = (x - mean) rstd`, where a norm without a mean takes it as 0, `a = g weight` and
//! `L(v) = rstd (v - mean v - n mean(n v))`, the first gradients are `L(a)` in the input, the sum of rows of
//! `g n` in the weight, and that of `g` in the bias. Given `h`, `k` and `l`, their gradients, and
//! `q = g k - rstd (h mean(n a) + a mean(n h))`, the gradient in `n`:
//! - in `g`: `weight L(h) + k n + l`; in the weight: the sum of rows of `g L(h)`
//! - in the input: `q rstd`; in the mean: the negative of its sum
//! - in `rstd`: `sum(h L(a) + q n) / rstd`
//!
//! Where statistics are given, `L(v) = rstd v`, and `q = g k`. A [`Grid`] says what shares statistics, and what
//! an element of the weight.

use crate::ops::gradients::{add_result as add, reduce_to, times};
use crate::{Add, Cast, Copy, Div, DivScalar, Mean, Neg, Square, Sub, Sum};
use highwater_graph::{Backward, Op, OpError, Operand, Shape};
use smallvec::SmallVec;
use std::sync::Arc;

/// How a norm's input is seen while its gradients are made, so that statistics and the weight broadcast.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    /// The input's shape, or that with some dimensions taken apart or together.
    pub(crate) full: Shape,
    /// The statistics' extents in it.
    pub(crate) statistics: Shape,
    /// The weight's.
    pub(crate) weight: Shape,
    /// The dimensions over which statistics are.
    pub(crate) dims: Vec<usize>,
}

impl Grid {
    /// Statistics of each row, a weight for each column.
    pub(crate) fn of_rows(x: &Shape) -> Self {
        let last = x.rank().saturating_sub(1);
        let width = x.last().copied().unwrap_or(1);
        Self {
            full: x.clone(),
            statistics: x[..last].iter().copied().chain([1]).collect(),
            weight: [width].into(),
            dims: vec![last],
        }
    }

    /// How many elements share statistics.
    fn count(&self) -> usize {
        self.dims.iter().map(|&dim| self.full[dim]).product()
    }

    fn sum(&self, backward: &mut Backward<'_>, x: Operand) -> Result<Operand, OpError> {
        let (dims, keepdim) = (self.dims.clone(), true);
        backward.emit_one(Sum { dims, keepdim }, &[x])
    }

    /// The mean of a product over what shares statistics.
    fn mean_of_product(
        &self,
        backward: &mut Backward<'_>,
        a: &Operand,
        b: &Operand,
    ) -> Result<Operand, OpError> {
        let product = times(backward, a, b)?;
        let (dims, keepdim) = (self.dims.clone(), true);
        backward.emit_one(Mean { dims, keepdim }, &[product])
    }
}

/// A norm's backward, as its gradients want to know it.
pub(crate) struct Second {
    pub(crate) grid: Grid,
    /// Whether statistics are of the input itself, and not given.
    pub(crate) own: bool,
    /// Whether there is a mean, behind `g` and the input.
    pub(crate) mean: bool,
    /// Whether there is a weight, the last input.
    pub(crate) affine: bool,
    /// Which of the gradients in input, weight and bias were outputs.
    pub(crate) wanted: [bool; 3],
    /// The operation that computes `L`.
    pub(crate) linear: Arc<dyn Op>,
}

/// Inputs of the backward operation in the dtype of the statistics, and what is made of them.
struct Parts {
    inputs: SmallVec<[Operand; 5]>,
    /// These as the grid sees them.
    g: Operand,
    rstd: Operand,
    weight: Option<Operand>,
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

impl Second {
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
        let mut grad_of = |wanted: bool, shape: &Shape| {
            outputs += usize::from(wanted);
            let grad = wanted.then(|| backward.grad(outputs - 1)).flatten();
            let Some(grad) = grad else {
                return Ok(None);
            };
            let grad = cast(backward, grad, &statistic)?;
            seen_as(backward, grad, shape).map(Some)
        };
        let (Grid { full, weight, .. }, [h, k, l]) = (&self.grid, self.wanted);
        let (h, k, l) = (grad_of(h, full)?, grad_of(k, weight)?, grad_of(l, weight)?);
        let mut parts = self.parts(backward)?;
        if let Some(h) = &h {
            self.of_input_grad(backward, &mut parts, h)?;
        }
        if let Some(k) = &k {
            parts.add(backward, 0, |parts, b| times(b, &parts.n, k))?;
        }
        if let Some(l) = &l {
            parts.add(backward, 0, |_, _| repeated(l, full))?;
        }
        self.through_rows(backward, &mut parts, [h, k])?;
        for (i, grad) in parts.grads.into_iter().enumerate() {
            if let Some(grad) = grad {
                let input = backward.input(i);
                let grad = cast(backward, grad, &input)?;
                let grad = seen_as(backward, grad, input.shape())?;
                backward.set(i, grad);
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
        let grid = &self.grid;
        let mut seen = |i: usize, shape: &Shape| seen_as(backward, inputs[i].clone(), shape);
        let (g, x) = (seen(0, &grid.full)?, seen(Self::X, &grid.full)?);
        let mean = self.mean.then(|| seen(Self::MEAN, &grid.statistics));
        let rstd = seen(self.rstd(), &grid.statistics)?;
        let weight = self.weight().map(|weight| seen(weight, &grid.weight));
        let (mean, weight) = (mean.transpose()?, weight.transpose()?);
        let n = normalised(backward, x, mean, &rstd)?;
        let a = match &weight {
            Some(weight) => times(backward, &g, weight)?,
            None => g.clone(),
        };
        Ok(Parts {
            grads: inputs.iter().map(|_| None).collect(),
            inputs,
            g,
            rstd,
            weight,
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
        parts.add(backward, 0, |parts, b| match &parts.weight {
            Some(weight) => times(b, &of_h, weight),
            None => Ok(of_h.clone()),
        })?;
        match self.weight() {
            Some(weight) => parts.add(backward, weight, |parts, b| {
                let rows = times(b, &parts.g, &of_h)?;
                reduce_to(b, rows, &self.grid.weight)
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
            self.q(backward, parts, [&h, &k])?
        } else {
            None
        };
        if let Some(q) = &q {
            let by_rstd = times(backward, q, &parts.rstd)?;
            parts.add(backward, Self::X, |_, _| Ok(by_rstd.clone()))?;
            if self.mean {
                parts.add(backward, Self::MEAN, |_, b| {
                    let sum = self.grid.sum(b, by_rstd)?;
                    b.emit_one(Neg, &[sum])
                })?;
            }
        }
        let [None, None] = [&h, &q] else {
            return parts.add(backward, of_rstd, |parts, b| {
                self.of_rstd(b, parts, [&h, &q])
            });
        };
        Ok(())
    }

    /// The gradient in `rstd`, of which there is `h` or `q`.
    fn of_rstd(
        &self,
        backward: &mut Backward<'_>,
        parts: &Parts,
        [h, q]: [&Option<Operand>; 2],
    ) -> Result<Operand, OpError> {
        let of_h = match h {
            Some(h) => {
                let of_a = self.linear(backward, parts, &parts.a)?;
                Some(times(backward, h, &of_a)?)
            }
            None => None,
        };
        let of_q = match q {
            Some(q) => Some(times(backward, q, &parts.n)?),
            None => None,
        };
        let all = match (of_h, of_q) {
            (Some(of_h), Some(of_q)) => backward.emit_one(Add, &[of_h, of_q])?,
            (one, other) => one.or(other).unwrap_or_else(|| parts.n.clone()),
        };
        let sum = self.grid.sum(backward, all)?;
        backward.emit_one(Div, &[sum, parts.rstd.clone()])
    }

    /// `L(v)`
    fn linear(
        &self,
        backward: &mut Backward<'_>,
        parts: &Parts,
        v: &Operand,
    ) -> Result<Operand, OpError> {
        let v = seen_as(backward, v.clone(), parts.inputs[Self::X].shape())?;
        let mut inputs = vec![v];
        inputs.extend_from_slice(&parts.inputs[Self::X..=self.rstd()]);
        let of_v = backward.emit_shared(Arc::clone(&self.linear), &inputs)?;
        seen_as(backward, of_v, &self.grid.full)
    }

    /// The gradient in `n`.
    fn q(
        &self,
        backward: &mut Backward<'_>,
        parts: &Parts,
        [h, k]: [&Option<Operand>; 2],
    ) -> Result<Option<Operand>, OpError> {
        let Parts { rstd, n, a, .. } = parts;
        let of_k = match k {
            Some(k) => Some(times(backward, &parts.g, k)?),
            None => None,
        };
        let Some(h) = h.as_ref().filter(|_| self.own) else {
            return Ok(of_k);
        };
        let mean_a = self.grid.mean_of_product(backward, n, a)?;
        let mean_h = self.grid.mean_of_product(backward, n, h)?;
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
}

/// Adds to the gradient of a norm's input, the first, what its statistics' gradients add:
/// `(of mean - of rstd rstd^2 n) / count`.
pub(crate) fn of_statistics(
    backward: &mut Backward<'_>,
    grid: &Grid,
    mean: Option<usize>,
    rstd: usize,
) -> Result<(), OpError> {
    let of_mean = mean.and_then(|i| backward.grad(i));
    let of_rstd = backward.grad(rstd);
    if !backward.needs(0) || of_mean.is_none() && of_rstd.is_none() {
        return Ok(());
    }
    let input = backward.input(0);
    let by_count = DivScalar {
        value: grid.count() as f64,
    };
    let column = |backward: &mut Backward<'_>, statistic: Operand| {
        let statistic = cast(backward, statistic, &input)?;
        seen_as(backward, statistic, &grid.statistics)
    };
    if let Some(grad) = of_mean {
        let grad = column(backward, grad)?;
        let grad = backward.emit_one(by_count, &[grad])?;
        let grad = repeated(&grad, &grid.full)?;
        let grad = seen_as(backward, grad, input.shape())?;
        add(backward, 0, grad)?;
    }
    if let Some(grad) = of_rstd {
        let grad = column(backward, grad)?;
        let mean = mean.map(|i| backward.output(i));
        let mean = mean.map(|mean| column(backward, mean)).transpose()?;
        let rstd = backward.output(rstd);
        let rstd = column(backward, rstd)?;
        let x = seen_as(backward, input.clone(), &grid.full)?;
        let n = normalised(backward, x, mean, &rstd)?;
        let square = backward.emit_one(Square, &[rstd])?;
        let factor = times(backward, &grad, &square)?;
        let factor = backward.emit_one(by_count, &[factor])?;
        let product = times(backward, &n, &factor)?;
        let grad = backward.emit_one(Neg, &[product])?;
        let grad = seen_as(backward, grad, input.shape())?;
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
        x = backward.emit_one(Sub, &[x, mean])?;
    }
    times(backward, &x, rstd)
}

fn cast(backward: &mut Backward<'_>, x: Operand, like: &Operand) -> Result<Operand, OpError> {
    let dtype = like.spec.dtype;
    if x.spec.dtype == dtype {
        return Ok(x);
    }
    backward.emit_one(Cast { dtype }, &[x])
}

fn refused(shape: &Shape, x: &Operand) -> OpError {
    OpError::shape("norm", shape.to_string(), x.spec.to_string())
}

/// As a tensor of another shape: a view, or a copy where that cannot be one.
fn seen_as(backward: &mut Backward<'_>, mut x: Operand, shape: &Shape) -> Result<Operand, OpError> {
    if x.shape() == shape {
        return Ok(x);
    }
    if x.spec.layout.reshape(shape).is_none() {
        x = backward.emit_one(Copy, &[x])?;
    }
    let layout = x.spec.layout.reshape(shape);
    let layout = layout.ok_or_else(|| refused(shape, &x))?;
    Ok(x.with_layout(layout))
}

/// Seen as a larger one.
fn repeated(x: &Operand, shape: &Shape) -> Result<Operand, OpError> {
    let layout = x.spec.layout.expand(shape);
    Ok(x.with_layout(layout.ok_or_else(|| refused(shape, x))?))
}
