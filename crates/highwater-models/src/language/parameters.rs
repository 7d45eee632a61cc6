//! GPT-2's parameters as Hugging Face's state dict has them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::language::config::Gpt2Config;

/// Which parameters weight decay applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// Those of rank 2 and more: no biases, no norms.
    #[default]
    Matrices,
    /// All of them.
    All,
}

impl Decay {
    /// Whether a parameter of this shape is decayed.
    pub fn applies_to(self, shape: &[usize]) -> bool {
        self == Self::All || shape.len() >= 2
    }
}

impl fmt::Display for Decay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Matrices => "matrices",
            Self::All => "all",
        })
    }
}

/// A parameter as Hugging Face's state dict names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSpec {
    /// The name in the state dict, such as `transformer.h.0.attn.c_attn.weight`.
    pub name: String,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
}

impl ParameterSpec {
    /// Number of elements.
    pub fn numel(&self) -> u64 {
        let extents = self.shape.iter().map(|&extent| extent as u64);
        extents.fold(1, u64::saturating_mul)
    }
}

impl Gpt2Config {
    /// The parameters by name and shape, in the order of Hugging Face's state dict. The tied head
    /// is not among them.
    pub fn parameters(&self) -> impl Iterator<Item = ParameterSpec> + '_ {
        let spec = |name: String, shape: &[usize]| ParameterSpec {
            name,
            shape: shape.to_vec(),
        };
        let embeddings = [
            spec(
                "transformer.wte.weight".to_owned(),
                &[self.vocab_size, self.n_embd],
            ),
            spec(
                "transformer.wpe.weight".to_owned(),
                &[self.n_positions, self.n_embd],
            ),
        ];
        let blocks = (0..self.n_layer).flat_map(move |i| {
            self.block().map(|(name, [rows, columns])| {
                let weight: &[usize] = &[rows, columns];
                let shape = if columns == 0 { &weight[..1] } else { weight };
                spec(format!("transformer.h.{i}.{name}"), shape)
            })
        });
        let last = [
            spec("transformer.ln_f.weight".to_owned(), &[self.n_embd]),
            spec("transformer.ln_f.bias".to_owned(), &[self.n_embd]),
        ];
        embeddings.into_iter().chain(blocks).chain(last)
    }

    /// One block's parameters; those with 0 columns have rank 1. Weights are [in, out], as
    /// Hugging Face's `Conv1D` keeps them.
    fn block(&self) -> [(&'static str, [usize; 2]); 12] {
        let (c, inner) = (self.n_embd, self.inner());
        [
            ("ln_1.weight", [c, 0]),
            ("ln_1.bias", [c, 0]),
            ("attn.c_attn.weight", [c, c.saturating_mul(3)]),
            ("attn.c_attn.bias", [c.saturating_mul(3), 0]),
            ("attn.c_proj.weight", [c, c]),
            ("attn.c_proj.bias", [c, 0]),
            ("ln_2.weight", [c, 0]),
            ("ln_2.bias", [c, 0]),
            ("mlp.c_fc.weight", [c, inner]),
            ("mlp.c_fc.bias", [inner, 0]),
            ("mlp.c_proj.weight", [inner, c]),
            ("mlp.c_proj.bias", [c, 0]),
        ]
    }

    /// Number of parameters, the tied head counted once; `u64::MAX` if there are more, as in a
    /// configuration that is not [valid](Gpt2Config::validate).
    pub fn parameter_count(&self) -> u64 {
        let (c, inner) = (self.n_embd as u64, self.inner() as u64);
        let times = u64::saturating_mul;
        let sum = |parts: &[u64]| parts.iter().fold(0, |sum: u64, &x| sum.saturating_add(x));
        let embeddings = times(sum(&[self.vocab_size as u64, self.n_positions as u64]), c);
        let attention = times(c, sum(&[times(4, c), 4]));
        let mlp = sum(&[times(c, sum(&[times(2, inner), 1])), inner]);
        let block = sum(&[attention, mlp, times(4, c)]);
        sum(&[embeddings, times(block, self.n_layer as u64), times(2, c)])
    }
}
