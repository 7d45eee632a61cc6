//! Promotion, constants, comparisons and losses as PyTorch has them.

use highwater::nn::functional::{
    CrossEntropyOptions, Reduction, TripletMarginOptions, binary_cross_entropy_with_logits,
    cosine_similarity, cross_entropy, huber_loss, kl_div, l1_loss, mse_loss, nll_loss, normalize,
    pairwise_distance, smooth_l1_loss, triplet_margin_loss,
};
use highwater::{DType, Engine, Error, Result, Tensor, autocast};

fn engine() -> Engine {
    Engine::builder().threads(1).arena(1 << 20).build().unwrap()
}

fn floats(tensor: Result<Tensor>) -> Vec<f32> {
    tensor.unwrap().to_vec().unwrap()
}

fn truths(tensor: Result<Tensor>) -> Vec<bool> {
    let tensor = tensor.unwrap();
    assert_eq!(tensor.dtype(), DType::Bool);
    let bytes = tensor.to_vec::<u8>().unwrap();
    bytes.into_iter().map(|byte| byte == 1).collect()
}

fn assert_near(got: &[f32], want: &[f32]) {
    let near = |(got, want): (&f32, &f32)| (got - want).abs() <= 2e-6 * (1.0 + want.abs());
    assert!(
        got.len() == want.len() && got.iter().zip(want).all(near),
        "{got:?}, not {want:?}"
    );
}

#[test]
fn dtypes_promote_as_in_pytorch() {
    use DType::{BF16, Bool, F16, F32, F64, I64, U8};
    let engine = engine();
    let of = |dtype, rank: usize| Tensor::full(&engine, vec![1; rank], 1.0, dtype).unwrap();
    let cases = [
        ((F16, 1), (BF16, 1), F32),
        ((F32, 1), (F64, 1), F64),
        ((F32, 1), (F64, 0), F32),
        ((BF16, 2), (F32, 0), BF16),
        ((I64, 1), (F16, 1), F16),
        ((I64, 1), (F32, 0), F32),
        ((I64, 1), (F64, 0), F64),
        ((U8, 1), (I64, 0), U8),
        ((U8, 1), (I64, 1), I64),
        ((Bool, 1), (I64, 0), I64),
        ((F32, 0), (BF16, 0), F32),
        ((I64, 0), (I64, 1), I64),
    ];
    for ((a, a_rank), (b, b_rank), want) in cases {
        let (a, b) = (of(a, a_rank), of(b, b_rank));
        for (a, b) in [(&a, &b), (&b, &a)] {
            let both = Tensor::where_(&a.eq(b).unwrap(), a, b).unwrap();
            assert_eq!(both.dtype(), want, "{a:?} and {b:?}");
            assert!(floats(both.to_dtype(F32)) == [1.0]);
            assert_eq!(truths(a.eq(b)), [true]);
        }
    }
    let whole = Tensor::arange(&engine, 0.0, 4.0, 1.0, I64).unwrap();
    assert_eq!(floats(&whole / 2.0), [0.0, 0.5, 1.0, 1.5]);
    assert_eq!(floats(&whole + 0.5), [0.5, 1.5, 2.5, 3.5]);
    let doubled = (&whole * 2.0).unwrap().to_vec::<i64>().unwrap();
    assert_eq!(doubled, [0, 2, 4, 6]);
}

#[test]
fn a_promoted_input_has_a_gradient_of_its_own_dtype() {
    let engine = engine();
    let half = Tensor::ones(&engine, [3], DType::BF16).unwrap();
    let half = half.requires_grad_().unwrap();
    let single = engine.tensor(&[1.0, 2.0, 3.0], [3]).unwrap();
    let product = (&half * &single).unwrap();
    assert_eq!(product.dtype(), DType::F32);
    product.sum().unwrap().backward().unwrap();
    let grad = half.grad().unwrap();
    assert_eq!(grad.dtype(), DType::BF16);
    assert_eq!(floats(grad.to_dtype(DType::F32)), [1.0, 2.0, 3.0]);
}

