//! `init`: writes a `config.toml` for a run that fits this machine: the settings that matter, or all of them, each with
//! its help.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Args};
use highwater::Forecast;
use highwater_memory::saved::write_atomic;
use highwater_memory::{Bytes, DiskFiles, Files};
use toml::{Table, Value};

use crate::args::table::{Place, Setting, places};
use crate::args::{All, RunArgs, Settings};
use crate::config::{RunConfig, seal};
use crate::error::{Code, Failure};
use crate::folder::new::check_new;
use crate::machine;
use crate::model::Blueprint;
use crate::planning::{Assumptions, Planner, budget, refusal};
use crate::settings::epochs::with_epochs;
use crate::settings::inputs;
use crate::settings::resolve::{self, Resolved};
use crate::terminal::output;

/// Sequences are not made shorter than this to fit.
const LEAST_SEQ: usize = 128;
/// A budget that nobody named is cut to whole ones of these.
const WHOLE_BYTES: u64 = 1 << 20;
/// The longest line of a comment.
const COMMENT_WIDTH: usize = 100;

/// `init`.
#[derive(Args, Debug, Default)]
#[command(allow_negative_numbers = true)]
pub struct InitArgs {
    /// The settings.
    #[command(flatten)]
    pub run: RunArgs<All>,

    /// File to write
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    #[arg(default_value = "config.toml", display_order = 0)]
    pub out: PathBuf,

    /// Write all settings, not only the essential ones and those that were given
    #[arg(long, help_heading = "Output")]
    pub all: bool,

    /// Replace the file if it exists
    #[arg(long, help_heading = "Output")]
    pub force: bool,

    /// Print help with all flags
    #[arg(long, action = ArgAction::HelpLong)]
    pub help_all: Option<bool>,
}

/// Writes the file.
///
/// # Errors
/// [`Failure`] for settings that are not possible or fit in no size, and for a file that is there.
pub fn init(args: &InitArgs) -> Result<ExitCode, Failure> {
    let files = DiskFiles;
    check_out(&files, args)?;
    let (settings, resolved) = args.run.resolved(&files, resolve::train)?;
    let Resolved {
        mut config,
        model,
        notes,
    } = resolved;
    inputs::check_source(&files, &config)?;
    inputs::check_data(&files, &config)?;
    model.check_data(&files, &config)?;
    for note in &notes {
        output::news(note);
    }
    budget::keep_to_bound(&mut config, &model)?;
    let memory = &mut config.machine.memory;
    if settings.memory.is_none() && memory.0 > WHOLE_BYTES {
        memory.0 -= memory.0 % WHOLE_BYTES;
    }
    machine::find_rates(&files, &mut config.machine)?;
    let before = portion(&config);
    let fitted = fit(&files, &mut config, &model);
    let forecast = fitted.map_err(|failure| {
        let smallest = portion(&config);
        if smallest == before {
            return failure;
        }
        failure.hint(format!(
            "this is the minimum for {smallest}, the smallest that `init` tries; {before} needs more"
        ))
    })?;
    let memory = config.machine.memory;
    let mut planned = vec![format!(
        "planned for {}: peak memory {} of {memory}, {:.3} s per step",
        portion(&config),
        Bytes(forecast.peak_bytes),
        forecast.seconds_per_step
    )];
    if before != portion(&config) {
        planned.push(format!("{before} would not fit into {memory}"));
    }
    let given = (!args.all).then_some(&settings);
    let text = text(&config, given, &args.out, &planned)?;
    write_atomic(&files, &args.out, text.as_bytes())?;
    let out = args.out.display();
    planned.push(format!("use it with `highwater train --config {out}`"));
    output::result(&format!("{out}: {}", planned.join("\n")));
    Ok(ExitCode::SUCCESS)
}

