//! Parameters in half precision with what updates of them are added to, and moments in a byte each.

use crate::budget::check_budgets;
use crate::models::{
    DEEP_TIED_GPT, LOSS_AT_EACH_DEPTH, Layers, Model, Random, SMALL_GPT, TWO_OPTIMIZERS,
};
use crate::share::some;
use crate::tiers;
use crate::train::{Held, IN_PIECES, PLAIN, Recipe, assert_same_bits, run};
use half::{bf16, f16};
use highwater::optim::{
    AdamW, AdamWOptions, GradScaler, GradScalerOptions, Master, Moments, Optimizer, Sgd, SgdOptions,
};
use highwater::{Builder, DType, Engine, Error, Parameter, Result, with_parameter_dtype};

/// All there are but plain `F32`.
const FORMS: [Held; 9] = {
    use DType::{BF16, F16, F32};
    use Master::{Split, Stochastic};
    use Moments::Int8;
    const fn held(dtype: DType, master: Master, moments: Moments) -> Held {
        Held {
            dtype,
            master: Some(master),
            moments,
        }
    }
    [
        held(F32, Master::F32, Int8),
        held(F16, Master::F32, Moments::F32),
        held(F16, Master::F32, Int8),
        held(BF16, Master::F32, Moments::F32),
        held(BF16, Master::F32, Int8),
        held(BF16, Split, Moments::F32),
        held(BF16, Split, Int8),
        held(BF16, Stochastic, Moments::F32),
        held(BF16, Stochastic, Int8),
    ]
};

fn recipe(held: Held) -> Recipe {
    Recipe { held, ..PLAIN }
}

#[test]
fn the_budget_law_of_all_forms() {
    let samples = [SMALL_GPT, DEEP_TIED_GPT, TWO_OPTIMIZERS, LOSS_AT_EACH_DEPTH];
    for (i, held) in FORMS.into_iter().enumerate() {
        let sample = samples[i % samples.len()];
        let recipe = Recipe {
            clip: i % 2 == 1,
            accumulate: 1 + i as u64 % 3,
            rows: 6,
            ..recipe(held)
        };
        check_budgets(sample.name, &sample.make, recipe, 4);
    }
}

#[test]
fn the_budget_law_of_all_forms_with_a_disk() {
    // Wide enough for codes that may move.
    let make = |engine: &Engine| -> Result<Box<dyn Model>> {
        Ok(Box::new(Layers::new(engine, &[272; 6])?))
    };
    for held in some(FORMS) {
        tiers::check_of(&make, recipe(held));
    }
}

#[test]
fn updates_of_halves_in_pieces_have_the_bits_of_whole_ones() {
    for held in FORMS
        .into_iter()
        .filter(|held| held.moments == Moments::F32)
    {
        let pieces = run(
            Engine::builder(),
            &DEEP_TIED_GPT.make,
            Recipe { held, ..IN_PIECES },
        );
        let whole = run(Engine::builder(), &DEEP_TIED_GPT.make, recipe(held));
        let (pieces, whole) = (pieces.unwrap(), whole.unwrap());
        assert_same_bits(&format!("{held:?}"), &pieces, &whole);
        assert!(pieces.last().nodes > whole.last().nodes);
    }
}

#[test]
fn a_split_master_trains_as_one_in_f32() {
    let both = [Master::F32, Master::Split].map(|master| {
        let held = Held {
            dtype: DType::BF16,
            master: Some(master),
            moments: Moments::F32,
        };
        run(Engine::builder(), &SMALL_GPT.make, recipe(held)).unwrap()
    });
    let [full, split] = both.map(|mut trace| {
        trace.bits.retain(|(name, _)| !name.ends_with("master"));
        trace
    });
    assert_same_bits("halves", &split, &full);
}

/// Shapes of the parameters of a random program.
fn shapes(random: &mut Random) -> Vec<Vec<usize>> {
    let shape = |random: &mut Random| {
        let dims = 1 + random.below(3);
        (0..dims).map(|_| 1 + random.below(23)).collect()
    };
    (0..=random.below(3)).map(|_| shape(random)).collect()
}

