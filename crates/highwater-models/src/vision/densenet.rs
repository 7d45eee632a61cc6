//! Densely connected networks (Huang et al., "Densely Connected Convolutional Networks", 2017), as
//! `torchvision.models.densenet121`.
//!
//! Each layer reads all that the layers of its block made before it. In PyTorch these concatenations are what
//! memory runs out of, and `memory_efficient=True` checkpoints them; here they are values like others, which a
//! budget has made again.

use super::{ImageClassifier, batch_norm, conv};
use highwater::nn::{
    BatchNorm2d, Conv2d, Linear, MaxPool2d, Module, PoolSettings, Visitor,
    init::{FanMode, Nonlinearity, kaiming_normal_, zeros_},
    join,
};
use highwater::{self, Engine, Result, Tensor, scope};

/// Sizes of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenseNetConfig {
    /// How many layers each block has.
    pub blocks: Vec<usize>,
    /// Channels that a layer adds.
    pub growth: usize,
    /// Channels of the first convolution.
    pub first: usize,
    /// Channels between the two convolutions of a layer, in multiples of the growth.
    pub bottleneck: usize,
    /// Classes.
    pub classes: usize,
}

impl DenseNetConfig {
    /// 8.0 million parameters with 1000 classes.
    #[must_use]
    pub fn densenet121(classes: usize) -> Self {
        Self {
            blocks: vec![6, 12, 24, 16],
            growth: 32,
            first: 64,
            bottleneck: 4,
            classes,
        }
    }
}

#[derive(Debug, Module)]
struct Layer {
    norm1: BatchNorm2d,
    conv1: Conv2d,
    norm2: BatchNorm2d,
    conv2: Conv2d,
}

impl Layer {
    fn forward(&self, before: &[Tensor]) -> Result<Tensor> {
        let x = match before {
            [one] => one.clone(),
            several => Tensor::cat(several, 1)?,
        };
        let x = self.conv1.forward(&self.norm1.forward(&x)?.relu()?)?;
        self.conv2.forward(&self.norm2.forward(&x)?.relu()?)
    }
}

/// Halves channels and images between two blocks.
#[derive(Debug, Module)]
struct Transition {
    norm: BatchNorm2d,
    conv: Conv2d,
}

impl Transition {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv.forward(&self.norm.forward(x)?.relu()?)?;
        x.avg_pool2d(PoolSettings::new([2, 2]), true)
    }
}

/// A densely connected network.
#[derive(Debug)]
pub struct DenseNet {
    conv0: Conv2d,
    norm0: BatchNorm2d,
    maxpool: MaxPool2d,
    blocks: Vec<Vec<Layer>>,
    transitions: Vec<Transition>,
    norm5: BatchNorm2d,
    classifier: Linear,
}

impl Module for DenseNet {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        let features = join(path, "features");
        let at = |name: &str| join(&features, name);
        self.conv0.visit(&at("conv0"), visitor);
        self.norm0.visit(&at("norm0"), visitor);
        for (i, layers) in self.blocks.iter().enumerate() {
            for (k, layer) in layers.iter().enumerate() {
                let name = format!("denseblock{}.denselayer{}", i + 1, k + 1);
                layer.visit(&at(&name), visitor);
            }
            if let Some(transition) = self.transitions.get(i) {
                transition.visit(&at(&format!("transition{}", i + 1)), visitor);
            }
        }
        self.norm5.visit(&at("norm5"), visitor);
        self.classifier.visit(&join(path, "classifier"), visitor);
    }
}

impl DenseNet {
    /// Convolutions are normal by He's rule for what they read, the last bias zero, as in torchvision.
    ///
    /// # Errors
    /// [`highwater::Error::State`] if there is no room.
    pub fn new(engine: &Engine, config: &DenseNetConfig) -> Result<Self> {
        let between = config.bottleneck * config.growth;
        let mut channels = config.first;
        let (mut blocks, mut transitions) = (Vec::new(), Vec::new());
        for (i, &count) in config.blocks.iter().enumerate() {
            let mut layers = Vec::with_capacity(count);
            for _ in 0..count {
                layers.push(Layer {
                    norm1: batch_norm(engine, channels)?,
                    conv1: conv(engine, [channels, between], 1, 1)?,
                    norm2: batch_norm(engine, between)?,
                    conv2: conv(engine, [between, config.growth], 3, 1)?,
                });
                channels += config.growth;
            }
            blocks.push(layers);
            if i + 1 < config.blocks.len() {
                transitions.push(Transition {
                    norm: batch_norm(engine, channels)?,
                    conv: conv(engine, [channels, channels / 2], 1, 1)?,
                });
                channels /= 2;
            }
        }
        let pool = PoolSettings {
            stride: [2, 2],
            padding: [1, 1],
            ..PoolSettings::new([3, 3])
        };
        let model = Self {
            conv0: conv(engine, [3, config.first], 7, 2)?,
            norm0: batch_norm(engine, config.first)?,
            maxpool: MaxPool2d::new(pool),
            blocks,
            transitions,
            norm5: batch_norm(engine, channels)?,
            classifier: Linear::new(engine, channels, config.classes, true)?,
        };
        for (_, weight) in model.named_parameters() {
            if weight.shape().rank() == 4 {
                kaiming_normal_(&weight, FanMode::FanIn, Nonlinearity::Relu)?;
            }
        }
        if let Some(bias) = &model.classifier.bias {
            zeros_(bias)?;
        }
        Ok(model)
    }

    /// Images `[N, 3, H, W]` to logits `[N, classes]`.
    ///
    /// # Errors
    /// [`highwater::Error`] if the images do not fit.
    pub fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let x = self.norm0.forward(&self.conv0.forward(images)?)?.relu()?;
        let mut x = self.maxpool.forward(&x)?;
        for (i, layers) in self.blocks.iter().enumerate() {
            let mut made = vec![x];
            for (k, layer) in layers.iter().enumerate() {
                let name = format!("features.denseblock{}.denselayer{}", i + 1, k + 1);
                let new = scope(&name, || layer.forward(&made))?;
                made.push(new);
            }
            x = Tensor::cat(&made, 1)?;
            if let Some(transition) = self.transitions.get(i) {
                let name = format!("features.transition{}", i + 1);
                x = scope(&name, || transition.forward(&x))?;
            }
        }
        let x = self.norm5.forward(&x)?.relu()?;
        self.classifier.forward(&x.mean_dims(&[2, 3], false)?)
    }
}

impl ImageClassifier for DenseNet {
    fn logits(&self, images: &Tensor) -> Result<Tensor> {
        self.forward(images)
    }

    fn head(&self) -> &'static str {
        "classifier."
    }
}