#[test]
fn truths_are_operands() {
    let engine = engine();
    let x = engine.tensor(&[-1.0, 0.0, 2.0, f32::NAN], [4]).unwrap();
    let positive = x.gt_scalar(0.0).unwrap();
    assert_eq!(truths(Ok(positive.clone())), [false, false, true, false]);
    let number = !x.isnan().unwrap();
    assert_eq!(truths(&positive ^ number), [true, true, false, false]);
    assert_eq!(truths(&positive | x.isnan()), [false, false, true, true]);
    assert_eq!(truths(x.logical_not()), [false, true, false, false]);
    let own = Tensor::from_bools(&engine, &[true, false, true, false], [4]).unwrap();
    assert_eq!(truths(&own & &positive), [false, false, true, false]);
    assert_eq!(
        floats(x.masked_fill(&x.isnan().unwrap(), 7.0)),
        [-1.0, 0.0, 2.0, 7.0]
    );
    assert!(Tensor::where_(&x, &x, &x).is_err());
    assert!(positive.requires_grad_().is_err());
}

#[test]
fn what_is_masked_gets_no_gradient() {
    let engine = engine();
    let x = engine
        .tensor(&[-1.0, 4.0], [2])
        .unwrap()
        .requires_grad_()
        .unwrap();
    let positive = x.gt_scalar(0.0).unwrap();
    let safe = x
        .masked_fill(&positive.logical_not().unwrap(), 1.0)
        .unwrap();
    let root = Tensor::where_(&positive, &safe.sqrt().unwrap(), &x).unwrap();
    root.sum().unwrap().backward().unwrap();
    assert_eq!(floats(Ok(x.grad().unwrap())), [1.0, 0.25]);
}

