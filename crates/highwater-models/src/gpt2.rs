//! GPT-2 (Radford et al. 2019), with the names and layouts of Hugging Face's `GPT2LMHeadModel`.

use crate::{Activation, Gpt2Config, Packed};
use highwater::nn::{Dropout, Embedding, LayerNorm, Module, self_attention};
use highwater::{Engine, Location, Parameter, Result, Tensor, scope};

/// GPT-2 with its language-model head, which is the token embedding again.
#[derive(Debug, Module)]
pub struct Gpt2 {
    transformer: Transformer,
    #[module(skip)]
    config: Gpt2Config,
}

#[derive(Debug, Module)]
struct Transformer {
    wte: Embedding,
    wpe: Embedding,
    drop: Dropout,
    h: Vec<Block>,
    ln_f: LayerNorm,
}

#[derive(Debug, Module)]
struct Block {
    ln_1: LayerNorm,
    attn: Attention,
    ln_2: LayerNorm,
    mlp: Mlp,
}

#[derive(Debug, Module)]
struct Attention {
    c_attn: Conv1d,
    c_proj: Conv1d,
    resid_dropout: Dropout,
    #[module(skip)]
    heads: usize,
}

#[derive(Debug, Module)]
struct Mlp {
    c_fc: Conv1d,
    c_proj: Conv1d,
    dropout: Dropout,
    #[module(skip)]
    activation: Activation,
}

/// A linear map whose weight is `[in, out]`, as GPT-2's files have it: read transposed, by strides.
#[derive(Debug, Module)]
struct Conv1d {
    weight: Parameter,
    bias: Parameter,
}

impl Conv1d {
    fn new(engine: &Engine, inputs: usize, outputs: usize, std: f64) -> Result<Self> {
        let weight = Parameter::normal(engine, [inputs, outputs], std as f32)?;
        Ok(Self {
            weight,
            bias: Parameter::new(engine, [outputs], |_| {})?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight.transpose(0, 1)?, Some(&self.bias))
    }
}

impl Attention {
    fn forward(&self, x: &Tensor, packed: Option<&Packed<'_>>) -> Result<Tensor> {
        let qkv = scope("c_attn", || self.c_attn.forward(x))?;
        let y = match packed {
            Some(packed) => document_attention(&qkv, self.heads, packed.lengths)?,
            None => self_attention(&qkv, self.heads)?,
        };
        self.resid_dropout
            .forward(&scope("c_proj", || self.c_proj.forward(&y))?)
    }
}

/// [`self_attention`] within each of the documents of a row, of which these are the lengths `[B, N]`.
fn document_attention(qkv: &Tensor, heads: usize, lengths: &Tensor) -> Result<Tensor> {
    let &[batch, length, width] = qkv.dims() else {
        return self_attention(qkv, heads);
    };
    let split = |part: &Tensor| {
        part.reshape([batch, length, heads, width / 3 / heads])?
            .transpose(1, 2)
    };
    let parts = qkv.chunk(3, 2)?;
    let (q, k, v) = (split(&parts[0])?, split(&parts[1])?, split(&parts[2])?);
    let y = q.document_attention(&k, &v, lengths, true, None)?;
    y.transpose(1, 2)?.reshape([batch, length, width / 3])
}

impl Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = scope("c_fc", || self.c_fc.forward(x))?;
        let x = match self.activation {
            Activation::Gelu => x.gelu()?,
            Activation::GeluTanh => x.gelu_tanh()?,
            Activation::Relu => x.relu()?,
        };
        self.dropout
            .forward(&scope("c_proj", || self.c_proj.forward(&x))?)
    }
}

impl Block {
    fn new(engine: &Engine, config: &Gpt2Config) -> Result<Self> {
        let (width, inner) = (config.n_embd, config.inner());
        let std = config.initializer_range;
        // Residual projections start smaller by the square root of their number, as in GPT-2.
        let residual = std / (2.0 * config.n_layer as f64).sqrt();
        let norm = || LayerNorm::new(engine, width, config.layer_norm_epsilon);
        Ok(Self {
            ln_1: norm()?,
            attn: Attention {
                c_attn: Conv1d::new(engine, width, 3 * width, std)?,
                c_proj: Conv1d::new(engine, width, width, residual)?,
                resid_dropout: Dropout::new(config.resid_pdrop)?,
                heads: config.n_head,
            },
            ln_2: norm()?,
            mlp: Mlp {
                c_fc: Conv1d::new(engine, width, inner, std)?,
                c_proj: Conv1d::new(engine, inner, width, residual)?,
                dropout: Dropout::new(config.resid_pdrop)?,
                activation: config.activation().unwrap_or(Activation::GeluTanh),
            },
        })
    }

    fn forward(&self, x: &Tensor, packed: Option<&Packed<'_>>) -> Result<Tensor> {
        let y = scope("ln_1", || self.ln_1.forward(x))?;
        let x = x.add(&scope("attn", || self.attn.forward(&y, packed))?)?;
        let y = scope("ln_2", || self.ln_2.forward(&x))?;
        x.add(&scope("mlp", || self.mlp.forward(&y))?)
    }
}

