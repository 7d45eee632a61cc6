//! What `{:?}` prints of what users hold: what it is, in a line or two, however much it holds.

use highwater::memory::Bytes;
use highwater::nn::{CausalSelfAttention, Dropout, Embedding, LayerNorm, Linear};
use highwater::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions, grad_norm};
use highwater::{Engine, Module, Parameter};
use std::fmt::Debug;

/// Printed in full: short, and nothing of what is inside.
fn printed(what: &dyn Debug) -> String {
    let text = format!("{what:?}");
    assert!(text.len() < 1200, "{} bytes: {:.400}", text.len(), text);
    for inside in ["Mutex", "Arc", "0x", "Pending", "Node {"] {
        assert!(!text.contains(inside), "{inside}: {text:.400}");
    }
    text
}

fn engine() -> Engine {
    Engine::builder()
        .threads(1)
        .arena(64 << 20)
        .build()
        .unwrap()
}

#[test]
fn tensors_and_parameters_print_shape_dtype_and_name() {
    let engine = engine();
    let x = engine.tensor(&[0.5; 6], [2, 3]).unwrap();
    assert_eq!(printed(&x), "Tensor(float32 [2, 3])");
    assert_eq!(printed(&x.sum().unwrap()), "Tensor(float32 [])");
    let ids = engine.indices(&[1, 2], [2]).unwrap();
    assert_eq!(printed(&ids), "Tensor(uint32 [2])");
    let weight = Parameter::normal(&engine, [256, 1024], 1.0).unwrap();
    weight.set_name("wte.weight");
    assert_eq!(
        printed(&weight),
        "Parameter(wte.weight, float32 [256, 1024])"
    );
    let read = weight.sum().unwrap();
    read.backward().unwrap();
    assert_eq!(printed(&weight.grad()), "Some(Tensor(float32 [256, 1024]))");
    assert_eq!(read.item().unwrap(), read.item().unwrap());
    assert_eq!(printed(&read), "Tensor(float32 [])");
}

#[test]
fn a_parameter_prints_while_its_bytes_are_in_use() {
    let engine = engine();
    let other = Parameter::new(&engine, [2], |_| {}).unwrap();
    other.set_name("other");
    let made = Parameter::new(&engine, [2], |own| {
        assert!(printed(&other).starts_with("Parameter("));
        own.fill(1.0);
    });
    let made = made.unwrap();
    let text = made.with_bytes(|_| printed(&made)).unwrap();
    assert_eq!(text, "Parameter(parameter, float32 [2])");
}

#[test]
fn modules_optimizers_and_engines_print_what_they_are() {
    let engine = engine();
    let linear = Linear::new(&engine, 64, 64, true).unwrap();
    linear.name_parameters();
    assert_eq!(
        printed(&linear),
        "Linear { weight: Parameter(weight, float32 [64, 64]), bias: Some(Parameter(bias, float32 [64])) }"
    );
    let dropout = Dropout::new(0.5).unwrap();
    assert_eq!(
        printed(&dropout),
        "Dropout { p: 0.5, mode: Mode(training) }"
    );
    dropout.eval();
    assert_eq!(
        printed(&dropout),
        "Dropout { p: 0.5, mode: Mode(evaluation) }"
    );
    printed(&Embedding::new(&engine, 8, 8).unwrap());
    printed(&LayerNorm::new(&engine, 8, 1e-5).unwrap());
    printed(&CausalSelfAttention::new(&engine, 8, 2, 0.1).unwrap());

    let x = engine.tensor(&[0.5; 64], [1, 64]).unwrap();
    let mut optimizer = AdamW::new(linear.parameters(), AdamWOptions::default()).unwrap();
    for _ in 0..3 {
        let loss = linear.forward(&x).unwrap().sum().unwrap();
        loss.backward().unwrap();
        printed(&grad_norm(&optimizer.parameters()).unwrap());
        optimizer.step().unwrap();
    }
    let text = printed(&optimizer);
    assert!(
        text.contains("lr: 0.001") && text.contains("parameters: 2"),
        "{text}"
    );
    let boxed: Box<dyn Optimizer> =
        Box::new(Sgd::new(linear.parameters(), SgdOptions::default()).unwrap());
    printed(&boxed);

    let text = printed(&engine);
    assert!(text.starts_with("Engine { threads: 1, "), "{text}");
    assert!(
        text.contains(&Bytes(engine.state_bytes()).to_string()),
        "{text}"
    );
    printed(&Engine::builder().memory(1 << 30).plans_of(&engine));
    printed(&engine.last_step());
    printed(&engine.totals());
    printed(&engine.tiers());
}
