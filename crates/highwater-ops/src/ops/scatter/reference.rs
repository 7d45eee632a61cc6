//! The plain references.

use super::{Scatter, ScatterReduce, ScatterReduction, ScatterWeights};
use crate::Array;
use crate::kernels::lines::Lines;
use highwater_graph::Op;

/// For each place of what is written to, which elements of the source go there, in their order.
fn arrivals(dim: usize, inputs: &[Array]) -> Vec<Vec<usize>> {
    let [index, base] = [&inputs[1], &inputs[2]];
    let lines = Lines::new(&index.shape, dim);
    let extent = Lines::new(&base.shape, dim).extent;
    let mut arrivals = vec![Vec::new(); base.data.len()];
    for (flat, &to) in index.data.iter().enumerate() {
        let row = flat / lines.inner / lines.extent * extent + to as usize;
        arrivals[row * lines.inner + flat % lines.inner].push(flat);
    }
    arrivals
}

pub(super) fn scatter(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let dim = op.downcast().map_or(0, |op: &Scatter| op.dim);
    let (source, mut out) = (&inputs[0], inputs[2].clone());
    for (x, from) in out.data.iter_mut().zip(arrivals(dim, inputs)) {
        if let Some(&last) = from.last() {
            *x = source.data[last];
        }
    }
    vec![out]
}

fn joined(reduction: ScatterReduction, parts: &[f64]) -> f64 {
    let sum: f64 = parts.iter().sum();
    let best = |is_better: fn(f64, f64) -> bool| {
        let better = |best: f64, &x: &f64| {
            if best.is_nan() || !(x.is_nan() || is_better(x, best)) {
                best
            } else {
                x
            }
        };
        parts[1..].iter().fold(parts[0], better)
    };
    match reduction {
        ScatterReduction::Sum => sum,
        ScatterReduction::Prod => parts.iter().product(),
        ScatterReduction::Mean => sum / parts.len() as f64,
        ScatterReduction::Amax => best(|x, best| x > best),
        ScatterReduction::Amin => best(|x, best| x < best),
    }
}

pub(super) fn reduce(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &ScatterReduce = op.downcast().expect("the reference of this operation");
    let (source, mut out) = (&inputs[0], inputs[2].clone());
    for (x, from) in out.data.iter_mut().zip(arrivals(op.dim, inputs)) {
        let own = op.include_self.then_some(*x).into_iter();
        let parts: Vec<f64> = own.chain(from.iter().map(|&i| source.data[i])).collect();
        if !from.is_empty() {
            *x = joined(op.reduction, &parts);
        }
    }
    vec![out]
}

/// How what is made of parts changes with the `i`-th.
fn slope(reduction: Option<ScatterReduction>, parts: &[f64], i: usize) -> f64 {
    let is_same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    let Some(reduction) = reduction else {
        return f64::from(u8::from(i + 1 == parts.len()));
    };
    match reduction {
        ScatterReduction::Sum => 1.0,
        ScatterReduction::Mean => 1.0 / parts.len() as f64,
        ScatterReduction::Prod => {
            let others = parts.iter().enumerate().filter(|&(k, _)| k != i);
            others.map(|(_, x)| x).product()
        }
        ScatterReduction::Amax | ScatterReduction::Amin => {
            let best = joined(reduction, parts) + 0.0;
            let equal = parts.iter().filter(|&&x| is_same(x + 0.0, best)).count();
            if is_same(parts[i] + 0.0, best) {
                1.0 / equal as f64
            } else {
                0.0
            }
        }
    }
}

pub(super) fn weights(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &ScatterWeights = op.downcast().expect("the reference of this operation");
    let [source, base] = [&inputs[0], &inputs[2]];
    let [mut of_source, mut of_base] = [source.clone(), base.clone()];
    for (place, from) in arrivals(op.dim, inputs).into_iter().enumerate() {
        let own = op.include_self.then_some(base.data[place]);
        let parts = own.into_iter().chain(from.iter().map(|&i| source.data[i]));
        let parts: Vec<f64> = parts.collect();
        let first = usize::from(op.include_self);
        for (i, &flat) in from.iter().enumerate() {
            of_source.data[flat] = slope(op.reduction, &parts, first + i);
        }
        of_base.data[place] = match from.is_empty() {
            true => 1.0,
            false if op.include_self => slope(op.reduction, &parts, 0),
            false => 0.0,
        };
    }
    vec![of_source, of_base]
}
