//! Optimizers and schedules give PyTorch's numbers: `fixtures/optimizers.safetensors`.

use highwater::optim::lr_scheduler::{
    Anneal, ConstantLr, CosineAnnealingLr, CosineAnnealingWarmRestarts, ExponentialLr, LambdaLr,
    LinearLr, LrScheduler, Mode, MultiStepLr, OneCycleLr, PolynomialLr, ReduceLrOnPlateau,
    ReduceLrOnPlateauOptions, Schedule, SequentialLr, StepLr, ThresholdMode,
};
use highwater::optim::{
    Adafactor, AdafactorOptions, Adagrad, AdagradOptions, Adam, AdamOptions, AdamWOptions,
    AdjustLr, Ema, Groups, Lion, LionOptions, Muon, MuonOptions, NAdam, NAdamOptions, Optimizer,
    RAdam, RAdamOptions, RmsProp, RmsPropOptions, Rule, Sgd, SgdOptions,
};
use highwater::prelude::*;
use highwater::{DType, nn::Linear, with_parameter_dtype};
use safetensors::SafeTensors;

#[path = "../../examples/lamb/rule.rs"]
mod lamb;

const STEPS: usize = 6;
/// What results in `f32` may differ by, relative to `1 + |PyTorch's|`.
const CLOSE: f32 = 4e-6;
/// The same after six steps of 0.02 by directions of magnitudes about 1 that were made in `bf16`.
const CLOSE_IN_BF16: f32 = 4e-3;

struct Fixtures(Vec<u8>);

impl Fixtures {
    fn read() -> Self {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/optimizers.safetensors"
        );
        Self(std::fs::read(path).unwrap())
    }

    fn f32s(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let view = file.tensor(name).unwrap();
        let numbers = view.data().as_chunks().0.iter();
        let numbers = numbers.map(|&bytes| f32::from_le_bytes(bytes)).collect();
        (view.shape().to_vec(), numbers)
    }

    fn f64s(&self, name: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let numbers = file.tensor(name).unwrap();
        let numbers = numbers.data().as_chunks().0.iter();
        numbers.map(|&bytes| f64::from_le_bytes(bytes)).collect()
    }
}

fn engine() -> Engine {
    let builder = Engine::builder().threads(2).arena(64 << 20).seed(1);
    builder.build().unwrap()
}

fn assert_close(got: &[f32], want: &[f32], close: f32, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.iter().zip(want) {
        let close = (got - want).abs() <= close * (1.0 + want.abs());
        assert!(close, "{what}: {got} for {want}");
    }
}

/// Trains as the fixtures' script does, and compares parameters and state.
fn check<R: Rule>(case: &str, count: usize, rule: R, close: f32) {
    let (fixtures, engine) = (Fixtures::read(), engine());
    let mut parameters = Vec::new();
    for i in 0..count {
        let (shape, start) = fixtures.f32s(&format!("start.{i}"));
        let filled = Parameter::new(&engine, &shape[..], |x| x.copy_from_slice(&start)).unwrap();
        filled.set_name(&i.to_string());
        parameters.push(filled);
    }
    let mut optimizer = Groups::new(parameters.clone(), rule).unwrap();
    for step in 0..STEPS {
        for (i, parameter) in parameters.iter().enumerate() {
            let (shape, grads) = fixtures.f32s(&format!("grad.{i}"));
            let len = grads.len() / STEPS;
            let grad = engine
                .tensor(&grads[step * len..][..len], &shape[1..])
                .unwrap();
            // The gradient of this is `grad`, to the bit.
            parameter
                .mul(&grad)
                .unwrap()
                .sum()
                .unwrap()
                .backward()
                .unwrap();
        }
        optimizer.step().unwrap();
    }
    for (i, parameter) in parameters.iter().enumerate() {
        let (_, want) = fixtures.f32s(&format!("{case}.param.{i}"));
        let got = parameter.to_vec::<f32>().unwrap();
        assert_close(&got, &want, close, &format!("{case}: parameter {i}"));
    }
    let state = optimizer.state_dict();
    assert!(!state.is_empty());
    for (name, tensor) in state {
        let (kind, i) = name.split_once('.').unwrap();
        let (shape, want) = fixtures.f32s(&format!("{case}.state.{i}.{kind}"));
        assert_eq!(tensor.dims(), shape, "{case}: {name}");
        let got = tensor.to_vec::<f32>().unwrap();
        assert_close(&got, &want, CLOSE, &format!("{case}: {name}"));
    }
}

