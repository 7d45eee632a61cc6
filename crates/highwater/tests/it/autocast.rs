//! Autocast: the same numbers as casts written by hand, in any budget.

use crate::budget::check_budgets;
use crate::models::{Model, Random, SAMPLES, random_graph};
use crate::share::some;
use crate::train::{PLAIN, Recipe};
use highwater::nn::{BatchNorm2d, BatchNormOptions, LayerNorm, Linear};
use highwater::{
    DType, Engine, Module, Parameter, Result, Tensor, autocast, autocast_dtype, checkpoint, philox,
};

const HALVES: [DType; 2] = [DType::BF16, DType::F16];

/// A model whose forward part runs under autocast.
struct Half(Box<dyn Model>, DType);

impl Model for Half {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        autocast(self.1, || self.0.losses(index, rows))
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        self.0.sets()
    }
}

#[test]
fn budgets_change_no_bit() {
    let recipe = Recipe { rows: 12, ..PLAIN };
    for (i, sample) in some(SAMPLES.into_iter().enumerate()) {
        let dtype = HALVES[i % 2];
        let make = |engine: &Engine| -> Result<Box<dyn Model>> {
            Ok(Box::new(Half((sample.make)(engine)?, dtype)))
        };
        let what = format!("{} in {dtype}", sample.name);
        check_budgets(&what, &make, recipe, 4);
    }
}

#[test]
fn budgets_change_no_bit_of_random_graphs() {
    for seed in some(0..6) {
        let (inner, dtype) = (random_graph(seed), HALVES[seed as usize % 2]);
        let make = |engine: &Engine| -> Result<Box<dyn Model>> {
            Ok(Box::new(Half(inner(engine)?, dtype)))
        };
        let recipe = Recipe { rows: 12, ..PLAIN };
        check_budgets(&format!("random graph {seed} in {dtype}"), &make, recipe, 4);
    }
}

/// Two layers, a norm between them, and a residual.
struct Block {
    engine: Engine,
    norm: LayerNorm,
    layers: [Linear; 2],
    data: Vec<f32>,
}

const WIDTH: usize = 24;

impl Block {
    fn new() -> Result<Self> {
        let engine = Engine::builder()
            .arena(64 << 20)
            .seed(7)
            .threads(2)
            .build()?;
        let layer = || Linear::new(&engine, WIDTH, WIDTH, true);
        Ok(Self {
            norm: LayerNorm::new(&engine, WIDTH, 1e-5)?,
            layers: [layer()?, layer()?],
            data: Random(5).values(6 * WIDTH),
            engine,
        })
    }

    fn x(&self) -> Result<Tensor> {
        self.engine.tensor(&self.data, [6, WIDTH])
    }

    /// As a user writes it.
    fn loss(&self) -> Result<Tensor> {
        let x = self.x()?;
        let y = self.layers[0].forward(&x)?.gelu()?;
        let y = self.norm.forward(&x.add(&y)?)?;
        // Twice the same weight.
        let y = self.layers[1].forward(&self.layers[1].forward(&y)?)?;
        y.mul(&x)?.square()?.mean()
    }

    /// With the casts that autocast makes.
    fn loss_by_hand(&self, dtype: DType) -> Result<Tensor> {
        let x = self.x()?;
        let cast = |layer: &Linear| {
            let bias = layer.bias.as_ref().map(|bias| bias.to_dtype(dtype));
            Ok::<_, highwater::Error>((layer.weight.to_dtype(dtype)?, bias.transpose()?))
        };
        let (w, b) = cast(&self.layers[0])?;
        let y = x.to_dtype(dtype)?.linear(&w, b.as_ref())?.gelu()?;
        let y = self.norm.forward(&x.add(&y.to_dtype(DType::F32)?)?)?;
        let (w, b) = cast(&self.layers[1])?;
        let y = y.to_dtype(dtype)?.linear(&w, b.as_ref())?;
        let y = y.linear(&w, b.as_ref())?;
        y.to_dtype(DType::F32)?.mul(&x)?.square()?.mean()
    }

    fn gradients(&self, loss: &Tensor) -> Result<Vec<Vec<f32>>> {
        loss.backward()?;
        let parameters = self.layers.iter().flat_map(Module::parameters);
        let parameters = parameters.chain(self.norm.parameters());
        parameters
            .map(|parameter| {
                let grad = parameter.grad().expect("a gradient");
                assert_eq!(grad.dtype(), DType::F32);
                grad.to_vec()
            })
            .collect()
    }
}

#[test]
fn casts_are_those_that_one_would_write() {
    for dtype in HALVES {
        let (auto, hand) = (Block::new().unwrap(), Block::new().unwrap());
        let loss = autocast(dtype, || auto.loss()).unwrap();
        let by_hand = hand.loss_by_hand(dtype).unwrap();
        assert_eq!((loss.dtype(), by_hand.dtype()), (DType::F32, DType::F32));
        assert_eq!(
            auto.gradients(&loss).unwrap(),
            hand.gradients(&by_hand).unwrap()
        );
        assert_eq!(
            loss.item().unwrap().to_bits(),
            by_hand.item().unwrap().to_bits()
        );
        // No cast is made twice.
        let nodes = |block: &Block| block.engine.last_step().nodes;
        assert_eq!(nodes(&auto), nodes(&hand));
        let whole = Block::new().unwrap();
        let exact = whole.loss().unwrap().item().unwrap();
        let found = loss.item().unwrap();
        assert!(
            (found - exact).abs() < 0.02 * exact,
            "{found} beside {exact}"
        );
        assert_ne!(found.to_bits(), exact.to_bits());
    }
}