/// That nothing is lost where the file goes: `--force` replaces settings, and no other file.
fn check_out(files: &dyn Files, args: &InitArgs) -> Result<(), Failure> {
    let Some(found) = files.metadata(&args.out)? else {
        return check_new(&args.out);
    };
    let out = args.out.display();
    if !args.force {
        let message = format!("{out} exists already");
        return Err(Failure::usage(message).hint("--force replaces it; --out names another"));
    }
    let text = found.is_file.then(|| RunConfig::text(files, &args.out));
    let text = text.and_then(Result::ok);
    let table = text.as_ref().and_then(|text| text.parse::<Table>().ok());
    let is_setting = |key: &String| {
        key == "version"
            || places::<Settings>().any(|(path, _)| path.split('.').next() == Some(key))
    };
    let is_settings = table.is_some_and(|table| !table.is_empty() && table.keys().all(is_setting));
    let is_of_run = text.is_some_and(|text| !matches!(seal::open(&text), Ok(None)));
    if is_settings && !is_of_run && args.run.config.as_ref() != Some(&args.out) {
        return Ok(());
    }
    let what = if is_of_run {
        "these are the settings of a run"
    } else if is_settings {
        "the settings are read from it"
    } else {
        "this is not a settings file"
    };
    let message = format!("{out}: {what}, so --force does not replace it");
    Err(Failure::usage(message).hint("--out names another file"))
}

/// What a step learns from at once, for people.
fn portion(config: &RunConfig) -> String {
    let (batch, seq) = (config.training.batch, config.training.seq);
    if config.task.is_text() {
        format!("a batch of {batch} and sequences of {seq}")
    } else {
        format!("a batch of {batch}")
    }
}

/// Makes the batch, then the sequences, smaller until a step fits into the budget.
fn fit(files: &dyn Files, config: &mut RunConfig, model: &Blueprint) -> Result<Forecast, Failure> {
    let assumptions = Assumptions::measure(files, config, model)?;
    loop {
        let smaller = smaller(config);
        let is_last = smaller.is_none() || assumptions.tokenize_bytes > config.machine.memory.0;
        let mut planner = Planner::new(config, model, &assumptions);
        let mut forecast = planner.forecast()?;
        if !forecast.fits && (is_last || config.training.accumulate > 1) {
            forecast = planner.within()?;
        }
        drop(planner);
        if forecast.fits {
            budget::keep_to_planned(config, &forecast);
            return Ok(forecast);
        }
        match smaller {
            Some((batch, seq)) if !is_last => {
                (config.training.batch, config.training.seq) = (batch, seq);
            }
            _ => return Err(refusal::refused(&forecast, config)),
        }
    }
}

/// The next smaller batch, or else length of sequences.
fn smaller(config: &RunConfig) -> Option<(usize, usize)> {
    match (config.training.batch, config.training.seq) {
        (batch, seq) if batch > 1 => Some((batch / 2, seq)),
        (batch, seq) if seq > LEAST_SEQ => Some((batch, (seq / 2).max(LEAST_SEQ))),
        _ => None,
    }
}

