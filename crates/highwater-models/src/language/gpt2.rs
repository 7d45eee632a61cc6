//! GPT-2 (Radford et al. 2019), with the names and layouts of Hugging Face's `GPT2LMHeadModel`.

use std::sync::Arc;

use crate::language::cache::{Cached, CachedLayer, KeyValueShape};
use crate::language::causal::{Architecture, CausalLm, Packed};
use crate::language::config::{Activation, Gpt2Config};
use crate::language::loss::linear_loss;
use highwater::nn::{Dropout, Embedding, LayerNorm, Module, TransposedLinear, self_attention};
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
    c_attn: TransposedLinear,
    c_proj: TransposedLinear,
    resid_dropout: Dropout,
    #[module(skip)]
    heads: usize,
}

#[derive(Debug, Module)]
struct Mlp {
    c_fc: TransposedLinear,
    c_proj: TransposedLinear,
    dropout: Dropout,
    #[module(skip)]
    activation: Activation,
}

/// What blocks are told of rows of tokens.
#[derive(Debug, Clone, Copy)]
enum Rows<'a> {
    /// Each is one document.
    Whole,
    Packed(&'a Packed<'a>),
    Cached(&'a Cached<'a>),
}

/// What one block is told.
#[derive(Debug, Clone, Copy)]
enum Seen<'a> {
    Whole,
    /// Documents of these lengths, `[B, N]`.
    Packed(&'a Tensor),
    Cached(CachedLayer<'a>),
}

impl<'a> Rows<'a> {
    /// For a block.
    fn seen(self, index: usize) -> Result<Seen<'a>> {
        Ok(match self {
            Self::Whole => Seen::Whole,
            Self::Packed(packed) => Seen::Packed(packed.lengths),
            Self::Cached(cached) => Seen::Cached(cached.layer(index)?),
        })
    }

    /// Positions of the tokens, if they are not those from 0 on.
    fn positions(self) -> Option<&'a Tensor> {
        match self {
            Self::Whole => None,
            Self::Packed(packed) => Some(packed.positions),
            Self::Cached(cached) => cached.position(),
        }
    }
}

impl Attention {
    fn forward(&self, x: &Tensor, seen: Seen<'_>) -> Result<Tensor> {
        let qkv = scope("c_attn", || self.c_attn.forward(x))?;
        let y = match seen {
            Seen::Whole => None,
            Seen::Packed(lengths) => {
                let [q, k, v] = split(&qkv, self.heads)?;
                Some(q.document_attention(&k, &v, lengths, true, None)?)
            }
            Seen::Cached(layer) => {
                let [q, k, v] = split(&qkv, self.heads)?;
                layer.attend([&q, &k, &v], None, None)?
            }
        };
        let y = match y {
            Some(y) => y.transpose(1, 2)?.reshape(x.shape().clone())?,
            None => self_attention(&qkv, self.heads)?,
        };
        self.resid_dropout
            .forward(&scope("c_proj", || self.c_proj.forward(&y))?)
    }
}