/// An optimizer with random settings, the same for one seed.
fn optimizer(
    random: &mut Random,
    parameters: Vec<Parameter>,
    held: Held,
) -> Result<Box<dyn Optimizer>> {
    let Held {
        master, moments, ..
    } = held;
    let weight_decay = [0.0, 0.1][random.below(2)];
    if random.below(2) == 0 {
        let options = AdamWOptions {
            lr: 0.01,
            weight_decay,
            master,
            moments,
            ..AdamWOptions::default()
        };
        return Ok(Box::new(AdamW::new(parameters, options)?));
    }
    let momentum = [0.0, 0.9][random.below(2)];
    let options = SgdOptions {
        lr: 0.05,
        momentum,
        weight_decay,
        nesterov: momentum > 0.0 && random.below(2) == 0,
        master,
        moments,
        ..SgdOptions::default()
    };
    Ok(Box::new(Sgd::new(parameters, options)?))
}

/// What a program left.
struct Left {
    parameters: Vec<Parameter>,
    state: Vec<(String, Parameter)>,
}

impl Left {
    /// Bits of a master in `F32`, whatever form it is held in.
    fn masters(&self) -> Vec<Vec<u32>> {
        let all = self.parameters.iter();
        all.map(|parameter| {
            let name = format!("master.{}", parameter.name());
            let beside = self
                .state
                .iter()
                .filter(|(n, _)| n.split('[').next() == Some(&name));
            let beside: Vec<u8> = beside
                .flat_map(|(_, cell)| cell.with_bytes(<[u8]>::to_vec).unwrap())
                .collect();
            let own = parameter.with_bytes(<[u8]>::to_vec).unwrap();
            match (parameter.dtype(), beside.len() / own.len().max(1)) {
                (DType::F32, _) => words(&own),
                (_, 1) => {
                    let (own, beside) = (own.as_chunks().0, beside.as_chunks().0);
                    let both = own.iter().zip(beside);
                    both.map(|(&high, &low)| {
                        let high = u32::from(u16::from_le_bytes(high)) << 16;
                        high.wrapping_add_signed(i32::from(i16::from_le_bytes(low)))
                    })
                    .collect()
                }
                _ => words(&beside),
            }
        })
        .collect()
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

/// Trains parameters by gradients that do not depend on them: few digits, which all types hold exactly.
fn program(seed: u64, builder: Builder, held: Held) -> Result<Left> {
    let mut random = Random(seed);
    let engine = builder.seed(7).build()?;
    let shapes = shapes(&mut random);
    let parameters = shapes.iter().enumerate().map(|(i, shape)| {
        let start = random.values(shape.iter().product());
        let start = start.iter().map(|x| (x * 64.0).round() / 64.0);
        let start: Vec<f32> = start.collect();
        let parameter = with_parameter_dtype(held.dtype, || {
            Parameter::new(&engine, &shape[..], |own| own.copy_from_slice(&start))
        })?;
        parameter.set_name(&format!("p{i}"));
        Ok(parameter)
    });
    let parameters = parameters.collect::<Result<Vec<_>>>()?;
    let mut optimizer = optimizer(&mut random, parameters.clone(), held)?;
    let scaled = GradScalerOptions {
        init_scale: 4.0,
        ..GradScalerOptions::default()
    };
    let mut scaler = (random.below(2) == 0)
        .then(|| GradScaler::new(scaled))
        .transpose()?;
    let micro = 1 + random.below(2);
    for _ in 0..6 {
        for _ in 0..micro {
            for (shape, parameter) in shapes.iter().zip(&parameters) {
                if random.below(4) == 0 {
                    continue;
                }
                let x = random.values(shape.iter().product());
                let x: Vec<f32> = x.iter().map(|x| (x * 8.0).round() / 16.0).collect();
                let x = engine.tensor(&x, &shape[..])?.to_dtype(held.dtype)?;
                let loss = parameter.mul(&x)?.to_dtype(DType::F32)?.sum()?;
                match &scaler {
                    Some(scaler) => scaler.scale(&loss)?.backward()?,
                    None => loss.backward()?,
                }
            }
        }
        match &mut scaler {
            Some(scaler) => {
                scaler.step(&mut *optimizer)?;
                scaler.update()?;
            }
            None => {
                optimizer.step()?;
            }
        }
    }
    Ok(Left {
        state: optimizer.state_dict(),
        parameters,
    })
}

const WHOLE: Held = Held {
    dtype: DType::F32,
    master: None,
    moments: Moments::F32,
};

/// Random programs whose gradients all types hold: masters are what parameters in `F32` are.
#[test]
fn masters_are_what_parameters_in_f32_would_be() {
    let exact =
        |held: &Held| held.moments == Moments::F32 && held.master != Some(Master::Stochastic);
    for seed in some(0..60) {
        let expected = program(seed, Engine::builder(), WHOLE).unwrap().masters();
        for held in FORMS.into_iter().filter(exact) {
            let builder = Engine::builder().piece_bytes(if seed % 2 == 0 { 64 } else { 1 << 20 });
            let left = program(seed, builder, held).unwrap();
            assert_eq!(left.masters(), expected, "{seed}, {held:?}");
            for (parameter, master) in left.parameters.iter().zip(&expected) {
                let rounded: Vec<u16> = master
                    .iter()
                    .map(|&bits| match held.dtype {
                        DType::F16 => f16::from_f32(f32::from_bits(bits)).to_bits(),
                        _ => ((bits + 0x8000) >> 16) as u16,
                    })
                    .collect();
                let own = parameter.with_bytes(<[u8]>::to_vec).unwrap();
                let own: Vec<u16> = own
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&b| u16::from_le_bytes(b))
                    .collect();
                assert_eq!(own, rounded, "{seed}, {held:?}");
            }
        }
    }
}

/// The share by which updates differ from those with moments in `F32`.
#[test]
fn moments_in_bytes_update_nearly_as_those_in_f32() {
    let held = Held {
        moments: Moments::Int8,
        ..WHOLE
    };
    let start = |seed| {
        let left = program(seed, Engine::builder(), WHOLE).unwrap();
        left.masters()
    };
    let (mut square, mut difference) = (0.0, 0.0);
    for seed in some(0..40) {
        let left = program(seed, Engine::builder(), held).unwrap();
        for (a, b) in left
            .masters()
            .concat()
            .into_iter()
            .zip(start(seed).concat())
        {
            let (a, b) = (f64::from(f32::from_bits(a)), f64::from(f32::from_bits(b)));
            square += b * b;
            difference += (a - b) * (a - b);
        }
    }
    assert!(difference > 0.0, "nothing is coded");
    assert!(
        (difference / square).sqrt() < 0.01,
        "{difference} of {square}"
    );
}

#[test]
fn state_takes_the_bytes_that_are_promised() {
    let bytes = |held: Held| {
        let engine = Engine::builder().build().unwrap();
        let parameter =
            with_parameter_dtype(held.dtype, || Parameter::normal(&engine, [1000, 256], 1.0));
        let options = AdamWOptions {
            master: held.master,
            moments: held.moments,
            ..AdamWOptions::default()
        };
        let before = engine.state_bytes();
        let adamw = AdamW::new(vec![parameter.unwrap()], options).unwrap();
        let cells = adamw.state_dict();
        let names: Vec<String> = cells.into_iter().map(|(name, _)| name).collect();
        (engine.state_bytes() - before, engine.state_bytes(), names)
    };
    let count = 256_000;
    let [
        _,
        f16,
        f16_int8,
        bf16,
        bf16_int8,
        split,
        split_int8,
        stochastic,
        stochastic_int8,
    ] = FORMS.map(|held| bytes(held).1 / (count / 64));
    assert_eq!(
        [f16, bf16, split, stochastic],
        [14 * 64, 14 * 64, 12 * 64, 10 * 64]
    );
    // Two scales for 256 numbers.
    let int8 = |bytes: u64| bytes * 64 + 2;
    assert_eq!(
        [f16_int8, bf16_int8, split_int8, stochastic_int8],
        [int8(8), int8(8), int8(6), int8(4)]
    );
    let names = bytes(FORMS[6]).2;
    let kinds = [
        "master",
        "exp_avg",
        "exp_avg_scale",
        "exp_avg_sq",
        "exp_avg_sq_scale",
    ];
    assert_eq!(names, kinds.map(|kind| format!("{kind}.parameter")));
}

/// Steps that are a small part of a parameter's last digit.
fn drift(builder: Builder, master: Master) -> Vec<f32> {
    let engine = builder.seed(5).build().unwrap();
    let parameter = with_parameter_dtype(DType::BF16, || {
        Parameter::new(&engine, [61, 67], |own| own.fill(1.0))
    });
    let parameter = parameter.unwrap();
    let options = SgdOptions {
        lr: 1.0 / 4096.0,
        master: Some(master),
        ..SgdOptions::default()
    };
    let mut sgd = Sgd::new(vec![parameter.clone()], options).unwrap();
    for _ in 0..256 {
        let loss = parameter.neg().unwrap().to_dtype(DType::F32).unwrap().sum();
        loss.unwrap().backward().unwrap();
        sgd.step().unwrap();
    }
    let values = parameter.to_dtype(DType::F32).unwrap();
    values.to_vec().unwrap()
}

#[test]
fn small_updates_are_kept() {
    for master in [Master::F32, Master::Split] {
        let values = drift(Engine::builder(), master);
        assert!(values.iter().all(|&x| x == 1.0625), "{master:?}");
    }
    let values = drift(Engine::builder(), Master::Stochastic);
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
    assert!((mean - 1.0625).abs() < 0.001, "{mean}");
    assert!(values.iter().any(|&x| x != values[0]));
    let others = [
        Engine::builder().threads(1),
        Engine::builder().threads(3).piece_bytes(1024),
        Engine::eager(),
    ];
    for other in others {
        assert_eq!(drift(other, Master::Stochastic), values);
    }
}

#[test]
fn what_is_loaded_is_updated() {
    for held in FORMS
        .into_iter()
        .filter(|held| held.moments == Moments::F32)
    {
        let engine = Engine::builder().build().unwrap();
        let parameter =
            with_parameter_dtype(held.dtype, || Parameter::normal(&engine, [300], 1.0)).unwrap();
        let options = SgdOptions {
            lr: 0.5,
            master: held.master,
            ..SgdOptions::default()
        };
        let mut sgd = Sgd::new(vec![parameter.clone()], options).unwrap();
        let mut step = || {
            let wide = parameter.to_dtype(DType::F32).unwrap();
            wide.sum().unwrap().backward().unwrap();
            sgd.step().unwrap();
            let wide = parameter.to_dtype(DType::F32).unwrap();
            wide.to_vec::<f32>().unwrap()
        };
        step();
        // Rounded to nearest, like all that is loaded.
        parameter
            .copy_from_slice(&[4.0 + 1.0 / 4096.0; 300])
            .unwrap();
        // What a split master had beyond the old one is still there.
        let most = if held.master == Some(Master::Split) {
            1.0 / 64.0
        } else {
            0.0
        };
        for x in step() {
            assert!((x - 3.5).abs() <= most, "{held:?}: {x}");
        }
    }
}

#[test]
fn forms_that_there_are_not_are_refused() {
    let engine = Engine::builder().build().unwrap();
    let of = |dtype, master| {
        let parameter = with_parameter_dtype(dtype, || Parameter::normal(&engine, [3], 1.0))?;
        let options = AdamWOptions {
            master,
            ..AdamWOptions::default()
        };
        AdamW::new(vec![parameter], options)
    };
    for master in [Master::Split, Master::Stochastic] {
        let error = of(DType::F16, Some(master)).unwrap_err().to_string();
        assert!(
            error.contains("for parameters in bfloat16, not float16"),
            "{error}"
        );
        // It is of no matter to parameters that need none.
        of(DType::F32, Some(master)).unwrap();
    }
    let error = with_parameter_dtype(DType::I64, || Parameter::normal(&engine, [3], 1.0));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("int64 is no float type"), "{error}");
    let mut adamw = of(DType::BF16, None).unwrap();
    adamw.groups_mut()[0].moments = Moments::Int8;
    let parameter = adamw.parameters().remove(0);
    let loss = parameter.to_dtype(DType::F32).unwrap().sum().unwrap();
    loss.backward().unwrap();
    let error = adamw.step().unwrap_err();
    assert!(matches!(error, Error::Usage { .. }), "{error}");
    adamw.groups_mut()[0].moments = Moments::F32;
    // What it is by default.
    adamw.groups_mut()[0].master = Some(Master::Split);
    adamw.step().unwrap();
}

