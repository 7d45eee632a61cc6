//! From flags to the settings of adapters.

use crate::args::LoraArgs;
use crate::config::LoraConfig;
use crate::error::Failure;

impl LoraArgs {
    /// That no flag of adapters stands alone.
    ///
    /// # Errors
    /// [`Failure`] for the first that does.
    pub fn check(&self) -> Result<(), Failure> {
        let given = [
            ("lora-alpha", self.lora_alpha.is_some()),
            ("lora-dropout", self.lora_dropout.is_some()),
            ("lora-targets", self.lora_targets.is_some()),
            ("lora-rs", self.lora_rs == Some(true)),
            ("lora-dora", self.lora_dora == Some(true)),
            ("quantize", self.quantize.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) if self.lora.is_none() => {
                let message = format!("--{flag} has no effect without --lora");
                Err(Failure::usage(message).hint("say --lora RANK, or leave it out"))
            }
            _ => Ok(()),
        }
    }

    /// The settings, if adapters are asked for.
    pub fn config(&self) -> Option<LoraConfig> {
        let rank = self.lora?;
        let all = || vec!["all-linear".to_owned()];
        Some(LoraConfig {
            rank,
            alpha: self.lora_alpha.unwrap_or(2.0 * rank as f64),
            dropout: self.lora_dropout.unwrap_or(0.0),
            targets: self.lora_targets.clone().unwrap_or_else(all),
            rs: self.lora_rs == Some(true),
            dora: self.lora_dora == Some(true),
            quantize: self.quantize,
        })
    }
}
