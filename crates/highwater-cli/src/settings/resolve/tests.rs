use super::*;
use crate::args::Settings;
use crate::commands::{Cli, Command};
use crate::config::{Method, ModelSource, RunConfig};
use crate::error::Failure;
use crate::folder::RunDir;
use clap::Parser;
use highwater_memory::files::MemoryFiles;
use highwater_memory::{Bytes, Files};
use highwater_models::Order;
use std::path::Path;

/// The settings of a `train` command line.
fn settings(files: &MemoryFiles, line: &str) -> Result<RunConfig, Failure> {
    let words = ["highwater", "train"]
        .into_iter()
        .chain(line.split_whitespace());
    let Command::Train(args) = Cli::try_parse_from(words).unwrap().command else {
        panic!("not train")
    };
    let resolved = args.run.resolved(files, train);
    resolved.map(|(_, resolved)| resolved.config)
}

fn refusal(line: &str) -> String {
    settings(&MemoryFiles::new(), line)
        .expect_err(line)
        .to_string()
}

#[test]
fn no_argument_trains_the_small_model_on_the_guide() {
    let config = settings(&MemoryFiles::new(), "").unwrap();
    assert_eq!(
        config.model.source,
        ModelSource::Preset("gpt2-nano".to_owned())
    );
    assert_eq!(config.machine.memory, Bytes(64 << 20));
    assert_eq!((config.training.steps, config.optimizer.warmup), (800, 40));
    assert_eq!((config.training.batch, config.training.seq), (4, 64));
    assert_eq!(config.data.order, Order::Shuffled);
    assert_eq!(config.data.path, None);
}

#[test]
fn flags_reach_their_settings() {
    let line = "--model gpt2 --memory 3GiB --data corpus --batch 4 --seq 1024 --steps 50 --lr 3e-4 \
        --optimizer sgd --momentum 0.9 --decay all --clip 1 --accumulate 2 --policy recompute \
        --order shuffled --held-out 0.2 --token-dtype u32 --save-every 7 --keep 2 --threads 2";
    let config = settings(&MemoryFiles::new(), line).unwrap();
    assert_eq!(config.optimizer.method, Method::Sgd { momentum: 0.9 });
    assert_eq!((config.output.save_every, config.output.keep), (7, 2));
    assert_eq!(config.machine.threads, 2);
    let path = config.data.path.unwrap();
    assert!(path.is_absolute() && path.ends_with("corpus"));
}

#[test]
fn a_folder_brings_its_configuration_and_tokenizer() {
    let files = MemoryFiles::new();
    let json = highwater_models::preset("gpt2-nano").unwrap().to_json();
    files.create_dir_all(Path::new("/m")).unwrap();
    files
        .create(Path::new("/m/config.json"))
        .unwrap()
        .write_all(json.as_bytes())
        .unwrap();
    let config = settings(&files, "--model /m --memory 1GiB").unwrap();
    assert_eq!(config.model.source, ModelSource::Folder("/m".into()));
    assert_eq!(config.model.tokenizer, None);
    files.create(Path::new("/m/tokenizer.json")).unwrap();
    let config = settings(&files, "--model /m --memory 1GiB").unwrap();
    assert_eq!(config.model.tokenizer, Some("/m/tokenizer.json".into()));
}

#[test]
fn what_does_not_go_together_is_refused() {
    assert!(refusal("--model gtp2").contains("did you mean `gpt2`"));
    assert!(refusal("--model ./gpt2").contains("no folder"));
    assert!(refusal("--momentum 0.9").contains("--optimizer sgd"));
    assert!(refusal("--optimizer sgd --beta1 0.9").contains("--optimizer adamw"));
    assert!(refusal("--seq 257").contains("1 to 256"));
    assert!(refusal("--batch 0").contains("--batch is 0"));
    assert!(refusal("--lr nan").contains("--lr is NaN"));
    assert!(refusal("--lr -1").contains("--lr is -1"));
    assert!(refusal("--save-every 0").contains("--save-every is 0"));
}

#[test]
fn resuming_takes_the_settings_with_the_changes() {
    let (files, dir) = (highwater_memory::DiskFiles, tempfile::tempdir().unwrap());
    let Resolved { config, model, .. } = run(&files, &Settings::default()).unwrap();
    let run_dir = RunDir::create(&files, dir.path(), false, &[]).unwrap();
    config.write(&files, &run_dir.config()).unwrap();
    std::fs::write(run_dir.model(), model.to_json()).unwrap();
    let resumed = |line: &str| {
        let words = ["highwater", "resume", "DIR"].into_iter();
        let words = words.chain(line.split_whitespace());
        let Command::Resume(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not resume")
        };
        resume(&files, &run_dir, &args)
    };
    assert_eq!(resumed("").unwrap().config, config);
    assert_eq!(resumed("").unwrap().model.to_json(), model.to_json());
    let other = resumed("--memory 1GiB --threads 3 --steps 400")
        .unwrap()
        .config;
    assert_eq!(other.machine.memory, Bytes::GIB);
    assert_eq!((other.machine.threads, other.training.steps), (3, 400));
    let Resolved { config, notes, .. } = resumed("--steps 5").unwrap();
    assert_eq!((config.training.steps, config.optimizer.warmup), (5, 0));
    assert!(notes[0].starts_with("note: warmup is 0 steps instead of"));
}
