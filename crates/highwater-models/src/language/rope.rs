//! Rotary position embedding: frequencies as Hugging Face's `modeling_rope_utils.py` has them, and the
//! tables of cosines and sines that [`highwater::Tensor::rotary`] reads.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::language::config::limits::require;
use crate::language::config::{ConfigError, TOLD, read_field, take};

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
        /// With the next, by whose quotient cosines and sines are multiplied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mscale: Option<f64>,
        /// As above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mscale_all_dim: Option<f64>,
        /// Whether the dimensions between which it goes over are whole ones; so if it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        truncate: Option<bool>,
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
    /// The longest sequence that has the factors of short ones, where longer ones have others (LongRoPE).
    pub fn switches_behind(&self) -> Option<usize> {
        match self.scaling {
            RopeScaling::LongRope {
                original_max_position_embeddings: original,
                ..
            } => Some(original.unwrap_or(self.max_length)),
            _ => None,
        }
    }

    /// For sequences of a length, the angle of each pair at position 1, and what cosines and sines are multiplied by.
    pub fn frequencies(&self, length: usize) -> (Vec<f32>, f64) {
        let all = |f: &dyn Fn(usize, f64) -> f64| self.each(f);
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
            RopeScaling::Yarn { .. } => self.yarn(),
        }
    }

    /// What is made of the frequency of each pair, by its number and what it is unscaled.
    fn each(&self, f: &dyn Fn(usize, f64) -> f64) -> Vec<f32> {
        let plain = |i: usize| self.theta.powf(-(2.0 * i as f64) / self.width as f64);
        (0..self.width / 2).map(|i| f(i, plain(i)) as f32).collect()
    }

    /// [`RopeScaling::Yarn`].
    fn yarn(&self) -> (Vec<f32>, f64) {
        let RopeScaling::Yarn {
            factor,
            original_max_position_embeddings: original,
            attention_factor,
            beta_fast,
            beta_slow,
            mscale,
            mscale_all_dim,
            truncate,
        } = self.scaling
        else {
            return (self.each(&|_, frequency| frequency), 1.0);
        };
        let original = original.unwrap_or(self.max_length) as f64;
        // The dimension that turns so often within the original length.
        let dimension = |turns: f64| {
            self.width as f64 * (original / (turns * TAU)).ln() / (2.0 * self.theta.ln())
        };
        // 0 stands for what is usual, as in Hugging Face.
        let or = |given: Option<f64>, usual| given.filter(|&x| x != 0.0).unwrap_or(usual);
        let (mut low, mut high) = (
            dimension(or(beta_fast, 32.0)),
            dimension(or(beta_slow, 1.0)),
        );
        if truncate.unwrap_or(true) {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, high) = (low.max(0.0), high.min(self.width as f64 - 1.0));
        let span = if high.to_bits() == low.to_bits() {
            1e-3
        } else {
            high - low
        };
        let turned = |i: usize, frequency: f64| {
            let divided = ((i as f64 - low) / span).clamp(0.0, 1.0);
            divided * frequency / factor + (1.0 - divided) * frequency
        };
        let by = |scale: f64| {
            1.0 + if factor > 1.0 {
                0.1 * scale * factor.ln()
            } else {
                0.0
            }
        };
        let by_factor = match (mscale, mscale_all_dim) {
            (Some(above), Some(below)) if above != 0.0 && below != 0.0 => by(above) / by(below),
            _ => by(1.0),
        };
        (self.each(&turned), attention_factor.unwrap_or(by_factor))
    }

    /// Cosines and sines of the first positions, `[length, width / 2]` each, for sequences of `seen` tokens: angles are
    /// products in `f32`, as Hugging Face's are.
    pub fn tables(&self, length: usize, seen: usize) -> [Vec<f32>; 2] {
        let (frequencies, factor) = self.frequencies(seen);
        let angles = || {
            let positions = (0..length).map(|position| position as f32);
            positions.flat_map(|position| frequencies.iter().map(move |f| f64::from(position * f)))
        };
        let table = |f: fn(f64) -> f64| angles().map(|angle| (f(angle) * factor) as f32).collect();
        [table(f64::cos), table(f64::sin)]
    }
}

