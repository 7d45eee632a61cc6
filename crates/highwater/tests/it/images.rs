//! Nets of images: convolutions, norms whose running statistics are buffers, and pools.

use crate::budget::check_budgets;
use crate::models::{Model, Random};
use crate::train::{PLAIN, Recipe};
use highwater::nn::{
    AdaptiveAvgPool2d, BatchNorm1d, BatchNorm2d, BatchNormOptions, Conv2d, ConvSettings, Linear,
    MaxPool2d, PoolSettings,
};
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{Engine, Error, Module, Parameter, Result, Tensor};

const SIDE: usize = 16;
const CLASSES: usize = 5;

#[derive(Module)]
struct Block {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    shortcut: Conv2d,
}

impl Block {
    fn new(e: &Engine, inputs: usize, outputs: usize, stride: usize) -> Result<Self> {
        let conv = |inputs, kernel: usize, stride| {
            let settings = ConvSettings {
                stride: [stride; 2],
                padding: [kernel / 2; 2],
                ..Default::default()
            };
            Conv2d::new(e, inputs, outputs, [kernel; 2], settings, false)
        };
        let norm = || BatchNorm2d::new(e, outputs, BatchNormOptions::default());
        Ok(Self {
            conv1: conv(inputs, 3, stride)?,
            bn1: norm()?,
            conv2: conv(outputs, 3, 1)?,
            bn2: norm()?,
            shortcut: conv(inputs, 1, stride)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let y = self.bn2.forward(&self.conv2.forward(&y)?)?;
        y.add(&self.shortcut.forward(x)?)?.relu()
    }
}

#[derive(Module)]
struct Net {
    stem: Conv2d,
    bn: BatchNorm2d,
    pool: MaxPool2d,
    blocks: Vec<Block>,
    mean: AdaptiveAvgPool2d,
    head: Linear,
    #[module(skip)]
    engine: Engine,
}

impl Net {
    fn new(e: &Engine) -> Result<Self> {
        let settings = ConvSettings {
            padding: [1; 2],
            ..Default::default()
        };
        let pool = PoolSettings {
            stride: [2; 2],
            padding: [1; 2],
            ..PoolSettings::new([3; 2])
        };
        Ok(Self {
            stem: Conv2d::new(e, 3, 8, [3; 2], settings, true)?,
            bn: BatchNorm2d::new(e, 8, BatchNormOptions::default())?,
            pool: MaxPool2d::new(pool),
            blocks: vec![Block::new(e, 8, 8, 1)?, Block::new(e, 8, 16, 2)?],
            mean: AdaptiveAvgPool2d::new([1; 2]),
            head: Linear::new(e, 16, CLASSES, true)?,
            engine: e.clone(),
        })
    }

    fn loss(&self, index: u64, rows: usize) -> Result<Tensor> {
        let mut random = Random(index);
        let pixels = random.values(rows * 3 * SIDE * SIDE);
        let labels = random.tokens(rows, CLASSES);
        let x = self.engine.tensor(&pixels, [rows, 3, SIDE, SIDE])?;
        let mut x = self.bn.forward(&self.stem.forward(&x)?)?.relu()?;
        x = self.pool.forward(&x)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        let x = self.mean.forward(&x)?.reshape([rows, 16])?;
        let labels = self.engine.indices(&labels, [rows])?;
        self.head.forward(&x)?.cross_entropy(&labels)
    }

    /// Every buffer by name, bit for bit.
    fn statistics(&self) -> Vec<(String, Vec<f32>)> {
        let buffers = self.named_buffers().into_iter();
        buffers
            .map(|(name, buffer)| (name, buffer.to_vec().unwrap()))
            .collect()
    }
}

impl Model for Net {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        Ok(vec![self.loss(index, rows)?])
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.parameters()]
    }
}

