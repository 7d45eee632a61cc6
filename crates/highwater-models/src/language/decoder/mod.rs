//! Decoders: Llama (Touvron et al. 2023) and those that are made like it, with the names and layouts of Hugging
//! Face's classes. What sets families apart is in [`DecoderShape`](crate::config::DecoderShape), which their
//! `config.json`s fill in.

mod attention;
mod causal;
mod projection;
mod rows;

use highwater::nn::{Dropout, Embedding, Module, QuantizedLinear};
use highwater::op::WeightFormat;
use highwater::{DType, Engine, Location, Parameter, Result, Tensor, scope};

use crate::language::cache::{Cached, CachedLayer, KeyValueShape};
#[cfg(doc)]
use crate::language::causal::CausalLm;
use crate::language::causal::Packed;
use crate::language::config::DecoderConfig;
use crate::language::config::decoder::{DecoderLayer, Gate};
use crate::language::loss::{linear_loss, loss_of_logits};
use crate::language::rope::Rope;

use attention::Attention;
use projection::{Maker, Projection};
use rows::{Rows, Tables, of_longest};

/// A decoder with its language-model head, which may be the token embedding again.
#[derive(Debug, Module)]
pub struct Decoder {
    model: Stack,
    lm_head: Option<Head>,
    #[module(skip)]
    config: DecoderConfig,
    #[module(skip)]
    tables: Tables,
}

/// What logits are made with. It is read by losses, and no layer of its own: adapters leave it out, as PEFT's do.
#[derive(Debug, Module)]
struct Head {
    weight: Parameter,
}

#[derive(Debug, Module)]
struct Stack {
    embed_tokens: Embedding,
    layers: Vec<Block>,
    norm: Norm,
}

#[derive(Debug, Module)]
struct Block {
    input_layernorm: Norm,
    self_attn: Attention,
    post_attention_layernorm: Norm,
    pre_feedforward_layernorm: Option<Norm>,
    post_feedforward_layernorm: Option<Norm>,
    mlp: Mlp,
    dropout: Dropout,
}

/// RMS norm, by a weight or by what is added to 1.
#[derive(Debug, Module)]
struct Norm {
    weight: Parameter,
    #[module(skip)]
    eps: f64,
    #[module(skip)]
    adds_one: bool,
}

#[derive(Debug, Module)]
struct Mlp {
    gate_proj: Option<Projection>,
    up_proj: Option<Projection>,
    /// Instead of the two.
    gate_up_proj: Option<Projection>,
    down_proj: Projection,
    #[module(skip)]
    gate: Gate,
}

