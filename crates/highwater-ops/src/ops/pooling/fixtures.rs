//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{
    AvgPool2d, AvgPool2dBackward, MaxPool2d, MaxPool2dBackward, MaxPool2dSelect, PoolSettings,
    Windows,
};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let pair = |key: &str| {
        let pair = builder.shape(key);
        [pair[0], pair[1]]
    };
    let windows = if builder.attrs["adaptive"].is_array() {
        Windows::Adaptive(pair("adaptive"))
    } else {
        Windows::Fixed(PoolSettings {
            kernel: pair("kernel"),
            stride: pair("stride"),
            padding: pair("padding"),
            dilation: pair("dilation"),
            ceil_mode: builder.flag("ceil_mode"),
        })
    };
    if builder.name.starts_with("avg") {
        let pool = AvgPool2d {
            windows,
            count_include_pad: builder.flag("count_include_pad"),
        };
        if builder.name == "avg_pool2d" {
            return builder.add(pool, x);
        }
        let sides = pair("sides");
        return builder.add(AvgPool2dBackward { pool, sides }, x);
    }
    if builder.name == "max_pool2d" {
        return Ok(vec![builder.add_one(MaxPool2d { windows }, x)?]);
    }
    // Places are found in the last input, those of PyTorch in the image.
    let places = builder.add(MaxPool2d { windows }, &x[1..])?.remove(1);
    let inputs = [x[0].clone(), places];
    if builder.name == "max_pool2d_select" {
        return builder.add(MaxPool2dSelect { windows }, &inputs);
    }
    let dims = x[1].shape().dims();
    let sides = [dims[2], dims[3]];
    builder.add(MaxPool2dBackward { windows, sides }, &inputs)
}
