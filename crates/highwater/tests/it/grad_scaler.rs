//! Loss scaling: which steps are skipped, and what the others come to.

use crate::models::Random;
use highwater::optim::{
    AdamW, AdamWOptions, GradScaler, GradScalerOptions, Optimizer, Stepped, clip_grad_norm_,
};
use highwater::{DType, Engine, Error, Parameter, Result, Tensor, autocast};

const WIDTH: usize = 5;
const COUNT: usize = 3;
const OPTIONS: GradScalerOptions = GradScalerOptions {
    init_scale: 65_536.0,
    growth_factor: 2.0,
    backoff_factor: 0.5,
    growth_interval: 7,
    min_scale: 1e-4,
};

/// Parameters with a loss that is linear in them, and for each another one whose gradient is infinite where
/// that is asked for.
struct Model {
    engine: Engine,
    weights: Vec<Parameter>,
    traps: Vec<Parameter>,
    adamw: AdamW,
}

impl Model {
    fn new() -> Result<Self> {
        Self::on(Engine::builder().arena(16 << 20).seed(1).build()?)
    }

    fn on(engine: Engine) -> Result<Self> {
        let filled = |value: f32| {
            let make = |_| Parameter::new(&engine, [WIDTH], |to| to.fill(value));
            (0..COUNT).map(make).collect::<Result<Vec<_>>>()
        };
        let (weights, traps) = (filled(0.5)?, filled(0.0)?);
        let all = weights.iter().chain(&traps).cloned().collect();
        let options = AdamWOptions {
            lr: 0.1,
            ..AdamWOptions::default()
        };
        Ok(Self {
            adamw: AdamW::new(all, options)?,
            engine,
            weights,
            traps,
        })
    }

    fn loss(&self, step: u64, trapped: &[bool]) -> Result<Tensor> {
        let mut random = Random(step);
        let mut loss = self.engine.tensor(&[1.0], [1])?.sum()?;
        for weight in &self.weights {
            let x = self.engine.tensor(&random.values(WIDTH), [WIDTH])?;
            loss = loss.add(&weight.mul(&x)?.sum()?)?;
        }
        // The root's slope at 0 is infinite, its value is not.
        for (trap, _) in self
            .traps
            .iter()
            .zip(trapped)
            .filter(|(_, trapped)| **trapped)
        {
            loss = loss.add(&trap.sqrt()?.sum()?)?;
        }
        Ok(loss)
    }

    fn state(&self) -> Vec<Vec<u32>> {
        let moments = self
            .adamw
            .state_dict()
            .into_iter()
            .map(|(_, moment)| moment);
        let all = self
            .weights
            .iter()
            .chain(&self.traps)
            .cloned()
            .chain(moments);
        let bits = |p: Parameter| {
            p.to_vec::<f32>()
                .unwrap()
                .iter()
                .map(|x| x.to_bits())
                .collect()
        };
        all.map(bits).collect()
    }
}

/// Which gradients are infinite in a step: none, some or all.
fn trapped(step: u64) -> Vec<bool> {
    let mut random = Random(1000 + step);
    match random.below(5) {
        0 => vec![true; COUNT],
        1 => (0..COUNT).map(|i| i == random.below(COUNT)).collect(),
        _ => vec![false; COUNT],
    }
}

#[test]
fn just_the_steps_with_infinite_gradients_are_skipped() {
    let (mut model, mut plain) = (Model::new().unwrap(), Model::new().unwrap());
    let mut scaler = GradScaler::new(OPTIONS).unwrap();
    let (mut scale, mut in_a_row, mut skipped) = (OPTIONS.init_scale, 0, 0);
    for step in 0..100 {
        let trapped = trapped(step);
        let finite = !trapped.contains(&true);
        let loss = model.loss(step, &trapped).unwrap();
        scaler.scale(&loss).unwrap().backward().unwrap();
        if step % 3 == 0 {
            let all = model.adamw.parameters();
            scaler.unscale_(&all).unwrap();
            assert!(matches!(scaler.unscale_(&all), Err(Error::Usage { .. })));
        }
        let stepped = scaler.step(&mut model.adamw).unwrap();
        assert_eq!(stepped == Stepped::Updated, finite, "step {step}");
        scaler.update().unwrap();
        // Without a scale, the clean steps alone.
        if finite {
            plain.loss(step, &trapped).unwrap().backward().unwrap();
            assert_eq!(plain.adamw.step().unwrap(), Stepped::Updated);
            in_a_row += 1;
            if in_a_row == OPTIONS.growth_interval {
                (scale, in_a_row) = (scale * 2.0, 0);
            }
        } else {
            (scale, in_a_row, skipped) = (scale / 2.0, 0, skipped + 1);
        }
        assert_eq!(scaler.state(), (scale, in_a_row, skipped), "step {step}");
        assert_eq!(model.state(), plain.state(), "step {step}");
        assert_eq!(model.adamw.step_counts(), plain.adamw.step_counts());
    }
    assert!((20..60).contains(&skipped), "{skipped}");
}

