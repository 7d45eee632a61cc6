//! Steps of optimizers whose updates are several nodes: under any budget, with gradients that add up, with
//! guards; and clipping by value.

use highwater::optim::{
    Adafactor, AdafactorOptions, Muon, MuonOptions, Optimizer, Sgd, SgdOptions, Stepped,
    clip_grad_value_, skip_unless_finite,
};
use highwater::prelude::*;
use highwater::{Builder, Error, nn::Linear};

const WIDTH: usize = 96;

/// Some layers, whose weights are matrices of several shapes.
fn layers(engine: &Engine) -> Result<Vec<Linear>> {
    let widths = [WIDTH, 2 * WIDTH, 2 * WIDTH, WIDTH, WIDTH];
    let pairs = widths.windows(2);
    pairs
        .map(|pair| Linear::new(engine, pair[0], pair[1], false))
        .collect()
}

fn optimizer(layers: &[Linear], muon: bool) -> Result<Box<dyn Optimizer>> {
    let parameters: Vec<Parameter> = layers.iter().flat_map(Module::parameters).collect();
    Ok(if muon {
        let options = MuonOptions {
            lr: 0.02,
            ..Default::default()
        };
        Box::new(Muon::new(parameters, options)?)
    } else {
        Box::new(Adafactor::new(parameters, AdafactorOptions::default())?)
    })
}

fn loss(layers: &[Linear], x: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for layer in layers {
        x = layer.forward(&x)?.tanh()?;
    }
    x.square()?.mean()
}

/// The bits of parameters and state after some steps.
fn train(builder: Builder, muon: bool) -> Result<Vec<Vec<u8>>> {
    let engine = builder.threads(2).seed(4).build()?;
    let layers = layers(&engine)?;
    let mut optimizer = optimizer(&layers, muon)?;
    let x = Tensor::randn(&engine, [64, WIDTH])?;
    for _ in 0..3 {
        loss(&layers, &x)?.backward()?;
        optimizer.step()?;
    }
    let parameters = layers.iter().flat_map(Module::parameters);
    let state = optimizer.state_dict().into_iter().map(|(_, state)| state);
    parameters
        .chain(state)
        .map(|of| of.with_bytes(<[u8]>::to_vec))
        .collect()
}

#[test]
fn a_budget_changes_no_bit() {
    for muon in [false, true] {
        let want = train(Engine::builder().arena(64 << 20), muon).unwrap();
        // How many budgets of some fit.
        let fitting = |kibs: &[u64], builder: &dyn Fn(u64) -> Builder| {
            let fits = kibs
                .iter()
                .filter(|&&kib| match train(builder(kib << 10), muon) {
                    Ok(got) => {
                        assert!(got == want, "{kib} KiB");
                        true
                    }
                    Err(Error::OverBudget { .. } | Error::State { .. }) => false,
                    Err(other) => panic!("{other}"),
                });
            fits.count()
        };
        let kibs = [300, 400, 600, 800, 1200, 1500, 2000];
        let fits = fitting(&kibs, &|bytes| Engine::builder().arena(bytes));
        assert!((2..kibs.len()).contains(&fits), "{fits} fit");
        // State waits in other memory, where kernels have too little for all.
        let both = |bytes| Engine::builder().device_memory(bytes).host_memory(8 << 20);
        let beside = fitting(&kibs, &both);
        assert!(beside > fits, "{beside} fit, {fits} without other memory");
    }
}

#[test]
fn gradients_that_add_up_are_one_gradient() {
    for muon in [false, true] {
        let run = |twice: bool| {
            let engine = Engine::builder()
                .threads(2)
                .arena(64 << 20)
                .seed(4)
                .build()
                .unwrap();
            let layers = layers(&engine).unwrap();
            let mut optimizer = optimizer(&layers, muon).unwrap();
            let x = Tensor::randn(&engine, [8, WIDTH]).unwrap();
            for _ in 0..2 {
                if twice {
                    loss(&layers, &x)
                        .unwrap()
                        .mul_scalar(0.5)
                        .unwrap()
                        .backward()
                        .unwrap();
                    loss(&layers, &x)
                        .unwrap()
                        .mul_scalar(0.5)
                        .unwrap()
                        .backward()
                        .unwrap();
                } else {
                    loss(&layers, &x).unwrap().backward().unwrap();
                }
                optimizer.step().unwrap();
            }
            layers[1].weight.to_vec::<f32>().unwrap()
        };
        // Halves add up to the whole, to the bit.
        assert_eq!(run(true), run(false));
    }
}

#[test]
fn a_step_that_is_skipped_changes_nothing() {
    for muon in [false, true] {
        let engine = Engine::builder()
            .threads(2)
            .arena(64 << 20)
            .seed(4)
            .build()
            .unwrap();
        let layers = layers(&engine).unwrap();
        let mut optimizer = optimizer(&layers, muon).unwrap();
        let x = Tensor::randn(&engine, [8, WIDTH]).unwrap();
        let bits = |optimizer: &dyn Optimizer| -> Vec<Vec<u8>> {
            let state = optimizer.state_dict().into_iter().map(|(_, state)| state);
            let all = optimizer.parameters().into_iter().chain(state);
            all.map(|of| of.with_bytes(<[u8]>::to_vec).unwrap())
                .collect()
        };
        loss(&layers, &x).unwrap().backward().unwrap();
        assert_eq!(optimizer.step().unwrap(), Stepped::Updated);
        let before = bits(&*optimizer);
        loss(&layers, &x).unwrap().backward().unwrap();
        let bad = engine.tensor(&[f32::INFINITY], [1]).unwrap();
        skip_unless_finite(&bad, "a test").unwrap();
        assert_eq!(
            optimizer.step().unwrap(),
            Stepped::Skipped { what: "a test" }
        );
        assert!(bits(&*optimizer) == before);
        assert_eq!(optimizer.steps(), 1);
        loss(&layers, &x).unwrap().backward().unwrap();
        assert_eq!(optimizer.step().unwrap(), Stepped::Updated);
        assert!(bits(&*optimizer) != before);
    }
}

#[test]
fn gradients_are_clipped_by_value() {
    let engine = Engine::builder().threads(1).arena(1 << 20).build().unwrap();
    let start = [0.0; 4];
    let weight = Parameter::new(&engine, [4], |x| x.copy_from_slice(&start)).unwrap();
    let untouched = Parameter::new(&engine, [1], |_| {}).unwrap();
    let both = [weight.clone(), untouched];
    clip_grad_value_(&both, 0.5).unwrap();
    let grad = engine.tensor(&[0.25, -3.0, 0.5, 7.0], [4]).unwrap();
    // Twice, so that the gradient is added to where it lies.
    for _ in 0..2 {
        weight
            .mul(&grad)
            .unwrap()
            .sum()
            .unwrap()
            .backward()
            .unwrap();
    }
    clip_grad_value_(&both, 0.75).unwrap();
    let clipped = weight.grad().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(clipped, [0.5, -0.75, 0.75, 0.75]);
    let options = SgdOptions {
        lr: 1.0,
        ..Default::default()
    };
    let mut optimizer = Sgd::new(both.to_vec(), options).unwrap();
    optimizer.step().unwrap();
    assert_eq!(weight.to_vec::<f32>().unwrap(), [-0.5, 0.75, -0.75, -0.75]);
    assert!(clip_grad_value_(&both, -1.0).is_err() && clip_grad_value_(&both, f64::NAN).is_err());
}