impl Norm {
    fn new(Maker { engine, shape, .. }: Maker<'_>, width: usize) -> Result<Self> {
        let first = if shape.norms_add_one { 0.0 } else { 1.0 };
        Ok(Self {
            weight: Parameter::new(engine, [width], |w| w.fill(first))?,
            eps: shape.rms_norm_eps,
            adds_one: shape.norms_add_one,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.adds_one {
            if self.weight.dtype() == DType::F32 {
                return x.rms_norm(Some(&self.weight.add_scalar(1.0)?), self.eps);
            }
            // Beside 1 the digits of a weight in half precision would be lost.
            let weight = self.weight.to_dtype(DType::F32)?.add_scalar(1.0)?;
            let y = x.to_dtype(DType::F32)?.rms_norm(Some(&weight), self.eps)?;
            return y.to_dtype(x.dtype());
        }
        x.rms_norm(Some(&self.weight), self.eps)
    }
}

impl Mlp {
    fn new(make: Maker<'_>) -> Result<Self> {
        let shape = make.shape;
        let (width, inner) = (shape.hidden_size, shape.intermediate_size);
        let project = |inputs, outputs| make.project([inputs, outputs], shape.biases.mlp);
        let apart = || (!shape.is_fused).then(|| project(width, inner)).transpose();
        let both = shape.is_fused.then(|| project(width, 2 * inner));
        Ok(Self {
            gate_proj: apart()?,
            up_proj: apart()?,
            gate_up_proj: both.transpose()?,
            down_proj: project(inner, width)?,
            gate: shape.gate,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [gate, up] = if let Some(both) = &self.gate_up_proj {
            let y = scope("gate_up_proj", || both.forward(x))?;
            let inner = y.dims()[2] / 2;
            [y.narrow(-1, 0, inner)?, y.narrow(-1, inner, inner)?]
        } else {
            let project = |name: &str, projection: &Option<Projection>| {
                scope(name, || existing(projection.as_ref())?.forward(x))
            };
            [
                project("gate_proj", &self.gate_proj)?,
                project("up_proj", &self.up_proj)?,
            ]
        };
        let y = match self.gate {
            Gate::Silu => gate.swiglu(&up)?,
            Gate::Gelu => gate.gelu()?.mul(&up)?,
            Gate::GeluTanh => gate.gelu_tanh()?.mul(&up)?,
        };
        scope("down_proj", || self.down_proj.forward(&y))
    }
}

impl Mlp {
    /// Its projections, by name.
    fn projections(&self) -> [(&'static str, Option<&Projection>); 4] {
        [
            ("gate_proj", self.gate_proj.as_ref()),
            ("up_proj", self.up_proj.as_ref()),
            ("gate_up_proj", self.gate_up_proj.as_ref()),
            ("down_proj", Some(&self.down_proj)),
        ]
    }
}

/// A layer that a model's shape has.
fn existing(layer: Option<&Projection>) -> Result<&Projection> {
    layer.ok_or_else(|| highwater::Error::Internal("a projection is missing".into()))
}

impl Block {
    fn new(make: Maker<'_>, layer: DecoderLayer) -> Result<Self> {
        let shape = make.shape;
        let norm = || Norm::new(make, shape.hidden_size);
        let post = || shape.has_post_norms.then(norm).transpose();
        Ok(Self {
            input_layernorm: norm()?,
            self_attn: Attention::new(make, layer)?,
            post_attention_layernorm: norm()?,
            pre_feedforward_layernorm: post()?,
            post_feedforward_layernorm: post()?,
            mlp: Mlp::new(make)?,
            dropout: Dropout::new(shape.dropout)?,
        })
    }

    fn forward(
        &self,
        x: &Tensor,
        rows: &Rows<'_>,
        kept: Option<CachedLayer<'_>>,
    ) -> Result<Tensor> {
        let named = |name: &str, norm: &Norm, x: &Tensor| scope(name, || norm.forward(x));
        let after = &self.post_attention_layernorm;
        let y = named("input_layernorm", &self.input_layernorm, x)?;
        let mut y = scope("self_attn", || self.self_attn.forward(&y, rows, kept))?;
        let before_mlp = match &self.pre_feedforward_layernorm {
            Some(before) => {
                y = named("post_attention_layernorm", after, &y)?;
                ("pre_feedforward_layernorm", before)
            }
            None => ("post_attention_layernorm", after),
        };
        let x = x.add(&self.dropout.forward(&y)?)?;
        let y = named(before_mlp.0, before_mlp.1, &x)?;
        let mut y = scope("mlp", || self.mlp.forward(&y))?;
        if let Some(norm) = &self.post_feedforward_layernorm {
            y = named("post_feedforward_layernorm", norm, &y)?;
        }
        x.add(&self.dropout.forward(&y)?)
    }
}

impl Decoder {
    /// A model with initial weights as Llama's: normal deviates of `initializer_range`; norms one; biases
    /// zero. The parameters carry their names.
    ///
    /// # Errors
    /// [`highwater::Error::State`] if there is no room.
    pub fn new(engine: &Engine, config: DecoderConfig) -> Result<Self> {
        Self::make(engine, config, None)
    }

    /// The same with the weights of its projections held in few bits, and zero: [`Decoder::held`] has them filled.
    /// They do not train; adapters beside them do. Embeddings, norms and the head stay what they are.
    ///
    /// # Errors
    /// As [`Decoder::new`].
    pub fn quantized(engine: &Engine, config: DecoderConfig, format: WeightFormat) -> Result<Self> {
        Self::make(engine, config, Some(format))
    }

    fn make(engine: &Engine, config: DecoderConfig, format: Option<WeightFormat>) -> Result<Self> {
        let shape = config.shape();
        let make = Maker {
            engine,
            shape,
            format,
        };
        let (vocabulary, width) = (shape.vocab_size, shape.hidden_size);
        let weight =
            Parameter::normal(engine, [vocabulary, width], shape.initializer_range as f32)?;
        let layers = shape.layers.iter().map(|&layer| Block::new(make, layer));
        let stack = Stack {
            embed_tokens: Embedding { weight },
            layers: layers.collect::<Result<_>>()?,
            norm: Norm::new(make, width)?,
        };
        let head = || {
            let weight =
                Parameter::normal(engine, [vocabulary, width], shape.initializer_range as f32)?;
            Ok::<_, highwater::Error>(Head { weight })
        };
        let model = Self {
            model: stack,
            lm_head: (!shape.tie_word_embeddings).then(head).transpose()?,
            config,
            tables: Tables::default(),
        };
        model.name_parameters();
        Ok(model)
    }

    /// The layers whose weights are held in few bits, by name.
    pub fn held(&self) -> Vec<(String, QuantizedLinear)> {
        let mut held = Vec::new();
        for (i, block) in self.model.layers.iter().enumerate() {
            let attention = block.self_attn.projections().map(|of| ("self_attn", of));
            let mlp = block.mlp.projections().map(|of| ("mlp", of));
            for (part, (name, projection)) in attention.into_iter().chain(mlp) {
                if let Some(layer) = projection.and_then(Projection::held) {
                    held.push((format!("model.layers.{i}.{part}.{name}"), layer.clone()));
                }
            }
        }
        held
    }

    /// The engine that the model belongs to.
    pub fn engine(&self) -> &Engine {
        self.model.embed_tokens.weight.engine()
    }

    /// The configuration.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Token ids `[B, T]` to hidden states `[B, T, C]`, after the last norm.
    ///
    /// # Errors
    /// [`highwater::Error`] if there is no room for the tables of positions; a token out of range stops the
    /// step.
    #[track_caller]
    pub fn hidden(&self, tokens: &Tensor) -> Result<Tensor> {
        Location::caller().at(|| self.blocks(tokens, &self.whole(tokens)?))
    }

    /// [`Decoder::hidden`], of rows that are whole or hold several documents, or go on with what is kept.
    fn blocks(&self, tokens: &Tensor, rows: &Rows<'_>) -> Result<Tensor> {
        let model = &self.model;
        scope("model", || {
            let mut x = scope("embed_tokens", || model.embed_tokens.forward(tokens))?;
            if let Some(scale) = self.config.shape().embedding_scale {
                x = x.mul_scalar(scale)?;
            }
            for (i, block) in model.layers.iter().enumerate() {
                let kept = rows.kept(i)?;
                x = scope(&format!("layers.{i}"), || block.forward(&x, rows, kept))?;
            }
            scope("norm", || model.norm.forward(&x))
        })
    }

    /// What blocks are told of rows that are one document each.
    fn whole(&self, tokens: &Tensor) -> Result<Rows<'static>> {
        let length = tokens.dims().last().copied().unwrap_or(0);
        Ok(Rows::whole(self.tables([length, length])?))
    }

    /// What blocks are told of rows of several documents.
    fn packed(&self, packed: &Packed<'_>) -> Result<Rows<'static>> {
        let length = packed.tokens.dims().last().copied().unwrap_or(0);
        let ropes = &self.config.shape().ropes;
        let long = self.tables([length, length])?;
        let least = ropes.iter().filter_map(Rope::switches_behind).min();
        let short = least.filter(|&least| least < length);
        let short = short.map(|_| self.tables([length, 0])).transpose()?;
        scope("model.rotary_emb", || {
            let tables = match short {
                Some(short) => of_longest(ropes, [short, long], packed)?,
                None => long,
            };
            Rows::packed(&tables, packed, self.config.shape().score_cap.is_some())
        })
    }

    /// Gives back the tables of positions, which are made again when they are needed.
    pub fn release(&self) {
        self.tables.clear();
    }

    /// Cosines and sines of so many positions, of sequences of so many tokens.
    fn tables(&self, [length, seen]: [usize; 2]) -> Result<Vec<[Tensor; 2]>> {
        let ropes = &self.config.shape().ropes;
        self.tables.of(self.engine(), ropes, [length, seen])
    }

    /// Logits of hidden states.
    fn logits_of(&self, hidden: &Tensor) -> Result<Tensor> {
        let logits = scope("lm_head", || hidden.linear(self.head(), None))?;
        match self.config.shape().logit_cap {
            Some(cap) => logits.mul_scalar(1.0 / cap)?.tanh()?.mul_scalar(cap),
            None => Ok(logits),
        }
    }

    /// What logits are made with: `[V, C]`.
    fn head(&self) -> &Parameter {
        match &self.lm_head {
            Some(head) => &head.weight,
            None => &self.model.embed_tokens.weight,
        }
    }

    /// Token ids `[B, T]` to logits `[B, T, V]`.
    ///
    /// # Errors
    /// As [`Decoder::hidden`].
    #[track_caller]
    pub fn logits(&self, tokens: &Tensor) -> Result<Tensor> {
        Location::caller().at(|| {
            let hidden = self.blocks(tokens, &self.whole(tokens)?)?;
            self.logits_of(&hidden)
        })
    }

    /// Logits `[V]` of what follows position `at` of the first sequence of `tokens` `[1, T]`.
    ///
    /// # Errors
    /// As [`Decoder::hidden`].
    #[track_caller]
    pub fn next_logits(&self, tokens: &Tensor, at: usize) -> Result<Tensor> {
        Location::caller().at(|| {
            let length = tokens.dims().last().copied().unwrap_or(0);
            // What stands behind it only fills the row up.
            let rows = Rows::whole(self.tables([length, at + 1])?);
            self.logits_at(tokens, at, &rows)
        })
    }

    /// [`Decoder::next_logits`] beside keys and values that are kept: see [`crate::CausalLm::cached_logits`].
    ///
    /// # Errors
    /// As [`crate::CausalLm::cached_logits`].
    #[track_caller]
    pub fn cached_logits(&self, tokens: &Tensor, at: usize, cached: &Cached<'_>) -> Result<Tensor> {
        Location::caller().at(|| {
            let tables = self.tables([cached.length(), cached.tokens()])?;
            let rows = scope("model.rotary_emb", || Rows::cached(tables, cached))?;
            self.logits_at(tokens, at, &rows)
        })
    }

    fn logits_at(&self, tokens: &Tensor, at: usize, rows: &Rows<'_>) -> Result<Tensor> {
        let hidden = self.blocks(tokens, rows)?.narrow(1, at, 1)?;
        let logits = self.logits_of(&hidden)?;
        logits.reshape([self.config.shape().vocab_size])
    }

    /// What each block keeps of a token.
    pub fn key_values(&self) -> Vec<KeyValueShape> {
        let shape = self.config.shape();
        let of = |layer: &DecoderLayer| KeyValueShape {
            heads: shape.num_key_value_heads,
            width: shape.head_dim,
            window: layer.window,
        };
        shape.layers.iter().map(of).collect()
    }

    /// Mean cross-entropy of `targets` `[B, T]` after `tokens` `[B, T]`, in nats. Logits are never held; where they
    /// are capped, those of some rows at a time are.
    ///
    /// # Errors
    /// As [`Decoder::hidden`].
    #[track_caller]
    pub fn loss(&self, tokens: &Tensor, targets: &Tensor) -> Result<Tensor> {
        self.smoothed_loss(tokens, targets, 0.0)
    }

    /// [`Decoder::loss`] with label smoothing: see [`CausalLm::smoothed_loss`].
    ///
    /// # Errors
    /// As [`Decoder::hidden`].
    #[track_caller]
    pub fn smoothed_loss(
        &self,
        tokens: &Tensor,
        targets: &Tensor,
        label_smoothing: f64,
    ) -> Result<Tensor> {
        Location::caller().at(|| {
            let hidden = self.blocks(tokens, &self.whole(tokens)?)?;
            self.loss_of(&hidden, targets, label_smoothing)
        })
    }

    /// Mean cross-entropy of the targets that are not -100, of rows that hold several documents, none of which
    /// sees another. As Hugging Face has it with `position_ids` that begin anew in each document: where rotations
    /// depend on the length of a sequence (LongRoPE), that is the longest document's of the batch, without padding.
    ///
    /// # Errors
    /// As [`CausalLm::packed_loss`]; a position is out of range if it is not below T.
    #[track_caller]
    pub fn packed_loss(&self, packed: &Packed<'_>) -> Result<Tensor> {
        self.smoothed_packed_loss(packed, 0.0)
    }

    /// [`Decoder::packed_loss`] with label smoothing: see [`CausalLm::smoothed_loss`].
    ///
    /// # Errors
    /// As [`Decoder::packed_loss`].
    #[track_caller]
    pub fn smoothed_packed_loss(
        &self,
        packed: &Packed<'_>,
        label_smoothing: f64,
    ) -> Result<Tensor> {
        Location::caller().at(|| {
            let hidden = self.blocks(packed.tokens, &self.packed(packed)?)?;
            self.loss_of(&hidden, packed.targets, label_smoothing)
        })
    }

    /// The loss of hidden states.
    fn loss_of(&self, hidden: &Tensor, targets: &Tensor, label_smoothing: f64) -> Result<Tensor> {
        if self.config.shape().logit_cap.is_none() {
            return scope("lm_head", || {
                linear_loss(hidden, self.head(), targets, label_smoothing)
            });
        }
        let vocab_size = self.config.shape().vocab_size;
        let logits = |hidden: &Tensor| self.logits_of(hidden);
        loss_of_logits(hidden, targets, label_smoothing, (vocab_size, logits))
    }
}
