//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Elu, LeakyRelu, Softplus};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    match builder.name {
        "leaky_relu" => {
            let slope = builder.number("slope");
            builder.add(LeakyRelu { slope }, x)
        }
        "elu" => {
            let alpha = builder.number("alpha");
            builder.add(Elu { alpha }, x)
        }
        "softplus" => {
            let softplus = Softplus {
                beta: builder.number("beta"),
                threshold: builder.number("threshold"),
            };
            builder.add(softplus, x)
        }
        _ => builder.of_table(x),
    }
}
