//! `--config` and `--set`, as flags: from settings, all of them or some, back to what a command line says.

use std::path::Path;

use highwater_memory::Files;
use toml::Table;
use toml::de::{DeTable, DeValue};

use super::table::{self, take};
use super::values::Problem;
use crate::args::{Assignment, LoraArgs, PreferenceArgs, RecordsArgs, RunArgs, TrainArgs};
use crate::config::{RunConfig, SettingsError, Task, seal};
use crate::error::Failure;

/// What a file of settings says.
struct Filed {
    /// As flags.
    args: TrainArgs,
    /// Whether a run wrote it, so that what it does not name it does without.
    is_of_run: bool,
}

impl TrainArgs {
    /// The same, with what `--set` and the file of `--config` say as flags. What the command line says goes before
    /// the file.
    ///
    /// # Errors
    /// [`Failure`] for a file that cannot be read, settings that there are not, and such as are said twice.
    pub fn complete(&self, files: &dyn Files) -> Result<Self, Failure> {
        let mut args = self.clone();
        let (config, set) = (args.run.config.take(), std::mem::take(&mut args.run.set));
        for assignment in &set {
            assignment.take(&mut args)?;
        }
        if let Some(path) = &config {
            args.fill(&Filed::read(files, path)?);
        }
        Ok(args)
    }

    fn fill(&mut self, filed: &Filed) {
        self.run.fill(&filed.args.run, filed.is_of_run);
        let (output, filed) = (&mut self.output, &filed.args.output);
        or(&mut output.save_every, filed.save_every.as_ref());
        or(&mut output.keep, filed.keep.as_ref());
        or(&mut output.eval_every, filed.eval_every.as_ref());
        or(&mut output.sample, filed.sample.as_ref());
        or(&mut output.max_shard_size, filed.max_shard_size.as_ref());
        or(&mut output.tensorboard, filed.tensorboard.as_ref());
    }
}

impl Filed {
    /// Reads a `config.toml` to begin a run with, which people may have written or changed: any of the settings.
    fn read(files: &dyn Files, path: &Path) -> Result<Self, SettingsError> {
        let failed = |problem: String| SettingsError::Toml {
            path: path.to_owned(),
            problem,
        };
        let text = RunConfig::text(files, path)?;
        let parsed = text.parse::<Table>();
        let mut table = parsed.map_err(|error| failed(error.to_string().trim_end().to_owned()))?;
        RunConfig::check_version(table.remove("version").as_ref()).map_err(failed)?;
        // What that run began with is no setting of another.
        table.remove("origin");
        let mut args = TrainArgs::default();
        for (key, value) in &table {
            table::take(&mut args, key, value).map_err(|wrong| {
                let place = place(&text, &wrong.path);
                failed(format!("{place}{}", wrong.text()))
            })?;
        }
        let is_of_run = !matches!(seal::open(&text), Ok(None));
        if is_of_run {
            // Runs of earlier releases say nothing of it where they did not clip.
            args.run.clip.get_or_insert(0.0);
        }
        Ok(Self { args, is_of_run })
    }
}

/// In which line and column a key stands.
fn place(text: &str, path: &str) -> String {
    let find = || {
        let whole = DeTable::parse(text).ok()?.into_inner();
        let (mut table, mut at) = (&whole, 0);
        for key in path.split('.') {
            let (key, value) = table.iter().find(|(found, _)| found.get_ref() == key)?;
            at = key.span().start;
            if let DeValue::Table(inner) = value.get_ref() {
                table = inner;
            }
        }
        let before = text.get(..at)?;
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        Some(format!("line {line}, column {column}: "))
    };
    find().unwrap_or_default()
}

