//! What PyTorch means by edges, dtype by dtype: NaN, nothing, and numbers that a dtype does not hold.

use half::{bf16, f16};
use highwater::nn::functional::{Reduction, cosine_similarity, kl_div, nll_loss};
use highwater::{DType, Engine, Result, Tensor, grad};

const FLOATS: [DType; 4] = [DType::F32, DType::BF16, DType::F16, DType::F64];

fn engine() -> Engine {
    Engine::builder().threads(2).build().unwrap()
}

/// Numbers as a tensor of a dtype that wants a gradient.
fn leaf(engine: &Engine, dtype: DType, x: &[f32], shape: &[usize]) -> Tensor {
    let of_bf16: Vec<bf16> = x.iter().map(|&x| bf16::from_f32(x)).collect();
    let of_f16: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
    let of_f64: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
    let tensor = match dtype {
        DType::BF16 => Tensor::from_slice(engine, &of_bf16, shape),
        DType::F16 => Tensor::from_slice(engine, &of_f16, shape),
        DType::F64 => Tensor::from_slice(engine, &of_f64, shape),
        _ => Tensor::from_slice(engine, x, shape),
    };
    tensor.unwrap().requires_grad_().unwrap()
}

fn numbers(x: Result<Tensor>) -> Vec<f32> {
    x.unwrap().to_dtype(DType::F32).unwrap().to_vec().unwrap()
}

/// The elements of a result, and the gradient of their sum.
fn with_gradient(x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> [Vec<f32>; 2] {
    let sum = f(x).unwrap().sum().unwrap();
    let mut grads = grad(&sum, &[x]).unwrap();
    [numbers(f(x)), numbers(Ok(grads.remove(0)))]
}

fn is_same(a: &[f32], b: &[f32]) -> bool {
    let same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
    a.len() == b.len() && a.iter().zip(b).all(same)
}

#[test]
fn nan_passes_relu_and_abs_has_no_slope_there() {
    let engine = engine();
    for dtype in FLOATS {
        let x = [1.0, f32::NAN, -2.0, 0.0];
        let [y, g] = with_gradient(&leaf(&engine, dtype, &x, &[4]), Tensor::relu);
        assert!(is_same(&y, &[1.0, f32::NAN, 0.0, 0.0]), "{dtype}: {y:?}");
        assert!(is_same(&g, &[1.0, 1.0, 0.0, 0.0]), "{dtype}: {g:?}");
        let [y, g] = with_gradient(&leaf(&engine, dtype, &x, &[4]), Tensor::abs);
        assert!(is_same(&y, &[1.0, f32::NAN, 2.0, 0.0]), "{dtype}: {y:?}");
        assert!(is_same(&g, &[1.0, 0.0, -1.0, 0.0]), "{dtype}: {g:?}");
    }
}

/// Quotients of a gradient by a small norm are no part of the gradient: `F16` ends at 65504.
#[test]
fn gradients_of_small_norms_are_finite() {
    let engine = engine();
    for dtype in FLOATS {
        let x = leaf(&engine, dtype, &[3e-6, -4e-6], &[2]);
        let [_, g] = with_gradient(&x, |x| x.norm(2.0));
        assert!(
            (g[0] - 0.6).abs() < 0.05 && (g[1] + 0.8).abs() < 0.05,
            "{dtype}: {g:?}"
        );
        let x = leaf(&engine, dtype, &[4e-6, -4e-6], &[2]);
        let [_, g] = with_gradient(&x, Tensor::std);
        let half = 0.5_f32.sqrt();
        assert!(
            (g[0] - half).abs() < 0.05 && (g[1] + half).abs() < 0.05,
            "{dtype}: {g:?}"
        );
    }
}

#[test]
fn nothing_has_no_extreme_norm() {
    let engine = engine();
    let nothing = engine.tensor(&[], [2, 0]).unwrap();
    assert_eq!(numbers(nothing.norm_dims(2.0, &[1], false)), [0.0; 2]);
    for p in [f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        let error = nothing.norm_dims(p, &[1], false).unwrap_err().to_string();
        assert!(error.contains("nothing has no result"), "{error}");
        assert_eq!(nothing.norm_dims(p, &[0], false).unwrap().dims(), [0]);
    }
}

/// Squares of large and of small elements are no numbers of `F16`.
#[test]
fn cosines_of_half_precision_are_of_any_size() {
    let engine = engine();
    for dtype in FLOATS {
        for size in [1e-3, 1.0, 6e4] {
            let x = leaf(&engine, dtype, &[size, 0.0, size, 0.0, 0.0, 0.0], &[3, 2]);
            let y = leaf(&engine, dtype, &[size, 0.0, 0.0, size, size, size], &[3, 2]);
            let cosines = cosine_similarity(&x, &y, 1, 1e-8).unwrap();
            assert_eq!(cosines.dtype(), dtype);
            assert_eq!(numbers(Ok(cosines)), [1.0, 0.0, 0.0], "{dtype} {size}");
        }
    }
}

/// Nor is the sum of losses whose mean is.
#[test]
fn means_of_half_precision_do_not_overflow() {
    let engine = engine();
    let labels = Tensor::from_slice(&engine, &[0_i64, 0, -100, 0, 0], [5]).unwrap();
    for dtype in FLOATS {
        let x = leaf(&engine, dtype, &[-20480.0; 5], &[5, 1]);
        let mean = nll_loss(&x, &labels, None, -100, Reduction::Mean).unwrap();
        assert_eq!((mean.dtype(), numbers(Ok(mean))), (dtype, vec![20480.0]));
        let ones = leaf(&engine, dtype, &[1.0; 5], &[5, 1]);
        let mean = kl_div(&x, &ones, false, Reduction::BatchMean).unwrap();
        assert_eq!((mean.dtype(), numbers(Ok(mean))), (dtype, vec![20480.0]));
    }
}

#[test]
fn what_is_filled_keeps_its_dtype() {
    let engine = engine();
    let mask = Tensor::from_bools(&engine, &[true, false], [2]).unwrap();
    let whole = Tensor::from_slice(&engine, &[1_i64, 2], [2]).unwrap();
    let filled = whole.masked_fill(&mask, 0.5).unwrap();
    assert_eq!(filled.to_vec::<i64>().unwrap(), [0, 2]);
    let filled = mask.masked_fill(&mask, 2.0).unwrap();
    assert_eq!(filled.dtype(), DType::Bool);
    assert_eq!(filled.to_vec::<u8>().unwrap(), [1, 0]);
    let first = Tensor::from_slice(&engine, &[0_i64], [1]).unwrap();
    let filled = mask.scatter_value(0, &first, 0.0).unwrap();
    assert_eq!(filled.to_vec::<u8>().unwrap(), [0, 0]);
}

#[test]
fn rows_of_padding_get_no_gradient() {
    let engine = engine();
    let table = leaf(
        &engine,
        DType::F32,
        &[0.0, 0.0, 1.0, 2.0, 3.0, 4.0],
        &[3, 2],
    );
    let indices = Tensor::from_slice(&engine, &[2_i64, 0, 2, 0], [2, 2]).unwrap();
    let [rows, g] = with_gradient(&table, |table| table.embedding_padded(&indices, 0));
    assert_eq!(rows, [3.0, 4.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0]);
    assert_eq!(g, [0.0, 0.0, 0.0, 0.0, 2.0, 2.0]);
    assert!(table.embedding_padded(&indices, 3).is_err());
}