#[test]
fn new_tensors_hold_what_is_asked_for() {
    let engine = engine();
    let (f32s, i64s) = (DType::F32, DType::I64);
    assert_eq!(floats(Tensor::zeros(&engine, [2], f32s)), [0.0, 0.0]);
    assert_eq!(floats(Tensor::full(&engine, [2], 1.5, f32s)), [1.5, 1.5]);
    assert_eq!(
        floats(Tensor::eye(&engine, 2, 3, f32s)),
        [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    );
    assert_eq!(
        floats(Tensor::arange(&engine, 0.0, 1.0, 0.3, f32s)),
        [0.0, 0.3, 0.6, 0.9]
    );
    let down = Tensor::arange(&engine, 5.0, -1.0, -2.0, i64s).unwrap();
    assert_eq!(down.to_vec::<i64>().unwrap(), [5, 3, 1]);
    let line = floats(Tensor::linspace(&engine, -1.0, 1.0, 4));
    assert_near(&line, &[-1.0, -0.333_333_3, 0.333_333_3, 1.0]);
    assert_eq!(floats(Tensor::linspace(&engine, 3.0, 4.0, 1)), [3.0]);
    assert_eq!(floats(Tensor::ones(&engine, [0, 3], f32s)), [0.0; 0]);
    assert!(matches!(
        Tensor::arange(&engine, 0.0, 1.0, -1.0, f32s),
        Err(Error::Usage { .. })
    ));
    assert!(Tensor::full(&engine, [usize::MAX, 2], 0.0, f32s).is_err());
}

#[test]
fn random_tensors_are_of_their_distributions() {
    let engine = engine();
    let mean = |x: &[f32]| x.iter().sum::<f32>() / x.len() as f32;
    let uniform = floats(Tensor::uniform(&engine, [10_000], 2.0, 4.0));
    assert!(uniform.iter().all(|x| (2.0..4.0).contains(x)) && (mean(&uniform) - 3.0).abs() < 0.05);
    let normal = floats(Tensor::normal(&engine, [10_000], 5.0, 0.5));
    assert!((mean(&normal) - 5.0).abs() < 0.05);
    let coins = floats(Tensor::bernoulli(&engine, [10_000], 0.25));
    assert!(coins.iter().all(|&x| x == 0.0 || x == 1.0) && (mean(&coins) - 0.25).abs() < 0.03);
    assert!(Tensor::bernoulli(&engine, [3], 1.5).is_err());
    let mut order = Tensor::randperm(&engine, 100)
        .unwrap()
        .to_vec::<i64>()
        .unwrap();
    assert!(!order.is_sorted());
    order.sort_unstable();
    assert!(order.into_iter().eq(0..100));
}

/// The loss and the gradient of its sum, of the same input for all.
fn loss_and_gradient(of: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> (Vec<f32>, Vec<f32>) {
    let engine = engine();
    let x = engine.tensor(&[0.5, -1.25, 2.0, -0.25, 3.5, -2.0], [2, 3]);
    let x = x.unwrap().requires_grad_().unwrap();
    let y = engine
        .tensor(&[0.25, 0.5, 0.25, 0.0, 0.75, 0.25], [2, 3])
        .unwrap();
    let loss = of(&x, &y).unwrap();
    loss.sum().unwrap().backward().unwrap();
    (floats(Ok(loss)), floats(Ok(x.grad().unwrap())))
}

macro_rules! assert_loss {
    (|$x:ident, $y:ident| $loss:expr, $want:expr, $gradient:expr) => {
        let (loss, gradient) = loss_and_gradient(|$x, $y| $loss);
        assert_near(&loss, &$want);
        assert_near(&gradient, &$gradient);
    };
}

#[test]
fn losses_of_differences_are_pytorchs() {
    use Reduction::{Mean, None, Sum};
    assert_loss!(
        |x, y| mse_loss(x, y, Mean),
        [3.145_833_3],
        [
            0.083_333_3,
            -0.583_333_4,
            0.583_333_4,
            -0.083_333_3,
            0.916_666_7,
            -0.75
        ]
    );
    assert_loss!(
        |x, y| mse_loss(x, y, Sum),
        [18.875],
        [0.5, -3.5, 3.5, -0.5, 5.5, -4.5]
    );
    assert_loss!(
        |x, y| mse_loss(x, y, None),
        [0.0625, 3.0625, 3.0625, 0.0625, 7.5625, 5.0625],
        [0.5, -3.5, 3.5, -0.5, 5.5, -4.5]
    );
    let sixth = 1.0 / 6.0;
    assert_loss!(
        |x, y| l1_loss(x, y, Mean),
        [1.5],
        [sixth, -sixth, sixth, -sixth, sixth, -sixth]
    );
    assert_loss!(
        |x, y| smooth_l1_loss(x, y, 0.5, Mean),
        [1.270_833_4],
        [sixth / 2.0, -sixth, sixth, -sixth / 2.0, sixth, -sixth]
    );
    assert_loss!(
        |x, y| huber_loss(x, y, 1.5, Mean),
        [1.385_416_6],
        [sixth / 4.0, -0.25, 0.25, -sixth / 4.0, 0.25, -0.25]
    );
    let zero = smooth_l1_loss;
    assert_loss!(
        |x, y| zero(x, y, 0.0, Mean),
        [1.5],
        [sixth, -sixth, sixth, -sixth, sixth, -sixth]
    );
}

#[test]
fn losses_of_probabilities_are_pytorchs() {
    use Reduction::{BatchMean, Mean, None};
    let bce = binary_cross_entropy_with_logits;
    assert_loss!(
        |x, y| bce(x, y, Option::None, Option::None, Mean),
        [0.910_092_1],
        [
            0.062_076_6,
            -0.046_216_6,
            0.105_132_8,
            0.072_970_6,
            0.036_781_3,
            -0.021_799_5
        ]
    );
    let weighted = |x: &Tensor, y: &Tensor| {
        let weight = x.engine().tensor(&[1.0, 0.5, 2.0], [3])?;
        let of_yes = x.engine().tensor(&[3.0, 1.0, 0.5], [3])?;
        bce(x, y, Some(&weight), Some(&of_yes), None)
    };
    assert_loss!(
        |x, y| weighted(x, y),
        [
            1.086_115_5,
            0.438_464_5,
            3.222_124,
            0.575_939_4,
            0.452_375_2,
            0.722_124_1
        ],
        [
            0.183_689,
            -0.138_649_9,
            1.291_394_8,
            0.437_823_5,
            0.110_343_9,
            -0.041_394_9
        ]
    );
    assert_loss!(
        |x, y| kl_div(x, y, false, BatchMean),
        [-1.863_528],
        [-0.125, -0.25, -0.125, 0.0, -0.375, -0.125]
    );
}

#[test]
fn losses_of_logarithms_are_pytorchs() {
    use Reduction::{Mean, None, Sum};
    let logarithms = |x: &Tensor, _: &Tensor| {
        let target = x
            .engine()
            .tensor(&[-1.0, -0.5, -2.0, -0.25, -3.0, -1.0], [2, 3])?;
        kl_div(x, &target, true, Sum)
    };
    assert_loss!(
        |x, y| logarithms(x, y),
        [-0.593_998_8],
        [
            -0.367_879_5,
            -0.606_530_7,
            -0.135_335_3,
            -0.778_800_8,
            -0.049_787_1,
            -0.367_879_5
        ]
    );
    let labelled = |x: &Tensor, labels: &[i64], reduction| {
        let labels = Tensor::from_slice(x.engine(), labels, [2])?;
        nll_loss(x, &labels, Option::None, -100, reduction)
    };
    assert_loss!(
        |x, _y| labelled(x, &[2, -100], Mean),
        [-2.0],
        [0.0, 0.0, -1.0, 0.0, 0.0, 0.0]
    );
    assert_loss!(
        |x, _y| labelled(x, &[2, 1], None),
        [-2.0, -3.5],
        [0.0, 0.0, -1.0, 0.0, -1.0, 0.0]
    );
}

#[test]
fn classes_count_by_their_weights() {
    use Reduction::{Mean, None, Sum};
    let (all, one) = ([2_i64, 1], [2_i64, -100]);
    let labels = |x: &Tensor, labels: &[i64]| Tensor::from_slice(x.engine(), labels, [2]);
    let weights = |x: &Tensor| x.engine().tensor(&[0.5, 2.0, 1.5], [3]);
    let entropy = |x: &Tensor, of: &[i64], reduction| {
        let options = CrossEntropyOptions {
            weight: Some(&weights(x)?),
            reduction,
            ..CrossEntropyOptions::default()
        };
        cross_entropy(x, &labels(x, of)?, options)
    };
    assert_loss!(
        |x, _y| nll_loss(x, &labels(x, &all)?, Some(&weights(x)?), -100, Mean),
        [-2.857_143],
        [0.0, 0.0, -0.428_571_4, 0.0, -0.571_428_6, 0.0]
    );
    assert_loss!(
        |x, _y| nll_loss(x, &labels(x, &one)?, Some(&weights(x)?), -100, None),
        [-3.0, 0.0],
        [0.0, 0.0, -1.5, 0.0, 0.0, 0.0]
    );
    assert_loss!(
        |x, _y| entropy(x, &all, Mean),
        [0.115_255_4],
        [
            0.075_780_1,
            0.013_168_6,
            -0.088_948_7,
            0.013_077_7,
            -0.015_350_3,
            0.002_272_6
        ]
    );
    assert_loss!(
        |x, _y| entropy(x, &one, Mean),
        [0.232_622],
        [0.176_820_2, 0.030_726_7, -0.207_546_9, 0.0, 0.0, 0.0]
    );
    assert_loss!(
        |x, _y| entropy(x, &all, Sum),
        [0.403_393_7],
        [
            0.265_230_3,
            0.046_090_1,
            -0.311_320_4,
            0.045_772,
            -0.053_726,
            0.007_954
        ]
    );
}

#[test]
fn classes_without_weights_count_alike() {
    use Reduction::{Mean, None};
    let plain = |x: &Tensor, reduction| {
        let labels = Tensor::from_slice(x.engine(), &[2_i64, 1], [2])?;
        let options = CrossEntropyOptions {
            reduction,
            ..CrossEntropyOptions::default()
        };
        cross_entropy(x, &labels, options)
    };
    assert_loss!(
        |x, _y| plain(x, Mean),
        [0.129_926_2],
        [
            0.088_410_1,
            0.015_363_4,
            -0.103_773_5,
            0.011_443,
            -0.013_431_5,
            0.001_988_5
        ]
    );
    assert_loss!(
        |x, _y| plain(x, None),
        [0.232_622, 0.027_230_4],
        [
            0.176_820_2,
            0.030_726_7,
            -0.207_546_9,
            0.022_886,
            -0.026_863,
            0.003_977
        ]
    );
}

#[test]
fn each_element_has_its_probability() {
    let engine = engine();
    for dtype in [DType::F32, DType::BF16, DType::F64] {
        let p: Vec<f32> = (0..4000).map(|i| [0.0, 1.0, 0.25, 0.75][i % 4]).collect();
        let p = engine.tensor(&p, [4000]).unwrap().to_dtype(dtype).unwrap();
        let drawn = p.bernoulli_of().unwrap();
        assert_eq!(drawn.dtype(), dtype);
        let drawn = floats(drawn.to_dtype(DType::F32));
        let ones = |k: usize| drawn.iter().skip(k).step_by(4).sum::<f32>();
        assert!(drawn.iter().all(|&x| x == 0.0 || x == 1.0));
        assert_eq!([ones(0), ones(1)], [0.0, 1000.0]);
        assert!((200.0..300.0).contains(&ones(2)), "{}", ones(2));
        assert!((700.0..800.0).contains(&ones(3)), "{}", ones(3));
    }
}

#[test]
fn cosines_are_pytorchs() {
    assert_loss!(
        |x, y| cosine_similarity(x, y, -1, 1e-8),
        [0.0, 0.665_516_2],
        [
            0.169_333_5,
            0.338_667,
            0.169_333_5,
            0.010_199_5,
            0.092_095_3,
            0.159_891_9
        ]
    );
    assert_loss!(
        |x, y| cosine_similarity(x, y, 0, 1e-8),
        [0.894_427_2, 0.597_010_8, 0.0],
        [
            0.357_770_9,
            0.203_280_8,
            0.25,
            0.715_541_7,
            0.072_600_3,
            0.25
        ]
    );
    let x = engine().tensor(&[1.0], [1]).unwrap();
    let error = cosine_similarity(&x, &x, 1, 1e-8).unwrap_err();
    assert!(error.to_string().contains("no dimension 1"), "{error}");
}

#[test]
fn tensors_like_others() {
    let engine = engine();
    let x = Tensor::full(&engine, [2, 3], 7.0, DType::BF16).unwrap();
    for (like, value) in [
        (x.zeros_like(), 0.0),
        (x.ones_like(), 1.0),
        (x.full_like(2.5), 2.5),
    ] {
        let like = like.unwrap();
        assert_eq!((like.dims(), like.dtype()), (&[2, 3][..], DType::BF16));
        assert_eq!(floats(like.to_dtype(DType::F32)), [value; 6]);
    }
    engine.manual_seed(3);
    let random = [x.randn_like().unwrap(), x.rand_like().unwrap()];
    engine.manual_seed(3);
    let again = [
        Tensor::randn(&engine, [2, 3]).unwrap(),
        Tensor::rand(&engine, [2, 3]).unwrap(),
    ];
    for (random, again) in random.iter().zip(&again) {
        assert_eq!(random.dtype(), DType::BF16);
        let rounded = again.to_dtype(DType::BF16).unwrap();
        let wide = |x: &Tensor| floats(x.to_dtype(DType::F32));
        assert_eq!(wide(random), wide(&rounded));
    }
    let whole = Tensor::zeros(&engine, [2], DType::I64).unwrap();
    assert_eq!(whole.ones_like().unwrap().to_vec::<i64>().unwrap(), [1, 1]);
    let error = whole.randn_like().unwrap_err().to_string();
    assert!(error.contains("expected a float type"), "{error}");
}

#[test]
fn vectors_are_normalized_as_in_pytorch() {
    let engine = engine();
    let values = [3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 1.0, -2.0, 2.0];
    let x = engine.tensor(&values, [3, 3]).unwrap();
    let x = x.requires_grad_().unwrap();
    let y = normalize(&x, 2.0, 1, 1e-12).unwrap();
    let (third, two) = (1.0 / 3.0, 2.0 / 3.0);
    let want = [0.6, 0.8, 0.0, 0.0, 0.0, 0.0, third, -two, two];
    assert_near(&y.to_vec().unwrap(), &want);
    let columns = engine.tensor(&[1.0, -3.0, 2.0, 2.0], [2, 2]).unwrap();
    let columns = floats(normalize(&columns, 1.0, 0, 1e-12));
    assert_near(&columns, &[third, -0.6, two, 0.4]);
    assert!(normalize(&x, 2.0, 2, 1e-12).is_err());
    // The gradient that PyTorch has.
    let weights = [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 2.0, 0.0, 1.0];
    let weights = engine.tensor(&weights, [3, 3]).unwrap();
    y.mul(&weights).unwrap().sum().unwrap().backward().unwrap();
    let grad = x.grad().unwrap().to_vec::<f32>().unwrap();
    let want = [
        -0.064,
        0.048,
        0.6,
        0.0,
        0.0,
        0.0,
        0.518_518_57,
        0.296_296_3,
        0.037_037_045,
    ];
    assert_near(&grad, &want);
}

#[test]
fn losses_are_computed_in_f32_under_autocast() {
    let engine = engine();
    let x = Tensor::ones(&engine, [3], DType::BF16).unwrap();
    let loss = autocast(DType::BF16, || mse_loss(&x, &x, Reduction::Mean)).unwrap();
    assert_eq!(loss.dtype(), DType::F32);
}

#[test]
fn smoothed_labels_are_pytorchs() {
    use Reduction::{Mean, None, Sum};
    let smoothed = |x: &Tensor, of: &[i64], weighted: bool, label_smoothing, reduction| {
        let labels = Tensor::from_slice(x.engine(), of, [2])?;
        let weight = x.engine().tensor(&[0.5, 2.0, 1.5], [3])?;
        let options = CrossEntropyOptions {
            weight: weighted.then_some(&weight),
            reduction,
            label_smoothing,
            ..CrossEntropyOptions::default()
        };
        cross_entropy(x, &labels, options)
    };
    let (all, one) = ([2_i64, 1], [2_i64, -100]);
    assert_loss!(
        |x, _y| smoothed(x, &all, false, 0.1, Mean),
        [0.363_259_5],
        [
            0.071_743_4,
            -0.001_303_3,
            -0.070_440_1,
            -0.005_223_7,
            0.019_901_9,
            -0.014_678_2
        ]
    );
    assert_loss!(
        |x, _y| smoothed(x, &one, false, 0.25, None),
        [0.628_455_3, 0.0],
        [0.093_486_8, -0.052_606_6, -0.040_880_3, 0.0, 0.0, 0.0]
    );
    assert_loss!(
        |x, _y| smoothed(x, &all, true, 0.1, Mean),
        [0.279_105_1],
        [
            0.070_176_2,
            -0.006_025_3,
            -0.064_150_8,
            0.007_879_9,
            0.004_209_1,
            -0.012_088_9
        ]
    );
    assert_loss!(
        |x, _y| smoothed(x, &one, true, 0.5, Mean),
        [1.025_254_1],
        [0.111_441_3, -0.193_202_5, 0.081_761_2, 0.0, 0.0, 0.0]
    );
    assert_loss!(
        |x, _y| smoothed(x, &all, true, 0.1, Sum),
        [0.976_867_9],
        [
            0.245_616_6,
            -0.021_088_7,
            -0.224_527_9,
            0.027_579_6,
            0.014_731_6,
            -0.042_311_2
        ]
    );
    let x = engine().tensor(&[1.0], [1, 1]).unwrap();
    assert!(smoothed(&x, &[0], false, 1.5, Mean).is_err());
}

#[test]
fn distances_of_triplets_are_pytorchs() {
    use Reduction::{Mean, None, Sum};
    let apart = |y: &Tensor| y.mul_scalar(2.0)?.sub_scalar(1.0);
    let with = |p, margin, swap, reduction| TripletMarginOptions {
        margin,
        p,
        swap,
        reduction,
        ..TripletMarginOptions::default()
    };
    assert_loss!(
        |x, y| triplet_margin_loss(x, y, &apart(y)?, with(2.0, 1.0, false, Mean)),
        [0.821_950_8],
        [
            -0.118_178_4,
            -0.141_225_3,
            -0.069_312_6,
            -0.144_202_1,
            -0.050_411_4,
            -0.097_620_2
        ]
    );
    assert_loss!(
        |x, y| triplet_margin_loss(x, y, &apart(y)?, with(1.0, 2.0, false, None)),
        [1.0, 1.999_998_1],
        [0.0, 0.0, 0.0, -2.0, 0.0, 0.0]
    );
    assert_loss!(
        |x, y| triplet_margin_loss(x, y, &apart(y)?, with(2.0, 2.0, true, Sum)),
        [7.602_058_4],
        [
            0.100_504_2,
            -0.703_526_1,
            0.703_526_8,
            -0.070_186,
            0.772_048_9,
            -0.631_675_8
        ]
    );
    assert_loss!(
        |x, y| pairwise_distance(x, y, 2.0, 1e-6),
        [2.487_468_7, 3.561_951_9],
        [
            0.100_504_2,
            -0.703_526_1,
            0.703_526_8,
            -0.070_186,
            0.772_048_9,
            -0.631_675_8
        ]
    );
}