impl RunArgs {
    /// Takes from a file whatever no flag says. What belongs to the model, the optimizer or the data of the file stays
    /// behind where a flag names another; a file of a run names them all.
    fn fill(&mut self, filed: &Self, is_of_run: bool) {
        let names_model = |args: &Self| args.model.is_some() || args.init_from.is_some();
        let is_other_model = names_model(self) && (is_of_run || names_model(filed));
        if !is_other_model {
            or(&mut self.model, filed.model.as_ref());
            or(&mut self.init_from, filed.init_from.as_ref());
            or(&mut self.task, filed.task.as_ref());
            or(&mut self.tokenizer, filed.tokenizer.as_ref());
        }
        // What the other task has no flag for stays behind.
        let is_text = filed.task.is_none_or(|task| task == Task::TextGeneration);
        let names_data = is_of_run || filed.data.is_some();
        if self.data.is_none() || !names_data {
            or(&mut self.data, filed.data.as_ref());
            if is_text {
                or(&mut self.token_dtype, filed.token_dtype.as_ref());
            }
            or(&mut self.held_out, filed.held_out.as_ref());
            or(&mut self.skip_bad, filed.skip_bad.as_ref());
            or(&mut self.eval_data, filed.eval_data.as_ref());
        }
        if !names_data || same(self.data.as_deref(), filed.data.as_deref()) {
            self.records.fill(&filed.records);
            self.preference.fill(&filed.preference);
        }
        or(&mut self.order, filed.order.as_ref());
        or(&mut self.dropout, filed.dropout.as_ref());
        self.lora.fill(&filed.lora);
        or(&mut self.batch, filed.batch.as_ref());
        if is_text {
            or(&mut self.seq, filed.seq.as_ref());
        }
        or(&mut self.size, filed.size.as_ref());
        or(&mut self.accumulate, filed.accumulate.as_ref());
        or(&mut self.precision, filed.precision.as_ref());
        or(&mut self.seed, filed.seed.as_ref());
        or(&mut self.memory, filed.memory.as_ref());
        or(&mut self.policy, filed.policy.as_ref());
        or(&mut self.threads, filed.threads.as_ref());
        or(&mut self.device_memory, filed.device_memory.as_ref());
        or(&mut self.host_memory, filed.host_memory.as_ref());
        or(&mut self.disk, filed.disk.as_ref());
        or(&mut self.forbid, filed.forbid.as_ref());
        self.fill_optimizer(filed);
    }

    fn fill_optimizer(&mut self, filed: &Self) {
        // Rates of one optimizer mean nothing to another.
        if no_other(self.optimizer.as_ref(), filed.optimizer.as_ref()) {
            or(&mut self.optimizer, filed.optimizer.as_ref());
            or(&mut self.lr, filed.lr.as_ref());
            or(&mut self.weight_decay, filed.weight_decay.as_ref());
            or(&mut self.beta1, filed.beta1.as_ref());
            or(&mut self.beta2, filed.beta2.as_ref());
            or(&mut self.eps, filed.eps.as_ref());
            or(&mut self.momentum, filed.momentum.as_ref());
        }
        let length = |args: &Self| {
            let said = args.steps.is_some() || args.epochs.is_some();
            said.then_some((args.steps, args.epochs))
        };
        let (own, file) = (length(self), length(filed));
        if no_other(own.as_ref(), file.as_ref()) {
            or(&mut self.warmup, filed.warmup.as_ref());
        }
        if own.is_none() {
            (self.steps, self.epochs) = (filed.steps, filed.epochs);
        }
        or(&mut self.schedule, filed.schedule.as_ref());
        or(&mut self.decay, filed.decay.as_ref());
        or(&mut self.clip, filed.clip.as_ref());
        or(&mut self.master, filed.master.as_ref());
        or(&mut self.moments, filed.moments.as_ref());
    }
}

impl RecordsArgs {
    fn fill(&mut self, filed: &Self) {
        or(&mut self.loss_on, filed.loss_on.as_ref());
        or(&mut self.chat_template, filed.chat_template.as_ref());
        or(&mut self.no_packing, filed.no_packing.as_ref());
        or(&mut self.map, filed.map.as_ref());
    }
}

impl PreferenceArgs {
    fn fill(&mut self, filed: &Self) {
        // What belongs to a method or a loss means nothing to another.
        if no_other(self.preference.as_ref(), filed.preference.as_ref()) {
            or(&mut self.beta, filed.beta.as_ref());
            // Nor does label smoothing of what is no pair.
            let is_alike = self.preference.is_none() || filed.preference.is_some();
            if is_alike && no_other(self.dpo_loss.as_ref(), filed.dpo_loss.as_ref()) {
                or(&mut self.label_smoothing, filed.label_smoothing.as_ref());
                or(&mut self.dpo_loss, filed.dpo_loss.as_ref());
            }
        }
        or(&mut self.preference, filed.preference.as_ref());
    }
}

