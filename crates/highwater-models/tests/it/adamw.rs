//! The settings of AdamW that fixtures were made with.

use highwater::optim::AdamWOptions;
use serde_json::Value;

/// Those in the entry `adamw` of what a fixture says of itself.
pub(crate) fn options(about: &Value) -> AdamWOptions {
    let adamw = &about["adamw"];
    let number = |value: &Value| value.as_f64().unwrap();
    AdamWOptions {
        lr: number(&adamw["lr"]),
        betas: (number(&adamw["betas"][0]), number(&adamw["betas"][1])),
        eps: number(&adamw["eps"]),
        weight_decay: number(&adamw["weight_decay"]),
        ..AdamWOptions::default()
    }
}
