//! From the settings of a run back to flags: a `config.toml` is where `train --config FILE` starts from.

use crate::args::RunArgs;
use crate::config::{Method, ModelSource, OptimizerKind, RunConfig};
use crate::error::Failure;

impl RunArgs {
    /// Takes from a run's settings whatever no flag says. What belongs to the model, the optimizer or the
    /// data of the run stays behind where a flag names another.
    ///
    /// # Errors
    /// [`Failure`] for a model folder whose name is no UTF-8.
    pub fn fill(&mut self, config: &RunConfig) -> Result<(), Failure> {
        let RunConfig {
            model,
            data,
            training,
            machine,
            ..
        } = config;
        if self.model.is_none() {
            let name = match &model.source {
                ModelSource::Preset(name) => Some(name.clone()),
                ModelSource::Folder(path) => path.to_str().map(str::to_owned),
            };
            let unnamed =
                || Failure::usage("the model folder of --config has a name that is no UTF-8");
            self.model = Some(name.ok_or_else(unnamed)?);
            set(&mut self.task, config.task);
            self.tokenizer = self.tokenizer.take().or_else(|| model.tokenizer.clone());
        }
        // What the other task has no flag for stays behind.
        let is_text = config.task.is_text();
        if self.data.is_none() {
            self.data.clone_from(&data.path);
            if is_text {
                set(&mut self.token_dtype, data.token_dtype);
            }
            set(&mut self.held_out, data.held_out);
        }
        if self.data == data.path {
            data.records.iter().for_each(|it| self.records.fill(it));
            let preference = training.preference.iter();
            preference.for_each(|it| self.preference.fill(it));
        }
        set(&mut self.order, data.order);
        set(&mut self.dropout, model.dropout);
        model.lora.iter().for_each(|lora| self.lora.fill(lora));
        set(&mut self.steps, training.steps);
        set(&mut self.batch, training.batch);
        if is_text {
            set(&mut self.seq, training.seq);
        }
        self.size = self.size.or(training.size);
        set(&mut self.accumulate, training.accumulate);
        set(&mut self.precision, training.precision);
        set(&mut self.seed, training.seed);
        set(&mut self.memory, machine.memory);
        set(&mut self.policy, machine.policy);
        set(&mut self.threads, machine.threads);
        self.device_memory = self.device_memory.or(machine.device_memory);
        self.host_memory = self.host_memory.or(machine.host_memory);
        self.disk = self.disk.take().or_else(|| machine.disk.clone());
        if self.forbid.is_empty() {
            self.forbid.clone_from(&machine.forbid);
        }
        self.fill_optimizer(config);
        Ok(())
    }

    fn fill_optimizer(&mut self, config: &RunConfig) {
        let optimizer = &config.optimizer;
        let kind = match optimizer.method {
            Method::Adamw { .. } => OptimizerKind::Adamw,
            Method::Sgd { .. } => OptimizerKind::Sgd,
        };
        // Rates of one optimizer mean nothing to another.
        if self.optimizer.is_none_or(|named| named == kind) {
            self.optimizer = Some(kind);
            set(&mut self.lr, optimizer.lr);
            set(&mut self.weight_decay, optimizer.weight_decay);
            match optimizer.method {
                Method::Adamw { beta1, beta2, eps } => {
                    set(&mut self.beta1, beta1);
                    set(&mut self.beta2, beta2);
                    set(&mut self.eps, eps);
                }
                Method::Sgd { momentum } => set(&mut self.momentum, momentum),
            }
        }
        if self.steps == Some(config.training.steps) {
            set(&mut self.warmup, optimizer.warmup);
        }
        set(&mut self.schedule, optimizer.schedule);
        set(&mut self.decay, optimizer.decay);
        self.clip = self.clip.or(optimizer.clip);
        self.master = self.master.or(optimizer.master);
        set(&mut self.moments, optimizer.moments);
    }
}

/// Sets what is not set.
fn set<T>(flag: &mut Option<T>, value: T) {
    flag.get_or_insert(value);
}

/// What a parser says of a key that it does not know, with the name that may have been meant.
pub(crate) fn with_nearest(problem: &str) -> String {
    let meant = || {
        let (_, told) = problem.split_once("unknown field `")?;
        let (key, known) = told.split_once('`')?;
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        highwater_models::config::nearest(key, &known)
    };
    match meant() {
        Some(name) => format!("{problem}; did you mean `{name}`?"),
        None => problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use crate::config::{Method, RunConfig};
    use crate::error::Failure;
    use crate::resolve;
    use clap::Parser;
    use highwater_memory::Files;
    use highwater_memory::files::MemoryFiles;
    use std::path::Path;

    fn settings(files: &MemoryFiles, line: &str) -> Result<RunConfig, Failure> {
        let words = ["highwater", "train"].into_iter();
        let words = words.chain(line.split_whitespace());
        let Command::Train(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not train")
        };
        resolve::train(files, &args).map(|resolved| resolved.config)
    }

    #[test]
    fn a_run_starts_from_the_settings_that_another_wrote() {
        let files = MemoryFiles::new();
        let path = Path::new("/config.toml");
        for line in [
            "",
            "--batch 3 --seq 20 --steps 40 --warmup 7 --lr 3e-4 --clip 2 --seed 9 --save-every 11 --keep 5",
            "--optimizer sgd --momentum 0.5 --decay all --schedule linear --dropout 0.25 --accumulate 3 \
             --precision bf16",
            "--precision bf16 --master stochastic --moments int8",
            "--model llama-nano --lora 4 --lora-alpha 3 --lora-dropout 0.1 --lora-targets q_proj,v_proj --lora-rs --quantize nf4",
            "--data /corpus.txt --held-out 0.2 --order sequential --memory 80MiB --threads 3 --policy keep",
            "--device-memory 20MiB --host-memory 9MiB --memory 70MiB --forbid disk-writes",
        ] {
            let config = settings(&files, line).unwrap();
            config.write(&files, path).unwrap();
            assert_eq!(
                settings(&files, "--config /config.toml").unwrap(),
                config,
                "{line}"
            );
            let other = settings(&files, "--config /config.toml --lr 0.5 --seed 77").unwrap();
            assert_eq!((other.optimizer.lr, other.training.seed), (0.5, 77));
            assert_eq!((other.data, other.output), (config.data, config.output));
        }
        let sgd = settings(&files, "--config /config.toml --optimizer sgd").unwrap();
        assert_eq!(sgd.optimizer.method, Method::Sgd { momentum: 0.0 });
        assert!(sgd.optimizer.weight_decay.abs() < f64::EPSILON);
    }

    #[test]
    fn unknown_keys_are_refused_with_the_nearest_name() {
        let files = MemoryFiles::new();
        let text = settings(&files, "")
            .unwrap()
            .to_toml(Path::new("config.toml"))
            .unwrap();
        for (key, misspelt) in [
            ("warmup", "warmpu"),
            ("threads", "thread"),
            ("held_out", "heldout"),
        ] {
            let text = text.replace(&format!("{key} ="), &format!("{misspelt} ="));
            let mut file = files.create(Path::new("/config.toml")).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            drop(file);
            let refused = settings(&files, "--config /config.toml")
                .unwrap_err()
                .to_string();
            assert!(
                refused.contains(&format!("did you mean `{key}`?")),
                "{refused}"
            );
            assert!(
                refused.starts_with("error[HW1031]: /config.toml"),
                "{refused}"
            );
        }
    }
}
