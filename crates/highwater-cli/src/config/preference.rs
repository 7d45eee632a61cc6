//! How a run learns from pairs of answers.

use clap::ValueEnum;
use highwater_models::preference::DpoLoss;
use serde::{Deserialize, Serialize};

use super::error::SettingsError;
use super::range::require;

/// How to learn from pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreferenceMethod {
    /// Direct preference optimization. The reference is the model without its adapters, or without --lora a
    /// frozen copy of it.
    Dpo,
    /// Odds-ratio preference optimization, without a reference model. Likelihoods are of the answers alone, as in the
    /// paper (TRL includes the prompt).
    Orpo,
}

/// How a run learns from pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreferenceConfig {
    /// By which loss.
    pub method: PreferenceMethod,
    /// How much it weighs.
    pub beta: f64,
    /// The loss of a pair, for direct preference optimisation.
    #[serde(default, skip_serializing_if = "is_sigmoid")]
    pub dpo_loss: DpoLoss,
    /// Label smoothing, for the losses that have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_smoothing: Option<f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_sigmoid(loss: &DpoLoss) -> bool {
    *loss == DpoLoss::Sigmoid
}

impl PreferenceConfig {
    /// Checks the label smoothing, which depends on the loss.
    ///
    /// # Errors
    /// [`SettingsError::Range`].
    pub fn validate(&self) -> Result<(), SettingsError> {
        let Some(smoothing) = self.label_smoothing else {
            return Ok(());
        };
        let least = self.dpo_loss == DpoLoss::ExoPair;
        let is_good = (0.0..0.5).contains(&smoothing) && !(least && smoothing <= 0.0);
        require(is_good, "label-smoothing", &smoothing, || {
            let from = if least { "above 0" } else { "from 0" };
            format!("a number {from} to below 0.5")
        })
    }

    /// Whether it compares with a copy of the model as it was.
    pub fn needs_copy(&self, has_adapters: bool) -> bool {
        self.method == PreferenceMethod::Dpo && !has_adapters
    }
}
