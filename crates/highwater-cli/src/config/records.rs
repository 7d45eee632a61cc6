//! How a run reads records.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What of conversations is learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossOn {
    /// Assistant turns and completions.
    #[default]
    Assistant,
    /// All tokens.
    All,
}

/// How a run reads records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordsConfig {
    /// What is learnt.
    pub loss_on: LossOn,
    /// The template that was named: a path, or `chatml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<String>,
    /// Whether several records share a row.
    pub packing: bool,
    /// What fields are called in the data, by their expected names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub map: BTreeMap<String, String>,
}
