//! Diffusion transformers (Peebles and Xie, "Scalable Diffusion Models with Transformers", 2023), by the names of
//! `facebookresearch/DiT`.

use highwater::nn::{
    Conv2d, ConvSettings, Embedding, Linear, Module,
    init::{constant_, normal_, uniform_, xavier_uniform_, zeros_},
};
use highwater::{self, Buffer, Engine, Result, Tensor, scope};

/// Sizes of a [`Dit`].
#[derive(Debug, Clone, PartialEq)]
pub struct DitConfig {
    /// Side of images, or of what stands for them; a multiple of the patches'.
    pub image: usize,
    /// Side of patches.
    pub patch: usize,
    /// Channels of images: 4 where an autoencoder made them.
    pub channels: usize,
    /// Width of tokens; a multiple of four times the heads.
    pub width: usize,
    /// Blocks.
    pub depth: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Classes.
    pub classes: usize,
    /// Whether labels are dropped in training, for guidance without a classifier: there is a row more of the
    /// table, number `classes`, for no label.
    pub drops_labels: bool,
    /// Whether the output has as many channels more, for variances.
    pub learn_sigma: bool,
}

impl DitConfig {
    /// `DiT-S/2` of images of 32 with 4 channels: 33 million parameters.
    #[must_use]
    pub fn s_2(classes: usize) -> Self {
        Self {
            image: 32,
            patch: 2,
            channels: 4,
            width: 384,
            depth: 12,
            heads: 6,
            classes,
            drops_labels: true,
            learn_sigma: true,
        }
    }
}

/// Width of what times are turned into, and the longest period there.
const FREQUENCIES: usize = 256;
const PERIOD: f64 = 10_000.0;

/// Self-attention in which each token sees all.
#[derive(Debug, Module)]
struct Attention {
    qkv: Linear,
    proj: Linear,
    #[module(skip)]
    heads: usize,
}

impl Attention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let &[batch, length, width] = x.dims() else {
            return self.qkv.forward(x);
        };
        let shape = [batch, length, self.heads, width / self.heads];
        let qkv = self.qkv.forward(x)?.chunk(3, 2)?;
        let split = |x: &Tensor| x.reshape(shape)?.transpose(1, 2);
        let (q, k, v) = (split(&qkv[0])?, split(&qkv[1])?, split(&qkv[2])?);
        let y = q.scaled_dot_product_attention(&k, &v, false)?;
        self.proj
            .forward(&y.transpose(1, 2)?.reshape([batch, length, width])?)
    }
}

/// A block whose norms are scaled, shifted and gated by what is known of the image.
#[derive(Debug, Module)]
struct Block {
    attn: Attention,
    #[module(rename = "mlp.fc1")]
    fc1: Linear,
    #[module(rename = "mlp.fc2")]
    fc2: Linear,
    #[module(rename = "adaLN_modulation.1")]
    modulation: Linear,
}

impl Block {
    fn new(engine: &Engine, width: usize, heads: usize) -> Result<Self> {
        let block = Self {
            attn: Attention {
                qkv: xavier(engine, width, 3 * width)?,
                proj: xavier(engine, width, width)?,
                heads,
            },
            fc1: xavier(engine, width, 4 * width)?,
            fc2: xavier(engine, 4 * width, width)?,
            modulation: xavier(engine, width, 6 * width)?,
        };
        zeros_(&block.modulation.weight)?;
        Ok(block)
    }

    fn forward(&self, x: &Tensor, condition: &Tensor) -> Result<Tensor> {
        let parts = self.modulation.forward(&condition.silu()?)?.chunk(6, 1)?;
        let y = modulated(x, &parts[0], &parts[1])?;
        let y = self.attn.forward(&y)?.mul(&parts[2].unsqueeze(1)?)?;
        let x = x.add(&y)?;
        let y = modulated(&x, &parts[3], &parts[4])?;
        let y = self.fc2.forward(&self.fc1.forward(&y)?.gelu_tanh()?)?;
        x.add(&y.mul(&parts[5].unsqueeze(1)?)?)
    }
}

/// A norm without parameters, scaled and shifted for each sample.
fn modulated(x: &Tensor, shift: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let scale = scale.add_scalar(1.0)?.unsqueeze(1)?;
    let y = x.layer_norm(None, 1e-6)?;
    y.mul(&scale)?.add(&shift.unsqueeze(1)?)
}

/// Weights by Xavier's rule, biases zero.
fn xavier(engine: &Engine, inputs: usize, outputs: usize) -> Result<Linear> {
    let linear = Linear::new(engine, inputs, outputs, true)?;
    xavier_uniform_(&linear.weight, 1.0)?;
    if let Some(bias) = &linear.bias {
        zeros_(bias)?;
    }
    Ok(linear)
}

/// A diffusion transformer: from noisy images, times and classes to the noise.
#[derive(Debug, Module)]
pub struct Dit {
    /// Fixed sines and cosines of positions.
    pos_embed: Buffer,
    #[module(rename = "x_embedder.proj")]
    patches: Conv2d,
    #[module(rename = "t_embedder.mlp.0")]
    time1: Linear,
    #[module(rename = "t_embedder.mlp.2")]
    time2: Linear,
    #[module(rename = "y_embedder.embedding_table")]
    labels: Embedding,
    blocks: Vec<Block>,
    #[module(rename = "final_layer.linear")]
    last: Linear,
    #[module(rename = "final_layer.adaLN_modulation.1")]
    last_modulation: Linear,
    #[module(skip)]
    config: DitConfig,
}