impl Rope {
    /// [`RopeScaling::LongRope`].
    fn validate_long(&self) -> Result<(), ConfigError> {
        let RopeScaling::LongRope {
            short_factor,
            long_factor,
            original_max_position_embeddings: original,
            factor,
            attention_factor,
        } = &self.scaling
        else {
            return Ok(());
        };
        for (field, factors) in [("short_factor", short_factor), ("long_factor", long_factor)] {
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

    /// Checks that tables can be made.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
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
            RopeScaling::LongRope { .. } => self.validate_long(),
            RopeScaling::Yarn {
                factor,
                original_max_position_embeddings: original,
                attention_factor,
                beta_fast,
                beta_slow,
                mscale,
                mscale_all_dim,
                truncate: _,
            } => {
                above_0("factor", *factor)?;
                above_0("attention_factor", attention_factor.unwrap_or(1.0))?;
                for (field, value) in [
                    ("beta_fast", beta_fast),
                    ("beta_slow", beta_slow),
                    ("mscale", mscale),
                    ("mscale_all_dim", mscale_all_dim),
                ] {
                    let value = value.unwrap_or(0.0);
                    let ok = value >= 0.0 && value.is_finite();
                    require(ok, field, &value, || "a number from 0 up".to_owned())?;
                }
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

/// That a number is above 0.
fn above_0(field: &'static str, value: f64) -> Result<(), ConfigError> {
    let ok = value > 0.0 && value.is_finite();
    require(ok, field, &value, || "a number above 0".to_owned())
}

/// What is known of positions beside what a file says of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Positions {
    /// Width of a head.
    pub(crate) head_dim: usize,
    /// The longest sequence.
    pub(crate) max_length: usize,
    /// The base where a file does not say.
    pub(crate) theta: f64,
    /// The length that the family was trained with, where that is not the longest.
    pub(crate) trained: Option<usize>,
    /// Whether the family may rotate a share of a head.
    pub(crate) is_partial: bool,
}

/// What a `config.json` says of positions: fields of their own in older files, `rope_parameters` in newer ones,
/// where kinds of layers may have their own; those of `full_attention` are read here.
pub(crate) fn read_rope(
    fields: &Map<String, Value>,
    about: &Positions,
) -> Result<Rope, ConfigError> {
    let fields = &mut fields.clone();
    let unsupported = |field: &str, value: &Value, expected: &str| ConfigError::Unsupported {
        field: field.to_owned(),
        value: value.to_string().chars().take(TOLD).collect(),
        expected: expected.to_owned(),
    };
    let theta = take(fields, "rope_theta", about.theta)?;
    let share = take(fields, "partial_rotary_factor", 1.0)?;
    let trained: Option<usize> = take(fields, "original_max_position_embeddings", None)?;
    let older: Option<Map<String, Value>> = take(fields, "rope_scaling", None)?;
    let newer: Option<Map<String, Value>> = take(fields, "rope_parameters", None)?;
    if let (Some(older), Some(newer)) = (&older, &newer)
        && older != newer
    {
        let expected = "no other value than that of rope_parameters";
        return Err(unsupported("rope_scaling", &older.clone().into(), expected));
    }
    let mut scaling = newer.or(older).unwrap_or_default();
    let own = scaling.shift_remove("full_attention");
    let of_kinds = own.is_some();
    if let Some(Value::Object(own)) = own {
        scaling = own;
    }
    let theta = take(&mut scaling, "rope_theta", theta)?;
    let share: f64 = take(&mut scaling, "partial_rotary_factor", share)?;
    let is_whole = share.to_bits() == 1.0_f64.to_bits();
    let is_share = about.is_partial && share > 0.0 && share < 1.0;
    if !(is_whole || is_share) {
        let expected = if about.is_partial {
            "above 0, at most 1"
        } else {
            "1"
        };
        return Err(unsupported(
            "partial_rotary_factor",
            &share.into(),
            expected,
        ));
    }
    let kind = rope_kind(&mut scaling)?;
    if ["llama3", "yarn", "longrope"].contains(&kind.as_str()) {
        // As transformers has it: a field of its own comes first, then what the family's class sets, then the
        // scaling's. Where kinds of layers have their own scalings, those alone are asked.
        let field = "original_max_position_embeddings";
        let nested: Option<usize> = take(&mut scaling, field, None)?;
        let outer = trained.or(about.trained).filter(|_| !of_kinds);
        let trained = outer.or(nested);
        scaling.insert(field.to_owned(), trained.unwrap_or(about.max_length).into());
    }
    scaling.insert("rope_type".to_owned(), kind.into());
    Ok(Rope {
        width: (about.head_dim as f64 * share) as usize,
        theta,
        max_length: about.max_length,
        scaling: read_field("rope_scaling", Value::from(scaling))?,
    })
}

/// The kind of a scaling, by whichever name it goes.
fn rope_kind(scaling: &mut Map<String, Value>) -> Result<String, ConfigError> {
    // The oldest name of the field, and of a kind.
    if let Some(kind) = scaling.shift_remove("type") {
        scaling.entry("rope_type").or_insert(kind);
    }
    let found = scaling
        .get("rope_type")
        .cloned()
        .unwrap_or("default".into());
    let kind = match found.as_str() {
        Some("su") => "longrope",
        Some(kind) => kind,
        None => "",
    };
    if ["default", "linear", "llama3", "yarn", "longrope"].contains(&kind) {
        return Ok(kind.to_owned());
    }
    Err(ConfigError::Unsupported {
        field: "rope_type".to_owned(),
        value: found.to_string().chars().take(TOLD).collect(),
        expected: "\"default\", \"linear\", \"llama3\", \"yarn\" or \"longrope\"".to_owned(),
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
        let [cos, sin] = rope(4, RopeScaling::Default).tables(3, 3);
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

    #[test]
    fn the_length_of_training_is_the_one_that_transformers_takes() {
        let length = |of_family, fields: serde_json::Value| {
            let about = Positions {
                head_dim: 8,
                max_length: 512,
                theta: 10_000.0,
                trained: of_family,
                is_partial: false,
            };
            let fields = fields.as_object().unwrap();
            match read_rope(fields, &about).unwrap().scaling {
                RopeScaling::Yarn {
                    original_max_position_embeddings: original,
                    ..
                } => original,
                other => panic!("{other:?}"),
            }
        };
        let field = "original_max_position_embeddings";
        let own = serde_json::json!({field: 64, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, field: 32}});
        let nested =
            serde_json::json!({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, field: 32}});
        let neither = serde_json::json!({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}});
        let of_kinds = serde_json::json!({field: 64, "rope_parameters": {
            "full_attention": {"rope_type": "yarn", "factor": 4.0, field: 32}}});
        for (fields, class_sets, sets_none) in [
            (own, 64, 64),
            (nested, 128, 32),
            (neither, 128, 512),
            (of_kinds, 32, 32),
        ] {
            assert_eq!(length(Some(128), fields.clone()), Some(class_sets));
            assert_eq!(length(None, fields), Some(sets_none));
        }
    }
}