#[test]
fn a_skipped_step_may_be_clipped_and_accumulated() {
    let (mut model, mut plain) = (Model::new().unwrap(), Model::new().unwrap());
    let mut scaler = GradScaler::new(OPTIONS).unwrap();
    for step in 0..12 {
        let trapped = trapped(step);
        let finite = !trapped.contains(&true);
        let clean = vec![false; COUNT];
        for (part, trapped) in [(2 * step, &clean), (2 * step + 1, &trapped)] {
            let loss = model.loss(part, trapped).unwrap();
            scaler.scale(&loss).unwrap().backward().unwrap();
            loss.item().unwrap();
        }
        let all = model.adamw.parameters();
        scaler.unscale_(&all).unwrap();
        clip_grad_norm_(&all, 0.5).unwrap();
        let stepped = scaler.step(&mut model.adamw).unwrap();
        assert_eq!(stepped == Stepped::Updated, finite, "step {step}");
        scaler.update().unwrap();
        if finite {
            for part in [2 * step, 2 * step + 1] {
                plain.loss(part, &clean).unwrap().backward().unwrap();
            }
            clip_grad_norm_(&plain.adamw.parameters(), 0.5).unwrap();
            plain.adamw.step().unwrap();
        }
        assert_eq!(model.state(), plain.state(), "step {step}");
    }
}

#[test]
fn at_the_floor_it_says_so_and_nothing_has_changed() {
    let mut model = Model::new().unwrap();
    let before = model.state();
    let options = GradScalerOptions {
        init_scale: 8.0,
        min_scale: 1.0,
        ..OPTIONS
    };
    let mut scaler = GradScaler::new(options).unwrap();
    for scale in [8.0, 4.0, 2.0, 1.0] {
        assert_eq!(scaler.get_scale(), scale);
        let loss = model.loss(0, &[true; COUNT]).unwrap();
        scaler.scale(&loss).unwrap().backward().unwrap();
        assert!(matches!(
            scaler.step(&mut model.adamw).unwrap(),
            Stepped::Skipped { .. }
        ));
        let updated = scaler.update();
        assert_eq!(updated.is_err(), scale == 1.0);
        if let Err(error) = updated {
            assert!(matches!(error, Error::ScaleFloor { scale: 1.0, .. }));
            assert!(error.to_string().contains("1e0"), "{error}");
        }
    }
    assert_eq!(scaler.state(), (1.0, 0, 4));
    assert_eq!(model.state(), before);
    assert!(scaler.update().is_err());
    let mut loaded = GradScaler::new(options).unwrap();
    loaded.load_state(scaler.state()).unwrap();
    assert_eq!(loaded.state(), scaler.state());
    assert!(loaded.load_state((0.0, 0, 0)).is_err());
    let wrong = GradScalerOptions {
        backoff_factor: 1.0,
        ..OPTIONS
    };
    assert!(GradScaler::new(wrong).is_err());
}

/// As in PyTorch a loss that is not finite skips its step, in whichever part of an accumulated one it was;
/// without a scaler it stops.
#[test]
fn a_loss_that_is_not_finite_skips_the_step() {
    for (eager, wrong) in [(false, f32::INFINITY), (false, f32::NAN), (true, f32::NAN)] {
        let builder = if eager {
            Engine::eager()
        } else {
            Engine::builder()
        };
        let builder = builder.arena(16 << 20).seed(1);
        let mut model = Model::on(builder.build().unwrap()).unwrap();
        let mut scaler = GradScaler::new(OPTIONS).unwrap();
        let mut skipped = 0;
        for step in 0..9 {
            let before = model.state();
            for part in 0..3 {
                let loss = model.loss(step, &[false; COUNT]).unwrap();
                let bad = step % 3 == 1 && part == step / 3;
                let factor = if bad { wrong } else { 1.0 };
                let factor = model.engine.tensor(&[factor], [1]).unwrap().sum().unwrap();
                let loss = loss.mul(&factor).unwrap();
                scaler.scale(&loss).unwrap().backward().unwrap();
                if step > 5 {
                    assert_eq!(loss.item().unwrap().is_finite(), !bad);
                }
            }
            let stepped = scaler.step(&mut model.adamw).unwrap();
            scaler.update().unwrap();
            assert_eq!(stepped == Stepped::Updated, step % 3 != 1, "step {step}");
            skipped += u64::from(step % 3 == 1);
            assert_eq!(scaler.skipped_steps(), skipped);
            assert_eq!(model.state() == before, step % 3 == 1, "step {step}");
        }
        let loss = model.loss(0, &[false; COUNT]).unwrap();
        let loss = loss.mul_scalar(f64::INFINITY).unwrap();
        let stopped = loss.backward().and_then(|()| model.adamw.step());
        assert!(
            matches!(stopped, Err(Error::NonFinite { .. })),
            "{stopped:?}"
        );
    }
}

/// Gradients too small for `F16` vanish without a scale, and arrive with one.
#[test]
fn small_gradients_survive_in_half_precision() {
    let gradient = |scale: f64| {
        let engine = Engine::builder().arena(16 << 20).build()?;
        let weight = Parameter::new(&engine, [1, 4], |to| to.fill(1.0))?;
        let x = engine.tensor(&[1.0, 2.0, 3.0, 4.0], [1, 4])?;
        let options = GradScalerOptions {
            init_scale: scale,
            ..OPTIONS
        };
        let mut scaler = GradScaler::new(options)?;
        let y = autocast(DType::F16, || x.linear(&weight, None))?;
        let loss = y.to_dtype(DType::F32)?.sum()?.mul_scalar(1e-9)?;
        scaler.scale(&loss)?.backward()?;
        scaler.unscale_(std::slice::from_ref(&weight))?;
        weight.grad().expect("a gradient").to_vec::<f32>()
    };
    assert_eq!(gradient(1.0).unwrap(), [0.0; 4]);
    for (found, wanted) in gradient(65_536.0)
        .unwrap()
        .iter()
        .zip([1e-9, 2e-9, 3e-9, 4e-9])
    {
        assert!(
            (found - wanted).abs() < 0.01 * wanted,
            "{found} for {wanted}"
        );
    }
}