/// The file: of each setting its help and its value. Where it is known which were given, only those and the essential
/// ones, with the first sentence of their help.
fn text(
    config: &RunConfig,
    given: Option<&Settings>,
    path: &Path,
    planned: &[String],
) -> Result<String, Failure> {
    let table = config.to_toml(path)?.parse::<Table>();
    let table = table.map_err(|error| Failure::new(Code::Internal, error))?;
    let table = with_epochs(table, config);
    let path = path.display();
    let mut lines = vec![format!("# Settings for `highwater train --config {path}`.")];
    if given.is_some() {
        lines.push(
            "# `highwater init --all` writes the others too; they have their defaults.".to_owned(),
        );
    }
    lines.push("# A line such as #epochs = 3.0 sets nothing: it shows an example.".to_owned());
    lines.extend(planned.iter().map(|line| format!("# {line}")));
    lines.extend([String::new(), format!("version = {}", RunConfig::VERSION)]);
    let mut section = "";
    for (path, setting) in shown_places(config, given) {
        let value = find(&table, path);
        // The other place of a setting is for other data, and other parameters are for another optimizer.
        let is_other =
            Some(path) == setting.also || given.is_some() && setting.is_in("optimizer.method.");
        if is_other && value.is_none() {
            continue;
        }
        let (table_name, name) = path.split_once('.').unwrap_or(("", path));
        lines.push(String::new());
        if table_name != section {
            lines.push(format!("[{table_name}]"));
            section = table_name;
        }
        // A flag that takes something away is a setting that says no.
        let no = if setting.flag.starts_with("no-") {
            "If false: "
        } else {
            ""
        };
        let help = match given {
            Some(_) => setting.summary().to_owned(),
            None => setting.help(),
        };
        lines.extend(comment(&format!("{no}{help}")));
        lines.push(match value {
            _ if path == "optimizer.method" => {
                "# By its name, with what it has: method.adamw or method.sgd".to_owned()
            }
            Some(value) => format!("{name} = {}", shown(path, value)),
            None => format!("#{name} = {}", setting.example),
        });
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}

/// The places that the file has, table by table.
fn shown_places(config: &RunConfig, given: Option<&Settings>) -> Vec<Place<Settings>> {
    let is_shown = |path: &str, setting: &Setting<Settings>| match given {
        None => true,
        // With an optimizer come its parameters: the file names it by them.
        Some(_) if path == "optimizer.method" => false,
        Some(given) if setting.is_in("optimizer.method.") && given.optimizer.is_some() => true,
        Some(given) => setting.is_essential || setting.is_given(given),
    };
    let is_shown = |&(path, setting): &Place<Settings>| {
        setting.task.is_none_or(|task| task == config.task) && is_shown(path, setting)
    };
    let mut shown: Vec<_> = places::<Settings>().filter(is_shown).collect();
    let table = |path: &'static str| path.split_once('.').map_or("", |(table, _)| table);
    let tables: Vec<_> = shown.iter().map(|(path, _)| table(path)).collect();
    shown.sort_by_key(|(path, _)| tables.iter().position(|name| *name == table(path)));
    shown
}

/// Text as lines of a comment.
fn comment(text: &str) -> Vec<String> {
    let mut lines = vec!["#".to_owned()];
    for word in text.split_whitespace() {
        let at = lines.len() - 1;
        if lines[at].len() + word.len() < COMMENT_WIDTH {
            lines[at] = format!("{} {word}", lines[at]);
        } else {
            lines.push(format!("# {word}"));
        }
    }
    lines
}

fn find<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        Some((key, rest)) => find(table.get(key)?.as_table()?, rest),
        None => table.get(path),
    }
}

