//! Vision transformers (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021), as
//! `torchvision.models.vit_b_16`.

use super::ImageClassifier;
use highwater::nn::{
    Conv2d, ConvSettings, LayerNorm, Linear, Module, MultiheadAttention, Sees, Visitor,
    init::{normal_, trunc_normal_, xavier_uniform_, zeros_},
    join,
};
use highwater::{self, Engine, Parameter, Result, Tensor, scope};

/// Sizes of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VitConfig {
    /// Side of images; a multiple of the patches'.
    pub image: usize,
    /// Side of patches.
    pub patch: usize,
    /// Blocks.
    pub layers: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Width of tokens.
    pub width: usize,
    /// Width between the two products of a block.
    pub mlp: usize,
    /// Classes.
    pub classes: usize,
}

impl VitConfig {
    /// 86.6 million parameters with 1000 classes and images of 224.
    #[must_use]
    pub fn vit_b_16(classes: usize) -> Self {
        Self {
            image: 224,
            patch: 16,
            layers: 12,
            heads: 12,
            width: 768,
            mlp: 3072,
            classes,
        }
    }
}

#[derive(Debug, Module)]
struct Block {
    ln_1: LayerNorm,
    self_attention: MultiheadAttention,
    ln_2: LayerNorm,
    #[module(rename = "mlp.0")]
    fc: Linear,
    #[module(rename = "mlp.3")]
    proj: Linear,
}

impl Block {
    fn new(engine: &Engine, config: &VitConfig) -> Result<Self> {
        let block = Self {
            ln_1: LayerNorm::new(engine, config.width, 1e-6)?,
            self_attention: MultiheadAttention::new(engine, config.width, config.heads, true)?,
            ln_2: LayerNorm::new(engine, config.width, 1e-6)?,
            fc: Linear::new(engine, config.width, config.mlp, true)?,
            proj: Linear::new(engine, config.mlp, config.width, true)?,
        };
        for linear in [&block.fc, &block.proj] {
            xavier_uniform_(&linear.weight, 1.0)?;
            if let Some(bias) = &linear.bias {
                normal_(bias, 0.0, 1e-6)?;
            }
        }
        Ok(block)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.ln_1.forward(x)?;
        let x = self.self_attention.self_attention(&y, Sees::All)?.add(x)?;
        let y = self.fc.forward(&self.ln_2.forward(&x)?)?.gelu()?;
        x.add(&self.proj.forward(&y)?)
    }
}

/// A vision transformer.
#[derive(Debug)]
pub struct Vit {
    conv_proj: Conv2d,
    class_token: Parameter,
    pos_embedding: Parameter,
    blocks: Vec<Block>,
    ln: LayerNorm,
    head: Linear,
}

impl Module for Vit {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        self.class_token.visit(&join(path, "class_token"), visitor);
        self.conv_proj.visit(&join(path, "conv_proj"), visitor);
        let encoder = join(path, "encoder");
        let at = |name: &str| join(&encoder, name);
        self.pos_embedding.visit(&at("pos_embedding"), visitor);
        for (i, block) in self.blocks.iter().enumerate() {
            block.visit(&at(&format!("layers.encoder_layer_{i}")), visitor);
        }
        self.ln.visit(&at("ln"), visitor);
        self.head.visit(&join(path, "heads.head"), visitor);
    }
}

impl Vit {
    /// Initialised as in torchvision: the head's weight and bias are zero.
    ///
    /// # Errors
    /// [`highwater::Error::Usage`] for heads that do not divide the width; [`highwater::Error::State`] if
    /// there is no room.
    pub fn new(engine: &Engine, config: &VitConfig) -> Result<Self> {
        let side = config.image / config.patch.max(1);
        let settings = ConvSettings {
            stride: [config.patch; 2],
            ..ConvSettings::default()
        };
        let kernel = [config.patch; 2];
        let blocks: Result<Vec<Block>> = (0..config.layers)
            .map(|_| Block::new(engine, config))
            .collect();
        let model = Self {
            conv_proj: Conv2d::new(engine, 3, config.width, kernel, settings, true)?,
            class_token: Parameter::new(engine, [1, 1, config.width], |_| {})?,
            pos_embedding: Parameter::normal(engine, [1, side * side + 1, config.width], 0.02)?,
            blocks: blocks?,
            ln: LayerNorm::new(engine, config.width, 1e-6)?,
            head: Linear::new(engine, config.width, config.classes, true)?,
        };
        let std = 1.0 / ((3 * config.patch * config.patch) as f64).sqrt();
        trunc_normal_(&model.conv_proj.weight, 0.0, std, -2.0, 2.0)?;
        zeros_(&model.head.weight)?;
        for bias in [&model.conv_proj.bias, &model.head.bias]
            .into_iter()
            .flatten()
        {
            zeros_(bias)?;
        }
        Ok(model)
    }

    /// Images `[N, 3, H, W]` to logits `[N, classes]`.
    ///
    /// # Errors
    /// [`highwater::Error`] if the images are not of the side that the model is for.
    pub fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let patches = self.conv_proj.forward(images)?.flatten(2, 3)?;
        let patches = patches.transpose(1, 2)?;
        let (batch, width) = (patches.dims()[0], patches.dims()[2]);
        let class = self.class_token.expand([batch, 1, width])?;
        let mut x = Tensor::cat(&[&class, &patches], 1)?.add(&self.pos_embedding)?;
        for (i, block) in self.blocks.iter().enumerate() {
            x = scope(&format!("encoder.layers.encoder_layer_{i}"), || {
                block.forward(&x)
            })?;
        }
        let class = self
            .ln
            .forward(&x)?
            .narrow(1, 0, 1)?
            .reshape([batch, width])?;
        self.head.forward(&class)
    }
}

impl ImageClassifier for Vit {
    fn logits(&self, images: &Tensor) -> Result<Tensor> {
        self.forward(images)
    }

    fn head(&self) -> &'static str {
        "heads.head."
    }
}
