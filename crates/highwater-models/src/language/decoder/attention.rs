//! Attention of decoders: projections apart or fused, norms of heads, rotation, windows, capped scores.

use highwater::nn::Module;
use highwater::{DType, Result, Tensor, scope};

use super::projection::{Maker, Projection};
use super::rows::{Documents, Rows};
use super::{Norm, existing};
use crate::language::cache::CachedLayer;
use crate::language::config::decoder::DecoderLayer;

#[derive(Debug, Module)]
pub(super) struct Attention {
    q_proj: Option<Projection>,
    k_proj: Option<Projection>,
    v_proj: Option<Projection>,
    /// Instead of the three.
    qkv_proj: Option<Projection>,
    o_proj: Projection,
    q_norm: Option<Norm>,
    k_norm: Option<Norm>,
    #[module(skip)]
    heads: Heads,
}

/// How attention works.
#[derive(Debug, Clone, Copy)]
struct Heads {
    /// Of queries, and of keys and values.
    counts: [usize; 2],
    width: usize,
    /// What queries are multiplied by first, where scores are not to be divided by the root of the width.
    scale: Option<f64>,
    cap: Option<f64>,
    layer: DecoderLayer,
}

impl Heads {
    /// Attention of whole rows.
    fn attend(&self, [q, k, v]: [&Tensor; 3], rows: &Rows<'_>) -> Result<Tensor> {
        let length = q.dims()[2];
        let window = self.layer.window.filter(|&window| window < length);
        let documents = rows.documents.as_ref();
        match (self.cap, documents, window) {
            (Some(cap), ..) => {
                let apart = documents.and_then(|documents| documents.apart.as_ref());
                capped_attention([q, k, v], cap, window, apart)
            }
            (None, Some(Documents { lengths, .. }), window) => {
                q.document_attention(k, v, lengths, true, window)
            }
            (None, None, Some(window)) => q.sliding_window_attention(k, v, window),
            (None, None, None) => q.scaled_dot_product_attention(k, v, true),
        }
    }
}

impl Attention {
    pub(super) fn new(make: Maker<'_>, layer: DecoderLayer) -> Result<Self> {
        let shape = make.shape;
        let (width, head) = (shape.hidden_size, shape.head_dim);
        let counts = [shape.num_attention_heads, shape.num_key_value_heads];
        let [queries, keys] = counts.map(|count| count * head);
        let project = |outputs| make.project([width, outputs], shape.biases.qkv);
        let apart = |outputs| (!shape.is_fused).then(|| project(outputs)).transpose();
        let norm = || {
            let norm = shape.has_head_norms.then(|| Norm::new(make, head));
            norm.transpose()
        };
        let usual = (head as f64).powf(-0.5);
        let scale = shape.attention_scale / usual;
        Ok(Self {
            q_proj: apart(queries)?,
            k_proj: apart(keys)?,
            v_proj: apart(keys)?,
            qkv_proj: shape
                .is_fused
                .then(|| project(queries + 2 * keys))
                .transpose()?,
            o_proj: make.project([queries, width], shape.biases.output)?,
            q_norm: norm()?,
            k_norm: norm()?,
            heads: Heads {
                counts,
                width: head,
                scale: ((scale - 1.0).abs() > 1e-12).then_some(scale),
                cap: shape.score_cap,
                layer,
            },
        })
    }

