//! Frozen weights in few bits, with what is trained beside them.

use crate::models::Random;
use highwater::nn::{Linear, QuantizedLinear};
use highwater::op::WeightFormat;
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Builder, DType, Engine, Module, Parameter, Result, Tensor, autocast};

const FORMATS: [WeightFormat; 2] = [WeightFormat::Int8, WeightFormat::Nf4];
const WIDTH: usize = 96;

/// A frozen layer with an adapter of low rank beside it.
#[derive(Module)]
struct Adapted {
    base: QuantizedLinear,
    down: Linear,
    up: Linear,
}

impl Adapted {
    fn new(engine: &Engine, format: WeightFormat) -> Result<Self> {
        let base = Linear::new(engine, WIDTH, WIDTH, true)?;
        base.requires_grad_(false);
        Ok(Self {
            base: QuantizedLinear::quantize(&base, format)?,
            down: Linear::new(engine, WIDTH, 4, false)?,
            up: Linear::new(engine, 4, WIDTH, false)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let adapted = self.up.forward(&self.down.forward(x)?)?;
        self.base.forward(x)?.add(&adapted)
    }
}

fn train(builder: Builder, format: WeightFormat, dtype: DType) -> Result<Vec<f32>> {
    let engine = builder.seed(5).build()?;
    let layers = (0..4).map(|_| Adapted::new(&engine, format));
    let layers = layers.collect::<Result<Vec<_>>>()?;
    let all: Vec<Parameter> = layers.iter().flat_map(Module::parameters).collect();
    let mut adamw = AdamW::new(all, AdamWOptions::default())?;
    let mut seen = Vec::new();
    for step in 0..4 {
        let x = engine.tensor(&Random(step).values(24 * WIDTH), [24, WIDTH])?;
        let loss = autocast(dtype, || {
            let mut x = x;
            for layer in &layers {
                x = layer.forward(&x)?.gelu()?;
            }
            x.square()?.mean()
        })?;
        loss.backward()?;
        adamw.step()?;
        seen.push(loss.item()?);
    }
    // Frozen weights have no moments.
    let moments = adamw.state_dict();
    assert_eq!(moments.len(), 2 * 2 * layers.len());
    for layer in &layers {
        seen.extend(layer.up.weight.to_vec::<f32>()?);
    }
    Ok(seen)
}

#[test]
fn adapters_train_beside_weights_in_few_bits_in_any_arena() {
    let folder = tempfile::tempdir().unwrap();
    for format in FORMATS {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let expected = train(Engine::builder(), format, dtype).unwrap();
            assert!(
                expected[3] < expected[0],
                "{format:?}, {dtype}: {expected:?}"
            );
            let small = || Engine::builder().arena(330 << 10);
            for builder in [
                small(),
                small().threads(1),
                Engine::builder().threads(3),
                small().disk(folder.path(), 16 << 20),
            ] {
                let what = format!("{format:?}, {dtype}");
                assert_eq!(
                    train(builder, format, dtype).expect(&what),
                    expected,
                    "{what}"
                );
            }
        }
    }
}

/// The bits of products by a weight that is decoded and held whole.
#[test]
fn products_have_the_bits_of_decoded_weights() {
    let engine = Engine::builder().seed(6).threads(2).build().unwrap();
    for format in FORMATS {
        for (inputs, outputs, rows) in [(96, 40, 7), (1000, 333, 130), (71, 5, 1)] {
            let linear = Linear::new(&engine, inputs, outputs, false).unwrap();
            let held = QuantizedLinear::quantize(&linear, format).unwrap();
            // Rows of ones, one by one: the weight.
            let mut eye = vec![0.0; inputs * inputs];
            (0..inputs).for_each(|i| eye[i * inputs + i] = 1.0);
            let eye = engine.tensor(&eye, [inputs, inputs]).unwrap();
            let decoded = held.forward(&eye).unwrap().transpose(0, 1).unwrap();
            let decoded = decoded.to_vec::<f32>().unwrap();
            for (a, b) in decoded.iter().zip(linear.weight.to_vec::<f32>().unwrap()) {
                assert!((a - b).abs() < 0.2 / (inputs as f32).sqrt(), "{a} {b}");
            }
            linear.weight.copy_from_slice(&decoded).unwrap();
            let x = Random(7).values(rows * inputs);
            let product = |held: &dyn Fn(&Tensor) -> Result<Tensor>, dtype: DType| {
                let x = Parameter::new(&engine, [rows, inputs], |own| own.copy_from_slice(&x))?;
                let y = held(&x.to_dtype(dtype)?)?;
                let y = y.to_dtype(DType::F32)?;
                y.square()?.sum()?.backward()?;
                let gradient = x.grad().expect("a gradient").to_vec::<f32>()?;
                Ok::<_, highwater::Error>((y.to_vec::<f32>()?, gradient))
            };
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let coded = product(&|x| held.forward(x), dtype).unwrap();
                let weight = linear.weight.to_dtype(dtype).unwrap();
                let whole = product(&|x| x.linear(&weight, None), dtype).unwrap();
                assert!(coded == whole, "{format:?}, {inputs} x {outputs}, {dtype}");
            }
        }
    }
}