#[test]
fn adam_and_gradient_descent_are_those_of_pytorch() {
    let adam = AdamOptions {
        lr: 0.01,
        ..Default::default()
    };
    check(
        "adam",
        3,
        AdamOptions {
            weight_decay: 0.1,
            ..adam.clone()
        },
        CLOSE,
    );
    let largest = AdamOptions {
        amsgrad: true,
        maximize: true,
        ..adam
    };
    check("adam_amsgrad", 3, largest, CLOSE);
    let largest = AdamWOptions {
        lr: 0.01,
        amsgrad: true,
        ..Default::default()
    };
    check("adamw_amsgrad", 3, largest, CLOSE);
    let sgd = SgdOptions {
        lr: 0.1,
        momentum: 0.9,
        ..Default::default()
    };
    let dampened = SgdOptions {
        dampening: 0.3,
        weight_decay: 0.1,
        ..sgd.clone()
    };
    check("sgd", 3, dampened, CLOSE);
    check(
        "sgd_nesterov",
        3,
        SgdOptions {
            nesterov: true,
            maximize: true,
            ..sgd
        },
        CLOSE,
    );
}

#[test]
fn other_updates_of_one_operation_are_those_of_pytorch() {
    check(
        "rmsprop",
        3,
        RmsPropOptions {
            weight_decay: 0.1,
            ..Default::default()
        },
        CLOSE,
    );
    let all = RmsPropOptions {
        lr: 1e-3,
        momentum: 0.9,
        centered: true,
        ..Default::default()
    };
    // A difference of two averages loses digits.
    check("rmsprop_all", 3, all, 10.0 * CLOSE);
    let adagrad = AdagradOptions {
        lr: 0.1,
        lr_decay: 0.1,
        initial_accumulator_value: 0.5,
        ..Default::default()
    };
    check("adagrad", 3, adagrad, CLOSE);
    let lion = LionOptions {
        lr: 0.01,
        weight_decay: 0.1,
        ..Default::default()
    };
    check("lion", 3, lion, CLOSE);
}

#[test]
fn updates_of_several_nodes_are_those_of_pytorch() {
    let adafactor = AdafactorOptions {
        lr: 0.05,
        weight_decay: 0.1,
        ..Default::default()
    };
    check("adafactor", 3, adafactor, CLOSE);
    let clipped = AdafactorOptions {
        lr: 1.0,
        d: 1.25,
        eps: (Some(1e-3), 0.1),
        maximize: true,
        ..Default::default()
    };
    check("adafactor_clipped", 3, clipped, CLOSE);
    let muon = MuonOptions {
        lr: 0.02,
        ..Default::default()
    };
    check("muon", 2, muon.clone(), CLOSE_IN_BF16);
    let plain = MuonOptions {
        nesterov: false,
        momentum: 0.5,
        adjust_lr: AdjustLr::MatchRmsAdamW,
        ..muon
    };
    check("muon_plain", 2, plain, CLOSE_IN_BF16);
}

#[test]
fn updates_made_of_tensors_are_those_of_pytorch() {
    let nadam = NAdamOptions {
        lr: 0.01,
        weight_decay: 0.1,
        ..Default::default()
    };
    check("nadam", 3, nadam.clone(), CLOSE);
    let decoupled = NAdamOptions {
        decoupled_weight_decay: true,
        momentum_decay: 0.1,
        maximize: true,
        ..nadam
    };
    check("nadam_decoupled", 3, decoupled, CLOSE);
    // The first five steps go by the average alone.
    let radam = RAdamOptions {
        lr: 0.01,
        weight_decay: 0.1,
        ..Default::default()
    };
    check("radam", 3, radam.clone(), CLOSE);
    let decoupled = RAdamOptions {
        decoupled_weight_decay: true,
        betas: (0.8, 0.9),
        maximize: true,
        ..radam
    };
    check("radam_decoupled", 3, decoupled, CLOSE);
}