    /// Its projections, by name.
    pub(super) fn projections(&self) -> [(&'static str, Option<&Projection>); 5] {
        [
            ("q_proj", self.q_proj.as_ref()),
            ("k_proj", self.k_proj.as_ref()),
            ("v_proj", self.v_proj.as_ref()),
            ("qkv_proj", self.qkv_proj.as_ref()),
            ("o_proj", Some(&self.o_proj)),
        ]
    }

    /// Queries, keys and values, `[B, T, ..]` each.
    fn project(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        if let Some(all) = &self.qkv_proj {
            let y = scope("qkv_proj", || all.forward(x))?;
            let [queries, keys] = self.heads.counts.map(|count| count * self.heads.width);
            let part = |start, len| y.narrow(-1, start, len);
            return Ok([
                part(0, queries)?,
                part(queries, keys)?,
                part(queries + keys, keys)?,
            ]);
        }
        let project = |name: &str, projection: &Option<Projection>| {
            scope(name, || existing(projection.as_ref())?.forward(x))
        };
        Ok([
            project("q_proj", &self.q_proj)?,
            project("k_proj", &self.k_proj)?,
            project("v_proj", &self.v_proj)?,
        ])
    }

    /// With what the layer keeps, if anything is kept.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        rows: &Rows<'_>,
        kept: Option<CachedLayer<'_>>,
    ) -> Result<Tensor> {
        let heads = &self.heads;
        let [batch, length] = [x.dims()[0], x.dims()[1]];
        let by_head = |y: &Tensor| {
            let count = y.dims()[2] / heads.width;
            y.reshape([batch, length, count, heads.width])?
                .transpose(1, 2)
        };
        let turned = |y: Tensor, norm: &Option<Norm>, name: &str| {
            let y = match norm {
                Some(norm) => scope(name, || norm.forward(&y))?,
                None => y,
            };
            match heads.layer.rope.and_then(|rope| rows.rotations.get(rope)) {
                Some([cos, sin]) => y.rotary(cos, sin, false),
                None => Ok(y),
            }
        };
        let [q, k, v] = self.project(x)?;
        let mut q = turned(by_head(&q)?, &self.q_norm, "q_norm")?;
        let k = turned(by_head(&k)?, &self.k_norm, "k_norm")?;
        let v = by_head(&v)?;
        if let Some(scale) = heads.scale {
            q = q.mul_scalar(scale)?;
        }
        let qkv = [&q, &k, &v];
        let kept = kept.map(|layer| layer.attend(qkv, heads.layer.window, heads.cap));
        let y = match kept.transpose()?.flatten() {
            Some(y) => y,
            None => heads.attend(qkv, rows)?,
        };
        let merged = [batch, length, heads.counts[0] * heads.width];
        let y = y.transpose(1, 2)?.reshape(merged)?;
        scope("o_proj", || self.o_proj.forward(&y))
    }
}

/// Causal attention whose scores are `cap tanh(score / cap)`, with the scores in memory: queries `[B, H, T, D]`,
/// keys and values `[B, G, T, D]`. What is `apart`, `[B, 1, 1, T, T]`, is not seen either.
fn capped_attention(
    [q, k, v]: [&Tensor; 3],
    cap: f64,
    window: Option<usize>,
    apart: Option<&Tensor>,
) -> Result<Tensor> {
    let &[batch, heads, length, width] = q.dims() else {
        return q.scaled_dot_product_attention(k, v, true);
    };
    let shared = k.dims()[1];
    let q = q.reshape([batch, shared, heads / shared, length, width])?;
    let [k, v] = [k.unsqueeze(2)?, v.unsqueeze(2)?];
    let scores = q
        .matmul(&k.transpose(-1, -2)?)?
        .mul_scalar((width as f64).powf(-0.5))?;
    let scores = scores.mul_scalar(1.0 / cap)?.tanh()?.mul_scalar(cap)?;
    let ones = Tensor::full(q.engine(), [length, length], 1.0, DType::Bool)?;
    let mut hidden = ones.triu(1)?;
    if let Some(window) = window {
        hidden = hidden.logical_or(&ones.tril(-(window as i64))?)?;
    }
    if let Some(apart) = apart {
        hidden = hidden.logical_or(apart)?;
    }
    let weights = scores.masked_fill(&hidden, f64::NEG_INFINITY)?.softmax()?;
    weights.matmul(&v)?.reshape([batch, heads, length, width])
}
