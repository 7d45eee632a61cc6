//! From flags to the settings of adapters.

use crate::args::Settings;
use crate::args::table::Table;
use crate::config::LoraConfig;
use crate::error::Failure;

impl Settings {
    /// The settings of adapters, if they are asked for.
    ///
    /// # Errors
    /// [`Failure`] for a flag of adapters without `--lora`.
    pub(super) fn lora_config(&self) -> Result<Option<LoraConfig>, Failure> {
        let Some(rank) = self.lora else {
            let mut given = Self::table()
                .iter()
                .filter(|setting| setting.is_given(self));
            return match given.find(|setting| setting.is_in("model.lora.")) {
                None => Ok(None),
                Some(setting) => {
                    let message = format!("--{} has no effect without --lora", setting.flag);
                    Err(Failure::usage(message).hint("use --lora RANK, or remove it"))
                }
            };
        };
        let all = || vec!["all-linear".to_owned()];
        Ok(Some(LoraConfig {
            rank,
            alpha: self.lora_alpha.unwrap_or(2.0 * rank as f64),
            dropout: self.lora_dropout.unwrap_or(0.0),
            targets: self.lora_targets.as_deref().map_or_else(all, trimmed),
            rs: self.lora_rs == Some(true),
            dora: self.lora_dora == Some(true),
            quantize: self.quantize,
        }))
    }
}

/// Names without the blanks that people write behind commas.
fn trimmed(names: &[String]) -> Vec<String> {
    names.iter().map(|name| name.trim().to_owned()).collect()
}
