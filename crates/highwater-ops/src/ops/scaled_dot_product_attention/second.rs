//! Gradients of the gradients, from other operations: with matrices of scores in memory, as no formula over
//! blocks is worth a kernel of its own. Penalties on gradients are of small models.
//!
//! With `p = exp(scale q k^T - lse)` where a query sees a key, else 0, and `e = do v^T - rows of (do o) + dlse`,
//! the first gradients are `scale (p e) k` in `q`, `scale (p e)^T q` in `k` and `p^T do` in `v`. Given `a`, `b`
//! and `c`, their gradients, with `w = scale (a k^T + q b^T)` and `s = p (w e + do c^T)`:
//! - in `q`: `scale (p e) b + scale s k`; in `k`: `scale (p e)^T a + scale s^T q`; in `v`: `(p w)^T do`
//! - in `do`: `(p w) v + p c - rows of (p w) o`; in `dlse`: rows of `p w`
//! - in `o`: `-do` times rows of `p w`; in `lse`: the negative of rows of `s`

use super::ScaledDotProductAttentionBackward;
use crate::kernels::float::sums_in;
use crate::ops::gradients::{add_result, line_sum, times};
use crate::{
    Add, Cast, Copy, CumSum, Exp, Full, Greater, MatMul, MulScalar, Neg, NotEqual, Sub, Sum,
    Triangle, Where,
};
use highwater_graph::{Backward, DType, OpError, Operand, Shape};

type Result<T> = std::result::Result<T, OpError>;

/// Queries of heads that share keys, and keys: the extents of what is computed.
#[derive(Debug, Clone, Copy)]
struct Extents {
    batch: usize,
    groups: usize,
    sharing: usize,
    queries: usize,
    keys: usize,
    width: usize,
}

impl Extents {
    /// Of rows for the queries: `[B, G, H / G T, width]`.
    fn rows(self, width: usize) -> Shape {
        let rows = self.sharing * self.queries;
        [self.batch, self.groups, rows, width].into()
    }

    /// Of rows for the keys.
    fn of_keys(self) -> Shape {
        [self.batch, self.groups, self.keys, self.width].into()
    }
}

/// The inputs, as matrices for each group in the dtype of sums, and what is made of them.
struct Parts {
    q: Operand,
    k: Operand,
    v: Operand,
    o: Operand,
    /// The gradient of `o`.
    grad: Option<Operand>,
    p: Operand,
    /// A matrix, or a column where only `lse` has a gradient.
    e: Operand,
    scale: f64,
}

pub(super) fn emit(
    op: &ScaledDotProductAttentionBackward,
    backward: &mut Backward<'_>,
) -> Result<()> {
    let extents = extents(backward);
    let parts = parts(op, backward, extents)?;
    let [a, b, c] = given(op, backward, extents)?;
    let mut w = None;
    for (left, right) in [(a.as_ref(), Some(&parts.k)), (Some(&parts.q), b.as_ref())] {
        if let (Some(left), Some(right)) = (left, right) {
            let product = product(backward, left, &turned(right)?)?;
            let product = scaled(backward, &product, op.scale)?;
            w = Some(sum(backward, w, product)?);
        }
    }
    let mut of_p = None;
    if let Some(w) = &w {
        of_p = Some(times(backward, w, &parts.e)?);
        through_rows(op, backward, &parts, w)?;
    }
    if let (Some(grad), Some(c)) = (&parts.grad, &c) {
        let product = product(backward, grad, &turned(c)?)?;
        of_p = Some(sum(backward, of_p, product)?);
        let of_grad = self::product(backward, &parts.p, c)?;
        set(backward, 5 + usize::from(op.documents), of_grad)?;
    }
    if let Some(of_p) = of_p {
        let s = times(backward, &parts.p, &of_p)?;
        through_scores(op, backward, &parts, &s)?;
    }
    let pe = times(backward, &parts.p, &parts.e)?;
    let pe = scaled(backward, &pe, op.scale)?;
    if let Some(b) = &b {
        let grad = product(backward, &pe, b)?;
        set(backward, 0, grad)?;
    }
    if let Some(a) = &a {
        let grad = product(backward, &turned(&pe)?, a)?;
        set(backward, 1, grad)?;
    }
    Ok(())
}

/// What `p w` brings to `v`, `o` and the gradients of the outputs.
fn through_rows(
    op: &ScaledDotProductAttentionBackward,
    backward: &mut Backward<'_>,
    parts: &Parts,
    w: &Operand,
) -> Result<()> {
    let of_o = 3 + usize::from(op.documents);
    let pw = times(backward, &parts.p, w)?;
    let rows = line_sum(backward, pw.clone(), 3)?;
    if op.lse_grad {
        set(backward, backward.inputs() - 1, rows.clone())?;
    }
    let Some(grad) = &parts.grad else {
        return Ok(());
    };
    let of_v = product(backward, &turned(&pw)?, grad)?;
    set(backward, 2, of_v)?;
    let negative = backward.emit_one(Neg, &[rows])?;
    let grad_of_o = times(backward, grad, &negative)?;
    set(backward, of_o, grad_of_o)?;
    let by_v = product(backward, &pw, &parts.v)?;
    let by_o = times(backward, &parts.o, &negative)?;
    let of_grad = backward.emit_one(Add, &[by_v, by_o])?;
    set(backward, of_o + 2, of_grad)
}

