//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Conv2d, Conv2dWeight, ConvSettings, ConvTranspose2d};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let pair = |key: &str| {
        let pair = builder.shape(key);
        [pair[0], pair[1]]
    };
    let settings = ConvSettings {
        stride: pair("stride"),
        padding: pair("padding"),
        dilation: pair("dilation"),
        groups: builder.number("groups") as usize,
    };
    match builder.name {
        "conv2d" => {
            let bias = builder.flag("bias");
            builder.add(Conv2d { settings, bias }, x)
        }
        "conv_transpose2d" => {
            let op = ConvTranspose2d {
                settings,
                output_padding: pair("output_padding"),
                bias: builder.flag("bias"),
            };
            builder.add(op, x)
        }
        _ => {
            let kernel = pair("kernel");
            builder.add(Conv2dWeight { settings, kernel }, x)
        }
    }
}
