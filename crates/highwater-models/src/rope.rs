//! Rotary position embedding: frequencies as Hugging Face's `modeling_rope_utils.py` has them, and the
//! tables of cosines and sines that [`highwater::Tensor::rotary`] reads.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ConfigError;
use crate::config::limits::require;
use crate::config::{TOLD, read_field, take};

/// How frequencies are changed so that a model can take longer sequences than it was trained with: the
/// `rope_scaling` of a `config.json`, or the same fields in `rope_parameters`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// Not at all.
    #[default]
    Default,
    /// All are divided (Chen et al., "Extending Context Window", 2023).
    Linear {
        /// By this.
        factor: f64,
    },
    /// Low ones are divided, high ones stay, those between go over: Llama 3.1's.
    Llama3 {
        /// By this.
        factor: f64,
        /// Wavelengths above the original length over this are low.
        low_freq_factor: f64,
        /// Wavelengths below the original length over this are high.
        high_freq_factor: f64,
        /// The length that the model was trained with.
        original_max_position_embeddings: usize,
    },
    /// Each divided by a number of its own, of two lists: one for sequences up to the original length, one for
    /// longer ones (Ding et al., "LongRoPE", 2024): Phi-3's.
    LongRope {
        /// Up to the original length.
        short_factor: Vec<f64>,
        /// Above it.
        long_factor: Vec<f64>,
        /// The length that the model was trained with; the longest sequence if it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        original_max_position_embeddings: Option<usize>,
        /// How much longer sequences may be; from the lengths if it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        factor: Option<f64>,
        /// What cosines and sines are multiplied by; from the factor if it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
    },
    /// As Llama 3.1's, by how often a dimension turns within the original length; what is rotated is scaled as
    /// well (Peng et al., "YaRN", 2023).
    Yarn {
        /// Slow dimensions are divided by this.
        factor: f64,
        /// The length that the model was trained with; the longest sequence if it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        original_max_position_embeddings: Option<usize>,
        /// What cosines and sines are multiplied by; from the factor if it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
        /// Turns from which on a dimension stays.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beta_fast: Option<f64>,
        /// Turns up to which it is divided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beta_slow: Option<f64>,
    },
}

/// What tables are made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Elements of a head that are rotated: even.
    pub width: usize,
    /// The wavelengths grow up to about this.
    pub theta: f64,
    /// The longest sequence of the configuration.
    pub max_length: usize,
    /// How frequencies are changed.
    pub scaling: RopeScaling,
}

impl Rope {
    /// For sequences of a length, the angle of each pair at position 1, and what cosines and sines are multiplied by.
    pub fn frequencies(&self, length: usize) -> (Vec<f32>, f64) {
        let half = self.width / 2;
        let plain = |i: usize| self.theta.powf(-(2.0 * i as f64) / self.width as f64);
        let all = |f: &dyn Fn(usize, f64) -> f64| -> Vec<f32> {
            (0..half).map(|i| f(i, plain(i)) as f32).collect()
        };
        match self.scaling {
            RopeScaling::LongRope {
                ref short_factor,
                ref long_factor,
                original_max_position_embeddings: original,
                factor,
                attention_factor,
            } => {
                let original = original.unwrap_or(self.max_length);
                let factor = factor.unwrap_or(self.max_length as f64 / original as f64);
                let by_factor = (1.0 + factor.ln() / (original as f64).ln()).sqrt().max(1.0);
                let divisors = if length > original {
                    long_factor
                } else {
                    short_factor
                };
                let divided = |i: usize, frequency: f64| frequency / divisors[i];
                (all(&divided), attention_factor.unwrap_or(by_factor))
            }
            RopeScaling::Default => (all(&|_, frequency| frequency), 1.0),
            RopeScaling::Linear { factor } => (all(&|_, frequency| frequency / factor), 1.0),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: original,
            } => {
                let turned = |_, frequency: f64| {
                    let turns = original as f64 * frequency / TAU;
                    // How much of it stays: none below `low` turns, all above `high`.
                    let stays = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - stays) * frequency / factor + stays * frequency
                };
                (all(&turned), 1.0)
            }
            RopeScaling::Yarn {
                factor,
                original_max_position_embeddings: original,
                attention_factor,
                beta_fast,
                beta_slow,
            } => {
                let original = original.unwrap_or(self.max_length) as f64;
                // The dimension that turns so often within the original length.
                let dimension = |turns: f64| {
                    self.width as f64 * (original / (turns * TAU)).ln() / (2.0 * self.theta.ln())
                };
                let low = dimension(beta_fast.unwrap_or(32.0)).floor().max(0.0);
                let high = dimension(beta_slow.unwrap_or(1.0)).ceil();
                let high = high.min(self.width as f64 - 1.0);
                let span = if high > low { high - low } else { 1e-3 };
                let turned = |i: usize, frequency: f64| {
                    let divided = ((i as f64 - low) / span).clamp(0.0, 1.0);
                    divided * frequency / factor + (1.0 - divided) * frequency
                };
                let by_factor = if factor > 1.0 {
                    0.1 * factor.ln() + 1.0
                } else {
                    1.0
                };
                (all(&turned), attention_factor.unwrap_or(by_factor))
            }
        }
    }

    /// Cosines and sines of the first positions, `[length, width / 2]` each: angles are products in `f32`,
    /// as Hugging Face's are.
    pub fn tables(&self, length: usize) -> [Vec<f32>; 2] {
        let (frequencies, factor) = self.frequencies(length);
        let angles = || {
            let positions = (0..length).map(|position| position as f32);
            positions.flat_map(|position| frequencies.iter().map(move |f| f64::from(position * f)))
        };
        let table = |f: fn(f64) -> f64| angles().map(|angle| (f(angle) * factor) as f32).collect();
        [table(f64::cos), table(f64::sin)]
    }
}