/// What `s`, the gradient in the scores, brings to `q`, `k` and `lse`.
fn through_scores(
    op: &ScaledDotProductAttentionBackward,
    backward: &mut Backward<'_>,
    parts: &Parts,
    s: &Operand,
) -> Result<()> {
    let rows = line_sum(backward, s.clone(), 3)?;
    let of_lse = backward.emit_one(Neg, &[rows])?;
    set(backward, 4 + usize::from(op.documents), of_lse)?;
    let s = scaled(backward, s, parts.scale)?;
    let of_q = product(backward, &s, &parts.k)?;
    set(backward, 0, of_q)?;
    let of_k = product(backward, &turned(&s)?, &parts.q)?;
    set(backward, 1, of_k)
}

fn extents(backward: &Backward<'_>) -> Extents {
    let (q, k) = (backward.input(0), backward.input(1));
    let (q, k) = (q.shape(), k.shape());
    Extents {
        batch: q[0],
        groups: k[1],
        sharing: q[1].checked_div(k[1]).unwrap_or(0),
        queries: q[2],
        keys: k[2],
        width: q[3],
    }
}

fn parts(
    op: &ScaledDotProductAttentionBackward,
    backward: &mut Backward<'_>,
    extents: Extents,
) -> Result<Parts> {
    let behind = 3 + usize::from(op.documents);
    let (of_queries, of_keys) = (extents.rows(extents.width), extents.of_keys());
    let column = extents.rows(1);
    let mut input = |i: usize, shape: &Shape| {
        let input = backward.input(i);
        wide(backward, input, shape)
    };
    let (q, k, v) = (
        input(0, &of_queries)?,
        input(1, &of_keys)?,
        input(2, &of_keys)?,
    );
    let (o, lse) = (input(behind, &of_queries)?, input(behind + 1, &column)?);
    let grad = op.output_grad.then(|| input(behind + 2, &of_queries));
    let grad = grad.transpose()?;
    let last = behind + 2 + usize::from(op.output_grad);
    let lse_grad = op.lse_grad.then(|| input(last, &column)).transpose()?;
    let scores = product(backward, &q, &turned(&k)?)?;
    let mut scores = scaled(backward, &scores, op.scale)?;
    if let Some(mask) = mask(op, backward, extents)? {
        let Extents { batch, groups, .. } = extents;
        let heads = [
            batch,
            groups,
            extents.sharing,
            extents.queries,
            extents.keys,
        ];
        let apart = seen_as(backward, scores, &heads.into())?;
        let masked = backward.emit_one(Add, &[apart, mask])?;
        scores = seen_as(backward, masked, &extents.rows(extents.keys))?;
    }
    let scores = backward.emit_one(Sub, &[scores, lse])?;
    let p = backward.emit_one(Exp, &[scores])?;
    let mut e = lse_grad;
    if let Some(grad) = &grad {
        let of_v = product(backward, grad, &turned(&v)?)?;
        let by_o = times(backward, grad, &o)?;
        let rows = line_sum(backward, by_o, 3)?;
        let difference = backward.emit_one(Sub, &[of_v, rows])?;
        e = Some(sum(backward, e, difference)?);
    }
    let nothing = || OpError::shape(super::BACKWARD, "a gradient", "none");
    Ok(Parts {
        e: e.ok_or_else(nothing)?,
        scale: op.scale,
        q,
        k,
        v,
        o,
        grad,
        p,
    })
}

/// The gradients of the outputs.
fn given(
    op: &ScaledDotProductAttentionBackward,
    backward: &mut Backward<'_>,
    extents: Extents,
) -> Result<[Option<Operand>; 3]> {
    let mut grads = [None, None, None];
    for (i, place) in grads.iter_mut().enumerate() {
        let grad = match op.packed {
            Some(packed) => {
                let shape = backward.input(0).shape().clone();
                let Some(flat) = backward.grad(0) else {
                    continue;
                };
                // Dense, and from the start of its storage.
                let flat = backward.emit_one(Copy, &[flat])?;
                flat.with_layout(packed.layout(i, &shape))
            }
            None => match backward.grad(i) {
                Some(grad) => grad,
                None => continue,
            },
        };
        let shape = match i {
            0 => extents.rows(extents.width),
            _ => extents.of_keys(),
        };
        *place = Some(wide(backward, grad, &shape)?);
    }
    Ok(grads)
}

