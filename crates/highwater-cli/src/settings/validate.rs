//! The range of each setting, and those that depend on the model.

use highwater_memory::Bytes;

use crate::config::range::{count, fraction, most, positive, require, side};
use crate::config::{LoraConfig, Method, PreferenceConfig, RunConfig, SettingsError};
use crate::model::Blueprint;

impl RunConfig {
    /// Checks each setting's range, and those that depend on the model.
    ///
    /// # Errors
    /// [`SettingsError::Range`] for the first at fault.
    pub fn validate(&self, model: &Blueprint) -> Result<(), SettingsError> {
        let (training, output) = (&self.training, &self.output);
        most("steps", training.steps, 1_000_000_000)?;
        count("batch", training.batch as u64, 1 << 16)?;
        count("accumulate", training.accumulate as u64, 1 << 16)?;
        count("threads", self.machine.threads as u64, 1024)?;
        self.validate_memory()?;
        count("save-every", output.save_every, u64::MAX)?;
        count("keep", output.keep as u64, u64::MAX)?;
        count("eval-every", output.eval_every.unwrap_or(1), u64::MAX)?;
        let is_told = |text: &String| !text.is_empty() && self.task.is_text();
        for text in &output.sample {
            require(is_told(text), "sample", &format!("{text:?}"), || {
                "a text of at least one letter, for a model of texts".to_owned()
            })?;
        }
        training.size.map_or(Ok(()), side)?;
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
        // TOML has no larger numbers.
        most("seed", training.seed, i64::MAX as u64)?;
        fraction("dropout", self.model.dropout)?;
        self.model
            .lora
            .as_ref()
            .map_or(Ok(()), LoraConfig::validate)?;
        let preference = training.preference.as_ref();
        preference.map_or(Ok(()), PreferenceConfig::validate)?;
        if let Some(share) = training.label_smoothing {
            let ok = (0.0..=1.0).contains(&share);
            require(ok, "label-smoothing", &share, || {
                "a number from 0 to 1".to_owned()
            })?;
        }
        fraction("held-out", self.data.held_out)?;
        self.validate_optimizer()
    }

    fn validate_memory(&self) -> Result<(), SettingsError> {
        let machine = &self.machine;
        let parts = [
            ("device-memory", machine.device_memory),
            ("host-memory", machine.host_memory),
        ];
        let mut together = 0_u64;
        for (setting, bytes) in parts {
            if let Some(bytes) = bytes {
                require(bytes > Bytes(0), setting, &bytes, || {
                    "at least one byte".to_owned()
                })?;
                together = together.saturating_add(bytes.0);
            }
        }
        require(
            machine.memory.0 > together,
            "memory",
            &machine.memory,
            || {
                let together = Bytes(together);
                format!("more than {together}, what device-memory and host-memory are together")
            },
        )
    }

    fn validate_optimizer(&self) -> Result<(), SettingsError> {
        let optimizer = &self.optimizer;
        positive("lr", optimizer.lr, 100.0)?;
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
        let decay = optimizer.weight_decay;
        require(
            (0.0..=100.0).contains(&decay),
            "weight-decay",
            &decay,
            || "a number from 0 to 100".to_owned(),
        )?;
        if let Some(clip) = optimizer.clip {
            let is_good = clip > 0.0 && clip < f64::INFINITY;
            require(is_good, "clip", &clip, || {
                "a number from 0 up (0 turns clipping off)".to_owned()
            })?;
        }
        match optimizer.method {
            Method::Adamw { beta1, beta2, eps } => {
                fraction("beta1", beta1)?;
                fraction("beta2", beta2)?;
                positive("eps", eps, 1.0)
            }
            Method::Sgd { momentum } => fraction("momentum", momentum),
        }
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
