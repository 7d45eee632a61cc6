use crate::args::Settings;
use crate::args::table::{Table as _, places, take, within};
use crate::commands::{Cli, Command};
use crate::config::{Method, RunConfig};
use crate::error::Failure;
use crate::folder::RunDir;
use crate::settings::resolve::{self, Resolved};
use clap::Parser;
use highwater_memory::Files;
use highwater_memory::files::MemoryFiles;
use std::path::Path;
use toml::{Table, Value};

const FILE: &str = "/config.toml";

fn settings(files: &MemoryFiles, words: &[&str]) -> Result<RunConfig, Failure> {
    let words = ["highwater", "train"].iter().chain(words);
    let Command::Train(args) = Cli::try_parse_from(words).unwrap().command else {
        panic!("not train")
    };
    let resolved = args.run.resolved(files, resolve::train);
    resolved.map(|(_, resolved)| resolved.config)
}

fn of_line(files: &MemoryFiles, line: &str) -> RunConfig {
    let words: Vec<_> = line.split_whitespace().collect();
    settings(files, &words).unwrap_or_else(|failure| panic!("{line}: {failure}"))
}

fn refused(files: &MemoryFiles, line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    settings(files, &words).expect_err(line).to_string()
}

fn write(files: &MemoryFiles, path: &str, text: &str) {
    let mut file = files.create(Path::new(path)).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// What has a value in a table, by its path.
fn leaves(table: &Table, path: &str, found: &mut Vec<(String, Value)>) {
    for (key, value) in table {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        match value {
            Value::Table(table) if !within::<Settings>(&path).is_empty() => {
                leaves(table, &path, found);
            }
            value => found.push((path, value.clone())),
        }
    }
}

#[test]
fn every_setting_of_a_run_has_a_place_and_a_flag() {
    let files = MemoryFiles::new();
    write(&files, "/chats.jsonl", "{}");
    let mut used = Vec::new();
    for line in [
        "--clip 1 --tensorboard --tokenizer /t.json --optimizer sgd --device-memory 20MiB --host-memory 9MiB \
         --disk /d=1GiB --forbid disk-writes --max-shard-size 5GB --eval-every 4 --sample hello --label-smoothing 0.1",
        "--model llama-nano --precision bf16 --master split --moments int8 --data /chats.jsonl --map text=body \
         --chat-template chatml --no-packing --preference dpo --dpo-loss robust --label-smoothing 0.1 --lora 4 --lora-rs --lora-dora --quantize nf4",
    ] {
        let table = Table::try_from(of_line(&files, line)).unwrap();
        let mut found = Vec::new();
        leaves(&table, "", &mut found);
        for (path, value) in found {
            if path != "version" {
                take(&mut Settings::default(), &path, &value).unwrap();
                used.push(path);
            }
        }
    }
    for (path, _) in places::<Settings>() {
        // A task other than text, images and other files are not in those lines; epochs are steps in a run's settings.
        let is_used = used.iter().any(|used| used == path)
            || !within::<Settings>(path).is_empty()
            || [
                "task",
                "training.size",
                "training.epochs",
                "data.skip_bad",
                "data.eval_data",
                "data.token_dtype",
            ]
            .contains(&path);
        assert!(is_used, "{path}");
    }
}

fn of_words(words: &[String]) -> Settings {
    let start = ["highwater", "train"].map(str::to_owned);
    let words = start.into_iter().chain(words.iter().cloned());
    let Command::Train(args) = Cli::try_parse_from(words).unwrap().command else {
        panic!("not train")
    };
    args.run.complete(&MemoryFiles::new()).unwrap()
}

/// The words of a flag that says the same as a value of a file.
fn words_of(flag: &str, value: &Value) -> Vec<String> {
    let flag = format!("--{flag}");
    match value {
        Value::Boolean(_) => vec![flag],
        Value::Array(each) => {
            let words = each.iter().flat_map(|value| [flag.clone(), text_of(value)]);
            words.collect()
        }
        Value::Table(table) => {
            let each = table.iter();
            let words = each.flat_map(|(key, it)| [flag.clone(), format!("{key}={}", text_of(it))]);
            words.collect()
        }
        value => vec![flag, text_of(value)],
    }
}

fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn every_setting_is_the_same_by_its_place_and_by_its_flag() {
    for (path, setting) in places::<Settings>() {
        let example = setting.example;
        assert!(!example.is_empty(), "{path} has no example");
        let value = format!("x = {example}").parse::<Table>().unwrap()["x"].clone();
        // Parameters of an optimizer stand under its name, which a flag leaves to another.
        let method = path.strip_prefix("optimizer.method.");
        let method = method.and_then(|rest| rest.split_once('.'));
        let mut words = words_of(setting.flag, &value);
        words.extend(method.map(|(name, _)| format!("--optimizer={name}")));
        let by_flag = of_words(&words);
        assert!(setting.is_given(&by_flag), "{words:?}");
        if path != "model.source" {
            let set = ["--set".to_owned(), format!("{path}={example}")];
            assert_eq!(of_words(&set), by_flag, "{path}");
        }
        let mut filed = Settings::default();
        take(&mut filed, path, &value).unwrap();
        assert_eq!(filed, by_flag, "{path}");
        let mut filled = Settings::default();
        filled.fill(&by_flag, |_| false);
        assert_eq!(filled, by_flag, "{path}");
        assert!(!setting.help().is_empty());
    }
}

#[test]
fn values_out_of_bounds_are_refused_with_the_name_of_their_flag() {
    let mut bounded = Vec::new();
    let integers = [-1, 0, 2_000_000_000].map(Value::Integer);
    let floats = [1e300, f64::NAN].map(Value::Float);
    for setting in Settings::table() {
        for value in integers.iter().chain(&floats) {
            let mut settings = Settings::default();
            if take(&mut settings, setting.path, value).is_err() {
                continue;
            }
            if let Err(error) = settings.check() {
                let expected = format!("--{} is ", setting.flag);
                assert!(error.to_string().starts_with(&expected), "{error}");
                bounded.push(setting.flag);
            }
        }
    }
    bounded.dedup();
    let expected = "held-out lora lora-alpha lora-dropout beta steps epochs batch size accumulate dropout \
                    label-smoothing lr beta1 beta2 eps momentum weight-decay clip memory device-memory host-memory threads \
                    save-every keep eval-every";
    assert_eq!(bounded.join(" "), expected);
}

#[test]
fn what_is_no_number_is_refused_in_plain_words() {
    for (flag, told) in [
        ("--clip=1e-400", "too close to 0"),
        ("--clip=x", "expected a number"),
        ("--batch=-1", "expected a whole number"),
        ("--batch=1.5", "expected a whole number"),
        ("--steps=99999999999999999999", "too large"),
    ] {
        let error = Cli::try_parse_from(["highwater", "train", flag]).unwrap_err();
        assert!(error.to_string().contains(told), "{flag}: {error}");
    }
    Cli::try_parse_from(["highwater", "train", "--clip=0e5", "--lr=-0"]).unwrap();
}

/// Kernels compute in `f32`: what is 0 or 1 there is refused like 0 and 1.
#[test]
fn values_that_round_to_a_bound_are_refused() {
    for (path, value) in [
        ("optimizer.clip", 1e-50),
        ("optimizer.lr", 1e-50),
        ("optimizer.method.adamw.eps", 1e-320),
        ("optimizer.method.adamw.beta1", 0.999_999_999_99),
        ("model.dropout", 0.999_999_999_99),
        ("data.held_out", 0.999_999_999_99),
    ] {
        let mut settings = Settings::default();
        assert!(
            take(&mut settings, path, &Value::Float(value)).is_ok(),
            "{path}"
        );
        assert!(settings.check().is_err(), "{path} = {value}");
    }
}

#[test]
fn what_resume_may_change_it_changes() {
    let (files, dir) = (highwater_memory::DiskFiles, tempfile::tempdir().unwrap());
    let Resolved { config, model, .. } = resolve::run(&files, &Settings::default()).unwrap();
    let run = RunDir::create(&files, dir.path(), false, &[]).unwrap();
    config.write(&files, &run.config()).unwrap();
    std::fs::write(run.model(), model.to_json()).unwrap();
    for setting in Settings::table()
        .iter()
        .filter(|setting| setting.can_change)
    {
        let value = format!("x = {}", setting.example).parse::<Table>().unwrap()["x"].clone();
        // Defaults are not examples of a change.
        let value = match setting.flag {
            "save-every" | "keep" => Value::Integer(9),
            "host-memory" | "device-memory" => Value::String("9MiB".to_owned()),
            "threads" => Value::Integer(config.machine.threads as i64 + 1),
            _ => value,
        };
        let words = ["highwater", "resume", "DIR"]
            .map(str::to_owned)
            .into_iter();
        let words = words.chain(words_of(setting.flag, &value));
        let Command::Resume(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not resume")
        };
        let changed = resolve::resume(&files, &run, &args).unwrap().config;
        assert_ne!(changed, config, "{}", setting.flag);
    }
}

#[test]
fn a_setting_by_its_place_is_the_flag() {
    let files = MemoryFiles::new();
    write(&files, "/chats.jsonl", "{}");
    for (set, flags) in [
        ("optimizer.lr=3e-4", "--lr 3e-4"),
        ("optimizer.clip=1", "--clip 1"),
        ("machine.memory=80MiB", "--memory 80MiB"),
        ("machine.memory=\"80MiB\"", "--memory 80MiB"),
        ("machine.memory=83886080", "--memory 80MiB"),
        ("machine.disk=/d=2GiB", "--disk /d=2GiB"),
        (
            "machine.disk={folder=\"/d\",bytes=\"2GiB\"}",
            "--disk /d=2GiB",
        ),
        ("machine.forbid=disk-writes", "--forbid disk-writes"),
        ("optimizer.method=sgd", "--optimizer sgd"),
        (
            "optimizer.method.sgd.momentum=0.5",
            "--optimizer sgd --momentum 0.5",
        ),
        ("optimizer.method.adamw.beta2=0.95", "--beta2 0.95"),
        ("training.steps=1000", "--steps 1000"),
        ("training.epochs=2.5", "--epochs 2.5"),
        ("model.dropout=0.25", "--dropout 0.25"),
        ("model.lora.rank=16", "--lora 16"),
        ("data.held_out=5%", "--held-out 5%"),
        ("data.order=sequential", "--order sequential"),
        ("data.path=/corpus.txt", "--data /corpus.txt"),
        ("model.tokenizer=/2024-01-01", "--tokenizer /2024-01-01"),
        ("output.keep=9", "--keep 9"),
        ("output.sample=[\"a,b\",\"c\"]", "--sample a,b --sample c"),
        ("output.sample=hello", "--sample hello"),
    ] {
        let by_place = of_line(&files, &format!("--set {set}"));
        assert_eq!(by_place, of_line(&files, flags), "{set}");
        assert_eq!(
            by_place,
            of_line(&files, &format!("--set {set} {flags}")),
            "{set}"
        );
    }
    let several = of_line(
        &files,
        "--data /chats.jsonl --set data.records.packing=false --set model.lora.rank=2 \
         --set model.lora.targets=q_proj,v_proj --set data.records.map={text=\"body\"}",
    );
    let flags =
        "--data /chats.jsonl --no-packing --lora 2 --lora-targets q_proj,v_proj --map text=body";
    assert_eq!(several, of_line(&files, flags));
    // A rate with a sign, and a value with a space, as a shell passes them.
    assert!(refused(&files, "--set optimizer.lr=-1").contains("--set optimizer.lr is -1"));
    let spaced = settings(&files, &["--set", "model.tokenizer = /my tokenizer.json"]).unwrap();
    assert_eq!(spaced.model.tokenizer, Some("/my tokenizer.json".into()));
}

#[test]
fn what_is_set_goes_before_the_file_and_what_depends_on_it_follows() {
    let files = MemoryFiles::new();
    write(&files, "/chats.jsonl", "{}");
    let before =
        "--data /chats.jsonl --steps 100 --lora 4 --lora-rs --no-packing --forbid disk-writes";
    let config = of_line(&files, before);
    assert_eq!(config.optimizer.warmup, 5);
    config.write(&files, Path::new(FILE)).unwrap();
    let other = of_line(
        &files,
        "--config /config.toml --set training.steps=200 --set model.lora.rank=8 --set model.lora.rs=false \
         --set data.records.packing=true --set machine.forbid=[] --set optimizer.method=sgd",
    );
    assert_eq!((other.training.steps, other.optimizer.warmup), (200, 10));
    let lora = other.model.lora.unwrap();
    assert_eq!((lora.rank, lora.rs), (8, false));
    assert!((lora.alpha - 16.0).abs() < f64::EPSILON);
    assert!(other.data.records.unwrap().packing);
    assert_eq!(other.machine.forbid, []);
    assert_eq!(other.optimizer.method, Method::Sgd { momentum: 0.0 });
    assert!(other.optimizer.weight_decay.abs() < f64::EPSILON);
}

#[test]
fn settings_that_cannot_be_set_are_refused_with_what_may_be_meant() {
    let files = MemoryFiles::new();
    for (line, expected) in [
        (
            "--set optimizer.lrr=1",
            "no setting `lrr` in `optimizer`; did you mean `lr`?",
        ),
        (
            "--set optimiser.lr=1",
            "no setting `optimiser.lr`; did you mean `optimizer.lr`?",
        ),
        (
            "--set lr=1",
            "no setting `lr`; did you mean `optimizer.lr`?",
        ),
        ("--set model.lora.rnak=1", "did you mean `rank`?"),
        (
            "--set model.lora=16",
            "settings of its own: model.lora.rank, ",
        ),
        ("--set optimizer.method=adam", "expected `adamw` or `sgd`"),
        (
            "--set optimizer.method.adam.beta1=0.5",
            "no setting `optimizer.method.adam.beta1`",
        ),
        (
            "--set training.steps=many",
            "`training.steps`: invalid type: string \"many\"",
        ),
        (
            "--set training.batch=-1",
            "`training.batch`: invalid value: integer `-1`",
        ),
        ("--set machine.memory=1Gibi", "1Gibi"),
        ("--set model.source.preset=gpt2", "use --model"),
        ("--set model.source=gpt2", "use --model"),
        ("--set version=3", "no setting `version`"),
        (
            "--set training.seq=4096",
            "--set training.seq is 4096; expected 1 to 256",
        ),
        ("--set training.seq=8 --seq 16", "use --set or --seq once"),
        (
            "--set training.seq=8 --set training.seq=16",
            "use --set or --seq once",
        ),
        (
            "--set data.records.loss_on=all",
            "--loss-on has no effect: the data has no examples",
        ),
        (
            "--set optimizer.method=sgd --beta1 0.5",
            "--beta1 has no effect with sgd",
        ),
    ] {
        let found = refused(&files, line);
        assert!(found.contains(expected), "{line}: {found}");
        assert!(
            found.starts_with("error[HW1002]") || found.contains("HW1030"),
            "{found}"
        );
    }
    for wrong in ["lr", "=3", "data.path=\"open"] {
        let words = ["highwater", "train", "--set", wrong];
        Cli::try_parse_from(words).unwrap_err();
    }
}

#[test]
fn a_file_may_say_any_of_the_settings() {
    let files = MemoryFiles::new();
    for (text, flags) in [
        ("", ""),
        ("version = 2\n", ""),
        ("[optimizer]\nlr = 0.5\nwarmup = 3\n", "--lr 0.5 --warmup 3"),
        (
            "training.steps = 40\ntraining.seq = 32\n",
            "--steps 40 --seq 32",
        ),
        (
            "model.source = \"llama-nano\"\nmachine.memory = \"96MiB\"\n",
            "--model llama-nano --memory 96MiB",
        ),
        ("[optimizer]\nmethod = \"sgd\"\n", "--optimizer sgd"),
        (
            "[model]\nlora.rank = 3\n[output]\nkeep = 8\n",
            "--lora 3 --keep 8",
        ),
        ("[data]\nheld_out = \"2%\"\n", "--held-out 0.02"),
    ] {
        write(&files, FILE, text);
        let found = of_line(&files, "--config /config.toml");
        assert_eq!(found, of_line(&files, flags), "{text}");
    }
    // What a file leaves out belongs to whatever a flag names.
    write(
        &files,
        FILE,
        "[data]\nheld_out = 0.25\n[optimizer]\nwarmup = 7\nlr = 0.5\n",
    );
    let found = of_line(
        &files,
        "--config /config.toml --data /x.txt --steps 90 --optimizer sgd",
    );
    assert_eq!((found.optimizer.warmup, found.training.steps), (7, 90));
    assert!((found.data.held_out - 0.25).abs() < f64::EPSILON);
    assert!((found.optimizer.lr - 0.5).abs() < f64::EPSILON);
    // Steps of a flag go before epochs of a file, and the other way round.
    write(
        &files,
        FILE,
        "[training]\nepochs = 3.0\n[optimizer]\nwarmup = 7\n",
    );
    let found = of_line(&files, "--config /config.toml --steps 90");
    assert_eq!(found, of_line(&files, "--steps 90"));
    write(
        &files,
        FILE,
        "[training]\nsteps = 30\n[optimizer]\nwarmup = 7\n",
    );
    let found = of_line(&files, "--config /config.toml --epochs 2");
    assert_eq!(found, of_line(&files, "--epochs 2"));
    assert!(refused(&files, "--steps 3 --epochs 2").contains("both set the length"));
    assert!(refused(&files, "--epochs 0").contains("--epochs is 0"));
}

#[test]
fn what_a_file_must_not_say_is_named_with_its_line() {
    let files = MemoryFiles::new();
    for (text, expected) in [
        (
            "[optimizer]\nlr = 1.0\n warmpu = 4\n",
            "line 3, column 2: there is no setting `warmpu` in `optimizer`",
        ),
        (
            "[optimzer]\nlr = 1.0\n",
            "line 1, column 2: there is no setting `optimzer`; did you mean `optimizer`?",
        ),
        ("a = 1\n", "line 1, column 1: there is no setting `a`"),
        (
            "[model]\nlora.rank = \"x\"\n",
            "line 2, column 6: `model.lora.rank`: invalid type",
        ),
        (
            "version = 3\n",
            "format version 3; this program reads version 2",
        ),
        ("[data\n", "line 1, column 6"),
        (
            "[optimizer.method]\nadamw.beta1 = 0.5\nsgd.momentum = 0.1\n",
            "expected `adamw` or `sgd`",
        ),
    ] {
        write(&files, FILE, text);
        let found = refused(&files, "--config /config.toml");
        assert!(
            found.starts_with("error[HW1031]: /config.toml: "),
            "{found}"
        );
        assert!(found.contains(expected), "{text}: {found}");
    }
}
