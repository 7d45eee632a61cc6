//! Autocast: the same numbers as casts written by hand, in any budget.

use crate::budget::check_budgets;
use crate::models::{Model, Random, SAMPLES, random_graph};
use crate::share::some;
use crate::train::{PLAIN, Recipe};
use highwater::nn::{LayerNorm, Linear};
use highwater::{
    DType, Engine, Module, Parameter, Result, Tensor, autocast, autocast_dtype, checkpoint,
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