impl Rope {
    /// Checks that tables can be made.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let above_0 = |field, value: f64| {
            let ok = value > 0.0 && value.is_finite();
            require(ok, field, &value, || "a number above 0".to_owned())
        };
        let fits = self.width >= 2 && self.width.is_multiple_of(2);
        require(fits, "partial_rotary_factor", &self.width, || {
            "a share of head_dim that is even and not 0".to_owned()
        })?;
        // Wavelengths grow with it only above 1.
        let ok = self.theta > 1.0 && self.theta.is_finite();
        let expected = || "a number above 1".to_owned();
        require(ok, "rope_theta", &self.theta, expected)?;
        match &self.scaling {
            RopeScaling::Default => Ok(()),
            RopeScaling::Linear { factor } => above_0("factor", *factor),
            RopeScaling::LongRope {
                short_factor,
                long_factor,
                original_max_position_embeddings: original,
                factor,
                attention_factor,
            } => {
                for (field, factors) in
                    [("short_factor", short_factor), ("long_factor", long_factor)]
                {
                    let half = self.width / 2;
                    require(factors.len() == half, field, &factors.len(), || {
                        format!("{half} numbers, one for each pair that is rotated")
                    })?;
                    factors
                        .iter()
                        .try_for_each(|&factor| above_0(field, factor))?;
                }
                above_0("factor", factor.unwrap_or(1.0))?;
                above_0("attention_factor", attention_factor.unwrap_or(1.0))?;
                let original = original.unwrap_or(self.max_length);
                require(
                    original > 1,
                    "original_max_position_embeddings",
                    &original,
                    || "2 or more".to_owned(),
                )
            }
            RopeScaling::Yarn {
                factor,
                original_max_position_embeddings: original,
                attention_factor,
                beta_fast,
                beta_slow,
            } => {
                above_0("factor", *factor)?;
                above_0("attention_factor", attention_factor.unwrap_or(1.0))?;
                above_0("beta_fast", beta_fast.unwrap_or(32.0))?;
                above_0("beta_slow", beta_slow.unwrap_or(1.0))?;
                let original = original.unwrap_or(1) as f64;
                above_0("original_max_position_embeddings", original)
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: original,
            } => {
                above_0("factor", *factor)?;
                above_0("low_freq_factor", *low)?;
                let ok = high > low && high.is_finite();
                let expected = || format!("more than low_freq_factor, {low}");
                require(ok, "high_freq_factor", high, expected)?;
                above_0("original_max_position_embeddings", *original as f64)
            }
        }
    }
}