/// One that is written outside of the library, by the lines of its paper.
#[test]
fn lamb_is_that_of_its_paper() {
    let rule = lamb::LambOptions {
        lr: 0.01,
        weight_decay: 0.1,
        ..Default::default()
    };
    check("lamb", 3, rule, CLOSE);
}

/// Parameters in other precisions follow those in `f32`, within their own.
#[test]
fn updates_of_several_nodes_work_in_any_precision() {
    fn train(dtype: DType, muon: bool) -> Vec<f32> {
        let engine = engine();
        let x = Tensor::randn(&engine, [16, 12]).unwrap();
        let layer = with_parameter_dtype(dtype, || Linear::new(&engine, 12, 20, false)).unwrap();
        let mut optimizer: Box<dyn Optimizer> = if muon {
            let options = MuonOptions {
                lr: 0.02,
                ..Default::default()
            };
            Box::new(Muon::new(layer.parameters(), options).unwrap())
        } else {
            // Not the least variance of each dtype.
            let options = AdafactorOptions {
                lr: 0.05,
                eps: (Some(1e-7), 1e-3),
                ..Default::default()
            };
            Box::new(Adafactor::new(layer.parameters(), options).unwrap())
        };
        for _ in 0..5 {
            let x = x.to_dtype(dtype).unwrap();
            let y = layer.forward(&x).unwrap();
            let loss = y
                .to_dtype(DType::F32)
                .unwrap()
                .square()
                .unwrap()
                .mean()
                .unwrap();
            loss.backward().unwrap();
            optimizer.step().unwrap();
        }
        let weight = layer.weight.to_dtype(DType::F32).unwrap();
        weight.to_vec::<f32>().unwrap()
    }
    // Muon makes the small singular values of a gradient large, and what rounding does to them.
    for (muon, close) in [(false, 2e-2), (true, 6e-2)] {
        let full = train(DType::F32, muon);
        assert_close(&train(DType::BF16, muon), &full, close, "bf16");
        assert_close(&train(DType::F16, muon), &full, close, "f16");
        assert_close(&train(DType::F64, muon), &full, close / 4.0, "f64");
    }
}

#[test]
fn what_cannot_be_updated_is_refused() {
    let engine = engine();
    let layer = Linear::new(&engine, 3, 2, true).unwrap();
    let error = Muon::new(layer.parameters(), MuonOptions::default()).unwrap_err();
    assert!(error.to_string().contains("matrices"), "{error}");
    let narrow = AdafactorOptions {
        d: 0.5,
        ..Default::default()
    };
    assert!(Adafactor::new(layer.parameters(), narrow).is_err());
    let coded = RmsPropOptions {
        centered: true,
        moments: highwater::optim::Moments::Int8,
        ..Default::default()
    };
    let error = RmsProp::new(layer.parameters(), coded).unwrap_err();
    assert!(error.to_string().contains("codes"), "{error}");
}

