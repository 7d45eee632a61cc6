//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::{Layout, Operand};
use highwater_ops::ScatterViews;
use serde_json::Value;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let numbers = |view: &Value, key: &str| -> Vec<usize> {
        let listed = view[key].as_array().into_iter().flatten();
        let numbers = listed.filter_map(Value::as_u64);
        numbers.map(|number| number as usize).collect()
    };
    let layout = |view: &Value| {
        let offset = view["offset"].as_u64().unwrap() as usize;
        Layout::strided(numbers(view, "shape"), &numbers(view, "strides"), offset)
    };
    let views = builder.attrs["views"].as_array().into_iter().flatten();
    let op = ScatterViews {
        layouts: views.map(layout).collect(),
        numel: builder.number("numel") as usize,
    };
    builder.add(op, x)
}
