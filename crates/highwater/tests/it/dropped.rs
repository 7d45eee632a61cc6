//! What nobody can read any more holds no memory, whether the graph is ever evaluated or not.

use highwater::nn::Linear;
use highwater::optim::{Optimizer, Sgd, SgdOptions, Stepped, grad_norm, skip_unless_finite};
use highwater::{Engine, Module, Tensor};

const WIDTH: usize = 1 << 10;

/// An engine, a layer on it and its optimizer.
fn trial() -> (Engine, Linear, Sgd) {
    let engine = Engine::builder().threads(1).build().unwrap();
    let layer = Linear::new(&engine, WIDTH, 4, true).unwrap();
    let sgd = Sgd::new(layer.parameters(), SgdOptions::default()).unwrap();
    (engine, layer, sgd)
}

fn loss(engine: &Engine, layer: &Linear) -> Tensor {
    let x = engine.tensor(&vec![0.5; 8 * WIDTH], [8, WIDTH]).unwrap();
    layer.forward(&x).unwrap().sum().unwrap()
}

/// The most bytes of state in so many calls.
fn most(engine: &Engine, mut call: impl FnMut()) -> u64 {
    let bytes = (0..20).map(|_| {
        call();
        engine.state_bytes()
    });
    bytes.max().unwrap()
}

#[test]
fn a_graph_that_is_dropped_holds_nothing() {
    let (engine, layer, _) = trial();
    let once = most(&engine, || drop(loss(&engine, &layer)));
    let before = engine.state_bytes();
    let one = 4 * 8 * WIDTH as u64;
    assert!(once < before + 2 * one, "{once} and {before}");
    // Also while something else is waited for.
    let x = engine.tensor(&[1.0; 4], [4]).unwrap();
    let waits = x.relu().unwrap();
    drop(loss(&engine, &layer));
    assert_eq!(waits.to_vec::<f32>().unwrap(), [1.0; 4]);
}

#[test]
fn backward_without_a_step_does_not_grow() {
    let (engine, layer, mut sgd) = trial();
    let round = |sgd: &mut Sgd| {
        loss(&engine, &layer).backward().unwrap();
        sgd.zero_grad();
    };
    round(&mut sgd);
    let before = engine.state_bytes();
    assert_eq!(most(&engine, || round(&mut sgd)), before);
    // The loss is read as well.
    let read = |sgd: &mut Sgd| {
        let loss = loss(&engine, &layer);
        loss.backward().unwrap();
        sgd.zero_grad();
        assert!(loss.item().unwrap().is_finite());
    };
    read(&mut sgd);
    let before = engine.state_bytes();
    assert!(most(&engine, || read(&mut sgd)) <= before);
}

#[test]
fn a_value_that_was_read_goes_with_its_handle() {
    let (engine, layer, mut sgd) = trial();
    let step = |sgd: &mut Sgd| {
        let loss = loss(&engine, &layer);
        loss.backward().unwrap();
        sgd.step().unwrap();
        loss.item().unwrap();
    };
    let before = engine.state_bytes();
    step(&mut sgd);
    drop(engine.tensor(&[0.0], [1]).unwrap());
    assert_eq!(engine.state_bytes(), before);
}

#[test]
fn dropped_parts_of_a_graph_make_room() {
    let engine = Engine::builder().threads(1).arena(6 << 20).build().unwrap();
    let x = engine.tensor(&[1.0; 4], [4]).unwrap();
    let waits = x.relu().unwrap();
    for _ in 0..20 {
        let large = engine.tensor(&vec![1.0; 1 << 18], [1 << 18]).unwrap();
        drop(large.relu().unwrap());
    }
    assert_eq!(waits.to_vec::<f32>().unwrap(), [1.0; 4]);
}

/// A guard of gradients that are there stays, whoever holds what it looks at.
#[test]
fn a_guard_is_not_dropped_with_its_value() {
    for read in [false, true] {
        let (engine, layer, mut sgd) = trial();
        let parameters = layer.parameters();
        for parameter in &parameters {
            let zeros = vec![0.0; parameter.shape().numel()];
            parameter.copy_from_slice(&zeros).unwrap();
        }
        // The loss is finite, its gradients are not.
        let x = vec![f32::MAX; 8 * WIDTH];
        let x = engine.tensor(&x, [8, WIDTH]).unwrap();
        let loss = layer.forward(&x).unwrap().sum().unwrap();
        loss.backward().unwrap();
        drop(loss);
        for parameter in &parameters {
            let grad = parameter.grad().unwrap();
            drop(grad.to_vec::<f32>().unwrap());
        }
        let norm = grad_norm(&parameters).unwrap();
        skip_unless_finite(&norm, "the norm").unwrap();
        if read {
            assert!(!norm.item().unwrap().is_finite());
        }
        drop(norm);
        drop(engine.tensor(&[0.0], [1]).unwrap());
        let stepped = sgd.step().unwrap();
        assert!(matches!(stepped, Stepped::Skipped { .. }), "{stepped:?}");
    }
}