/// All optimizers make a small loss smaller, and go on from what they saved to the same bits.
#[test]
fn state_is_all_that_an_optimizer_goes_on_from() {
    type Make = fn(Vec<Parameter>) -> Box<dyn Optimizer>;
    let makes: [(&str, Make); 9] = [
        ("adam", |p| {
            Box::new(Adam::new(p, AdamOptions::default()).unwrap())
        }),
        ("adagrad", |p| {
            Box::new(Adagrad::new(p, AdagradOptions::default()).unwrap())
        }),
        ("lion", |p| {
            Box::new(Lion::new(p, LionOptions::default()).unwrap())
        }),
        ("rmsprop", |p| {
            Box::new(RmsProp::new(p, RmsPropOptions::default()).unwrap())
        }),
        ("adafactor", |p| {
            Box::new(Adafactor::new(p, AdafactorOptions::default()).unwrap())
        }),
        ("muon", |p| {
            Box::new(Muon::new(p, MuonOptions::default()).unwrap())
        }),
        ("nadam", |p| {
            Box::new(NAdam::new(p, NAdamOptions::default()).unwrap())
        }),
        ("radam", |p| {
            Box::new(RAdam::new(p, RAdamOptions::default()).unwrap())
        }),
        ("lamb", |p| {
            Box::new(lamb::Lamb::new(p, lamb::LambOptions::default()).unwrap())
        }),
    ];
    for (name, make) in makes {
        let engine = engine();
        let x = Tensor::randn(&engine, [16, 12]).unwrap();
        let step = |layer: &Linear, optimizer: &mut Box<dyn Optimizer>| {
            let loss = layer.forward(&x).unwrap().square().unwrap().mean().unwrap();
            loss.backward().unwrap();
            optimizer.step().unwrap();
            loss.item().unwrap()
        };
        let layer = Linear::new(&engine, 12, 20, false).unwrap();
        layer.name_parameters();
        let mut optimizer = make(layer.parameters());
        let losses: Vec<f32> = (0..4).map(|_| step(&layer, &mut optimizer)).collect();
        assert!(losses[3] < losses[0], "{name}: {losses:?}");

        let other = Linear::new(&engine, 12, 20, false).unwrap();
        other.name_parameters();
        let mut restored = make(other.parameters());
        let copy = |from: &Parameter, to: &Parameter| {
            let bytes = from.with_bytes(<[u8]>::to_vec).unwrap();
            to.with_bytes_mut(|own| own.copy_from_slice(&bytes))
                .unwrap();
        };
        copy(&layer.weight, &other.weight);
        restored.set_step_counts(&optimizer.step_counts()).unwrap();
        for ((a, from), (b, to)) in optimizer.state_dict().iter().zip(restored.state_dict()) {
            assert_eq!(*a, b);
            copy(from, &to);
        }
        let (a, b) = (step(&layer, &mut optimizer), step(&other, &mut restored));
        assert_eq!(a.to_bits(), b.to_bits(), "{name}");
        let bits = |p: &Parameter| p.with_bytes(<[u8]>::to_vec).unwrap();
        assert_eq!(bits(&layer.weight), bits(&other.weight), "{name}");
    }
}

#[test]
fn all_state_has_names_of_its_own() {
    let engine = Engine::builder().memory(256 << 20).build().unwrap();
    let layers = || -> Vec<Linear> {
        let layers = (0..3).map(|_| Linear::new(&engine, 4, 4, true).unwrap());
        layers.collect()
    };
    let distinct = |names: &[String]| {
        let set: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(set.len(), names.len(), "{names:?}");
    };
    // Without names, with names that two modules share, and with names that differ.
    for (named, apart) in [(false, false), (true, false), (true, true)] {
        let (a, b) = (layers(), layers());
        if named {
            a.name_parameters();
            b.name_parameters();
        }
        if apart {
            (b.parameters().iter()).for_each(|p| p.set_name(&format!("b.{}", p.name())));
        }
        let all: Vec<Parameter> = a.parameters().into_iter().chain(b.parameters()).collect();
        let optimizer = AdamW::new(all.clone(), AdamWOptions::default()).unwrap();
        let names = optimizer.state_dict().into_iter().map(|(name, _)| name);
        let names: Vec<String> = names.collect();
        assert_eq!(names.len(), 2 * all.len());
        distinct(&names);
        assert_eq!(names.contains(&"exp_avg.0.weight".to_owned()), apart);
        assert_eq!(names.contains(&"exp_avg.11".to_owned()), !apart);
        let ema = Ema::new(all, 0.9).unwrap();
        let names = ema.state_dict().into_iter().map(|(name, _)| name);
        distinct(&names.collect::<Vec<_>>());
    }
}

fn assert_rates(got: &[f64], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len());
    for (epoch, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(
            (got - want).abs() < 1e-12,
            "{what}, epoch {epoch}: {got} for {want}"
        );
    }
}