#[test]
fn a_net_of_images_gives_the_same_bits_in_any_budget() {
    let make = |e: &Engine| -> Result<Box<dyn Model>> { Ok(Box::new(Net::new(e)?)) };
    let recipe = Recipe { rows: 12, ..PLAIN };
    let traces = check_budgets("net of images", &make, recipe, 6);
    let (least, most) = (traces[0].plan(), traces[traces.len() - 1].plan());
    assert!(least.0 > most.0);
}

/// Running statistics after steps of training in so many bytes.
fn statistics_in(arena: u64) -> Result<Vec<(String, Vec<f32>)>> {
    let engine = Engine::builder().arena(arena).seed(3).build()?;
    let net = Net::new(&engine)?;
    let mut sgd = Sgd::new(net.parameters(), SgdOptions::default())?;
    for index in 0..3 {
        net.loss(index, 12)?.backward()?;
        sgd.step()?;
    }
    Ok(net.statistics())
}

#[test]
fn running_statistics_are_written_once_however_often_a_step_computes() {
    let plenty = statistics_in(64 << 20).unwrap();
    for (name, values) in &plenty {
        if name.ends_with("num_batches_tracked") {
            assert_eq!(values, &[3.0], "{name}");
        }
    }
    let mut budget = 512 << 10;
    loop {
        match statistics_in(budget) {
            Ok(statistics) => break assert_eq!(statistics, plenty),
            Err(Error::OverBudget { floor_bytes, .. }) => budget = floor_bytes.max(budget + 1),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(statistics_in(budget * 5 / 4).unwrap(), plenty);
}

/// `[N, C]` and settings by whose numbers a running mean is known: of -1 and 3, then of 5 and 7.
fn running(momentum: Option<f64>) -> Vec<f32> {
    let engine = Engine::builder().arena(16 << 20).build().unwrap();
    let options = BatchNormOptions {
        momentum,
        ..Default::default()
    };
    let norm = BatchNorm1d::new(&engine, 1, options).unwrap();
    for batch in [[-1.0, 3.0], [5.0, 7.0]] {
        let x = engine.tensor(&batch, [2, 1]).unwrap();
        norm.forward(&x).unwrap().to_vec::<f32>().unwrap();
    }
    norm.eval();
    let x = engine.tensor(&[100.0, 200.0], [2, 1]).unwrap();
    norm.forward(&x).unwrap().to_vec::<f32>().unwrap();
    let buffers = norm.named_buffers().into_iter();
    buffers
        .map(|(_, buffer)| buffer.to_vec().unwrap()[0])
        .collect()
}

#[test]
fn running_statistics_take_up_batches_in_training_alone() {
    // Means 1 and 6; unbiased variances 8 and 2; at first 0 and 1.
    assert_eq!(running(Some(0.5)), [3.25, 3.25, 2.0]);
    assert_eq!(running(None), [3.5, 5.0, 2.0]);
}

#[test]
fn evaluation_normalises_by_running_statistics() {
    let engine = Engine::builder().arena(16 << 20).build().unwrap();
    let norm = BatchNorm2d::new(&engine, 2, BatchNormOptions::default()).unwrap();
    norm.eval();
    let x = engine.tensor(&[1.0, 2.0, 3.0, 4.0], [1, 2, 1, 2]).unwrap();
    let y = norm.forward(&x).unwrap().to_vec::<f32>().unwrap();
    let near = |(y, x): (&f32, f32)| (y - x).abs() < 1e-4;
    assert!(y.iter().zip([1.0, 2.0, 3.0, 4.0]).all(near), "{y:?}");
    let names: Vec<String> = norm.state_dict().into_keys().collect();
    let all = [
        "bias",
        "num_batches_tracked",
        "running_mean",
        "running_var",
        "weight",
    ];
    assert_eq!(names, all);
    let error = norm.forward(&engine.tensor(&[0.0; 3], [1, 3, 1, 1]).unwrap());
    assert!(error.unwrap_err().to_string().contains("[N, 2, H, W]"));
}
