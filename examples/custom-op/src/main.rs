//! An operation declared outside Highwater, with its kernel: the snake activation
//! `x + sin²(a·x) / a` (Ziyin et al. 2020). It is held to the laws of the built-in ones, then
//! trained through, recomputed and planned like any of them.
//!
//! `cargo run --release -p custom-op`

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::nn::{Linear, Module};
use highwater::op::laws::Laws;
use highwater::op::{
    Args, Array, Backward, Cost, DType, Entry, KernelError, Op, OpError, Reject, Row, Sample,
    SmallVec, Spec, op_as, smallvec,
};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Builder, Engine, Error, Tensor};
use std::hash::Hasher;
use std::sync::Arc;

/// `x + sin²(a·x) / a`, elementwise.
#[derive(Debug, Clone)]
struct Snake {
    a: f64,
}

/// The gradient of [`Snake`]: `grad · (1 + sin(2a·x))`.
#[derive(Debug, Clone)]
struct SnakeBackward {
    a: f64,
}

fn infer(op: &'static str, inputs: &[Spec], n: usize) -> Result<SmallVec<[Spec; 2]>, OpError> {
    OpError::check_arity(op, inputs, n)?;
    for input in inputs {
        OpError::check_dtype(op, input, DType::F32)?;
        if input.shape() != inputs[0].shape() {
            let (expected, got) = (inputs[0].to_string(), input.to_string());
            return Err(OpError::shape(op, expected, got));
        }
    }
    Ok(smallvec![Spec::contiguous(
        DType::F32,
        inputs[0].shape().clone()
    )])
}

impl Op for Snake {
    fn name(&self) -> &'static str {
        "snake"
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.a.to_bits());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        infer(self.name(), inputs, 1)
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 15.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) {
            let x = backward.input(0);
            let grad = backward.emit_one(SnakeBackward { a: self.a }, &[x, grad])?;
            backward.set(0, grad);
        }
        Ok(())
    }
}

impl Op for SnakeBackward {
    fn name(&self) -> &'static str {
        "snake_backward"
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.a.to_bits());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        infer(self.name(), inputs, 2)
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 15.0)
    }
}

/// Calls `f(output element, storage positions of the inputs)` for each element: any strides.
fn kernel(args: &mut Args<'_>, f: impl Fn(&[f32]) -> f32) -> Result<(), KernelError> {
    let positions: Vec<Vec<usize>> = args
        .inputs
        .iter()
        .map(|input| input.layout().positions().collect())
        .collect();
    let inputs: Vec<&[f32]> = args
        .inputs
        .iter()
        .map(|input| input.storage())
        .collect::<Result<_, _>>()?;
    for (i, y) in args.outputs[0].slice_mut::<f32>()?.iter_mut().enumerate() {
        let x: SmallVec<[f32; 2]> = inputs
            .iter()
            .zip(&positions)
            .map(|(x, at)| x[at[i]])
            .collect();
        *y = f(&x);
    }
    Ok(())
}

fn snake(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let a = op_as::<Snake>(op)?.a as f32;
    kernel(args, |x| x[0] + (a * x[0]).sin().powi(2) / a)
}

fn snake_backward(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let a = op_as::<SnakeBackward>(op)?.a as f32;
    kernel(args, |x| x[1] * (1.0 + (2.0 * a * x[0]).sin()))
}

fn reference(op: &dyn Op, x: &[Array]) -> Vec<Array> {
    let value = |i: usize| {
        if let Some(Snake { a }) = op.downcast() {
            x[0].data[i] + (a * x[0].data[i]).sin().powi(2) / a
        } else {
            let a = op.downcast().map_or(1.0, |SnakeBackward { a }| *a);
            x[1].data[i] * (1.0 + (2.0 * a * x[0].data[i]).sin())
        }
    };
    vec![Array::from_fn(x[0].shape.clone(), value)]
}

const ENTRIES: [Entry; 2] = [
    Entry {
        name: "snake",
        rows: &[Row::f32(|| Arc::new(snake))],
        reference,
        samples: || {
            [&[4, 37][..], &[0, 3], &[]]
                .map(|s| Sample::new(Snake { a: 0.7 }, &[s]))
                .into()
        },
        rejects: || vec![reject(Snake { a: 1.0 }, 1)],
    },
    Entry {
        name: "snake_backward",
        rows: &[Row::f32(|| Arc::new(snake_backward))],
        reference,
        samples: || vec![Sample::new(SnakeBackward { a: 0.7 }, &[&[4, 37], &[4, 37]])],
        rejects: || vec![reject(SnakeBackward { a: 1.0 }, 2)],
    },
];

fn reject(op: impl Op, inputs: usize) -> Reject {
    let inputs = vec![Spec::contiguous(DType::U32, [2]); inputs];
    Reject {
        op: Arc::new(op),
        inputs,
        error: |e| matches!(e, OpError::DType { .. }),
    }
}

fn main() -> Result<(), Error> {
    let laws = Laws::new(&ENTRIES);
    for entry in &ENTRIES {
        assert_eq!(laws.check(entry), [], "a law is broken");
    }
    println!("both operations keep the laws");
    let builder = Engine::builder().arena(2 << 20).seed(1);
    let builder = ENTRIES.iter().fold(builder, Builder::operation);
    let engine = builder.build()?;
    let (fc, out) = (
        Linear::new(&engine, 1, 64, true)?,
        Linear::new(&engine, 64, 1, true)?,
    );
    let parameters = fc
        .parameters()
        .into_iter()
        .chain(out.parameters())
        .collect();
    let options = AdamWOptions {
        lr: 1e-2,
        ..AdamWOptions::default()
    };
    let mut optimizer = AdamW::new(parameters, options)?;
    let points: Vec<f32> = (0..256).map(|i| i as f32 / 32.0 - 4.0).collect();
    let waves: Vec<f32> = points.iter().map(|x| (2.0 * x).sin()).collect();
    let (x, y) = (
        engine.tensor(&points, [256, 1])?,
        engine.tensor(&waves, [256, 1])?,
    );
    let mut last = f32::INFINITY;
    for _ in 0..300 {
        let hidden = Tensor::apply_one(Snake { a: 1.0 }, &[&fc.forward(&x)?])?;
        let error = out.forward(&hidden)?.sub(&y)?;
        let loss = error.mul(&error)?.mean()?;
        loss.backward()?;
        optimizer.step()?;
        last = loss.item()?;
    }
    println!("loss {last:.4}");
    assert!(last < 0.1, "the wave was not learnt");
    Ok(())
}
