//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::{Op, Operand, Shape};
use highwater_ops::{Add, AddScalar, Div, DivScalar, Full, Mul, MulScalar, Sub, SubScalar};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    match builder.name {
        "add" => of_two(builder, Add, |value| AddScalar { value }, x),
        "sub" => of_two(builder, Sub, |value| SubScalar { value }, x),
        "mul" => of_two(builder, Mul, |value| MulScalar { value }, x),
        _ => of_two(builder, Div, |value| DivScalar { value }, x),
    }
}

/// Of two tensors, or of one and a number.
fn of_two<S: Op>(
    builder: &mut Builder<'_>,
    op: impl Op,
    of_scalar: impl Fn(f64) -> S,
    x: &[Operand],
) -> Nodes {
    let Some(value) = builder.attrs["scalar"].as_f64() else {
        return builder.add(op, x);
    };
    if builder.text("scalar_side") == "right" {
        return builder.add(of_scalar(value), x);
    }
    let shape = Shape::scalar();
    let scalar = builder.add_one(Full { value, shape }, &[])?;
    builder.add(op, &[scalar, x[0].clone()])
}
