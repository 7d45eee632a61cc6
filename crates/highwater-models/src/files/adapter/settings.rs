//! What an `adapter_config.json` says.

use highwater::nn::LoraOptions;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::json;
use crate::language::config::{ConfigError, TOLD, read_field};

/// What a file says of its adapters. Fields that a run of this program cannot have are apart from [`LoraOptions`].
#[derive(Debug)]
pub(super) struct Settings {
    /// Rank, scale and layers where nothing below says otherwise.
    pub(super) options: LoraOptions,
    /// A pattern that stands for the layers; `options` has no names then.
    pub(super) pattern: Option<String>,
    /// Ranks of some layers.
    pub(super) ranks: Vec<(String, usize)>,
    /// `lora_alpha` of some layers.
    pub(super) alphas: Vec<(String, f64)>,
    /// Blocks that have adapters, if not all do.
    pub(super) blocks: Option<Vec<usize>>,
    /// Layers that have none.
    pub(super) excluded: Vec<String>,
    /// Modules that were trained whole.
    pub(super) whole: Vec<String>,
}

/// Fields that are read, or change no number of adapters that are there.
const NEUTRAL: [&str; 33] = [
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "modules_to_save",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    "use_dora",
    "use_rslora",
    "version",
    "custom_modules",
];

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`], naming the field: also for adapters of another kind, of which nothing is built here.
    pub(super) fn of(text: &str) -> Result<Self, ConfigError> {
        let fields = json::object(text).map_err(|problem| ConfigError::Json { problem })?;
        let fields = Fields(&fields);
        fields.check()?;
        let or = LoraOptions::default();
        let (target_modules, pattern) = fields.targets()?;
        Ok(Self {
            options: LoraOptions {
                r: fields.get("r", or.r)?,
                lora_alpha: fields.get("lora_alpha", or.lora_alpha)?,
                lora_dropout: fields.get("lora_dropout", or.lora_dropout)?,
                target_modules,
                use_rslora: fields.get("use_rslora", false)?,
                use_dora: fields.get("use_dora", false)?,
            },
            pattern,
            ranks: fields.named("rank_pattern")?,
            alphas: fields.named("alpha_pattern")?,
            blocks: fields.blocks()?,
            excluded: fields.names("exclude_modules")?,
            whole: fields.get("modules_to_save", Vec::new())?,
        })
    }

    /// The settings, where they are those of a run of this program.
    ///
    /// # Errors
    /// [`ConfigError`] for the first field that makes them others.
    pub(super) fn plain(self) -> Result<LoraOptions, ConfigError> {
        let others = [
            ("target_modules", self.pattern.is_some()),
            ("rank_pattern", !self.ranks.is_empty()),
            ("alpha_pattern", !self.alphas.is_empty()),
            ("layers_to_transform", self.blocks.is_some()),
            ("exclude_modules", !self.excluded.is_empty()),
            ("modules_to_save", !self.whole.is_empty()),
        ];
        match others.into_iter().find(|(_, is_set)| *is_set) {
            Some((field, _)) => Err(ConfigError::Unsupported {
                field: field.to_owned(),
                value: "set".to_owned(),
                expected: if field == "target_modules" {
                    "a list of names, or \"all-linear\"".to_owned()
                } else {
                    "nothing set".to_owned()
                },
            }),
            None => Ok(self.options),
        }
    }

    /// The rank of a layer.
    pub(super) fn rank(&self, layer: &str) -> usize {
        let own = self.ranks.iter().find(|(name, _)| stands_for(name, layer));
        own.map_or(self.options.r, |(_, rank)| *rank)
    }

    /// What the product of a layer's adapter is multiplied by.
    pub(super) fn scaling(&self, layer: &str) -> f64 {
        let own = self.alphas.iter().find(|(name, _)| stands_for(name, layer));
        LoraOptions {
            r: self.rank(layer),
            lora_alpha: own.map_or(self.options.lora_alpha, |(_, alpha)| *alpha),
            ..self.options.clone()
        }
        .scaling()
    }

    /// Whether a layer is one that has an adapter, as far as the settings say; `is_linear` for one of a block.
    pub(super) fn is_targeted(&self, layer: &str, is_linear: bool) -> bool {
        let is_named = |names: &[String]| names.iter().any(|name| ends_in(layer, name));
        if is_named(&self.excluded) {
            return false;
        }
        if self.pattern.is_some() {
            return true;
        }
        let named = &self.options.target_modules;
        if named.iter().any(|name| name == layer) {
            return true;
        }
        let is_of_all = is_linear && named.iter().any(|name| name == "all-linear");
        let is_in_block = self.blocks.as_ref().is_none_or(|blocks| {
            let block = block_of(layer);
            block.is_some_and(|block| blocks.contains(&block))
        });
        (is_of_all || is_named(named)) && is_in_block
    }
}

/// Whether a layer's name ends in another, part by part.
pub(super) fn ends_in(layer: &str, name: &str) -> bool {
    let rest = layer.strip_suffix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The number of the block that a layer is in.
fn block_of(layer: &str) -> Option<usize> {
    layer.split('.').find_map(|part| part.parse().ok())
}

/// Whether a name of `rank_pattern` or `alpha_pattern` stands for a layer: PEFT reads it as a regular expression for
/// the last parts of the layer's name, in which a dot stands for any letter.
fn stands_for(name: &str, layer: &str) -> bool {
    let (name, is_whole) = match name.strip_prefix('^') {
        Some(name) => (name, true),
        None => (name, false),
    };
    let Some(start) = layer.len().checked_sub(name.len()) else {
        return false;
    };
    let (before, end) = layer.as_bytes().split_at(start);
    let same = end.iter().zip(name.as_bytes());
    let is_at_part = start == 0 || !is_whole && before.ends_with(b".");
    is_at_part
        && same
            .into_iter()
            .all(|(own, &name)| name == b'.' || *own == name)
}

/// The fields of a file.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    fn some(self, field: &str) -> Option<Value> {
        self.0.get(field).filter(|value| !value.is_null()).cloned()
    }

    fn get<T: DeserializeOwned>(self, field: &str, default: T) -> Result<T, ConfigError> {
        self.some(field)
            .map_or(Ok(default), |value| read_field(field, value))
    }

    fn refused(self, field: &str, expected: &str) -> ConfigError {
        let value = self.0.get(field).map(Value::to_string);
        ConfigError::Unsupported {
            field: field.to_owned(),
            value: value
                .unwrap_or("null".to_owned())
                .chars()
                .take(TOLD)
                .collect(),
            expected: expected.to_owned(),
        }
    }

    /// That these are adapters of a kind that is known, in which nothing else is set.
    fn check(self) -> Result<(), ConfigError> {
        let is_set = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(values) => !values.is_empty(),
            Value::Object(values) => !values.is_empty(),
            _ => true,
        };
        if self.some("peft_type").as_ref().and_then(Value::as_str) != Some("LORA") {
            return Err(self.refused("peft_type", "\"LORA\""));
        }
        if self.some("bias").is_some_and(|bias| bias != "none") {
            return Err(self.refused("bias", "\"none\""));
        }
        // First values that are drawn: what a file has takes their place. Others change the model too.
        let drawn = |first: &Value| {
            let names = ["gaussian", "eva", "orthogonal"];
            first.is_boolean() || names.iter().any(|name| first == name)
        };
        if self
            .some("init_lora_weights")
            .is_some_and(|first| !drawn(&first))
        {
            return Err(self.refused(
                "init_lora_weights",
                "true, false, \"gaussian\", \"orthogonal\" or \"eva\"",
            ));
        }
        if self
            .some("layers_pattern")
            .is_some_and(|names| is_set(&names))
            && self.some("layers_to_transform").is_some()
        {
            return Err(self.refused("layers_pattern", "nothing set"));
        }
        let mut fields = self.0.iter();
        match fields.find(|(field, value)| !NEUTRAL.contains(&&***field) && is_set(value)) {
            Some((field, _)) => Err(self.refused(field, "nothing set")),
            None => Ok(()),
        }
    }

    /// The names of the layers, or a pattern for them.
    fn targets(self) -> Result<(Vec<String>, Option<String>), ConfigError> {
        match self.some("target_modules") {
            Some(Value::String(name)) if name == "all-linear" => Ok((vec![name], None)),
            Some(Value::String(pattern)) => Ok((Vec::new(), Some(pattern))),
            Some(names) => Ok((read_field("target_modules", names)?, None)),
            None => Err(self.refused("target_modules", "a list of names, or \"all-linear\"")),
        }
    }

    /// Names, of which there may be one alone.
    fn names(self, field: &str) -> Result<Vec<String>, ConfigError> {
        match self.some(field) {
            Some(Value::String(_)) => Err(self.refused(field, "a list of names")),
            _ => self.get(field, Vec::new()),
        }
    }

    fn blocks(self) -> Result<Option<Vec<usize>>, ConfigError> {
        match self.some("layers_to_transform") {
            None => Ok(None),
            Some(Value::Array(blocks)) if blocks.is_empty() => Ok(None),
            Some(number @ Value::Number(_)) => {
                Ok(Some(vec![read_field("layers_to_transform", number)?]))
            }
            Some(blocks) => read_field("layers_to_transform", blocks).map(Some),
        }
    }

    /// Numbers of some layers, whose names have no other letters of regular expressions than dots.
    fn named<T: DeserializeOwned>(self, field: &str) -> Result<Vec<(String, T)>, ConfigError> {
        let all: Map<String, Value> = self.get(field, Map::new())?;
        let named = all.into_iter().map(|(name, value)| {
            let plain = name.strip_prefix('^').unwrap_or(&name);
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            if !plain.chars().all(is_plain) {
                return Err(self.refused(field, "names of layers, no patterns"));
            }
            Ok((name, read_field(field, value)?))
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(more: &str) -> Result<Settings, ConfigError> {
        Settings::of(&format!(
            r#"{{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "lm_head"]{more}}}"#
        ))
    }

    #[test]
    fn patterns_stand_for_the_ends_of_names() {
        let found = settings(
            r#", "rank_pattern": {"layers.0.q_proj": 2, "^model.x": 3}, "alpha_pattern": {"q_proj": 2.0}"#,
        )
        .unwrap();
        assert_eq!(found.rank("model.layers.0.q_proj"), 2);
        assert_eq!(found.rank("model.layers.10.q_proj"), 4);
        // A dot stands for any letter.
        assert_eq!(found.rank("model.layers_0_q_proj"), 2);
        assert_eq!(found.rank("model.x"), 3);
        assert_eq!(found.rank("model.model.x"), 4);
        let half = found.scaling("model.layers.1.q_proj") - 0.5;
        let whole = found.scaling("model.layers.0.q_proj") - 1.0;
        assert!(half.abs() < 1e-12 && whole.abs() < 1e-12);
        assert!((found.scaling("lm_head") - 2.0).abs() < 1e-12);
    }

    #[test]
    fn layers_are_targeted_as_in_peft() {
        let found = settings(r#", "layers_to_transform": [1], "exclude_modules": ["2.q_proj"]"#);
        let found = found.unwrap();
        for (layer, is_targeted) in [
            ("model.layers.1.q_proj", true),
            ("model.layers.0.q_proj", false),
            ("model.layers.1.k_proj", false),
            ("model.layers.2.q_proj", false),
            ("lm_head", true),
        ] {
            assert_eq!(found.is_targeted(layer, true), is_targeted, "{layer}");
        }
    }

    #[test]
    fn other_kinds_are_refused_by_name() {
        for (more, told) in [
            (r#", "bias": "all""#, "`bias` is \"all\""),
            (r#", "lora_bias": true"#, "`lora_bias` is true"),
            (r#", "init_lora_weights": "pissa""#, "`init_lora_weights`"),
            (r#", "rank_pattern": {"q.*": 2}"#, "`rank_pattern`"),
            (r#", "target_parameters": ["x"]"#, "`target_parameters`"),
            (
                r#", "trainable_token_indices": [1]"#,
                "`trainable_token_indices`",
            ),
            (r#", "layer_replication": [[0, 1]]"#, "`layer_replication`"),
            (r#", "use_qalora": true"#, "`use_qalora`"),
            (r#", "r": 4"#, "`r` stands there twice"),
        ] {
            let error = settings(more).unwrap_err().to_string();
            assert!(error.contains(told), "{more}: {error}");
        }
        for kind in ["IA3", "LOHA", "LOKR", "PROMPT_TUNING", "ADALORA", "OFT"] {
            let error = Settings::of(&format!(r#"{{"peft_type": "{kind}"}}"#)).unwrap_err();
            assert!(error.to_string().contains(kind), "{error}");
        }
    }
}
