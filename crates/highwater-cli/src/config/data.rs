//! On which data a run trains.

use std::path::PathBuf;

use highwater_models::data::Reads;
use highwater_models::{Order, TokenWidth};
use serde::{Deserialize, Serialize};

use super::records::RecordsConfig;

/// On which data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// A file or folder; the built-in guide without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// A file or folder to measure the loss on, instead of a share of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_data: Option<PathBuf>,
    /// Width of the tokens of a `.bin` without header; found by the file and the model if none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_dtype: Option<TokenWidth>,
    /// Share of the data to measure the loss on.
    pub held_out: f64,
    /// Order of the sequences.
    pub order: Order,
    /// Whether images that cannot be used are left out; otherwise they are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_bad: bool,
    /// How records are read; none of plain text and of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<RecordsConfig>,
    /// The purpose that the data is read for. It is no setting: a run always trains.
    #[serde(skip)]
    pub reads: Reads,
}
