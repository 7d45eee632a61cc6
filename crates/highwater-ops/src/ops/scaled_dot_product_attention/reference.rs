//! The plain reference.

use super::{ScaledDotProductAttention, ScaledDotProductAttentionBackward};
use crate::Array;
use highwater_graph::{DType, Op};

/// Extents of a problem; everything is indexed by hand, one head after the other.
struct Dims {
    heads: usize,
    /// Heads of queries in each sequence of the batch.
    per_batch: usize,
    /// Heads of queries that share one of keys and values.
    sharing: usize,
    queries: usize,
    keys: usize,
    width: usize,
}

impl Dims {
    fn of(inputs: &[Array]) -> Self {
        Self {
            heads: inputs[0].shape[0] * inputs[0].shape[1],
            per_batch: inputs[0].shape[1],
            sharing: inputs[0].shape[1] / inputs[1].shape[1].max(1),
            queries: inputs[0].shape[2],
            keys: inputs[1].shape[2],
            width: inputs[0].shape[3],
        }
    }

    /// Every query with its keys: (row of `q`, rows of `k`).
    fn pairs(
        &self,
        (causal, window): (bool, Option<usize>),
        lengths: Option<&Array>,
    ) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        let (queries, keys, sharing) = (self.queries, self.keys, self.sharing);
        (0..self.heads * queries).map(move |row| {
            let (first, i) = (row / queries / sharing * keys, row % queries);
            let batch = row / queries / self.per_batch;
            let document = lengths.map_or(0..keys, |lengths| document(lengths, batch, i, keys));
            let end = if causal { i + 1 } else { document.end };
            let start = window.map_or(0, |window| end.saturating_sub(window));
            (row, first + start.max(document.start)..first + end)
        })
    }

    fn row<'a>(&self, of: &'a Array, row: usize) -> &'a [f64] {
        &of.data[row * self.width..][..self.width]
    }
}

/// The document of a position, by the lengths in a row.
fn document(lengths: &Array, row: usize, position: usize, keys: usize) -> std::ops::Range<usize> {
    let count = lengths.shape[1];
    let mut start = 0;
    for &length in &lengths.data[row * count..][..count] {
        let end = start + length as usize;
        if position < end {
            return start..end;
        }
        start = end;
    }
    start..keys
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], from: &[f64], factor: f64) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from * factor;
    }
}

/// `o` and `lse`.
pub(super) fn forward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op = op
        .downcast::<ScaledDotProductAttention>()
        .expect("registered for this operation");
    let [q, k, v, rest @ ..] = inputs else {
        panic!("three inputs")
    };
    let dims = Dims::of(inputs);
    let width = dims.width;
    let mut o = vec![0.0; q.data.len()];
    let mut lse = Vec::new();
    for (i, seen) in dims.pairs((op.causal, op.window), rest.first()) {
        let scores: Vec<f64> = seen
            .clone()
            .map(|j| dot(dims.row(q, i), dims.row(k, j)) * op.scale)
            .collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        for (j, score) in seen.zip(&scores) {
            let weight = (score - max).exp() / sum;
            add(&mut o[i * width..][..width], dims.row(v, j), weight);
        }
        lse.push(max + sum.ln());
    }
    let rows = &q.shape[..3];
    vec![
        Array::new(q.dtype, q.shape.clone(), o),
        Array::new(crate::kernels::float::sums_in(q.dtype), rows, lse),
    ]
}

/// The gradients of `q`, `k` and `v`, apart or packed.
pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op = op
        .downcast::<ScaledDotProductAttentionBackward>()
        .expect("registered for this operation");
    let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
    let lengths = op.documents.then(|| &inputs[3]);
    let rest = &inputs[3 + usize::from(op.documents)..];
    let (o, lse) = (&rest[0], &rest[1]);
    let mut rest = rest[2..].iter();
    let zeros = Array::new(q.dtype, o.shape.clone(), vec![0.0; o.data.len()]);
    let grad = if op.output_grad { rest.next() } else { None }.unwrap_or(&zeros);
    let lse_grad = if op.lse_grad { rest.next() } else { None };
    let dims = Dims::of(inputs);
    let width = dims.width;
    let mut dq = vec![0.0; q.data.len()];
    let mut dk = vec![0.0; k.data.len()];
    let mut dv = vec![0.0; v.data.len()];
    for (i, seen) in dims.pairs((op.causal, op.window), lengths) {
        let delta = dot(dims.row(grad, i), dims.row(o, i)) - lse_grad.map_or(0.0, |g| g.data[i]);
        for j in seen {
            let score = dot(dims.row(q, i), dims.row(k, j)) * op.scale;
            let weight = (score - lse.data[i]).exp();
            let above = dot(dims.row(grad, i), dims.row(v, j)) - delta;
            let ds = weight * above * op.scale;
            add(&mut dv[j * width..][..width], dims.row(grad, i), weight);
            add(&mut dq[i * width..][..width], dims.row(k, j), ds);
            add(&mut dk[j * width..][..width], dims.row(q, i), ds);
        }
    }
    let Some(packed) = &op.packed else {
        return [(q, dq), (k, dk), (v, dv)]
            .map(|(like, data)| Array::new(like.dtype, like.shape.clone(), data))
            .into();
    };
    let mut all = vec![0.0; dq.len() + dk.len() + dv.len()];
    for (i, grad) in [dq, dk, dv].iter().enumerate() {
        let layout = packed.layout(i, &inputs[i].shape);
        for (position, &x) in layout.positions().zip(grad) {
            all[position] = x;
        }
    }
    vec![Array::new(DType::F32, [all.len()], all)]
}
