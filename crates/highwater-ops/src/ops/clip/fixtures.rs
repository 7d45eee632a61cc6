//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{ClipCoefficient, GradNorm, Mul};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let max_norm = builder.number("max_norm");
    let norm = builder.add_one(GradNorm, x)?;
    let coefficient = builder.add_one(ClipCoefficient { max_norm }, std::slice::from_ref(&norm))?;
    let mut results = vec![norm];
    for grad in x {
        results.push(builder.add_one(Mul, &[grad.clone(), coefficient.clone()])?);
    }
    Ok(results)
}
