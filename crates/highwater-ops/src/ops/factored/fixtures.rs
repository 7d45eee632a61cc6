//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{DivAtLeast, DivRootAtLeast, FactoredScale};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    match builder.name {
        "factored_scale" => {
            let op = FactoredScale {
                elements: builder.number("elements") as usize,
                eps: builder.number("eps"),
                d: builder.number("d"),
            };
            builder.add(op, x)
        }
        "div_at_least" => {
            let least = builder.number("least");
            builder.add(DivAtLeast { least }, x)
        }
        _ => {
            let least = builder.number("least");
            builder.add(DivRootAtLeast { least }, x)
        }
    }
}