type Named = (&'static str, Box<dyn Schedule>);

fn simple_schedules() -> Vec<Named> {
    let restarts = CosineAnnealingWarmRestarts {
        t_0: 4,
        t_mult: 2,
        eta_min: 0.01,
    };
    let down = LinearLr {
        start_factor: 0.2,
        end_factor: 0.9,
        total_iters: 10,
    };
    vec![
        (
            "step",
            Box::new(StepLr {
                step_size: 7,
                gamma: 0.3,
            }),
        ),
        (
            "multi_step",
            Box::new(MultiStepLr {
                milestones: vec![3, 20, 3],
                gamma: 0.5,
            }),
        ),
        ("exponential", Box::new(ExponentialLr { gamma: 0.9 })),
        (
            "cosine",
            Box::new(CosineAnnealingLr {
                t_max: 15,
                eta_min: 0.01,
            }),
        ),
        ("warm_restarts", Box::new(restarts)),
        (
            "constant",
            Box::new(ConstantLr {
                factor: 0.25,
                total_iters: 5,
            }),
        ),
        ("linear", Box::new(down)),
        (
            "polynomial",
            Box::new(PolynomialLr {
                total_iters: 30,
                power: 2.0,
            }),
        ),
        (
            "lambda",
            Box::new(LambdaLr(|epoch: u64| 1.0 / (1.0 + epoch as f64))),
        ),
    ]
}

fn schedules_of_phases() -> Vec<Named> {
    let warm_up = LinearLr {
        start_factor: 0.1,
        end_factor: 1.0,
        total_iters: 5,
    };
    let cosine = CosineAnnealingLr {
        t_max: 20,
        eta_min: 0.01,
    };
    let parts: Vec<Box<dyn Schedule>> = vec![
        Box::new(warm_up),
        Box::new(cosine),
        Box::new(ExponentialLr { gamma: 0.9 }),
    ];
    let three = OneCycleLr {
        pct_start: 0.4,
        anneal_strategy: Anneal::Linear,
        three_phase: true,
        cycle_momentum: false,
        ..OneCycleLr::new(0.5, 41)
    };
    vec![
        ("one_cycle", Box::new(OneCycleLr::new(0.5, 41))),
        ("one_cycle_three", Box::new(three)),
        (
            "sequential",
            Box::new(SequentialLr::new(parts, vec![5, 25]).unwrap()),
        ),
    ]
}

#[test]
fn schedules_are_those_of_pytorch() {
    let fixtures = Fixtures::read();
    for (name, schedule) in simple_schedules().into_iter().chain(schedules_of_phases()) {
        let want = fixtures.f64s(&format!("schedule.{name}"));
        let epochs = 0..want.len() as u64;
        let got: Vec<f64> = epochs
            .clone()
            .map(|epoch| schedule.lr(0.1, epoch))
            .collect();
        assert_rates(&got, &want, name);
        if name == "one_cycle" {
            let momenta: Vec<f64> = epochs.map(|at| schedule.momentum(at).unwrap()).collect();
            assert_rates(
                &momenta,
                &fixtures.f64s("schedule.one_cycle.momentum"),
                "momentum",
            );
        }
    }
}

#[test]
fn schedulers_set_the_rates_of_all_groups() {
    let engine = engine();
    let group = |lr| {
        let options = SgdOptions {
            lr,
            momentum: 0.9,
            ..Default::default()
        };
        (vec![Parameter::new(&engine, [2], |_| {}).unwrap()], options)
    };
    let mut optimizer = Sgd::with_groups(vec![group(0.1), group(0.02)]).unwrap();
    let schedule = StepLr {
        step_size: 2,
        gamma: 0.5,
    };
    let mut scheduler = LrScheduler::new(schedule, &mut optimizer).unwrap();
    for want in [[0.1, 0.02], [0.05, 0.01], [0.05, 0.01], [0.025, 0.005]] {
        scheduler.step(&mut optimizer).unwrap();
        assert_rates(&optimizer.lrs(), &want, "two groups");
    }
    assert_eq!(
        (scheduler.last_epoch(), scheduler.last_lr()),
        (4, optimizer.lrs())
    );
    let none = StepLr {
        step_size: 0,
        gamma: 0.5,
    };
    assert!(LrScheduler::new(none, &mut optimizer).is_err());
    LrScheduler::new(OneCycleLr::new(0.5, 10), &mut optimizer).unwrap();
    assert!(
        optimizer
            .groups_mut()
            .iter()
            .all(|group| (group.momentum - 0.95).abs() < 1e-12)
    );
}

#[test]
fn plateaus_are_those_of_pytorch() {
    let fixtures = Fixtures::read();
    let min = ReduceLrOnPlateauOptions {
        factor: 0.5,
        patience: 2,
        cooldown: 3,
        min_lr: 0.02,
        ..Default::default()
    };
    let max = ReduceLrOnPlateauOptions {
        mode: Mode::Max,
        factor: 0.3,
        patience: 1,
        threshold: 0.1,
        threshold_mode: ThresholdMode::Abs,
        ..Default::default()
    };
    let engine = engine();
    for (name, options) in [("plateau_min", min), ("plateau_max", max)] {
        let parameters = vec![Parameter::new(&engine, [2], |_| {}).unwrap()];
        let options_of_sgd = SgdOptions {
            lr: 0.1,
            ..Default::default()
        };
        let mut optimizer = Sgd::new(parameters, options_of_sgd).unwrap();
        let mut scheduler = ReduceLrOnPlateau::new(options).unwrap();
        let metrics = fixtures.f64s("plateau.metrics");
        let got: Vec<f64> = (metrics.into_iter())
            .map(|metric| {
                scheduler.step(metric, &mut optimizer).unwrap();
                optimizer.lrs()[0]
            })
            .collect();
        assert_rates(&got, &fixtures.f64s(&format!("schedule.{name}")), name);
    }
}

#[test]
fn averages_follow_parameters_and_stand_in_for_them() {
    for dtype in [DType::F32, DType::BF16] {
        let engine = engine();
        let layer = with_parameter_dtype(dtype, || Linear::new(&engine, 3, 2, false)).unwrap();
        let options = SgdOptions {
            lr: 0.5,
            ..Default::default()
        };
        let mut optimizer = Sgd::new(layer.parameters(), options).unwrap();
        let mut ema = Ema::new(layer.parameters(), 0.75).unwrap();
        let x = Tensor::randn(&engine, [4, 3])
            .unwrap()
            .to_dtype(dtype)
            .unwrap()
            .keep();
        let read = || {
            layer
                .weight
                .to_dtype(DType::F32)
                .unwrap()
                .to_vec::<f32>()
                .unwrap()
        };
        let mut want: Option<Vec<f32>> = None;
        for _ in 0..4 {
            layer
                .forward(&x)
                .unwrap()
                .square()
                .unwrap()
                .mean()
                .unwrap()
                .backward()
                .unwrap();
            optimizer.step().unwrap();
            ema.update().unwrap();
            let now = read();
            want = Some(match want {
                None => now,
                Some(before) => before
                    .iter()
                    .zip(&now)
                    .map(|(a, b)| a + 0.25 * (b - a))
                    .collect(),
            });
        }
        let (want, before) = (
            want.unwrap(),
            layer.weight.with_bytes(<[u8]>::to_vec).unwrap(),
        );
        let seen = ema.with_averaged(|| Ok(read())).unwrap();
        let close = if dtype == DType::F32 { 1e-6 } else { 1e-2 };
        assert_close(&seen, &want, close, "averages");
        let average = ema.state_dict().remove(0).1.to_vec::<f32>().unwrap();
        assert_close(&average, &want, 1e-6, "state");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ema.with_averaged::<()>(|| panic!("inside"))
        }));
        assert!(panicked.is_err());
        assert_eq!(layer.weight.with_bytes(<[u8]>::to_vec).unwrap(), before);
        let average = ema.state_dict().remove(0).1.to_vec::<f32>().unwrap();
        assert_close(&average, &want, 1e-6, "state");
        assert_eq!(ema.n_averaged(), 4);
    }
    let engine = engine();
    assert!(Ema::new(vec![Parameter::new(&engine, [2], |_| {}).unwrap()], 1.5).is_err());
}
