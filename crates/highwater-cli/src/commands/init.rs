//! `init`: writes a `config.toml` for a run that fits this machine, with a word on each setting.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use highwater::Forecast;
use highwater_memory::saved::write_atomic;
use highwater_memory::{Bytes, DiskFiles, Files};
use toml::{Table, Value};

use crate::args::{OutputArgs, RunArgs, TrainArgs};
use crate::config::{RunConfig, seal};
use crate::error::{Code, Failure};
use crate::folder::new::check_new;
use crate::machine;
use crate::model::Blueprint;
use crate::planning::{Assumptions, Planner, budget, refusal};
use crate::settings::epochs::with_epochs;
use crate::settings::inputs;
use crate::settings::resolve::{self, Resolved};
use crate::settings::table::{SETTINGS, Setting};
use crate::terminal::output;

/// Sequences are not made shorter than this to fit.
const LEAST_SEQ: usize = 128;
/// A budget that nobody named is cut to whole ones of these.
const WHOLE_BYTES: u64 = 1 << 20;

/// `init`.
#[derive(Args, Debug, Default)]
#[command(allow_negative_numbers = true)]
pub struct InitArgs {
    /// What decides about the computation.
    #[command(flatten)]
    pub run: RunArgs,

    /// The file to write
    #[arg(
        long,
        value_name = "FILE",
        default_value = "config.toml",
        help_heading = "Output"
    )]
    pub out: PathBuf,

    /// What is kept.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Replace the file if it is there
    #[arg(long, help_heading = "Output")]
    pub force: bool,
}

/// Writes the file.
///
/// # Errors
/// [`Failure`] for settings that are not possible or fit in no size, and for a file that is there.
pub fn init(args: &InitArgs) -> Result<ExitCode, Failure> {
    let files = DiskFiles;
    check_out(&files, args)?;
    let train = TrainArgs {
        run: args.run.clone(),
        output: args.output.clone(),
        ..TrainArgs::default()
    };
    let train = train.complete(&files)?;
    let Resolved {
        mut config,
        model,
        notes,
    } = resolve::train(&files, &train)?;
    inputs::check_source(&files, &config)?;
    inputs::check_data(&files, &config)?;
    model.check_data(&files, &config)?;
    for note in &notes {
        output::news(note);
    }
    budget::keep_to_bound(&mut config, &model)?;
    let memory = &mut config.machine.memory;
    if train.run.memory.is_none() && memory.0 > WHOLE_BYTES {
        memory.0 -= memory.0 % WHOLE_BYTES;
    }
    machine::find_rates(&files, &mut config.machine)?;
    let before = portion(&config);
    let forecast = fit(&files, &mut config, &model)?;
    let memory = config.machine.memory;
    let mut planned = vec![format!(
        "planned for {}: {} of {memory} at most, {:.3} s per step",
        portion(&config),
        Bytes(forecast.peak_bytes),
        forecast.seconds_per_step
    )];
    if before != portion(&config) {
        planned.push(format!("{before} would not fit into {memory}"));
    }
    let text = text(&config, &args.out, &planned)?;
    write_atomic(&files, &args.out, text.as_bytes())?;
    let out = args.out.display();
    planned.push(format!("`highwater train --config {out}` takes it"));
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
            || SETTINGS
                .iter()
                .any(|it| it.path.split('.').next() == Some(key))
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
        "this is no file of settings"
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

/// The file: a line on each setting, which is what the flag's help says, and what it is.
fn text(config: &RunConfig, path: &Path, planned: &[String]) -> Result<String, Failure> {
    let table = config.to_toml(path)?.parse::<Table>();
    let table = table.map_err(|error| Failure::new(Code::Internal, error))?;
    let table = with_epochs(table, config);
    let mut lines = vec![
        format!(
            "# Settings of a run: `highwater train --config {}` takes them, and flags and --set change them.",
            path.display()
        ),
        "# Each has the flag's words before it. What begins with # is left out, and shows what it may be."
            .to_owned(),
    ];
    lines.extend(planned.iter().map(|line| format!("# {line}")));
    lines.extend([String::new(), format!("version = {}", RunConfig::VERSION)]);
    let train = TrainArgs::augment_args(clap::Command::new("train"));
    let help = |flag: &str| {
        let found = train
            .get_arguments()
            .find(|arg| arg.get_long() == Some(flag));
        let help = found.and_then(clap::Arg::get_help).map(ToString::to_string);
        let words = help.unwrap_or_default();
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut section = "";
    for setting in SETTINGS.iter().filter(|setting| applies(setting, config)) {
        let (table_name, name) = setting.path.split_once('.').unwrap_or(("", setting.path));
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
        lines.push(format!("# {no}{}", help(setting.flag)));
        lines.push(match find(&table, setting.path) {
            _ if setting.path == "optimizer.method" => {
                "# By its name, with what it has: method.adamw or method.sgd".to_owned()
            }
            Some(value) => format!("{name} = {}", shown(setting, value)),
            None => format!("#{name} = {}", setting.example),
        });
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}

/// Whether a setting means anything to the task.
fn applies(setting: &Setting, config: &RunConfig) -> bool {
    const TEXT: [&str; 10] = [
        "data.eval_data",
        "model.tokenizer",
        "model.dropout",
        "model.lora.",
        "data.token_dtype",
        "data.records.",
        "training.seq",
        "training.preference.",
        "output.sample",
        "output.max_shard_size",
    ];
    if config.task.is_text() {
        !["training.size", "data.skip_bad"].contains(&setting.path)
    } else {
        !TEXT.iter().any(|of_text| setting.path.starts_with(of_text))
    }
}

fn find<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        Some((key, rest)) => find(table.get(key)?.as_table()?, rest),
        None => table.get(path),
    }
}

/// A value as people write it.
fn shown(setting: &Setting, value: &Value) -> Value {
    let size = |bytes: i64| {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let whole = units
            .into_iter()
            .find(|&(unit, _)| bytes > 0 && bytes % unit == 0);
        whole.map(|(unit, name)| format!("{}{name}", bytes / unit))
    };
    let text = match (setting.path, value) {
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
    use crate::commands::{Cli, Command};
    use crate::settings::table;
    use clap::Parser;
    use highwater_memory::files::MemoryFiles;

    const FILE: &str = "/config.toml";

    fn resolved(files: &MemoryFiles, line: &str) -> RunConfig {
        let words = ["highwater", "train"].into_iter();
        let words = words.chain(line.split_whitespace());
        let Command::Train(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not train")
        };
        resolve::train(files, &args).unwrap().config
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
            let text = text(&config, Path::new(FILE), &["planned".to_owned()]).unwrap();
            write(&files, FILE, &text);
            assert_eq!(resolved(&files, "--config /config.toml"), config, "{text}");
            for left_out in left_out(&text) {
                let table: Table = left_out.parse().unwrap_or_else(|_| panic!("{left_out}"));
                for (key, value) in &table {
                    let taken = table::take(&mut TrainArgs::default(), key, value);
                    taken.unwrap_or_else(|wrong| panic!("{left_out}: {}", wrong.text()));
                }
            }
            let after = text.split("version = 2").nth(1).unwrap();
            for part in after.trim().split("\n\n") {
                let mut lines = part.lines().skip_while(|line| line.starts_with('['));
                let comment = lines.next().unwrap();
                assert!(comment.starts_with("# ") && comment.len() > 10, "{part}");
                assert!(!comment.contains("  "), "{part}");
                assert_eq!(lines.count(), 1, "{part}");
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
