//! Numbers that nobody means: each operation that is told one refuses it, or computes with it, forward and backward.
//! Nothing panics, and nothing overflows.

use highwater::nn::{ConvSettings, Interpolation, PadMode, PoolSettings};
use highwater::{DType, Engine, Result, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

const SIZES: [usize; 12] = [
    0,
    1,
    2,
    3,
    7,
    1 << 15,
    1 << 31,
    (1 << 32) + 1,
    1 << 40,
    usize::MAX / 2,
    usize::MAX / 2 + 1,
    usize::MAX,
];
const OFFSETS: [isize; 9] = [
    isize::MIN,
    isize::MIN + 1,
    -(1 << 40),
    -3,
    0,
    3,
    1 << 40,
    isize::MAX - 1,
    isize::MAX,
];
const REALS: [f64; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-320,
    1e300,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    f64::MAX,
    f64::MIN_POSITIVE,
];

/// Images `[1, 4, 6, 5]`, which want a gradient.
fn images(engine: &Engine) -> Tensor {
    let values: Vec<f32> = (0..120_u8).map(|i| f32::from(i) * 0.1 - 5.0).collect();
    let images = engine.tensor(&values, [1, 4, 6, 5]).unwrap();
    images.requires_grad_().unwrap()
}

fn rows(engine: &Engine) -> Tensor {
    images(engine).reshape([4, 30]).unwrap()
}

/// Computes what a call answers, and its gradient. A refusal is an answer; a panic is none.
fn tried(what: &str, call: impl FnOnce(&Engine) -> Result<Vec<Tensor>>) {
    let all = || -> Result<()> {
        let engine = Engine::builder().threads(1).memory(4 << 20).build()?;
        for result in call(&engine)? {
            let sum = result.to_dtype(DType::F32)?.sum()?;
            sum.item()?;
            if sum.requires_grad()? {
                sum.backward()?;
            }
        }
        Ok(())
    };
    // What the call was is said above what the panic says.
    println!("{what}");
    assert!(catch_unwind(AssertUnwindSafe(all)).is_ok(), "{what}");
}

/// Calls with each number, and with pairs of them.
fn each<T: Copy + std::fmt::Debug>(
    name: &str,
    numbers: &[T],
    call: impl Fn(&Engine, T, T) -> Result<Vec<Tensor>>,
) {
    for &a in numbers {
        for &b in numbers {
            tried(&format!("{name} {a:?} {b:?}"), |engine| call(engine, a, b));
        }
    }
}

fn conv(stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2]) -> ConvSettings {
    ConvSettings {
        stride,
        padding,
        dilation,
        groups: 1,
    }
}

#[test]
fn of_convolutions() {
    let both = |engine: &Engine, settings: ConvSettings, output_padding: [usize; 2]| {
        let weight = engine.tensor(&[0.5; 96], [4, 4, 3, 2])?;
        let weight = weight.requires_grad_()?;
        let x = images(engine);
        let there = x.conv2d(&weight, None, settings);
        let back = x.conv_transpose2d(&weight, None, settings, output_padding);
        Ok(there.into_iter().chain(back).collect())
    };
    each("stride, padding", &SIZES, |engine, a, b| {
        both(engine, conv([a, 1], [b, 0], [1, 1]), [0, 0])
    });
    each("stride, dilation", &SIZES, |engine, a, b| {
        both(engine, conv([1, a], [0, 0], [1, b]), [0, 0])
    });
    each("padding, dilation", &SIZES, |engine, a, b| {
        both(engine, conv([1, 1], [a, 0], [b, 1]), [0, 0])
    });
    each("groups, output_padding", &SIZES, |engine, a, b| {
        let settings = ConvSettings {
            groups: a,
            ..conv([2, 2], [0, 0], [1, 1])
        };
        both(engine, settings, [b, 0])
    });
}

#[test]
fn of_pools() {
    let all = |engine: &Engine, settings: PoolSettings| -> Result<Vec<Tensor>> {
        let x = images(engine);
        let made = [
            x.max_pool2d(settings),
            x.avg_pool2d(settings, true),
            x.avg_pool2d(settings, false),
        ];
        Ok(made.into_iter().flatten().collect())
    };
    each("kernel, stride", &SIZES, |engine, a, b| {
        let mut settings = PoolSettings::new([a, 2]);
        settings.stride = [b, 1];
        all(engine, settings)
    });
    each("kernel, padding", &SIZES, |engine, a, b| {
        let mut settings = PoolSettings::new([2, a]);
        (settings.padding, settings.ceil_mode) = ([0, b], true);
        all(engine, settings)
    });
    each("padding, dilation", &SIZES, |engine, a, b| {
        let mut settings = PoolSettings::new([2, 2]);
        (settings.padding, settings.dilation) = ([a, 0], [b, 1]);
        all(engine, settings)
    });
    each("adaptive", &SIZES, |engine, a, b| {
        let x = images(engine);
        let made = [x.adaptive_avg_pool2d([a, b]), x.adaptive_max_pool2d([a, b])];
        Ok(made.into_iter().flatten().collect())
    });
}