#[test]
fn drawn_parameters_are_those_of_f32_rounded() {
    let drawn = |dtype| {
        let engine = Engine::builder().seed(9).build().unwrap();
        let parameters = with_parameter_dtype(dtype, || {
            let normal = Parameter::normal(&engine, [3, 5001], 0.3)?;
            let uniform = Parameter::uniform(&engine, [9001], 2.0)?;
            let filled = Parameter::new(&engine, [7], |own| own.fill(1.0 / 3.0))?;
            Ok::<_, Error>([normal, uniform, filled])
        });
        let values = |p: Parameter| p.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap();
        parameters.unwrap().map(values).concat()
    };
    let whole = drawn(DType::F32);
    let rounded: Vec<f32> = whole.iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
    assert_eq!(drawn(DType::BF16), rounded);
    let rounded: Vec<f32> = whole.iter().map(|&x| f16::from_f32(x).to_f32()).collect();
    assert_eq!(drawn(DType::F16), rounded);
}

/// What was scaled back and kept is added to, and a square that is too large for `f32` spoils one number.
#[test]
fn gradients_go_on_adding_up_after_they_were_scaled_back() {
    let engine = Engine::builder().build().unwrap();
    let weight = with_parameter_dtype(DType::F16, || Parameter::normal(&engine, [5], 1.0)).unwrap();
    let mut adamw = AdamW::new(vec![weight.clone()], AdamWOptions::default()).unwrap();
    let options = GradScalerOptions {
        init_scale: 8.0,
        ..GradScalerOptions::default()
    };
    let mut scaler = GradScaler::new(options).unwrap();
    let loss = || weight.to_dtype(DType::F32).unwrap().sum().unwrap();
    scaler.scale(&loss()).unwrap().backward().unwrap();
    scaler.unscale_(&adamw.parameters()).unwrap();
    adamw.step_keep_grads().unwrap();
    loss().backward().unwrap();
    let grad = weight.grad().unwrap().to_dtype(DType::F32).unwrap();
    assert_eq!(grad.to_vec::<f32>().unwrap(), [2.0; 5]);
}

#[test]
fn a_square_that_is_too_large_spoils_no_other_moment() {
    let engine = Engine::builder().build().unwrap();
    let weight = Parameter::normal(&engine, [64], 1.0).unwrap();
    let options = AdamWOptions {
        moments: Moments::Int8,
        ..AdamWOptions::default()
    };
    let mut adamw = AdamW::new(vec![weight.clone()], options).unwrap();
    let mut x = [0.0; 64];
    x[3] = 1e30;
    for _ in 0..3 {
        let x = engine.tensor(&x, [64]).unwrap();
        weight.mul(&x).unwrap().sum().unwrap().backward().unwrap();
        adamw.step().unwrap();
    }
    assert!(
        weight
            .to_vec::<f32>()
            .unwrap()
            .iter()
            .all(|x| x.is_finite())
    );
}