impl Gpt2 {
    /// A model with initial weights as GPT-2's: normal deviates of `initializer_range`, smaller in
    /// residual projections; norms one; biases zero. The parameters carry their names.
    ///
    /// # Errors
    /// [`highwater::Error::State`] if there is no room.
    pub fn new(engine: &Engine, config: Gpt2Config) -> Result<Self> {
        let std = config.initializer_range as f32;
        let table = |rows| {
            Parameter::normal(engine, [rows, config.n_embd], std).map(|weight| Embedding { weight })
        };
        let transformer = Transformer {
            wte: table(config.vocab_size)?,
            wpe: table(config.n_positions)?,
            drop: Dropout::new(config.embd_pdrop)?,
            h: (0..config.n_layer)
                .map(|_| Block::new(engine, &config))
                .collect::<Result<_>>()?,
            ln_f: LayerNorm::new(engine, config.n_embd, config.layer_norm_epsilon)?,
        };
        let model = Self {
            transformer,
            config,
        };
        model.name_parameters();
        Ok(model)
    }

    /// The engine that the model belongs to.
    pub fn engine(&self) -> &Engine {
        self.transformer.wte.weight.engine()
    }

    /// The configuration.
    pub fn config(&self) -> &Gpt2Config {
        &self.config
    }

    /// Token ids `[B, T]` to hidden states `[B, T, C]`, after the last norm.
    ///
    /// # Errors
    /// [`highwater::Error`] if T is above `n_positions`; a token out of range stops the step.
    #[track_caller]
    pub fn hidden(&self, tokens: &Tensor) -> Result<Tensor> {
        Location::caller().at(|| self.blocks(tokens, None))
    }

    /// [`Gpt2::hidden`], of rows that hold one document or several.
    fn blocks(&self, tokens: &Tensor, packed: Option<&Packed<'_>>) -> Result<Tensor> {
        let t = &self.transformer;
        let length = tokens.dims().last().copied().unwrap_or(0);
        scope("transformer", || {
            let positions = match packed {
                Some(packed) => scope("wpe", || t.wpe.forward(packed.positions))?,
                None => t.wpe.weight.narrow(0, 0, length)?,
            };
            let x = scope("wte", || t.wte.forward(tokens))?.add(&positions)?;
            let mut x = t.drop.forward(&x)?;
            for (i, block) in t.h.iter().enumerate() {
                x = scope(&format!("h.{i}"), || block.forward(&x, packed))?;
            }
            scope("ln_f", || t.ln_f.forward(&x))
        })
    }

    /// Token ids `[B, T]` to logits `[B, T, V]`.
    ///
    /// # Errors
    /// As [`Gpt2::hidden`].
    #[track_caller]
    pub fn logits(&self, tokens: &Tensor) -> Result<Tensor> {
        Location::caller().at(|| self.head(&self.blocks(tokens, None)?))
    }

    fn head(&self, hidden: &Tensor) -> Result<Tensor> {
        scope("lm_head", || {
            hidden.linear(&self.transformer.wte.weight, None)
        })
    }

    /// Logits `[V]` of what follows position `at` of the first sequence of `tokens` `[1, T]`.
    ///
    /// # Errors
    /// As [`Gpt2::hidden`].
    #[track_caller]
    pub fn next_logits(&self, tokens: &Tensor, at: usize) -> Result<Tensor> {
        Location::caller().at(|| {
            let hidden = self.blocks(tokens, None)?.narrow(1, at, 1)?;
            self.head(&hidden)?.reshape([self.config.vocab_size])
        })
    }

    /// Mean cross-entropy of `targets` `[B, T]` after `tokens` `[B, T]`, in nats. Logits are never
    /// held.
    ///
    /// # Errors
    /// As [`Gpt2::hidden`].
    #[track_caller]
    pub fn loss(&self, tokens: &Tensor, targets: &Tensor) -> Result<Tensor> {
        Location::caller().at(|| {
            let hidden = self.blocks(tokens, None)?;
            self.loss_of(&hidden, targets)
        })
    }

    /// Mean cross-entropy of the targets that are not -100, of rows that hold several documents, none of which
    /// sees another. Rows may be longer than `n_positions`; documents may not.
    ///
    /// # Errors
    /// As [`crate::CausalLm::packed_loss`]; a position is out of range if it is not below `n_positions`.
    #[track_caller]
    pub fn packed_loss(&self, packed: &Packed<'_>) -> Result<Tensor> {
        Location::caller().at(|| {
            let hidden = self.blocks(packed.tokens, Some(packed))?;
            self.loss_of(&hidden, packed.targets)
        })
    }

    /// The loss of hidden states.
    fn loss_of(&self, hidden: &Tensor, targets: &Tensor) -> Result<Tensor> {
        scope("lm_head", || {
            hidden.linear_cross_entropy(&self.transformer.wte.weight, targets)
        })
    }
}
