//! Two parameters whose gradients are one value.

use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{Builder, Engine, Parameter};

fn grads(builder: Builder, micro: usize, count: usize) -> Vec<Vec<f32>> {
    let engine = builder.build().unwrap();
    let a = Parameter::new(&engine, [count], |to| to.fill(0.5)).unwrap();
    let b = Parameter::new(&engine, [count], |to| to.fill(0.25)).unwrap();
    let x = engine.tensor(&vec![2.0; count], [count]).unwrap();
    for _ in 0..micro {
        let y = a.add(&b).unwrap().mul(&x).unwrap();
        y.mul(&y).unwrap().sum().unwrap().backward().unwrap();
    }
    let mut sgd = Sgd::new(vec![a.clone(), b.clone()], SgdOptions::default()).unwrap();
    sgd.step_keep_grads().unwrap();
    [
        a.grad().unwrap(),
        b.grad().unwrap(),
        (*a).clone(),
        (*b).clone(),
    ]
    .iter()
    .map(|t| t.to_vec::<f32>().unwrap()[..2].to_vec())
    .collect()
}

#[test]
fn gradients_that_are_one_value_add_up_each_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    for count in [4, 40_000] {
        for micro in 1..4 {
            let plain = grads(Engine::builder(), micro, count);
            let eager = grads(Engine::eager(), micro, count);
            let disk = grads(
                Engine::builder()
                    .arena(16 << 20)
                    .disk(folder.path(), 64 << 20),
                micro,
                count,
            );
            assert_eq!(plain[0], [6.0 * micro as f32; 2], "{count}");
            assert_eq!(plain, eager, "{count}");
            assert_eq!(plain, disk, "{count}");
        }
    }
}

/// What reads a gradient that is gone fails by itself: other losses go back as ever.
#[test]
fn a_backward_beside_a_reader_of_what_is_gone() {
    for builder in [Engine::builder(), Engine::eager()] {
        let engine = builder.build().unwrap();
        // Its gradient and what comes of it are too large to be kept.
        let p = Parameter::new(&engine, [20_000], |to| to.fill(0.5)).unwrap();
        let backward = || p.square().unwrap().sum().unwrap().backward().unwrap();
        backward();
        backward();
        let twice = p.grad().unwrap().mul_scalar(2.0).unwrap();
        backward();
        backward();
        drop((p.mul(&twice), twice));
        backward();
        assert_eq!(p.grad().unwrap().to_vec::<f32>().unwrap()[..2], [5.0, 5.0]);
    }
}
