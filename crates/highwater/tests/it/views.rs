//! Gradients through views are those through copies.

use crate::models::Random;
use highwater::{Engine, Result, Tensor};

/// The gradients of `[4, 6]` and `[6, 4]` leaves under a function of them.
fn gradients(f: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>) -> [Vec<f32>; 2] {
    let engine = Engine::builder().build().unwrap();
    let leaf = |seed, shape: [usize; 2]| {
        engine
            .tensor(&Random(seed).values(24), shape)
            .unwrap()
            .requires_grad_()
            .unwrap()
    };
    let leaves = [leaf(1, [4, 6]), leaf(2, [6, 4])];
    f(&leaves[0], &leaves[1]).unwrap().backward().unwrap();
    leaves.map(|leaf| leaf.grad().expect("a gradient").to_vec().unwrap())
}

/// Weighs the elements differently, so that a permuted gradient is a wrong one.
fn loss(x: &Tensor) -> Result<Tensor> {
    let weights = Random(3).values(x.shape().numel());
    let weights = x.engine().tensor(&weights, x.shape().clone())?;
    x.tanh()?.mul(&weights)?.sum()
}

type View = fn(&Tensor) -> Result<Tensor>;

/// Ways to see a `[4, 6]` tensor.
const VIEWS: [(&str, View); 8] = [
    ("transpose", |x| x.transpose(0, 1)),
    ("permute", |x| x.reshape([2, 2, 6])?.permute(&[2, 0, 1])),
    ("narrow rows", |x| x.narrow(0, 1, 2)),
    ("narrow columns", |x| x.narrow(1, 2, 3)),
    ("narrow of transpose", |x| {
        x.transpose(0, 1)?.narrow(0, 1, 4)?.narrow(1, 2, 2)
    }),
    ("reshape", |x| x.reshape([3, 8])),
    ("expand", |x| x.narrow(1, 0, 1)?.expand([4, 5])),
    ("reshape of transpose", |x| {
        x.transpose(0, 1)?.reshape([8, 3])
    }),
];

#[test]
fn a_view_has_the_gradient_of_a_copy() {
    for (name, view) in VIEWS {
        // `x + 0` is a tensor of its own, whose views are not views of the leaf.
        let seen = gradients(&|x, y| loss(&view(x)?)?.add(&loss(y)?));
        let copied =
            gradients(&|x, y| loss(&view(&x.add_scalar(0.0)?)?.add_scalar(0.0)?)?.add(&loss(y)?));
        assert_eq!(seen, copied, "{name}");
        // Against the definition: the leaf's elements, told apart by their places.
        let expected = by_places(view);
        for (i, (got, expected)) in seen[0].iter().zip(&expected).enumerate() {
            assert!(
                (got - expected).abs() < 1e-5,
                "{name}: element {i}: {got}, not {expected}"
            );
        }
    }
}

/// The gradient of `loss(view(x))` worked out by hand: which element of `x` each one is.
fn by_places(view: View) -> Vec<f32> {
    let engine = Engine::builder().build().unwrap();
    let places: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let places: Vec<f32> = view(&engine.tensor(&places, [4, 6]).unwrap())
        .unwrap()
        .to_vec()
        .unwrap();
    let (values, weights) = (Random(1).values(24), Random(3).values(places.len()));
    let mut gradient = vec![0.0; 24];
    for (place, weight) in places.iter().zip(weights) {
        gradient[*place as usize] += weight * (1.0 - values[*place as usize].tanh().powi(2));
    }
    gradient
}

#[test]
fn parts_that_meet_again_have_the_gradient_of_the_whole() {
    let whole = gradients(&|x, y| loss(&x.mul(&y.transpose(0, 1)?)?.contiguous()?));
    let parts = gradients(&|x, y| {
        let halves = |x: &Tensor| x.chunk(2, 1);
        let (x, y) = (halves(x)?, halves(&y.transpose(0, 1)?)?);
        let weights = x[0]
            .engine()
            .tensor(&Random(3).values(24), [4, 6])?
            .chunk(2, 1)?;
        let part = |i: usize| x[i].mul(&y[i])?.tanh()?.mul(&weights[i])?.sum();
        part(0)?.add(&part(1)?)
    });
    assert_eq!(parts, whole);
}

#[test]
fn overlapping_views_add_up() {
    let [gradient, _] = gradients(&|x, y| {
        let overlap = x
            .narrow(1, 0, 4)?
            .sum()?
            .add(&x.narrow(1, 2, 4)?.mul_scalar(10.0)?.sum()?)?;
        overlap.add(&x.narrow(0, 3, 1)?.sum()?)?.add(&y.sum()?)
    });
    let row = [1.0, 1.0, 11.0, 11.0, 10.0, 10.0];
    let last = row.map(|x| x + 1.0);
    assert_eq!(gradient, [row, row, row, last].concat());
}

#[test]
fn a_value_of_which_only_a_part_is_used_has_zeros_elsewhere() {
    let [gradient, _] = gradients(&|x, y| {
        let h = x.mul_scalar(3.0)?;
        h.narrow(0, 1, 1)?.narrow(1, 2, 2)?.sum()?.add(&y.sum()?)
    });
    let mut expected = vec![0.0; 24];
    expected[8..10].fill(3.0);
    assert_eq!(gradient, expected);
}

/// The sizes of PyTorch 2.15: `[c.shape[0] for c in torch.arange(n).chunk(chunks)]`.
#[test]
fn chunks_need_not_be_equal() {
    let engine = Engine::builder().build().unwrap();
    for (extent, chunks, sizes) in [
        (6, 4, vec![2, 2, 2]),
        (7, 3, vec![3, 3, 1]),
        (10, 6, vec![2; 5]),
        (3, 5, vec![1; 3]),
        (8, 4, vec![2; 4]),
        (5, 1, vec![5]),
        (0, 3, vec![0; 3]),
    ] {
        let data: Vec<f32> = (0..extent).map(|i| i as f32).collect();
        let x = engine.tensor(&data, [1, extent]).unwrap();
        let parts = x.chunk(chunks, -1).unwrap();
        let found: Vec<usize> = parts.iter().map(|part| part.dims()[1]).collect();
        assert_eq!(found, sizes, "{extent} in {chunks}");
        let all = parts.iter().flat_map(|part| part.to_vec::<f32>().unwrap());
        assert_eq!(all.collect::<Vec<f32>>(), data);
    }
}

#[test]
fn views_that_do_not_fit_are_refused() {
    let engine = Engine::builder().build().unwrap();
    let x = engine.tensor(&[0.0; 24], [4, 6]).unwrap();
    let refused = [
        x.transpose(0, 2),
        x.permute(&[0, 0]),
        x.narrow(0, 3, 2),
        x.narrow(2, 0, 1),
        x.expand([5, 6]),
        x.reshape([5, 5]),
        x.chunk(0, 0).map(|mut parts| parts.remove(0)),
    ];
    for (i, refused) in refused.into_iter().enumerate() {
        let error = refused.expect_err("refused");
        let text = error.to_string();
        assert!(
            text.contains("[4, 6]") && text.contains("views.rs"),
            "{i}: {text}"
        );
    }
}
