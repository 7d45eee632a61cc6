//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{CtcLoss, LogSoftmax};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let log_probs = builder.add_one(LogSoftmax { dim: 2 }, &x[..1])?;
    let op = CtcLoss {
        blank: builder.number("blank") as usize,
        zero_infinity: builder.flag("zero_infinity"),
    };
    let rest = x[1..].iter().cloned();
    builder.add(
        op,
        &std::iter::once(log_probs).chain(rest).collect::<Vec<_>>(),
    )
}