impl LoraArgs {
    fn fill(&mut self, filed: &Self) {
        // What is multiplied by belongs to the rank.
        if no_other(self.lora.as_ref(), filed.lora.as_ref()) {
            or(&mut self.lora_alpha, filed.lora_alpha.as_ref());
        }
        or(&mut self.lora, filed.lora.as_ref());
        or(&mut self.lora_dropout, filed.lora_dropout.as_ref());
        or(&mut self.lora_targets, filed.lora_targets.as_ref());
        or(&mut self.lora_rs, filed.lora_rs.as_ref());
        or(&mut self.lora_dora, filed.lora_dora.as_ref());
        or(&mut self.quantize, filed.quantize.as_ref());
    }
}

/// Sets what is not set.
fn or<T: Clone>(flag: &mut Option<T>, filed: Option<&T>) {
    if flag.is_none() {
        *flag = filed.cloned();
    }
}

/// Whether a flag names nothing else than the file.
fn no_other<T: PartialEq>(flag: Option<&T>, filed: Option<&T>) -> bool {
    flag.is_none() || filed.is_none() || flag == filed
}

/// Whether two paths are of one file, or there is none.
fn same(one: Option<&Path>, other: Option<&Path>) -> bool {
    let whole = |path: Option<&Path>| path.and_then(|path| std::path::absolute(path).ok());
    whole(one) == whole(other)
}

impl Assignment {
    /// Says the same as a flag.
    ///
    /// # Errors
    /// [`Failure`] for a setting that there is not, that is no such value, or that is said otherwise already.
    pub fn take(&self, args: &mut TrainArgs) -> Result<(), Failure> {
        let failed = |why: String| Failure::usage(format!("--set {}: {why}", self.text));
        if self.path == "model.source" || self.path.starts_with("model.source.") {
            let why = "another model is another run".to_owned();
            return Err(failed(why).hint("say --model PRESET or --model FOLDER"));
        }
        take(args, &self.path, &self.value).map_err(|wrong| {
            let failure = failed(wrong.text());
            match wrong.problem {
                Problem::Twice => failure.hint("say it once"),
                Problem::Unknown | Problem::Value(_) => failure
                    .hint("`highwater init` writes a file with all settings, and what each is"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::{Cli, Command};
    use crate::config::{Method, RunConfig};
    use crate::error::Failure;
    use crate::settings::resolve;
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
            "--model llama-nano --lora 4 --lora-alpha 3 --lora-dropout 0.1 --lora-targets q_proj,v_proj --lora-rs --lora-dora --quantize nf4",
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
    fn settings_are_set_by_their_names() {
        let files = MemoryFiles::new();
        let set = settings(
            &files,
            "--set optimizer.lr=3e-4 --set training.batch=3 --set machine.memory=80MiB --set output.keep=5",
        )
        .unwrap();
        let flags = settings(&files, "--lr 3e-4 --batch 3 --memory 80MiB --keep 5").unwrap();
        assert_eq!(set, flags);
        // A file may have some of the settings; what the command line says goes before it.
        let text = "[optimizer]\nlr = 1e-3\n[training]\nbatch = 2\n";
        let mut file = files.create(Path::new("/some.toml")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        drop(file);
        let found = settings(&files, "--config /some.toml --set training.batch=5").unwrap();
        assert_eq!((found.optimizer.lr, found.training.batch), (1e-3, 5));
        for (line, told) in [
            ("--set optimizer.lrr=1", "did you mean `lr`?"),
            ("--set optimizer.lr=fast", "optimizer.lr"),
            ("--lr 1e-3 --set optimizer.lr=2e-3", "optimizer.lr"),
        ] {
            let refused = settings(&files, line).unwrap_err().to_string();
            assert!(refused.contains(told), "{line}: {refused}");
        }
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
