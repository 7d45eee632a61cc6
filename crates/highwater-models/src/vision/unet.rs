//! U-Nets (Ronneberger, Fischer and Brox, 2015) with padding and batch norms, whose output is as large as the
//! images, by the names of `milesial/Pytorch-UNet`, the usual implementation in PyTorch.

use super::{batch_norm, conv};
use highwater::nn::{
    BatchNorm2d, Conv2d, ConvSettings, ConvTranspose2d, Interpolation, Module, PadMode,
    PoolSettings, Visitor, join,
};
use highwater::{self, Engine, Result, Tensor, scope};

/// Sizes of a [`UNet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UNetConfig {
    /// Channels of images.
    pub channels: usize,
    /// Channels of the output: classes of each pixel.
    pub classes: usize,
    /// Channels of the first block, doubled in each of the four below: 64.
    pub width: usize,
    /// Whether images are enlarged by bilinear interpolation, with half the channels where it is deepest; else
    /// by a transposed convolution.
    pub bilinear: bool,
}

impl UNetConfig {
    /// 31 million parameters, 17.3 million with `bilinear`.
    #[must_use]
    pub fn new(channels: usize, classes: usize, bilinear: bool) -> Self {
        Self {
            channels,
            classes,
            width: 64,
            bilinear,
        }
    }
}

/// A convolution, a norm and a rectifier, twice.
#[derive(Debug, Module)]
struct DoubleConv {
    #[module(rename = "double_conv.0")]
    conv1: Conv2d,
    #[module(rename = "double_conv.1")]
    norm1: BatchNorm2d,
    #[module(rename = "double_conv.3")]
    conv2: Conv2d,
    #[module(rename = "double_conv.4")]
    norm2: BatchNorm2d,
}

impl DoubleConv {
    fn new(engine: &Engine, inputs: usize, between: usize, outputs: usize) -> Result<Self> {
        Ok(Self {
            conv1: conv(engine, [inputs, between], 3, 1)?,
            norm1: batch_norm(engine, between)?,
            conv2: conv(engine, [between, outputs], 3, 1)?,
            norm2: batch_norm(engine, outputs)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.norm1.forward(&self.conv1.forward(x)?)?.relu()?;
        self.norm2.forward(&self.conv2.forward(&x)?)?.relu()
    }
}

/// One level of the way up: enlarged, beside what the way down had, and convolved.
#[derive(Debug)]
struct Up {
    /// `None` for bilinear interpolation.
    up: Option<ConvTranspose2d>,
    conv: DoubleConv,
}

impl Module for Up {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        if let Some(up) = &self.up {
            up.visit(&join(path, "up"), visitor);
        }
        self.conv.visit(&join(path, "conv"), visitor);
    }
}

impl Up {
    fn new(engine: &Engine, inputs: usize, outputs: usize, bilinear: bool) -> Result<Self> {
        let half = inputs / 2;
        let twice = ConvSettings {
            stride: [2; 2],
            ..ConvSettings::default()
        };
        let up = (!bilinear)
            .then(|| ConvTranspose2d::new(engine, inputs, half, [2; 2], twice, [0; 2], true));
        let between = if bilinear { half } else { outputs };
        Ok(Self {
            up: up.transpose()?,
            conv: DoubleConv::new(engine, inputs, between, outputs)?,
        })
    }

    /// `x` enlarged to the size of `beside`: where that is odd, padded.
    fn forward(&self, x: &Tensor, beside: &Tensor) -> Result<Tensor> {
        let x = if let Some(up) = &self.up {
            up.forward(x)?
        } else {
            let align_corners = true;
            x.interpolate_by([2.0; 2], Interpolation::Bilinear { align_corners })?
        };
        let missing = |dim: usize| beside.dims()[dim].saturating_sub(x.dims()[dim]);
        let [rows, columns] = [2, 3].map(missing);
        let ends = |missing: usize| [(missing / 2) as isize, missing.div_ceil(2) as isize];
        let pad = [ends(columns), ends(rows)].concat();
        let x = if rows + columns > 0 {
            x.pad(&pad, PadMode::Constant(0.0))?
        } else {
            x
        };
        self.conv.forward(&Tensor::cat(&[beside, &x], 1)?)
    }
}

/// A U-Net: a class, or a number, for each pixel.
#[derive(Debug)]
pub struct UNet {
    inc: DoubleConv,
    down: Vec<DoubleConv>,
    up: Vec<Up>,
    outc: Conv2d,
}

impl Module for UNet {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        self.inc.visit(&join(path, "inc"), visitor);
        for (i, down) in self.down.iter().enumerate() {
            let name = format!("down{}.maxpool_conv.1", i + 1);
            down.visit(&join(path, &name), visitor);
        }
        for (i, up) in self.up.iter().enumerate() {
            up.visit(&join(path, &format!("up{}", i + 1)), visitor);
        }
        self.outc.visit(&join(path, "outc.conv"), visitor);
    }
}

impl UNet {
    /// With PyTorch's initial weights.
    ///
    /// # Errors
    /// [`highwater::Error::State`] if there is no room.
    pub fn new(engine: &Engine, config: &UNetConfig) -> Result<Self> {
        let UNetConfig {
            width, bilinear, ..
        } = *config;
        let factor = if bilinear { 2 } else { 1 };
        let double = |inputs, outputs| DoubleConv::new(engine, inputs, outputs, outputs);
        let mut down = Vec::new();
        for level in 0..4 {
            let inputs = width << level;
            let outputs = if level == 3 {
                2 * inputs / factor
            } else {
                2 * inputs
            };
            down.push(double(inputs, outputs)?);
        }
        let mut up = Vec::new();
        for level in (0..4).rev() {
            let outputs = width << level;
            let outputs = if level == 0 {
                outputs
            } else {
                outputs / factor
            };
            up.push(Up::new(engine, width << (level + 1), outputs, bilinear)?);
        }
        let settings = ConvSettings::default();
        Ok(Self {
            inc: double(config.channels, width)?,
            down,
            up,
            outc: Conv2d::new(engine, width, config.classes, [1; 2], settings, true)?,
        })
    }

    /// Images `[N, channels, H, W]` to `[N, classes, H, W]`; both sides 16 at least.
    ///
    /// # Errors
    /// [`highwater::Error`] if the images do not fit.
    pub fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let mut levels = vec![scope("inc", || self.inc.forward(images))?];
        for (i, down) in self.down.iter().enumerate() {
            let x = scope(&format!("down{}", i + 1), || {
                let half = levels[i].max_pool2d(PoolSettings::new([2, 2]))?;
                down.forward(&half)
            })?;
            levels.push(x);
        }
        let mut x = levels.remove(4);
        for (i, (up, beside)) in self.up.iter().zip(levels.iter().rev()).enumerate() {
            x = scope(&format!("up{}", i + 1), || up.forward(&x, beside))?;
        }
        scope("outc", || self.outc.forward(&x))
    }
}
