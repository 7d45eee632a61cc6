//! Bounds that depend on the model, or on other settings. What each setting may be by itself, `args/settings.rs` says.

use highwater_memory::Bytes;

use crate::args::Settings;
use crate::args::table::Table;
use crate::config::range::require;
use crate::config::{PreferenceConfig, RunConfig, SettingsError};
use crate::model::Blueprint;

impl RunConfig {
    /// Checks the settings that depend on the model or on each other, and what was computed instead of given.
    ///
    /// # Errors
    /// [`SettingsError::Range`] for the first at fault.
    pub fn validate(&self, model: &Blueprint) -> Result<(), SettingsError> {
        let training = &self.training;
        // Steps are counted where there are epochs, and the size of images may be that of the model's folder.
        let computed = Settings {
            steps: Some(training.steps),
            size: training.size,
            ..Settings::default()
        };
        computed.check()?;
        self.validate_memory()?;
        for text in &self.output.sample {
            let is_prompt = !text.is_empty() && self.task.is_text();
            require(is_prompt, "sample", &format!("{text:?}"), || {
                "a text of at least one letter, for a model of texts".to_owned()
            })?;
        }
        let positions = model.max_length() as u64;
        require(
            (1..=positions).contains(&(training.seq as u64)),
            "seq",
            &training.seq,
            || match model.max_length_field() {
                Some(field) => format!("1 to {positions}, the model's {field}"),
                None => format!("1 to {positions}"),
            },
        )?;
        let preference = training.preference.as_ref();
        preference.map_or(Ok(()), PreferenceConfig::validate)?;
        self.validate_optimizer()
    }

    fn validate_memory(&self) -> Result<(), SettingsError> {
        let machine = &self.machine;
        let parts = [machine.device_memory, machine.host_memory];
        let parts = parts.into_iter().flatten();
        let together = parts.fold(0_u64, |sum, part| sum.saturating_add(part.0));
        require(
            machine.memory.0 > together,
            "memory",
            &machine.memory,
            || {
                let together = Bytes(together);
                format!("more than {together}, the sum of device-memory and host-memory")
            },
        )
    }

    fn validate_optimizer(&self) -> Result<(), SettingsError> {
        let optimizer = &self.optimizer;
        let steps = self.training.steps;
        require(
            optimizer.warmup <= steps || self.training.epochs.is_some(),
            "warmup",
            &optimizer.warmup,
            || format!("at most {steps}, the number of steps"),
        )?;
        if let Some(master) = optimizer.master {
            master.check(self.training.precision)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