/// Minus infinity where a query does not see a key, else 0: `[T, T]`, or `[B, 1, 1, T, T]`.
fn mask(
    op: &ScaledDotProductAttentionBackward,
    backward: &mut Backward<'_>,
    extents: Extents,
) -> Result<Option<Operand>> {
    let dtype = sums_in(backward.input(0).spec.dtype);
    let tokens = extents.queries;
    let mut mask = None;
    let behind = op.causal.then_some((true, 1));
    let before = op
        .window
        .map(|window| (false, -i64::try_from(window).unwrap_or(i64::MAX)));
    for (upper, diagonal) in behind.into_iter().chain(before) {
        let hidden = full(backward, dtype, f64::NEG_INFINITY, [tokens, tokens].into())?;
        let part = backward.emit_one(Triangle { upper, diagonal }, &[hidden])?;
        mask = Some(sum(backward, mask, part)?);
    }
    if op.documents {
        let others = others(backward, extents)?;
        let hidden = full(backward, dtype, f64::NEG_INFINITY, Shape::scalar())?;
        let shown = full(backward, dtype, 0.0, Shape::scalar())?;
        let part = backward.emit_one(Where, &[others, hidden, shown])?;
        mask = Some(sum(backward, mask, part)?);
    }
    Ok(mask)
}

/// Whether two positions are in different documents: `[B, 1, 1, T, T]`.
fn others(backward: &mut Backward<'_>, extents: Extents) -> Result<Operand> {
    let Extents { batch, queries, .. } = extents;
    let dtype = DType::F64;
    let lengths = backward.input(3);
    let count = lengths.shape()[1];
    let lengths = backward.emit_one(Cast { dtype }, &[lengths])?;
    let along = |dim| CumSum {
        dim,
        reverse: false,
    };
    let ends = backward.emit_one(along(1), &[lengths])?;
    let ends = seen_as(backward, ends, &[batch, count, 1].into())?;
    let ones = full(backward, dtype, 1.0, [queries].into())?;
    let positions = backward.emit_one(along(0), &[ones])?;
    let is_behind = backward.emit_one(Greater, &[positions, ends])?;
    let is_behind = backward.emit_one(Cast { dtype }, &[is_behind])?;
    let (dims, keepdim) = (vec![1], false);
    let number = backward.emit_one(Sum { dims, keepdim }, &[is_behind])?;
    let down = seen_as(backward, number.clone(), &[batch, 1, 1, queries, 1].into())?;
    let across = seen_as(backward, number, &[batch, 1, 1, 1, queries].into())?;
    backward.emit_one(NotEqual, &[down, across])
}

/// Adds to the gradient of an input, if it is wanted, in the input's shape and dtype.
fn set(backward: &mut Backward<'_>, i: usize, grad: Operand) -> Result<()> {
    if !backward.needs(i) {
        return Ok(());
    }
    let input = backward.input(i);
    let grad = seen_as(backward, grad, input.shape())?;
    let dtype = input.spec.dtype;
    let grad = if grad.spec.dtype == dtype {
        grad
    } else {
        backward.emit_one(Cast { dtype }, &[grad])?
    };
    add_result(backward, i, grad)
}

/// In the dtype of sums, as a tensor of another shape.
fn wide(backward: &mut Backward<'_>, x: Operand, shape: &Shape) -> Result<Operand> {
    let dtype = sums_in(x.spec.dtype);
    let x = if x.spec.dtype == dtype {
        x
    } else {
        backward.emit_one(Cast { dtype }, &[x])?
    };
    seen_as(backward, x, shape)
}

fn seen_as(backward: &mut Backward<'_>, mut x: Operand, shape: &Shape) -> Result<Operand> {
    if x.spec.layout.reshape(shape).is_none() {
        x = backward.emit_one(Copy, &[x])?;
    }
    let layout = x.spec.layout.reshape(shape);
    let refused = || OpError::shape(super::BACKWARD, shape.to_string(), x.spec.to_string());
    Ok(x.with_layout(layout.ok_or_else(refused)?))
}

fn turned(x: &Operand) -> Result<Operand> {
    let layout = x.spec.layout.transpose(2, 3);
    let refused = || OpError::shape(super::BACKWARD, "a matrix", x.spec.to_string());
    Ok(x.with_layout(layout.ok_or_else(refused)?))
}

fn product(backward: &mut Backward<'_>, a: &Operand, b: &Operand) -> Result<Operand> {
    backward.emit_one(MatMul::default(), &[a.clone(), b.clone()])
}

fn scaled(backward: &mut Backward<'_>, x: &Operand, value: f64) -> Result<Operand> {
    backward.emit_one(MulScalar { value }, std::slice::from_ref(x))
}

fn sum(backward: &mut Backward<'_>, so_far: Option<Operand>, x: Operand) -> Result<Operand> {
    match so_far {
        Some(so_far) => backward.emit_one(Add, &[so_far, x]),
        None => Ok(x),
    }
}

fn full(backward: &mut Backward<'_>, dtype: DType, value: f64, shape: Shape) -> Result<Operand> {
    let constant = Full {
        value,
        dtype,
        shape,
    };
    backward.emit_one(constant, &[])
}