#[test]
fn scopes_nest_and_are_switched_off_inside() {
    let block = Block::new().unwrap();
    let x = block.x().unwrap();
    let dtype = |layer: &Linear| layer.forward(&x).unwrap().dtype();
    let layer = &block.layers[0];
    assert_eq!((dtype(layer), autocast_dtype()), (DType::F32, None));
    autocast(DType::BF16, || {
        assert_eq!(dtype(layer), DType::BF16);
        autocast(DType::F32, || assert_eq!(dtype(layer), DType::F32));
        autocast(DType::F16, || assert_eq!(dtype(layer), DType::F16));
        assert_eq!(autocast_dtype(), Some(DType::BF16));
        // What a half leaves is taken by what wants `F32`, and by what wants one dtype.
        let y = layer.forward(&x).unwrap();
        assert_eq!(y.add(&x).unwrap().dtype(), DType::F32);
        assert_eq!(y.add(&y).unwrap().dtype(), DType::BF16);
        assert_eq!(y.softmax().unwrap().dtype(), DType::BF16);
        assert_eq!(y.sum().unwrap().dtype(), DType::F32);
        let labels = block.engine.indices(&[1, 2, 3, 4, 5, 6], [6]).unwrap();
        assert_eq!(y.cross_entropy(&labels).unwrap().dtype(), DType::F32);
        let loss = x.linear_cross_entropy(&layer.weight, &labels).unwrap();
        assert_eq!(loss.dtype(), DType::F32);
    });
    assert_eq!(dtype(layer), DType::F32);
    let panicked = std::panic::catch_unwind(|| autocast(DType::F16, || panic!("inside")));
    assert!(panicked.is_err() && autocast_dtype().is_none());
}

#[test]
fn checkpoints_recompute_the_same_casts() {
    let gradients = |pinned: bool| {
        let block = Block::new()?;
        let loss = autocast(DType::BF16, || {
            let x = block.x()?;
            let body = |x: &Tensor| block.layers[0].forward(x)?.gelu();
            let y = if pinned {
                checkpoint(body, &x)?
            } else {
                body(&x)?
            };
            // The same input and weight, cast outside as well.
            let y = block.layers[0].forward(&x)?.mul(&y)?;
            block.layers[1]
                .forward(&block.norm.forward(&y)?)?
                .square()?
                .mean()
        })?;
        block.gradients(&loss)
    };
    assert_eq!(gradients(true).unwrap(), gradients(false).unwrap());
}

/// What takes one dtype alone, or `F32` beside others, is given the widest.
#[test]
fn mixtures_are_promoted() {
    type Mixes = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let engine = Engine::builder().threads(1).build().unwrap();
    let norm = BatchNorm2d::new(&engine, 3, BatchNormOptions::default()).unwrap();
    norm.eval();
    let values: Vec<f32> = (0..48).map(|i| (i as f32 - 20.0) / 16.0).collect();
    let x = Tensor::from_slice(&engine, &values, [2, 3, 2, 4]).unwrap();
    let y = x.mul_scalar(0.5).unwrap();
    let mixes: [(&str, Mixes); 4] = [
        ("maximum", |x, y| x.maximum(y)),
        ("minimum", |x, y| x.minimum(y)),
        ("where", |x, y| Tensor::where_(&y.gt(x)?, x, y)),
        ("xlogy", |x, y| x.xlogy(&y.square()?)),
    ];
    for half in HALVES {
        // The same numbers in half precision and in `F32`.
        let low = x.to_dtype(half).unwrap();
        let wide = low.to_dtype(DType::F32).unwrap();
        let expected = norm.forward(&wide).unwrap();
        let found = autocast(half, || norm.forward(&low)).unwrap();
        assert_eq!(
            found.to_vec::<f32>().unwrap(),
            expected.to_vec::<f32>().unwrap()
        );
        for (name, mix) in mixes {
            let expected = mix(&wide, &y).unwrap().to_vec::<f32>().unwrap();
            let found = autocast(half, || mix(&low, &y)).unwrap();
            assert_eq!(found.dtype(), DType::F32, "{name}");
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
            assert!(
                found
                    .to_vec::<f32>()
                    .unwrap()
                    .iter()
                    .zip(&expected)
                    .all(same),
                "{name}"
            );
        }
    }
}

/// Reading renumbers what is pending: a cast is not taken for one of another tensor.
#[test]
fn casts_follow_what_is_read_in_between() {
    let engine = Engine::builder().threads(1).build().unwrap();
    let tensors: Vec<Tensor> = (0..4)
        .map(|i| {
            let values = [i as f32 + 1.0, 2.0 * i as f32 - 3.0];
            Tensor::from_slice(&engine, &values, [1, 2]).unwrap()
        })
        .collect();
    let expected: Vec<f32> = (0..4)
        .map(|i| (i + 1) as f32 * (2 * i - 3) as f32)
        .collect();
    for seed in 0..40 {
        let mut order = vec![0; 30];
        philox::fill_integers(seed, 0, (0, 8), &mut order);
        // Held while others come and go, so that numbers of values are used again.
        let mut held: Vec<Option<Tensor>> = vec![None; 4];
        autocast(DType::BF16, || {
            for &drawn in &order {
                let at = (drawn % 4) as usize;
                let x = match (&held[at], drawn < 4) {
                    (Some(x), true) => x.clone(),
                    _ => tensors[at].mul_scalar(1.0).unwrap(),
                };
                let [a, b] = [0, 1].map(|at| x.narrow(1, at, 1).unwrap());
                let product = a.matmul(&b).unwrap();
                if drawn % 3 != 0 {
                    assert_eq!(product.item().unwrap(), expected[at], "{seed}");
                }
                held[at] = Some(x);
            }
        });
    }
}
