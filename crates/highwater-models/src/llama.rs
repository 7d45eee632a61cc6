//! Llama (Touvron et al. 2023), with the names and layouts of Hugging Face's `LlamaForCausalLM`; Mistral
//! is the same with a sliding window.

use std::sync::{Mutex, PoisonError};

use highwater::nn::{Dropout, Embedding, Linear, Module, RmsNorm};
use highwater::{Engine, Location, Parameter, Result, Tensor, scope};

use crate::LlamaConfig;

/// Llama with its language-model head, which may be the token embedding again.
#[derive(Debug, Module)]
pub struct Llama {
    model: Decoder,
    lm_head: Option<Linear>,
    #[module(skip)]
    config: LlamaConfig,
    #[module(skip)]
    rotation: Mutex<Option<Rotation>>,
}

#[derive(Debug, Module)]
struct Decoder {
    embed_tokens: Embedding,
    layers: Vec<Block>,
    norm: RmsNorm,
}

#[derive(Debug, Module)]
struct Block {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
    dropout: Dropout,
}

#[derive(Debug, Module)]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    #[module(skip)]
    head_width: usize,
    #[module(skip)]
    window: Option<usize>,
}

#[expect(clippy::struct_field_names, reason = "Hugging Face's names")]
#[derive(Debug, Module)]
struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

/// Cosines and sines of the positions of a sequence.
#[derive(Clone, Debug)]
struct Rotation {
    length: usize,
    cos: Tensor,
    sin: Tensor,
}

impl Attention {
    fn new(engine: &Engine, config: &LlamaConfig) -> Result<Self> {
        let (width, head_width) = (config.hidden_size, config.head_width());
        let queries = config.num_attention_heads * head_width;
        let keys = config.num_key_value_heads * head_width;
        let projection =
            |inputs, outputs| linear(engine, config, inputs, outputs, config.attention_bias);
        Ok(Self {
            q_proj: projection(width, queries)?,
            k_proj: projection(width, keys)?,
            v_proj: projection(width, keys)?,
            o_proj: projection(queries, width)?,
            head_width,
            window: config.sliding_window,
        })
    }

    fn forward(&self, x: &Tensor, rotation: &Rotation) -> Result<Tensor> {
        let heads = |name: &str, projection: &Linear| {
            let y = scope(name, || projection.forward(x))?;
            let &[batch, length, width] = y.dims() else {
                return Ok(y);
            };
            let heads = width / self.head_width;
            y.reshape([batch, length, heads, self.head_width])?
                .transpose(1, 2)
        };
        let rotate = |x: Tensor| x.rotary(&rotation.cos, &rotation.sin, false);
        let q = rotate(heads("q_proj", &self.q_proj)?)?;
        let k = rotate(heads("k_proj", &self.k_proj)?)?;
        let v = heads("v_proj", &self.v_proj)?;
        let y = match self.window.filter(|&window| window < rotation.length) {
            Some(window) => q.sliding_window_attention(&k, &v, window)?,
            None => q.scaled_dot_product_attention(&k, &v, true)?,
        };
        let y = y.transpose(1, 2)?;
        let merged = [y.dims()[0], y.dims()[1], y.dims()[2] * y.dims()[3]];
        let y = y.reshape(merged)?;
        scope("o_proj", || self.o_proj.forward(&y))
    }
}

