//! Residual networks (He et al., "Deep Residual Learning for Image Recognition", 2016), as
//! `torchvision.models.resnet50` and its relatives.

use super::{ImageClassifier, batch_norm, conv};
use highwater::nn::{
    BatchNorm2d, Conv2d, Linear, MaxPool2d, Module, PoolSettings,
    init::{FanMode, Nonlinearity, kaiming_normal_},
};
use highwater::{self, Engine, Result, Tensor, scope};

/// What a network's blocks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResNetBlock {
    /// Two convolutions of 3 x 3.
    Basic,
    /// One of 1 x 1, one of 3 x 3 that takes the stride, and one of 1 x 1 to four times the width.
    Bottleneck,
}

/// Sizes of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResNetConfig {
    /// What blocks are.
    pub block: ResNetBlock,
    /// How many blocks each of the four stages has.
    pub layers: [usize; 4],
    /// Channels of the first stage; each later one has twice as many. 64 in torchvision.
    pub width: usize,
    /// Classes.
    pub classes: usize,
}

impl ResNetConfig {
    /// 11.7 million parameters with 1000 classes.
    #[must_use]
    pub fn resnet18(classes: usize) -> Self {
        Self::of(ResNetBlock::Basic, [2, 2, 2, 2], classes)
    }

    /// 21.8 million parameters with 1000 classes.
    #[must_use]
    pub fn resnet34(classes: usize) -> Self {
        Self::of(ResNetBlock::Basic, [3, 4, 6, 3], classes)
    }

    /// 25.6 million parameters with 1000 classes.
    #[must_use]
    pub fn resnet50(classes: usize) -> Self {
        Self::of(ResNetBlock::Bottleneck, [3, 4, 6, 3], classes)
    }

    fn of(block: ResNetBlock, layers: [usize; 4], classes: usize) -> Self {
        Self {
            block,
            layers,
            width: 64,
            classes,
        }
    }
}

/// One residual block. `conv3` and `bn3` are the bottleneck's.
#[derive(Debug, Module)]
struct Block {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    conv3: Option<Conv2d>,
    bn3: Option<BatchNorm2d>,
    downsample: Option<Downsample>,
}

/// What brings a block's input to the extents of its output; names `0` and `1`.
#[derive(Debug, Module)]
struct Downsample(Conv2d, BatchNorm2d);

impl Block {
    fn new(
        engine: &Engine,
        block: ResNetBlock,
        [inputs, width]: [usize; 2],
        stride: usize,
    ) -> Result<Self> {
        let (outputs, last) = match block {
            ResNetBlock::Basic => (width, None),
            ResNetBlock::Bottleneck => (4 * width, Some([width, 4 * width])),
        };
        let kernels = match block {
            ResNetBlock::Basic => [(3, stride), (3, 1)],
            ResNetBlock::Bottleneck => [(1, 1), (3, stride)],
        };
        let downsample = (stride != 1 || inputs != outputs).then(|| {
            let down = conv(engine, [inputs, outputs], 1, stride)?;
            Ok::<_, highwater::Error>(Downsample(down, batch_norm(engine, outputs)?))
        });
        let [(first, first_stride), (second, second_stride)] = kernels;
        Ok(Self {
            conv1: conv(engine, [inputs, width], first, first_stride)?,
            bn1: batch_norm(engine, width)?,
            conv2: conv(engine, [width, width], second, second_stride)?,
            bn2: batch_norm(engine, width)?,
            conv3: last
                .map(|channels| conv(engine, channels, 1, 1))
                .transpose()?,
            bn3: last
                .map(|[_, outputs]| batch_norm(engine, outputs))
                .transpose()?,
            downsample: downsample.transpose()?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        y = self.bn2.forward(&self.conv2.forward(&y)?)?;
        if let (Some(conv3), Some(bn3)) = (&self.conv3, &self.bn3) {
            y = bn3.forward(&conv3.forward(&y.relu()?)?)?;
        }
        let shortcut = match &self.downsample {
            Some(Downsample(conv, norm)) => norm.forward(&conv.forward(x)?)?,
            None => x.clone(),
        };
        y.add(&shortcut)?.relu()
    }
}

/// A residual network.
#[derive(Debug, Module)]
pub struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    #[module(skip)]
    maxpool: MaxPool2d,
    layer1: Vec<Block>,
    layer2: Vec<Block>,
    layer3: Vec<Block>,
    layer4: Vec<Block>,
    fc: Linear,
}

impl ResNet {
    /// Convolutions are normal by He's rule for what they answer, as in torchvision.
    ///
    /// # Errors
    /// [`highwater::Error::State`] if there is no room.
    pub fn new(engine: &Engine, config: &ResNetConfig) -> Result<Self> {
        let mut inputs = config.width;
        let mut stage = |i: usize| -> Result<Vec<Block>> {
            let width = config.width << i;
            let mut blocks = Vec::with_capacity(config.layers[i]);
            for block in 0..config.layers[i] {
                let stride = if block == 0 && i > 0 { 2 } else { 1 };
                blocks.push(Block::new(engine, config.block, [inputs, width], stride)?);
                inputs = match config.block {
                    ResNetBlock::Basic => width,
                    ResNetBlock::Bottleneck => 4 * width,
                };
            }
            Ok(blocks)
        };
        let (layer1, layer2, layer3, layer4) = (stage(0)?, stage(1)?, stage(2)?, stage(3)?);
        let pool = PoolSettings {
            stride: [2, 2],
            padding: [1, 1],
            ..PoolSettings::new([3, 3])
        };
        let model = Self {
            conv1: conv(engine, [3, config.width], 7, 2)?,
            bn1: batch_norm(engine, config.width)?,
            maxpool: MaxPool2d::new(pool),
            layer1,
            layer2,
            layer3,
            layer4,
            fc: Linear::new(engine, inputs, config.classes, true)?,
        };
        for (_, weight) in model.named_parameters() {
            if weight.shape().rank() == 4 {
                kaiming_normal_(&weight, FanMode::FanOut, Nonlinearity::Relu)?;
            }
        }
        Ok(model)
    }

    /// Images `[N, 3, H, W]` to logits `[N, classes]`.
    ///
    /// # Errors
    /// [`highwater::Error`] if the images do not fit.
    pub fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let mut x = self.bn1.forward(&self.conv1.forward(images)?)?.relu()?;
        x = self.maxpool.forward(&x)?;
        let stages = [&self.layer1, &self.layer2, &self.layer3, &self.layer4];
        for (i, stage) in stages.into_iter().enumerate() {
            for (k, block) in stage.iter().enumerate() {
                x = scope(&format!("layer{}.{k}", i + 1), || block.forward(&x))?;
            }
        }
        self.fc.forward(&x.mean_dims(&[2, 3], false)?)
    }
}

impl ImageClassifier for ResNet {
    fn logits(&self, images: &Tensor) -> Result<Tensor> {
        self.forward(images)
    }

    fn head(&self) -> &'static str {
        "fc."
    }
}
