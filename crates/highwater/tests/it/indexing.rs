//! Elements by index, by mask and by place, by their PyTorch names: elements as PyTorch computes them, gradients,
//! refusals.

use highwater::nn::functional::{CtcOptions, Reduction, ctc_loss};
use highwater::nn::{GridMode, GridPadding, ScatterReduction};
use highwater::{DType, Engine, Result, Tensor};

fn engine() -> Engine {
    Engine::builder().threads(2).build().unwrap()
}

fn floats(tensor: Result<Tensor>) -> Vec<f32> {
    tensor.unwrap().to_vec().unwrap()
}

fn wholes(tensor: Result<Tensor>) -> Vec<i64> {
    tensor.unwrap().to_vec().unwrap()
}

fn count(engine: &Engine, below: u16, shape: &[usize]) -> Tensor {
    let numbers: Vec<f32> = (0..below).map(f32::from).collect();
    engine.tensor(&numbers, shape).unwrap()
}

fn near(got: Result<Tensor>, want: &[f32]) {
    let got = floats(got);
    let is_near = got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(is_near && got.len() == want.len(), "{got:?} {want:?}");
}

/// The gradient of the sum of squares of what is made of a tensor.
fn gradient(x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> Vec<f32> {
    let x = leaf(x);
    let loss = f(&x).unwrap().square().unwrap().sum().unwrap();
    loss.backward().unwrap();
    x.grad().unwrap().to_vec().unwrap()
}

/// The same elements as a tensor that wants a gradient.
fn leaf(x: &Tensor) -> Tensor {
    let elements = x.to_vec::<f32>().unwrap();
    let leaf = x.engine().tensor(&elements, x.dims()).unwrap();
    leaf.requires_grad_().unwrap()
}

/// An index smaller than the tensor: what it does not reach stays as it is.
#[test]
fn scatter_writes_and_joins() {
    let engine = engine();
    let x = count(&engine, 12, &[3, 4]);
    let index = engine.indices(&[0, 2, 1, 1], [2, 2]).unwrap();
    let source = engine.tensor(&[10.0, 20.0, 30.0, 40.0], [2, 2]).unwrap();
    let rest = [8.0, 9.0, 10.0, 11.0];
    let rows = |first: [f32; 4], second: [f32; 4]| [first, second, rest].concat();
    assert_eq!(
        floats(x.scatter(1, &index, &source)),
        rows([10.0, 1.0, 20.0, 3.0], [4.0, 40.0, 6.0, 7.0])
    );
    assert_eq!(
        floats(x.scatter(-2, &index, &source)),
        [
            10.0, 1.0, 2.0, 3.0, 30.0, 40.0, 6.0, 7.0, 8.0, 20.0, 10.0, 11.0
        ]
    );
    assert_eq!(
        floats(x.scatter_value(1, &index, -1.0)),
        rows([-1.0, 1.0, -1.0, 3.0], [4.0, -1.0, 6.0, 7.0])
    );
    let whole = x.to_dtype(DType::I64).unwrap();
    assert_eq!(
        wholes(whole.scatter_value(1, &index, 5.0))[..6],
        [5, 1, 5, 3, 4, 5]
    );
    let reduce = |reduction, include_self| {
        floats(x.scatter_reduce(1, &index, &source, reduction, include_self))
    };
    for (reduction, with, without) in [
        (
            ScatterReduction::Sum,
            [10.0, 22.0, 75.0],
            [10.0, 20.0, 70.0],
        ),
        (
            ScatterReduction::Prod,
            [0.0, 40.0, 6000.0],
            [10.0, 20.0, 1200.0],
        ),
        (
            ScatterReduction::Mean,
            [5.0, 11.0, 25.0],
            [10.0, 20.0, 35.0],
        ),
        (
            ScatterReduction::Amax,
            [10.0, 20.0, 40.0],
            [10.0, 20.0, 40.0],
        ),
        (ScatterReduction::Amin, [0.0, 2.0, 5.0], [10.0, 20.0, 30.0]),
    ] {
        let want = |[a, b, c]: [f32; 3]| rows([a, 1.0, b, 3.0], [4.0, c, 6.0, 7.0]);
        assert_eq!(reduce(reduction, true), want(with));
        assert_eq!(reduce(reduction, false), want(without));
    }
}

/// The gradient goes to what was written last, and to what was not written over.
#[test]
fn what_is_written_over_gets_no_gradient() {
    let engine = engine();
    let one = engine.tensor(&[1.0, 2.0, 3.0], [3]).unwrap();
    let twice = engine.indices(&[1, 1], [2]).unwrap();
    let source = engine.tensor(&[5.0, 7.0], [2]).unwrap();
    assert_eq!(
        gradient(&source, |s| one.scatter(0, &twice, s)),
        [0.0, 14.0]
    );
    assert_eq!(
        gradient(&one, |x| x.scatter(0, &twice, &source)),
        [2.0, 0.0, 6.0]
    );
    let whole = one.to_dtype(DType::I64).unwrap();
    assert!(one.scatter(0, &twice, &whole).is_err());
    assert!(one.scatter(1, &twice, &source).is_err());
    let outside = engine.indices(&[0, 3], [2]).unwrap();
    let stopped = one.scatter(0, &outside, &source).unwrap().to_vec::<f32>();
    let message = stopped.unwrap_err().to_string();
    assert!(message.contains("index 3 at position 1"), "{message}");
}

#[test]
fn running_products_and_extremes() {
    let engine = engine();
    let x = engine.tensor(&[2.0, 0.0, 3.0, 4.0], [4]).unwrap();
    assert_eq!(floats(x.cumprod(0)), [2.0, 0.0, 0.0, 0.0]);
    let whole = x.to_dtype(DType::I64).unwrap();
    assert_eq!(wholes(whole.cumprod(-1)), [2, 0, 0, 0]);
    let sums = |x: &Tensor| x.cumprod(0)?.add_scalar(1.0);
    // The derivatives of (y + 1)^2 by way of 2 (y + 1), as PyTorch's.
    assert_eq!(gradient(&x, sums), [6.0, 64.0, 0.0, 0.0]);
    let x = engine.tensor(&[1.0, 3.0, 3.0, 2.0], [4]).unwrap();
    let (values, places) = x.cummax(0).unwrap();
    assert_eq!(floats(Ok(values)), [1.0, 3.0, 3.0, 3.0]);
    assert_eq!(wholes(Ok(places)), [0, 1, 2, 2]);
    assert_eq!(gradient(&x, |x| Ok(x.cummax(0)?.0)), [2.0, 6.0, 12.0, 0.0]);
    let (values, places) = x.cummin(0).unwrap();
    assert_eq!(floats(Ok(values)), [1.0; 4]);
    assert_eq!(wholes(Ok(places)), [0; 4]);
    assert!(x.cummin(1).is_err());
}

#[test]
fn masks_select_elements() {
    let engine = engine();
    let x = count(&engine, 6, &[2, 3]);
    let even = |x: &Tensor| x.sub_scalar(2.0)?.abs()?.ge_scalar(2.0);
    let mask = even(&x).unwrap();
    assert_eq!(floats(x.masked_select(&mask)), [0.0, 4.0, 5.0]);
    let columns = Tensor::from_bools(&engine, &[true, false, true], [3]).unwrap();
    assert_eq!(floats(x.masked_select(&columns)), [0.0, 2.0, 3.0, 5.0]);
    let none = Tensor::from_bools(&engine, &[false], [1]).unwrap();
    assert_eq!(x.masked_select(&none).unwrap().dims(), [0]);
    // A mask that is computed of what is differentiated.
    let taken = gradient(&x, |x| x.masked_select(&even(x)?));
    assert_eq!(taken, [0.0, 0.0, 0.0, 0.0, 8.0, 10.0]);
    assert!(x.masked_select(&x).is_err());
    let other = Tensor::from_bools(&engine, &[true; 2], [2]).unwrap();
    assert!(x.masked_select(&other).is_err());

    let places = mask.nonzero().unwrap();
    assert_eq!(places.dims(), [3, 2]);
    assert_eq!(wholes(Ok(places)), [0, 0, 1, 1, 1, 2]);
    let odd = engine.tensor(&[0.0, -0.0, f32::NAN, 2.0], [4]).unwrap();
    assert_eq!(wholes(odd.nonzero()), [2, 3]);
    assert_eq!(odd.sum().unwrap().nonzero().unwrap().dims(), [1, 0]);
}

#[test]
fn grids_and_pixels() {
    let engine = engine();
    let theta = engine
        .tensor(&[1.0, 0.5, 0.0, 0.0, 2.0, 0.25], [1, 2, 3])
        .unwrap();
    let third = 2.0 / 3.0;
    near(
        theta.affine_grid([2, 3], false),
        &[
            -0.25 - third,
            -0.75,
            -0.25,
            -0.75,
            third - 0.25,
            -0.75,
            0.25 - third,
            1.25,
            0.25,
            1.25,
            third + 0.25,
            1.25,
        ],
    );
    near(
        theta.affine_grid([2, 3], true),
        &[
            -1.5, -1.75, -0.5, -1.75, 0.5, -1.75, -0.5, 2.25, 0.5, 2.25, 1.5, 2.25,
        ],
    );
    near(
        theta.affine_grid([1, 3], false),
        &[-third, 0.25, 0.0, 0.25, third, 0.25],
    );
    // A grid that shows images as they are.
    let same = engine
        .tensor(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [1, 2, 3])
        .unwrap();
    let x = count(&engine, 12, &[1, 2, 2, 3]);
    let grid = same.affine_grid([2, 3], false).unwrap();
    let seen = |x: &Tensor| x.grid_sample(&grid, GridMode::Bilinear, GridPadding::Zeros, false);
    near(seen(&x), &floats(Ok(x.clone())));
    let half = gradient(&x, seen);
    assert!(
        half.iter()
            .zip(floats(Ok(x.clone())))
            .all(|(g, x)| (g - 2.0 * x).abs() < 1e-5)
    );
    assert!(x.affine_grid([2, 3], false).is_err());

    let x = count(&engine, 16, &[1, 8, 1, 2]);
    let large = x.pixel_shuffle(2).unwrap();
    assert_eq!(large.dims(), [1, 2, 2, 4]);
    let order = [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15].map(|i: u8| f32::from(i));
    assert_eq!(floats(Ok(large.clone())), order);
    assert_eq!(floats(large.pixel_unshuffle(2)), floats(Ok(x.clone())));
    let image = count(&engine, 16, &[2, 2, 4]);
    assert_eq!(image.pixel_unshuffle(2).unwrap().dims(), [8, 1, 2]);
    assert_eq!(floats(image.pixel_unshuffle(2)), order);
    assert!(x.pixel_shuffle(3).is_err());
    assert!(x.pixel_shuffle(0).is_err());
    assert!(x.pixel_unshuffle(2).is_err());
}

#[test]
fn targets_are_spread_over_frames() {
    let engine = engine();
    let logits = [
        0.1, 0.2, 0.3, 0.3, 0.1, 0.5, 0.4, -0.2, 0.3, 0.3, 0.7, 0.5, 0.1, 0.9, -0.3, 0.3, 0.1, 0.0,
    ];
    let logits = engine.tensor(&logits, [3, 2, 3]).unwrap();
    let x = logits.log_softmax(2).unwrap().keep();
    let whole =
        |numbers: &[i64], shape: &[usize]| Tensor::from_slice(&engine, numbers, shape).unwrap();
    let (frames, labels) = (whole(&[3, 2], &[2]), whole(&[2, 1], &[2]));
    let (padded, packed) = (whole(&[1, 2, 2, 0], &[2, 2]), whole(&[1, 2, 2], &[3]));
    let with = |reduction| CtcOptions {
        reduction,
        ..CtcOptions::default()
    };
    for targets in [&padded, &packed] {
        let of = |reduction| ctc_loss(&x, targets, &frames, &labels, with(reduction));
        near(of(Reduction::None), &[2.300_797_2, 1.053_986_2]);
        near(of(Reduction::Mean), &[1.102_192_4]);
        near(of(Reduction::Sum), &[3.354_783_5]);
    }
    let alone = x.select(1, 0).unwrap();
    let (frames, labels) = (whole(&[3], &[]), whole(&[2], &[]));
    let loss = ctc_loss(
        &alone,
        &whole(&[1, 2], &[2]),
        &frames,
        &labels,
        with(Reduction::Mean),
    );
    near(loss, &[1.150_398_6]);
    // Behind log_softmax the gradient is PyTorch's: each frame's sums up to 0.
    let logits = leaf(&logits);
    let x = logits.log_softmax(2).unwrap().keep();
    let (frames, labels) = (whole(&[3, 2], &[2]), whole(&[2, 1], &[2]));
    ctc_loss(&x, &padded, &frames, &labels, with(Reduction::Sum))
        .unwrap()
        .backward()
        .unwrap();
    let g = floats(Ok(logits.grad().unwrap()));
    assert!(g.chunks(3).all(|g| g.iter().sum::<f32>().abs() < 1e-6));
    assert!(
        g[15..] == [0.0; 3],
        "the second target has two frames: {g:?}"
    );
    // What is too long stops the step, and says so.
    let refused = |targets: &Tensor, lengths: [&Tensor; 2]| {
        let x = logits.log_softmax(2).unwrap();
        let options = with(Reduction::Sum);
        let loss = ctc_loss(&x, targets, lengths[0], lengths[1], options).unwrap();
        loss.item().unwrap_err().to_string()
    };
    let message = refused(&padded, [&whole(&[3, 4], &[2]), &labels]);
    assert!(message.contains("index 4 at position 1"), "{message}");
    let message = refused(&packed, [&frames, &whole(&[1, 1], &[2])]);
    assert!(message.contains("sum up to"), "{message}");
}
