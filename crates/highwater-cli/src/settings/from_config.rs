//! `--config` and `--set`: files of settings, all of them or some, under what flags say.

use std::path::Path;

use highwater_memory::Files;
use toml::de::{DeTable, DeValue};
use toml::{Table as TomlTable, Value};

use crate::args::table::{Setting, Table, take};
use crate::args::{Assignment, RunArgs, Settings, Subset};
use crate::config::{RunConfig, SettingsError, Task, seal};
use crate::error::Failure;

/// Above this, TOML has no integers.
const MOST_INTEGER: f64 = i64::MAX as f64;

/// What a file of settings says.
pub(super) struct Filed {
    pub(super) settings: Settings,
    /// Whether a run wrote it, so that what it does not name it does without.
    is_of_run: bool,
}

impl<S: Subset> RunArgs<S> {
    /// What flags, `--set` and the file of `--config` say. What the command line says goes before the file.
    ///
    /// # Errors
    /// [`Failure`] for a file that cannot be read, settings that there are not, and such as are said twice.
    pub fn complete(&self, files: &dyn Files) -> Result<Settings, Failure> {
        let mut settings = self.flags.0.clone();
        for assignment in &self.set {
            assignment.take(&mut settings)?;
        }
        if let Some(path) = &self.config {
            let filed = Filed::read(files, path)?;
            let left = left_behind(&settings, &filed);
            settings.fill(&filed.settings, |setting| {
                left.iter().any(|name| setting.is_in(name))
            });
        }
        Ok(settings)
    }

    /// Where the value of a setting was given; none for its flag.
    pub(super) fn place_of(
        &self,
        files: &dyn Files,
        setting: &Setting<Settings>,
    ) -> Option<String> {
        if setting.is_given(&self.flags) {
            return None;
        }
        let is_it = |it: &&Assignment| it.path == setting.path || Some(&*it.path) == setting.also;
        match self.set.iter().find(is_it) {
            Some(found) => Some(format!("--set {}", found.path)),
            None => place_in_file(files, self.config.as_deref()?, setting),
        }
    }
}

/// Has an error about the range of a setting say where the value was given.
pub(super) fn locate(
    error: &mut SettingsError,
    place_of: impl FnOnce(&Setting<Settings>) -> Option<String>,
) {
    if let SettingsError::Range { setting, place, .. } = error {
        let mut all = Settings::table().iter();
        *place = all.find(|it| it.flag == *setting).and_then(place_of);
    }
}

/// Where a setting stands in a file.
fn place_in_file(files: &dyn Files, path: &Path, setting: &Setting<Settings>) -> Option<String> {
    let text = RunConfig::text(files, path).ok()?;
    let names = [Some(setting.path), setting.also].into_iter().flatten();
    let mut places = names.map(|name| (name, place(&text, name)));
    let (name, place) = places.find(|(_, place)| !place.is_empty())?;
    Some(format!("{}: {place}`{name}`", path.display()))
}

impl Filed {
    /// Checks the settings in a run's file: people can have changed those of earlier releases.
    ///
    /// # Errors
    /// As [`Filed::read`], and [`SettingsError::Range`] with the place in the file.
    pub(super) fn check(files: &dyn Files, path: &Path) -> Result<(), SettingsError> {
        let checked = Self::read(files, path)?.settings.check();
        checked.map_err(|mut error| {
            locate(&mut error, |setting| place_in_file(files, path, setting));
            error
        })
    }