#[test]
fn of_sizes() {
    each("interpolate", &SIZES, |engine, a, b| {
        let x = images(engine);
        let bilinear = |align_corners| Interpolation::Bilinear { align_corners };
        let modes = [Interpolation::Nearest, bilinear(false), bilinear(true)];
        let made = modes.map(|mode| x.interpolate([a, b], mode));
        Ok(made.into_iter().flatten().collect())
    });
    each("narrow", &SIZES, |engine, a, b| {
        Ok(vec![images(engine).narrow(2, a, b)?])
    });
    each("chunk, split", &SIZES, |engine, a, b| {
        let x = images(engine);
        let made = [x.chunk(a, 2), x.split(a, 2), x.split_sizes(&[a, b], 2)];
        Ok(made.into_iter().flatten().flatten().collect())
    });
    each("repeat, reshape, unflatten", &SIZES, |engine, a, b| {
        let x = rows(engine);
        let made = [
            x.repeat(&[a, b]),
            x.tile(&[a, b]),
            x.reshape([a, b]),
            x.unflatten(1, &[a, b]),
            x.narrow(1, 0, 1)?.expand([4, a]),
        ];
        Ok(made.into_iter().flatten().collect())
    });
    each("topk, multinomial, one_hot", &SIZES, |engine, a, _| {
        let x = rows(engine);
        let whole = engine.tensor(&[1.0, 2.0], [2])?.to_dtype(DType::I64)?;
        let (values, _) = x.topk(a, 1, true)?;
        let drawn = x.abs()?.multinomial(a, false);
        let more = x.abs()?.multinomial(a, true);
        let made = [Ok(values), drawn, more, whole.one_hot(a)];
        Ok(made.into_iter().flatten().collect())
    });
    each("eye, randperm, linspace", &SIZES, |engine, a, b| {
        let made = [
            Tensor::eye(engine, a, b, DType::F32),
            Tensor::randperm(engine, a),
            Tensor::linspace(engine, 0.0, 1.0, a),
            Tensor::full(engine, [a, b], 1.0, DType::F32),
        ];
        Ok(made.into_iter().flatten().collect())
    });
    each("group_norm, window", &SIZES, |engine, a, _| {
        let x = images(engine);
        let made = [
            x.group_norm(a, None, 1e-5),
            x.sliding_window_attention(&x, &x, a),
        ];
        Ok(made.into_iter().flatten().collect())
    });
}

#[test]
fn of_offsets() {
    each("pad", &OFFSETS, |engine, a, b| {
        let x = images(engine);
        let modes = [
            PadMode::Constant(1.0),
            PadMode::Reflect,
            PadMode::Replicate,
            PadMode::Circular,
        ];
        let made = modes.map(|mode| x.pad(&[0, 0, a, b], mode));
        Ok(made.into_iter().flatten().collect())
    });
    each("roll, diagonal, select", &OFFSETS, |engine, a, b| {
        let x = rows(engine);
        let made = [
            x.roll(&[a, b], &[0, 1]),
            x.diagonal(a, 0, 1),
            x.select(1, a),
            x.transpose(a, b),
            x.sum_dims(&[a], true),
            x.tril(a as i64),
            x.triu(b as i64),
        ];
        Ok(made.into_iter().flatten().collect())
    });
    each("randint", &OFFSETS, |engine, a, b| {
        Ok(vec![Tensor::randint(engine, a as i64, b as i64, [3])?])
    });
}

#[test]
fn of_real_numbers() {
    each("scalars", &REALS, |engine, a, b| {
        let x = rows(engine);
        let made = [
            x.leaky_relu(a),
            x.elu(a),
            x.softplus_with(a, b),
            x.clamp(a, b),
            x.dropout(a),
            x.norm(a),
            x.pow_scalar(a),
            x.layer_norm(None, a),
            x.rms_norm(None, a),
            x.add_scalar(a),
            x.mul_scalar(a),
            x.div_scalar(a),
            x.var_dims(&[1], a, true),
            x.std_dims(&[1], a, true),
            Tensor::full(engine, [2], a, DType::I64),
            Tensor::full(engine, [2], a, DType::F16),
        ];
        Ok(made.into_iter().flatten().collect())
    });
    each("arange", &REALS, |engine, a, b| {
        let made = [
            Tensor::arange(engine, 0.0, a, b, DType::F32),
            Tensor::arange(engine, a, b, 1.0, DType::I64),
            Tensor::linspace(engine, a, b, 5),
            images(engine).interpolate_by([a, b], Interpolation::Nearest),
            images(engine).batch_norm(None, a).map(|[y, _, _]| y),
        ];
        Ok(made.into_iter().flatten().collect())
    });
}