impl Dit {
    /// Initialised as the original: what scales, shifts and gates, and the last layer, are zero, so that each
    /// block is the identity at first.
    ///
    /// # Errors
    /// [`highwater::Error::Usage`] for sizes that do not divide each other; [`highwater::Error::State`] if there
    /// is no room.
    pub fn new(engine: &Engine, config: &DitConfig) -> Result<Self> {
        let DitConfig { patch, width, .. } = *config;
        let side = config.image / patch.max(1);
        let settings = ConvSettings {
            stride: [patch; 2],
            ..ConvSettings::default()
        };
        let blocks: Result<Vec<Block>> = (0..config.depth)
            .map(|_| Block::new(engine, width, config.heads))
            .collect();
        let table = config.classes + usize::from(config.drops_labels);
        let channels = config.channels * if config.learn_sigma { 2 } else { 1 };
        let model = Self {
            pos_embed: Buffer::new(engine, [1, side * side, width], |numbers| {
                positions(numbers, side, width);
            })?,
            patches: Conv2d::new(engine, config.channels, width, [patch; 2], settings, true)?,
            time1: xavier(engine, FREQUENCIES, width)?,
            time2: xavier(engine, width, width)?,
            labels: Embedding::new(engine, table, width)?,
            blocks: blocks?,
            last: xavier(engine, width, patch * patch * channels)?,
            last_modulation: xavier(engine, width, 2 * width)?,
            config: config.clone(),
        };
        // As of a matrix, whose inputs are all of a patch.
        let fans = config.channels * patch * patch + width;
        let bound = (6.0 / fans as f64).sqrt();
        uniform_(&model.patches.weight, -bound, bound)?;
        if let Some(bias) = &model.patches.bias {
            constant_(bias, 0.0)?;
        }
        for weight in [
            &model.labels.weight,
            &model.time1.weight,
            &model.time2.weight,
        ] {
            normal_(weight, 0.0, 0.02)?;
        }
        zeros_(&model.last.weight)?;
        zeros_(&model.last_modulation.weight)?;
        Ok(model)
    }

    /// Images `[N, C, H, W]`, times `[N]`, which may be fractions, and classes `[N]`, of I64 or U32, to
    /// `[N, C, H, W]`, or `[N, 2 C, H, W]` with variances. Who trains for guidance gives the class
    /// [`DitConfig::classes`] to a tenth of the samples, which the original does inside.
    ///
    /// # Errors
    /// [`highwater::Error`] if shapes do not fit; a class out of range stops the step.
    pub fn forward(&self, images: &Tensor, times: &Tensor, classes: &Tensor) -> Result<Tensor> {
        let tokens = self.patches.forward(images)?.flatten(2, 3)?;
        let mut x = tokens.transpose(1, 2)?.add(&self.pos_embed)?;
        let time = self.time1.forward(&frequencies(times)?)?.silu()?;
        let time = self.time2.forward(&time)?;
        let condition = time.add(&self.labels.forward(classes)?)?;
        for (i, block) in self.blocks.iter().enumerate() {
            x = scope(&format!("blocks.{i}"), || block.forward(&x, &condition))?;
        }
        let parts = self.last_modulation.forward(&condition.silu()?)?;
        let parts = parts.chunk(2, 1)?;
        let x = self.last.forward(&modulated(&x, &parts[0], &parts[1])?)?;
        self.images_of(&x)
    }

    /// Patches `[N, T, patch patch C]` as images.
    fn images_of(&self, x: &Tensor) -> Result<Tensor> {
        let DitConfig { image, patch, .. } = self.config;
        let (batch, side) = (x.dims()[0], image / patch);
        let across = x.dims()[2] / patch;
        // Rows of patches become rows of pixels, each of the patches' pixels in turn.
        let rows = x.reshape([batch * side, side, patch, across])?;
        let rows = rows.transpose(1, 2)?;
        let pixels = rows.reshape([batch, image, image, across / patch])?;
        pixels.permute(&[0, 3, 1, 2])
    }
}

/// Cosines, then sines, of times by falling frequencies: `[N]` to `[N, 256]`.
fn frequencies(times: &Tensor) -> Result<Tensor> {
    let half = FREQUENCIES / 2;
    let of = |i: usize| (-PERIOD.ln() * i as f64 / half as f64).exp() as f32;
    let frequencies: Vec<f32> = (0..half).map(of).collect();
    let frequencies = times.engine().tensor(&frequencies, [half])?;
    let turns = times.unsqueeze(1)?.mul(&frequencies)?;
    Tensor::cat(&[&turns.cos()?, &turns.sin()?], 1)
}

/// Sines, then cosines, of the column, and then of the row, of each patch.
fn positions(numbers: &mut [f32], side: usize, width: usize) {
    let quarter = (width / 4).max(1);
    for (patch, row) in numbers.chunks_exact_mut(width).enumerate() {
        let places = [patch % side, patch / side];
        for (i, number) in row.iter_mut().enumerate() {
            let (place, within) = (places[(i / (2 * quarter)).min(1)], i % (2 * quarter));
            let frequency = PERIOD.powf(-((within % quarter) as f64) / quarter as f64);
            let turn = place as f64 * frequency;
            let wave = if within < quarter {
                turn.sin()
            } else {
                turn.cos()
            };
            *number = wave as f32;
        }
    }
}