/// What a `config.json` says of positions: fields of their own in older files, `rope_parameters` in newer ones,
/// where kinds of layers may have their own; those of `full_attention` are read here.
pub(crate) fn read_rope(
    fields: &Map<String, Value>,
    head_dim: usize,
    max_length: usize,
    theta: f64,
) -> Result<Rope, ConfigError> {
    let fields = &mut fields.clone();
    let theta = take(fields, "rope_theta", theta)?;
    let share = take(fields, "partial_rotary_factor", 1.0)?;
    let trained: Option<usize> = take(fields, "original_max_position_embeddings", None)?;
    let older: Option<Map<String, Value>> = take(fields, "rope_scaling", None)?;
    let newer: Option<Map<String, Value>> = take(fields, "rope_parameters", None)?;
    let mut scaling = newer.or(older).unwrap_or_default();
    if let Some(Value::Object(own)) = scaling.shift_remove("full_attention") {
        scaling = own;
    }
    let theta = take(&mut scaling, "rope_theta", theta)?;
    let share: f64 = take(&mut scaling, "partial_rotary_factor", share)?;
    // The oldest name of the field, and of a kind.
    if let Some(kind) = scaling.shift_remove("type") {
        scaling.entry("rope_type").or_insert(kind);
    }
    let kind = scaling.get("rope_type").and_then(Value::as_str);
    let kind = match kind.unwrap_or("default") {
        "su" => "longrope".to_owned(),
        kind => kind.to_owned(),
    };
    let known = ["default", "linear", "llama3", "yarn", "longrope"];
    if !known.contains(&kind.as_str()) {
        return Err(ConfigError::Unsupported {
            field: "rope_type".to_owned(),
            value: Value::from(kind).to_string().chars().take(TOLD).collect(),
            expected: "\"default\", \"linear\", \"llama3\", \"yarn\" or \"longrope\"".to_owned(),
        });
    }
    if let Some(trained) = trained.filter(|_| ["yarn", "longrope"].contains(&kind.as_str())) {
        let field = "original_max_position_embeddings".to_owned();
        scaling.entry(field).or_insert(trained.into());
    }
    scaling.insert("rope_type".to_owned(), kind.into());
    Ok(Rope {
        width: (head_dim as f64 * share.clamp(0.0, 1.0)) as usize,
        theta,
        max_length,
        scaling: read_field("rope_scaling", Value::from(scaling))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(width: usize, scaling: RopeScaling) -> Rope {
        Rope {
            width,
            theta: 10_000.0,
            max_length: 4096,
            scaling,
        }
    }

    fn near(got: &[f32], want: &[f32]) {
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() <= 2e-6 * want.abs(), "{got} for {want}");
        }
    }

    #[test]
    fn plain_and_linear_frequencies() {
        let (plain, factor) = rope(8, RopeScaling::Default).frequencies(8);
        near(&plain, &[1.0, 0.1, 0.01, 0.001]);
        assert_eq!(factor.to_bits(), 1.0_f64.to_bits());
        let (linear, _) = rope(8, RopeScaling::Linear { factor: 4.0 }).frequencies(8);
        near(&linear, &[0.25, 0.025, 0.0025, 0.00025]);
    }

    #[test]
    fn tables_are_cosines_and_sines_of_positions() {
        let [cos, sin] = rope(4, RopeScaling::Default).tables(3);
        let want = |f: fn(f32) -> f32| [0.0, 0.0, 1.0, 0.01, 2.0, 0.02].map(f);
        for (got, want) in cos
            .iter()
            .zip(want(f32::cos))
            .chain(sin.iter().zip(want(f32::sin)))
        {
            assert!((got - want).abs() < 1e-6, "{got} for {want}");
        }
    }

    #[test]
    fn scaling_is_read_as_hugging_face_writes_it() {
        let text = r#"{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}"#;
        let read: RopeScaling = serde_json::from_str(text).unwrap();
        assert!(matches!(read, RopeScaling::Llama3 { .. }));
        let read: RopeScaling =
            serde_json::from_str(r#"{"rope_type": "yarn", "factor": 4}"#).unwrap();
        assert!(matches!(read, RopeScaling::Yarn { factor: 4.0, .. }));
    }
}