    /// Reads a `config.toml` to begin a run with, which people may have written or changed: any of the settings.
    pub(super) fn read(files: &dyn Files, path: &Path) -> Result<Self, SettingsError> {
        let failed = |problem: String| SettingsError::Toml {
            path: path.to_owned(),
            problem,
        };
        let text = RunConfig::text(files, path)?;
        let parsed = text.parse::<TomlTable>();
        let mut table = parsed.map_err(|error| {
            failed(if text.trim_start().starts_with('{') {
                "this is JSON; settings are TOML, as `highwater init` writes them".to_owned()
            } else {
                error.to_string().trim_end().to_owned()
            })
        })?;
        RunConfig::check_version(table.remove("version").as_ref()).map_err(failed)?;
        // What that run began with is no setting of another.
        table.remove("origin");
        let mut settings = Settings::default();
        for (key, value) in &table {
            take(&mut settings, key, value).map_err(|wrong| {
                let place = place(&text, &wrong.path);
                failed(format!("{place}{}", wrong.text))
            })?;
        }
        let is_of_run = !matches!(seal::open(&text), Ok(None));
        if is_of_run {
            // Runs of earlier releases say nothing of it where they did not clip.
            settings.clip.get_or_insert(0.0);
        }
        Ok(Self {
            settings,
            is_of_run,
        })
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

/// The settings of a file that are left behind, each by its flag or the table that it is in: they belong to the
/// model, the data, the optimizer or another choice of the file, in whose stead a flag names another.
fn left_behind(own: &Settings, filed: &Filed) -> Vec<&'static str> {
    let (is_of_run, filed) = (filed.is_of_run, &filed.settings);
    let names_model = |of: &Settings| of.model.is_some() || of.init_from.is_some();
    // A file of a run names its data even where that is the built-in guide.
    let names_data = is_of_run || filed.data.is_some();
    let is_other_data = own.data.is_some() && names_data;
    let is_text = filed.task.is_none_or(|task| task == Task::TextGeneration);
    let is_other_method = is_other(own.preference.as_ref(), filed.preference.as_ref());
    let is_new_method = own.preference.is_some() && filed.preference.is_none();
    let length = |of: &Settings| {
        let is_said = of.steps.is_some() || of.epochs.is_some();
        is_said.then_some((of.steps, of.epochs))
    };
    let left: [(bool, &[&'static str]); 10] = [
        (
            names_model(own) && (is_of_run || names_model(filed)),
            &["model", "init-from", "task", "tokenizer"],
        ),
        (
            is_other_data,
            &["data", "eval-data", "held-out", "token-dtype", "skip-bad"],
        ),
        (
            is_other_data && !same(own.data.as_deref(), filed.data.as_deref()),
            &["data.records.", "training.preference.", "label-smoothing"],
        ),
        // Files of images say them too, and no flag of images does.
        (!is_text, &["token-dtype", "seq"]),
        (is_other_method, &["beta"]),
        (
            is_other_method
                || is_new_method
                || is_other(own.dpo_loss.as_ref(), filed.dpo_loss.as_ref()),
            &["dpo-loss", "label-smoothing"],
        ),
        (
            is_other(own.lora.as_ref(), filed.lora.as_ref()),
            &["lora-alpha"],
        ),
        (
            is_other(own.optimizer.as_ref(), filed.optimizer.as_ref()),
            &["optimizer.method.", "lr", "weight-decay"],
        ),
        (
            is_other(length(own).as_ref(), length(filed).as_ref()),
            &["warmup"],
        ),
        (length(own).is_some(), &["steps", "epochs"]),
    ];
    let left = left.into_iter().filter(|(is_left, _)| *is_left);
    left.flat_map(|(_, names)| names).copied().collect()
}

/// Whether a flag names something else than the file.
fn is_other<T: PartialEq>(flag: Option<&T>, filed: Option<&T>) -> bool {
    flag.is_some() && filed.is_some() && flag != filed
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
    pub fn take(&self, settings: &mut Settings) -> Result<(), Failure> {
        let failed = |why: String| Failure::usage(format!("--set {}: {why}", self.text));
        if self.path == "model.source" || self.path.starts_with("model.source.") {
            let why = "another model is another run".to_owned();
            return Err(failed(why).hint("use --model PRESET or --model FOLDER"));
        }
        let taken = take(settings, &self.path, &self.value);
        // A name may look like a number: data.path=2024.
        let taken = taken.or_else(|wrong| match &self.bare {
            Some(bare) if !wrong.is_twice => {
                let again = take(settings, &self.path, &Value::String(bare.clone()));
                again.map_err(|again| if again.is_twice { again } else { wrong })
            }
            _ => Err(wrong),
        });
        taken.map_err(|wrong| {
            let number = self.value.as_str().and_then(|text| text.parse().ok());
            let why = match number.map(f64::abs) {
                Some(MOST_INTEGER..) => format!("`{}`: the number is too large", self.path),
                _ => wrong.text,
            };
            failed(why).hint(if wrong.is_twice {
                "set each once"
            } else {
                "`highwater init --all` writes a file that lists and explains all settings"
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Cli, Command};
    use crate::config::Method;
    use crate::settings::resolve;
    use clap::Parser;
    use highwater_memory::files::MemoryFiles;
    use std::str::FromStr;

    fn settings(files: &MemoryFiles, line: &str) -> Result<RunConfig, Failure> {
        let words = ["highwater", "train"].into_iter();
        let words = words.chain(line.split_whitespace());
        let Command::Train(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not train")
        };
        let resolved = args.run.resolved(files, resolve::train);
        resolved.map(|(_, resolved)| resolved.config)
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
        // Names may look like numbers.
        for name in ["2024", "1e3", "true", "nan", "2024-05-06"] {
            for place in ["data.path", "data.records.chat_template", "output.sample"] {
                let set = Assignment::from_str(&format!("{place}={name}")).unwrap();
                let mut settings = Settings::default();
                set.take(&mut settings).unwrap();
                let found = match place {
                    "data.path" => settings.data.unwrap().display().to_string(),
                    "output.sample" => settings.sample.unwrap().concat(),
                    _ => settings.chat_template.unwrap(),
                };
                assert_eq!(found, name, "{place}");
            }
        }
        for (line, told) in [
            ("--data 2025 --set data.path=2024", "is set twice"),
            (
                "--optimizer adamw --set optimizer.method.sgd.momentum=0.5",
                "contradicts --optimizer or --momentum",
            ),
            ("--set optimizer.lr=true", "invalid type: boolean"),
            ("--set optimizer.lrr=1", "did you mean `lr`?"),
            ("--set optimizer.lr=fast", "optimizer.lr"),
            ("--lr 1e-3 --set optimizer.lr=2e-3", "optimizer.lr"),
        ] {
            let refused = settings(&files, line).unwrap_err().to_string();
            assert!(refused.contains(told), "{line}: {refused}");
        }
    }

    #[test]
    fn a_value_out_of_range_is_said_where_it_was_given() {
        let files = MemoryFiles::new();
        let text = "[model]\nsource = \"gpt2-nano\"\n\n[training]\nseq = 1024\nbatch = 2\n[optimizer]\nlr = -1\n";
        let mut file = files.create(Path::new("/some.toml")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        drop(file);
        for (line, told) in [
            ("--lr -1", "--lr is -1; expected a number above 0"),
            (
                "--set optimizer.lr=-2",
                "--set optimizer.lr is -2; expected",
            ),
            (
                "--config /some.toml --seq 16",
                "/some.toml: line 8, column 1: `optimizer.lr` is -1; expected",
            ),
            // Of the model, and not of the table of settings.
            (
                "--config /some.toml --lr 1e-3",
                "/some.toml: line 5, column 1: `training.seq` is 1024; expected 1 to 256",
            ),
            ("--seq 1024", "--seq is 1024; expected 1 to 256"),
            ("--lr 1e308", "--lr is 1e308; expected"),
            ("--lr 1e400", "--lr is inf; expected"),
        ] {
            let refused = settings(&files, line).unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("error[HW1030]: {told}")),
                "{line}: {refused}"
            );
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
