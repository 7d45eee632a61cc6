//! A densely connected network (Huang et al., 2017), each layer of which reads what all before it made. PyTorch's
//! plain step of it takes 131 MiB (`benches/pytorch/densenet_example.py`); here it has 44.
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::nn::{BatchNorm2d, BatchNormOptions, Conv2d, ConvSettings};
use highwater::nn::{PoolSettings, Sequential};
use highwater::prelude::*;

fn conv(e: &Engine, inputs: usize, outputs: usize, kernel: usize) -> Result<Conv2d> {
    let mut settings = ConvSettings::default();
    (settings.padding, settings.stride) = ([kernel / 2; 2], [1; 2]);
    Conv2d::new(e, inputs, outputs, [kernel; 2], settings, false)
}

/// Norm, ReLU and a convolution.
fn layer(e: &Engine, inputs: usize, outputs: usize, kernel: usize) -> Result<Sequential> {
    let norm = BatchNorm2d::new(e, inputs, BatchNormOptions::default())?;
    let norm = Sequential::new().then(norm).then_fn(Tensor::relu);
    Ok(norm.then(conv(e, inputs, outputs, kernel)?))
}

/// A convolution, blocks of layers, what halves channels after each, and the classes.
#[derive(Module)]
struct DenseNet(Conv2d, Vec<Vec<Sequential>>, Vec<Sequential>, Linear);

impl DenseNet {
    fn new(e: &Engine) -> Result<Self> {
        let (mut channels, mut blocks, mut halves) = (24, Vec::new(), Vec::new());
        for _ in 0..3 {
            let mut layers = Vec::new();
            for _ in 0..6 {
                layers.push(layer(e, channels, 48, 1)?.then(layer(e, 48, 12, 3)?));
                channels += 12;
            }
            blocks.push(layers);
            halves.push(layer(e, channels, channels / 2, 1)?);
            channels /= 2;
        }
        let head = Linear::new(e, channels, 4, true)?;
        Ok(Self(conv(e, 3, 24, 3)?, blocks, halves, head))
    }

    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let mut x = self.0.forward(images)?;
        for (layers, half) in self.1.iter().zip(&self.2) {
            let mut made = vec![x];
            for layer in layers {
                made.push(layer.forward(&Tensor::cat(&made, 1)?)?);
            }
            x = half.forward(&Tensor::cat(&made, 1)?)?;
            x = x.avg_pool2d(PoolSettings::new([2; 2]), true)?;
        }
        self.3.forward(&x.mean_dims(&[2, 3], false)?)
    }
}

/// Losses of some steps, and the most MiB that tensors took.
fn train(arena: u64) -> Result<(Vec<f32>, f64)> {
    let e = Engine::builder().arena(arena).seed(1).build()?;
    let model = DenseNet::new(&e)?;
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default())?;
    let (images, mut losses) = (Tensor::randn(&e, [16, 3, 32, 32])?.keep(), Vec::new());
    let labels = e.indices(&[0, 1, 2, 3].repeat(4), [16])?;
    for _ in 0..4 {
        let loss = model.forward(&images)?.cross_entropy(&labels)?;
        loss.backward()?;
        optimizer.step()?;
        losses.push(loss.item()?);
    }
    Ok((losses, e.max_memory_allocated() as f64 / f64::from(1 << 20)))
}

fn main() -> Result<()> {
    let (losses, most) = train(44 << 20)?;
    let (same, plenty) = train(1 << 30)?;
    println!("{most:.1} MiB, and {plenty:.1} where there are plenty: losses {losses:?}");
    assert!(most <= 44.0 && losses == same, "more memory, or other bits");
    Ok(())
}