/// Queries, keys and values `[B, H, T, D]` of a packed projection `[B, T, 3C]`.
fn split(qkv: &Tensor, heads: usize) -> Result<[Tensor; 3]> {
    let [batch, length, width] = [0, 1, 2].map(|dim| qkv.dims()[dim]);
    let width = width / 3;
    let part = |start| {
        qkv.narrow(2, start, width)?
            .reshape([batch, length, heads, width / heads])?
            .transpose(1, 2)
    };
    Ok([part(0)?, part(width)?, part(2 * width)?])
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
                c_attn: TransposedLinear::new(engine, width, 3 * width, std as f32)?,
                c_proj: TransposedLinear::new(engine, width, width, residual as f32)?,
                resid_dropout: Dropout::new(config.resid_pdrop)?,
                heads: config.n_head,
            },
            ln_2: norm()?,
            mlp: Mlp {
                c_fc: TransposedLinear::new(engine, width, inner, std as f32)?,
                c_proj: TransposedLinear::new(engine, inner, width, residual as f32)?,
                dropout: Dropout::new(config.resid_pdrop)?,
                activation: config.activation().unwrap_or(Activation::GeluTanh),
            },
        })
    }

    fn forward(&self, x: &Tensor, seen: Seen<'_>) -> Result<Tensor> {
        let y = scope("ln_1", || self.ln_1.forward(x))?;
        let x = x.add(&scope("attn", || self.attn.forward(&y, seen))?)?;
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
        Location::caller().at(|| self.blocks(tokens, Rows::Whole))
    }

    /// [`Gpt2::hidden`], of rows that hold one document or several, or go on with what is kept.
    fn blocks(&self, tokens: &Tensor, rows: Rows<'_>) -> Result<Tensor> {
        let t = &self.transformer;
        let length = tokens.dims().last().copied().unwrap_or(0);
        scope("transformer", || {
            let positions = match rows.positions() {
                Some(positions) => scope("wpe", || t.wpe.forward(positions))?,
                None => t.wpe.weight.narrow(0, 0, length)?,
            };
            let x = scope("wte", || t.wte.forward(tokens))?.add(&positions)?;
            let mut x = t.drop.forward(&x)?;
            for (i, block) in t.h.iter().enumerate() {
                let seen = rows.seen(i)?;
                x = scope(&format!("h.{i}"), || block.forward(&x, seen))?;
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
        Location::caller().at(|| self.head(&self.blocks(tokens, Rows::Whole)?))
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
        Location::caller().at(|| self.logits_at(tokens, at, Rows::Whole))
    }

    /// [`Gpt2::next_logits`] beside keys and values that are kept: see [`crate::CausalLm::cached_logits`].
    ///
    /// # Errors
    /// As [`crate::CausalLm::cached_logits`].
    #[track_caller]
    pub fn cached_logits(&self, tokens: &Tensor, at: usize, cached: &Cached<'_>) -> Result<Tensor> {
        Location::caller().at(|| self.logits_at(tokens, at, Rows::Cached(cached)))
    }

    fn logits_at(&self, tokens: &Tensor, at: usize, rows: Rows<'_>) -> Result<Tensor> {
        let hidden = self.blocks(tokens, rows)?.narrow(1, at, 1)?;
        self.head(&hidden)?.reshape([self.config.vocab_size])
    }

    /// What each block keeps of a token.
    pub fn key_values(&self) -> Vec<KeyValueShape> {
        let shape = KeyValueShape {
            heads: self.config.n_head,
            width: self.config.n_embd / self.config.n_head,
            window: None,
        };
        vec![shape; self.config.n_layer]
    }

    /// Mean cross-entropy of `targets` `[B, T]` after `tokens` `[B, T]`, in nats. Logits are never
    /// held.
    ///
    /// # Errors
    /// As [`Gpt2::hidden`].
    #[track_caller]
    pub fn loss(&self, tokens: &Tensor, targets: &Tensor) -> Result<Tensor> {
        self.smoothed_loss(tokens, targets, 0.0)
    }

    /// [`Gpt2::loss`] with label smoothing: see [`CausalLm::smoothed_loss`].
    ///
    /// # Errors
    /// As [`Gpt2::hidden`].
    #[track_caller]
    pub fn smoothed_loss(
        &self,
        tokens: &Tensor,
        targets: &Tensor,
        label_smoothing: f64,
    ) -> Result<Tensor> {
        Location::caller().at(|| {
            let hidden = self.blocks(tokens, Rows::Whole)?;
            self.loss_of(&hidden, targets, label_smoothing)
        })
    }

    /// Mean cross-entropy of the targets that are not -100, of rows that hold several documents, none of which
    /// sees another. Rows may be longer than `n_positions`; documents may not.
    ///
    /// # Errors
    /// As [`CausalLm::packed_loss`]; a position is out of range if it is not below `n_positions`.
    #[track_caller]
    pub fn packed_loss(&self, packed: &Packed<'_>) -> Result<Tensor> {
        self.smoothed_packed_loss(packed, 0.0)
    }

    /// [`Gpt2::packed_loss`] with label smoothing: see [`CausalLm::smoothed_loss`].
    ///
    /// # Errors
    /// As [`Gpt2::packed_loss`].
    #[track_caller]
    pub fn smoothed_packed_loss(
        &self,
        packed: &Packed<'_>,
        label_smoothing: f64,
    ) -> Result<Tensor> {
        Location::caller().at(|| {
            let hidden = self.blocks(packed.tokens, Rows::Packed(packed))?;
            self.loss_of(&hidden, packed.targets, label_smoothing)
        })
    }

    /// The loss of hidden states.
    fn loss_of(&self, hidden: &Tensor, targets: &Tensor, label_smoothing: f64) -> Result<Tensor> {
        let head = &self.transformer.wte.weight;
        scope("lm_head", || {
            linear_loss(hidden, head, targets, label_smoothing)
        })
    }
}

impl CausalLm for Gpt2 {
    fn engine(&self) -> &Engine {
        Self::engine(self)
    }

    fn architecture(&self) -> &dyn Architecture {
        self.config()
    }

    fn smoothed_loss(
        &self,
        tokens: &Tensor,
        targets: &Tensor,
        label_smoothing: f64,
    ) -> Result<Tensor> {
        Self::smoothed_loss(self, tokens, targets, label_smoothing)
    }

    fn smoothed_packed_loss(&self, packed: &Packed<'_>, label_smoothing: f64) -> Result<Tensor> {
        Self::smoothed_packed_loss(self, packed, label_smoothing)
    }

    fn next_logits(&self, tokens: &Tensor, at: usize) -> Result<Tensor> {
        Self::next_logits(self, tokens, at)
    }

    fn key_values(&self) -> Option<Vec<KeyValueShape>> {
        Some(Self::key_values(self))
    }

    fn cached_logits(&self, tokens: &Tensor, at: usize, cached: &Cached<'_>) -> Result<Tensor> {
        Self::cached_logits(self, tokens, at, cached)
    }
}

impl Architecture for Gpt2Config {
    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn max_length(&self) -> usize {
        self.n_positions
    }

    fn depth(&self) -> usize {
        self.n_layer
    }

    fn parameter_count(&self) -> u64 {
        Self::parameter_count(self)
    }

    fn base_prefix(&self) -> &'static str {
        "transformer."
    }

    fn layer_prefix(&self) -> &'static str {
        "transformer.h."
    }

    fn embedding_name(&self) -> &'static str {
        "transformer.wte.weight"
    }

    fn max_length_field(&self) -> &'static str {
        "n_positions"
    }

    fn dropout(&self) -> f64 {
        self.resid_pdrop.max(self.embd_pdrop).max(self.attn_pdrop)
    }

    fn with_dropout(&self, probability: f64) -> Arc<dyn Architecture> {
        Arc::new(Self::with_dropout(self.clone(), probability))
    }

    fn to_json(&self) -> String {
        Self::to_json(self)
    }

    fn build(&self, engine: &Engine) -> Result<Box<dyn CausalLm>> {
        Ok(Box::new(Gpt2::new(engine, self.clone())?))
    }
}