impl Mlp {
    fn new(engine: &Engine, config: &LlamaConfig) -> Result<Self> {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let projection = |inputs, outputs| linear(engine, config, inputs, outputs, config.mlp_bias);
        Ok(Self {
            gate_proj: projection(width, inner)?,
            up_proj: projection(width, inner)?,
            down_proj: projection(inner, width)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let gate = scope("gate_proj", || self.gate_proj.forward(x))?;
        let up = scope("up_proj", || self.up_proj.forward(x))?;
        let y = gate.swiglu(&up)?;
        scope("down_proj", || self.down_proj.forward(&y))
    }
}

/// A projection with weights as Llama's at the start, and a bias of zeros if there is one.
fn linear(
    engine: &Engine,
    config: &LlamaConfig,
    inputs: usize,
    outputs: usize,
    bias: bool,
) -> Result<Linear> {
    let bias = bias.then(|| Parameter::new(engine, [outputs], |_| {}));
    Ok(Linear {
        weight: Parameter::normal(engine, [outputs, inputs], config.initializer_range as f32)?,
        bias: bias.transpose()?,
    })
}

impl Block {
    fn new(engine: &Engine, config: &LlamaConfig) -> Result<Self> {
        let norm = || RmsNorm::new(engine, config.hidden_size, config.rms_norm_eps);
        Ok(Self {
            input_layernorm: norm()?,
            self_attn: Attention::new(engine, config)?,
            post_attention_layernorm: norm()?,
            mlp: Mlp::new(engine, config)?,
            dropout: Dropout::new(config.attention_dropout)?,
        })
    }

    fn forward(&self, x: &Tensor, rotation: &Rotation) -> Result<Tensor> {
        let y = scope("input_layernorm", || self.input_layernorm.forward(x))?;
        let y = scope("self_attn", || self.self_attn.forward(&y, rotation))?;
        let x = x.add(&self.dropout.forward(&y)?)?;
        let norm = &self.post_attention_layernorm;
        let y = scope("post_attention_layernorm", || norm.forward(&x))?;
        let y = scope("mlp", || self.mlp.forward(&y))?;
        x.add(&self.dropout.forward(&y)?)
    }
}

impl Llama {
    /// A model with initial weights as Llama's: normal deviates of `initializer_range`; norms one; biases
    /// zero. The parameters carry their names.
    ///
    /// # Errors
    /// [`highwater::Error::State`] if there is no room.
    pub fn new(engine: &Engine, config: LlamaConfig) -> Result<Self> {
        let (vocabulary, width) = (config.vocab_size, config.hidden_size);
        let weight =
            Parameter::normal(engine, [vocabulary, width], config.initializer_range as f32)?;
        let layers = (0..config.num_hidden_layers).map(|_| Block::new(engine, &config));
        let decoder = Decoder {
            embed_tokens: Embedding { weight },
            layers: layers.collect::<Result<_>>()?,
            norm: RmsNorm::new(engine, width, config.rms_norm_eps)?,
        };
        let head = || linear(engine, &config, width, vocabulary, false);
        let model = Self {
            model: decoder,
            lm_head: (!config.tie_word_embeddings).then(head).transpose()?,
            config,
            rotation: Mutex::default(),
        };
        model.name_parameters();
        Ok(model)
    }

    /// The engine that the model belongs to.
    pub fn engine(&self) -> &Engine {
        self.model.embed_tokens.weight.engine()
    }

    /// The configuration.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// Token ids `[B, T]` to hidden states `[B, T, C]`, after the last norm.
    ///
    /// # Errors
    /// [`highwater::Error`] if there is no room for the tables of positions; a token out of range stops the
    /// step.
    #[track_caller]
    pub fn hidden(&self, tokens: &Tensor) -> Result<Tensor> {
        Location::caller().at(|| self.blocks(tokens))
    }

    fn blocks(&self, tokens: &Tensor) -> Result<Tensor> {
        let model = &self.model;
        let rotation = self.rotation(tokens.dims().last().copied().unwrap_or(0))?;
        scope("model", || {
            let mut x = scope("embed_tokens", || model.embed_tokens.forward(tokens))?;
            for (i, block) in model.layers.iter().enumerate() {
                x = scope(&format!("layers.{i}"), || block.forward(&x, &rotation))?;
            }
            scope("norm", || model.norm.forward(&x))
        })
    }

    /// Tables for sequences of a length: those of the last one are kept.
    fn rotation(&self, length: usize) -> Result<Rotation> {
        let mut kept = self.rotation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rotation) = kept.as_ref().filter(|kept| kept.length == length) {
            return Ok(rotation.clone());
        }
        // Before there is room for others.
        *kept = None;
        let (engine, rope) = (self.engine(), self.config.rope());
        let [cos, sin] = rope.tables(length);
        let shape = [length, rope.width / 2];
        let rotation = Rotation {
            length,
            cos: Tensor::from_slice(engine, &cos, shape)?,
            sin: Tensor::from_slice(engine, &sin, shape)?,
        };
        Ok(kept.insert(rotation).clone())
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
    /// As [`Llama::hidden`].
    #[track_caller]
    pub fn logits(&self, tokens: &Tensor) -> Result<Tensor> {
        Location::caller().at(|| {
            let hidden = self.blocks(tokens)?;
            scope("lm_head", || hidden.linear(self.head(), None))
        })
    }

    /// Logits `[V]` of what follows position `at` of the first sequence of `tokens` `[1, T]`.
    ///
    /// # Errors
    /// As [`Llama::hidden`].
    #[track_caller]
    pub fn next_logits(&self, tokens: &Tensor, at: usize) -> Result<Tensor> {
        Location::caller().at(|| {
            let hidden = self.blocks(tokens)?.narrow(1, at, 1)?;
            let logits = scope("lm_head", || hidden.linear(self.head(), None))?;
            logits.reshape([self.config.vocab_size])
        })
    }

    /// Mean cross-entropy of `targets` `[B, T]` after `tokens` `[B, T]`, in nats. Logits are never held.
    ///
    /// # Errors
    /// As [`Llama::hidden`].
    #[track_caller]
    pub fn loss(&self, tokens: &Tensor, targets: &Tensor) -> Result<Tensor> {
        Location::caller().at(|| {
            let hidden = self.blocks(tokens)?;
            scope("lm_head", || {
                hidden.linear_cross_entropy(self.head(), targets)
            })
        })
    }
}