#[test]
fn what_was_frozen_gets_moments_when_it_has_a_gradient() {
    let engine = Engine::builder().build().unwrap();
    let weight = Parameter::normal(&engine, [3, 4], 1.0).unwrap();
    weight.set_requires_grad(false);
    let mut adamw = AdamW::new(vec![weight.clone()], AdamWOptions::default()).unwrap();
    assert!(adamw.state_dict().is_empty());
    weight.set_requires_grad(true);
    let before = weight.to_vec::<f32>().unwrap();
    weight.square().unwrap().sum().unwrap().backward().unwrap();
    adamw.step().unwrap();
    assert_eq!(adamw.state_dict().len(), 2);
    assert_ne!(weight.to_vec::<f32>().unwrap(), before);
}

#[test]
fn moments_of_what_was_unfrozen_are_loaded() {
    let run = |resumed: bool| {
        let engine = Engine::builder().seed(2).build().unwrap();
        let weight = Parameter::normal(&engine, [3, 4], 1.0).unwrap();
        weight.set_requires_grad(false);
        let make = || AdamW::new(vec![weight.clone()], AdamWOptions::default()).unwrap();
        let mut adamw = make();
        weight.set_requires_grad(true);
        let step = |adamw: &mut AdamW| {
            weight.square().unwrap().sum().unwrap().backward().unwrap();
            adamw.step().unwrap();
        };
        step(&mut adamw);
        step(&mut adamw);
        if resumed {
            weight.set_requires_grad(false);
            let mut other = make();
            weight.set_requires_grad(true);
            other.set_step_counts(&adamw.step_counts()).unwrap();
            for ((_, to), (_, from)) in other.state_dict().iter().zip(adamw.state_dict()) {
                to.copy_from_slice(&from.to_vec::<f32>().unwrap()).unwrap();
            }
            assert_eq!(other.state_dict().len(), 2);
            adamw = other;
        }
        step(&mut adamw);
        weight.to_vec::<f32>().unwrap()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn weights_and_inputs_that_do_not_fit_are_refused() {
    let engine = Engine::builder().build().unwrap();
    let odd = QuantizedLinear::new(&engine, 7, 3, WeightFormat::Nf4, |_, row| row.fill(1.0));
    let odd = odd.unwrap();
    let x = |width: usize| engine.tensor(&vec![1.0; width], [1, width]).unwrap();
    assert_eq!(
        odd.forward(&x(7)).unwrap().to_vec::<f32>().unwrap(),
        [7.0; 3]
    );
    // As many bytes.
    assert!(odd.forward(&x(8)).is_err());
    let half = usize::MAX / 2;
    assert!(QuantizedLinear::new(&engine, half, half, WeightFormat::Int8, |_, _| ()).is_err());
    for (inputs, outputs) in [(0, 3), (3, 0)] {
        let empty = QuantizedLinear::new(&engine, inputs, outputs, WeightFormat::Nf4, |_, _| ());
        let forward = empty.and_then(|empty| empty.forward(&x(inputs)));
        assert!(forward.is_err());
    }
    let mut linear = Linear::new(&engine, 4, 3, false).unwrap();
    linear.weight = Parameter::normal(&engine, [12], 1.0).unwrap();
    assert!(QuantizedLinear::quantize(&linear, WeightFormat::Int8).is_err());
    linear.weight = Parameter::frozen(&engine, DType::U8, [3, 4], |_| {}).unwrap();
    assert!(QuantizedLinear::quantize(&linear, WeightFormat::Int8).is_err());
}

/// As a layer that is held whole.
#[test]
fn a_bias_is_added_in_what_the_product_is_in() {
    let engine = Engine::builder().build().unwrap();
    let linear = Linear::new(&engine, 8, 3, true).unwrap();
    let held = QuantizedLinear::quantize(&linear, WeightFormat::Int8).unwrap();
    let x = engine.tensor(&[0.5; 8], [1, 8]).unwrap();
    let both = autocast(DType::BF16, || {
        Ok::<_, highwater::Error>([linear.forward(&x)?, held.forward(&x)?])
    });
    for y in both.unwrap() {
        assert_eq!(y.dtype(), DType::BF16);
    }
    let y = held.forward(&x.to_dtype(DType::F16).unwrap()).unwrap();
    assert_eq!(y.dtype(), DType::F16);
}
