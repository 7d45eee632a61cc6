//! `nn::init`: distributions, extents and refusals.

use highwater::nn::init::{self, FanMode, Nonlinearity};
use highwater::prelude::*;
use highwater::{DType, with_parameter_dtype};

fn engine() -> Engine {
    let builder = Engine::builder().threads(2).arena(64 << 20).seed(5);
    builder.build().unwrap()
}

/// Mean, standard deviation, smallest and largest.
fn moments(x: &[f32]) -> [f64; 4] {
    let of = |f: fn(f64) -> f64| x.iter().map(|&x| f(f64::from(x))).sum::<f64>() / x.len() as f64;
    let mean = of(|x| x);
    let std = (of(|x| x * x) - mean * mean).sqrt();
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for &x in x {
        (low, high) = (low.min(f64::from(x)), high.max(f64::from(x)));
    }
    [mean, std, low, high]
}

#[test]
fn deviates_have_pytorchs_moments() {
    let engine = engine();
    // As a convolution's weight: fan-in 64 * 9, fan-out 128 * 9.
    let weight = Parameter::new(&engine, [128, 64, 3, 3], |_| {}).unwrap();
    let check = |std: f64, bound: f64| {
        let [mean, got, low, high] = moments(&weight.to_vec::<f32>().unwrap());
        assert!(
            mean.abs() < 0.02 * std && (got / std - 1.0).abs() < 0.01,
            "{mean} {got} {std}"
        );
        assert!(
            low >= -bound * 1.000_001 && high <= bound * 1.000_001,
            "{low} {high}"
        );
    };
    let (fan_in, fan_out, any) = (576.0_f64, 1152.0_f64, f64::INFINITY);
    let uniform = |bound: f64| (bound / 3.0_f64.sqrt(), bound);
    init::uniform_(&weight, -2.0, 2.0).unwrap();
    check(uniform(2.0).0, 2.0);
    init::normal_(&weight, 0.0, 0.5).unwrap();
    check(0.5, any);
    init::xavier_uniform_(&weight, 2.0).unwrap();
    let (std, bound) = uniform(2.0 * (6.0 / (fan_in + fan_out)).sqrt());
    check(std, bound);
    init::xavier_normal_(&weight, 1.0).unwrap();
    check((2.0 / (fan_in + fan_out)).sqrt(), any);
    init::kaiming_uniform_(&weight, FanMode::FanIn, Nonlinearity::LeakyRelu(0.0)).unwrap();
    let (std, bound) = uniform((6.0 / fan_in).sqrt());
    check(std, bound);
    init::kaiming_normal_(&weight, FanMode::FanOut, Nonlinearity::Tanh).unwrap();
    check(5.0 / 3.0 / fan_out.sqrt(), any);
    init::trunc_normal_(&weight, 0.0, 0.02, -0.04, 0.04).unwrap();
    // Of a normal distribution that is cut at two standard deviations.
    check(0.02 * 0.879_626, 0.04);
    // Draws differ, and follow the seed.
    let first = weight.to_vec::<f32>().unwrap();
    init::trunc_normal_(&weight, 0.0, 0.02, -0.04, 0.04).unwrap();
    assert_ne!(weight.to_vec::<f32>().unwrap(), first);
}

#[test]
fn constants_and_diagonals() {
    let engine = engine();
    let weight =
        with_parameter_dtype(DType::BF16, || Parameter::new(&engine, [2, 3], |_| {})).unwrap();
    let read = || {
        weight
            .to_dtype(DType::F32)
            .unwrap()
            .to_vec::<f32>()
            .unwrap()
    };
    init::constant_(&weight, 0.5).unwrap();
    assert_eq!(read(), [0.5; 6]);
    init::eye_(&weight).unwrap();
    assert_eq!(read(), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    init::ones_(&weight).unwrap();
    init::zeros_(&weight).unwrap();
    assert_eq!(read(), [0.0; 6]);
}

#[test]
fn orthogonal_matrices_are_orthogonal() {
    let engine = engine();
    for (dims, gain) in [
        (vec![40, 40], 1.0),
        (vec![70, 30], 2.0),
        (vec![30, 5, 14], 0.5),
    ] {
        let weight = Parameter::new(&engine, &dims[..], |_| {}).unwrap();
        init::orthogonal_(&weight, gain).unwrap();
        let x = weight.to_vec::<f32>().unwrap();
        let (rows, columns) = (dims[0], x.len() / dims[0]);
        let at = |i: usize, j: usize| {
            let at = if rows > columns {
                j * columns + i
            } else {
                i * columns + j
            };
            f64::from(x[at])
        };
        let (vectors, length) = (rows.min(columns), rows.max(columns));
        for a in 0..vectors {
            for b in 0..vectors {
                let dot: f64 = (0..length).map(|k| at(a, k) * at(b, k)).sum();
                let want = if a == b { gain * gain } else { 0.0 };
                assert!((dot - want).abs() < 1e-5, "{dims:?}: {a} {b} {dot}");
            }
        }
    }
}

#[test]
fn what_cannot_be_filled_is_refused() {
    let engine = engine();
    let vector = Parameter::new(&engine, [4], |_| {}).unwrap();
    assert!(init::xavier_uniform_(&vector, 1.0).is_err());
    assert!(init::orthogonal_(&vector, 1.0).is_err());
    assert!(init::eye_(&vector).is_err());
    assert!(init::normal_(&vector, 0.0, -1.0).is_err());
    assert!(init::uniform_(&vector, 1.0, 0.0).is_err());
    assert!(init::trunc_normal_(&vector, 0.0, 1.0, 2.0, 1.0).is_err());
    let codes = Parameter::frozen(&engine, DType::U8, [4], |_| {}).unwrap();
    assert!(init::zeros_(&codes).is_err());
}

#[test]
fn what_is_pending_keeps_what_it_read() {
    let engine = engine();
    let vector = Parameter::new(&engine, [4], |own| own.fill(3.0)).unwrap();
    let pending = vector.square().unwrap();
    init::zeros_(&vector).unwrap();
    assert_eq!(pending.to_vec::<f32>().unwrap(), [9.0; 4]);
    assert_eq!(vector.to_vec::<f32>().unwrap(), [0.0; 4]);
}