/// A value as people write it.
fn shown(path: &str, value: &Value) -> Value {
    let size = |bytes: i64| {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let whole = units
            .into_iter()
            .find(|&(unit, _)| bytes > 0 && bytes % unit == 0);
        whole.map(|(unit, name)| format!("{}{name}", bytes / unit))
    };
    let text = match (path, value) {
        (
            "machine.memory"
            | "machine.device_memory"
            | "machine.host_memory"
            | "output.max_shard_size",
            value,
        ) => value.as_integer().and_then(size),
        ("machine.disk", Value::Table(disk)) => {
            let (folder, bytes) = (disk.get("folder"), disk.get("bytes"));
            let folder = folder.and_then(Value::as_str);
            let bytes = bytes.and_then(Value::as_integer).and_then(size);
            folder
                .zip(bytes)
                .map(|(folder, bytes)| format!("{folder}={bytes}"))
        }
        _ => None,
    };
    text.map_or_else(|| value.clone(), Value::String)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::table;
    use crate::commands::{Cli, Command};
    use clap::Parser;
    use highwater_memory::files::MemoryFiles;

    const FILE: &str = "/config.toml";

    fn settings(files: &MemoryFiles, line: &str) -> Settings {
        let words = ["highwater", "train"].into_iter();
        let words = words.chain(line.split_whitespace());
        let Command::Train(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not train")
        };
        args.run.complete(files).unwrap()
    }

    fn resolved(files: &MemoryFiles, line: &str) -> RunConfig {
        let settings = settings(files, line);
        resolve::train(files, &settings).unwrap().config
    }

    fn write(files: &MemoryFiles, path: &str, text: &str) {
        let mut file = files.create(Path::new(path)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Settings that are left out, as they stand in a file, with their tables.
    fn left_out(text: &str) -> Vec<String> {
        let mut section = "";
        let mut found = Vec::new();
        for line in text.lines() {
            if line.starts_with('[') {
                section = line.trim_matches(['[', ']']);
            } else if let Some(line) = line.strip_prefix('#')
                && !line.starts_with(' ')
            {
                let dot = if section.is_empty() { "" } else { "." };
                found.push(format!("{section}{dot}{line}\n"));
            }
        }
        found
    }

    #[test]
    fn what_is_written_gives_the_same_settings() {
        let files = MemoryFiles::new();
        write(&files, "/chats.jsonl", "{}");
        files.create_dir_all(Path::new("/pictures/a")).unwrap();
        files.create_dir_all(Path::new("/pictures/b")).unwrap();
        write(&files, "/pictures/a/1.png", "");
        write(&files, "/pictures/b/1.png", "");
        for line in [
            "",
            "--optimizer sgd --momentum 0.5 --clip 2 --schedule linear --decay all --lr 3e-4 --save-every 7 --keep 2",
            "--model llama-nano --lora 4 --lora-rs --lora-dora --lora-targets q_proj,v_proj --quantize int8 --data /chats.jsonl \
             --map text=body --no-packing --chat-template chatml --preference orpo --memory 1500MiB --steps 31",
            "--precision bf16 --master split --moments int8 --device-memory 20MiB --host-memory 9MiB \
             --memory 70000001 --disk /d=3GiB --forbid disk-writes --held-out 3% --seed 8",
            "--model resnet18 --data /pictures --size 64 --dropout 0",
            "--epochs 2.5 --max-shard-size 3GiB",
            "--epochs 3 --warmup 5 --eval-every 7 --sample hello --sample you",
        ] {
            let config = resolved(&files, line);
            let given = settings(&files, line);
            let of =
                |given| text(&config, given, Path::new(FILE), &["planned".to_owned()]).unwrap();
            let (short, text) = (of(Some(&given)), of(None));
            assert!(
                3 * short.lines().count() < 2 * text.lines().count(),
                "{short}"
            );
            for text in [&short, &text] {
                write(&files, FILE, text);
                assert_eq!(resolved(&files, "--config /config.toml"), config, "{text}");
            }
            for left_out in left_out(&text) {
                let table: Table = left_out.parse().unwrap_or_else(|_| panic!("{left_out}"));
                for (key, value) in &table {
                    let taken = table::take(&mut Settings::default(), key, value);
                    taken.unwrap_or_else(|wrong| panic!("{left_out}: {}", wrong.text));
                }
            }
            let after = text.split("version = 2").nth(1).unwrap();
            for part in after.trim().split("\n\n") {
                let lines = part.lines().skip_while(|line| line.starts_with('['));
                let is_comment = |line: &&str| line.starts_with("# ");
                let comment: Vec<_> = lines.clone().take_while(is_comment).collect();
                assert!(comment.concat().len() > 8, "{part}");
                assert!(comment.iter().all(|line| line.len() <= 100), "{part}");
                let is_of_optimizer = part.contains("method.adamw or");
                let settings = usize::from(!is_of_optimizer);
                assert_eq!(lines.count() - comment.len(), settings, "{part}");
            }
        }
    }

    #[test]
    fn portions_halve_down_to_one_sequence_and_to_128_tokens() {
        let mut config = resolved(&MemoryFiles::new(), "--model gpt2 --batch 5 --seq 700");
        let mut found = Vec::new();
        while let Some(next) = smaller(&config) {
            (config.training.batch, config.training.seq) = next;
            found.push(next);
        }
        assert_eq!(found, [(2, 700), (1, 700), (1, 350), (1, 175), (1, 128)]);
    }
}
