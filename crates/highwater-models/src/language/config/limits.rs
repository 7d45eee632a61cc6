//! What a configuration may be: checked before anything is planned or allocated for it.

use std::fmt;

use serde_json::Value;

use super::{ConfigError, Gpt2Config, TOLD};

/// The most parameters that a configuration may have: with their moments, 1.5 TiB in all.
pub const PARAMETERS_MAX: u64 = 1 << 37;
/// The widest attention head that there are kernels for.
pub const HEAD_WIDTH_MAX: usize = 256;

/// The largest extents that a configuration may have. Far beyond any model of this family, and near
/// enough for every product of them to be counted.
const LIMITS: [(&str, usize); 6] = [
    ("vocab_size", 1 << 22),
    ("n_positions", 1 << 20),
    ("n_embd", 1 << 16),
    ("n_layer", 1 << 10),
    ("n_head", 1 << 12),
    ("n_inner", 1 << 18),
];

impl Gpt2Config {
    /// Checks that this is a model that can be built: extents in range, and no switch that would
    /// make it another model.
    ///
    /// # Errors
    /// [`ConfigError::Range`] or [`ConfigError::Unsupported`] for the first field at fault.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_family()?;
        let extents = [
            self.vocab_size,
            self.n_positions,
            self.n_embd,
            self.n_layer,
            self.n_head,
            self.inner(),
        ];
        for ((field, max), value) in LIMITS.into_iter().zip(extents) {
            let expected = || format!("a number from 1 to {max}");
            require((1..=max).contains(&value), field, &value, expected)?;
        }
        self.validate_heads()?;
        for (field, value) in [
            ("resid_pdrop", self.resid_pdrop),
            ("embd_pdrop", self.embd_pdrop),
            ("attn_pdrop", self.attn_pdrop),
        ] {
            let expected = || "a number from 0 to below 1".to_owned();
            require((0.0..1.0).contains(&value), field, &value, expected)?;
        }
        for (field, value) in [
            ("layer_norm_epsilon", self.layer_norm_epsilon),
            ("initializer_range", self.initializer_range),
        ] {
            let expected = || "a number above 0 that an f32 can hold, at most 1".to_owned();
            require(value as f32 > 0.0 && value <= 1.0, field, &value, expected)?;
        }
        self.validate_total()
    }

    /// Heads share the width evenly, and kernels take them up to a width.
    fn validate_heads(&self) -> Result<(), ConfigError> {
        let (width, heads) = (self.n_embd, self.n_head);
        let even = width.is_multiple_of(heads);
        let expected = || format!("a divisor of n_embd, {width}");
        require(even, "n_head", &heads, expected)?;
        let narrow = width / heads <= HEAD_WIDTH_MAX;
        require(narrow, "n_head", &heads, || {
            let least = width.div_ceil(HEAD_WIDTH_MAX);
            format!(
                "a divisor of n_embd, {width}, of at least {least}: a head is at most {HEAD_WIDTH_MAX} wide"
            )
        })
    }

    /// Each extent may be as large as it may, and all of them together still be too much.
    fn validate_total(&self) -> Result<(), ConfigError> {
        let count = self.parameter_count();
        require(count <= PARAMETERS_MAX, "n_embd", &self.n_embd, || {
            format!(
                "less: with n_layer {}, n_inner {}, vocab_size {} and n_positions {} the model has {count} \
                 parameters, and may have {PARAMETERS_MAX}",
                self.n_layer,
                self.inner(),
                self.vocab_size,
                self.n_positions
            )
        })
    }

    fn validate_family(&self) -> Result<(), ConfigError> {
        let supported = |ok: bool, field: &str, value: Value, expected: &str| {
            ok.then_some(()).ok_or_else(|| ConfigError::Unsupported {
                field: field.to_owned(),
                value: value.to_string().chars().take(TOLD).collect(),
                expected: expected.to_owned(),
            })
        };
        let family = Value::from(self.model_type.as_str());
        supported(self.model_type == "gpt2", "model_type", family, "\"gpt2\"")?;
        let tied = self.tie_word_embeddings;
        supported(tied, "tie_word_embeddings", Value::from(tied), "true")?;
        supported(
            self.activation().is_some(),
            "activation_function",
            Value::from(self.activation_function.as_str()),
            "\"gelu_new\", \"gelu_pytorch_tanh\", \"gelu\" or \"relu\"",
        )?;
        for (field, expected) in [
            ("scale_attn_weights", true),
            ("scale_attn_by_inverse_layer_idx", false),
            ("add_cross_attention", false),
        ] {
            let value = self.other.get(field).cloned().unwrap_or(expected.into());
            let ok = value == expected;
            supported(ok, field, value, if expected { "true" } else { "false" })?;
        }
        match self.other.get("quantization_config") {
            None | Some(Value::Null) => Ok(()),
            Some(value) => supported(false, "quantization_config", value.clone(), "null"),
        }
    }
}

pub(crate) fn require(
    ok: bool,
    field: &'static str,
    value: &dyn fmt::Display,
    expected: impl FnOnce() -> String,
) -> Result<(), ConfigError> {
    ok.then_some(()).ok_or_else(|| ConfigError::Range {
        field,
        value: value.to_string(),
        expected: expected(),
    })
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
