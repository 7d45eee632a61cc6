use crate::args::Settings;
use crate::commands::{Cli, Command};
use crate::config::{Method, ModelSource, RunConfig};
use crate::model::Blueprint;
use crate::settings::resolve;
use clap::Parser;
use highwater_memory::Files;
use highwater_memory::files::MemoryFiles;
use std::path::Path;

fn default_config() -> (RunConfig, Blueprint) {
    let resolved = resolve::run(&MemoryFiles::new(), &Settings::default()).unwrap();
    (resolved.config, resolved.model)
}

#[test]
fn settings_survive_the_file() {
    let (mut config, _) = default_config();
    let (files, path) = (MemoryFiles::new(), Path::new("/config.toml"));
    config.write(&files, path).unwrap();
    assert_eq!(RunConfig::read(&files, path).unwrap(), config);
    config.model.source = ModelSource::Folder("/models/gpt2".into());
    config.model.tokenizer = Some("/models/gpt2/tokenizer.json".into());
    config.data.path = Some("/data".into());
    config.optimizer.clip = Some(1.0);
    config.optimizer.method = Method::Sgd { momentum: 0.9 };
    config.training.seed = i64::MAX as u64;
    config.write(&files, path).unwrap();
    assert_eq!(RunConfig::read(&files, path).unwrap(), config);
}

#[test]
fn what_the_file_must_not_have_is_named_with_its_line() {
    let (files, path) = (MemoryFiles::new(), Path::new("/config.toml"));
    let text = default_config().0.to_toml(path).unwrap();
    let read = |text: &str| {
        files
            .create(path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        RunConfig::read(&files, path).unwrap_err().to_string()
    };
    let misspelt = read(&text.replace("held_out", "heldout"));
    assert!(
        misspelt.contains("heldout") && misspelt.contains("line"),
        "{misspelt}"
    );
    assert!(read(&text.replace("beta1", "beta3")).contains("beta3"));
    assert!(read(&text.replace("version = 2", "version = 3")).contains("version 3"));
    assert!(read(&text).contains("its hash is missing"));
    assert!(read("[").contains("line 1"));
    assert!(read("").contains("missing field"));
}

#[test]
fn absurd_settings_are_named() {
    let (good, model) = default_config();
    good.validate(&model).unwrap();
    for (setting, flags) in [
        ("steps", "--steps 1000000001"),
        ("steps", "--steps 18446744073709551615"),
        ("batch", "--batch 0"),
        ("batch", "--batch 18446744073709551615"),
        ("seq", "--seq 0"),
        ("seq", "--seq 257"),
        ("accumulate", "--accumulate 0"),
        ("seed", "--seed 18446744073709551615"),
        ("threads", "--threads 0"),
        ("threads", "--threads 1025"),
        ("save-every", "--save-every 0"),
        ("keep", "--keep 0"),
        ("dropout", "--dropout 1"),
        ("held-out", "--held-out -0.1"),
        ("lr", "--lr 0"),
        ("lr", "--lr nan"),
        ("lr", "--lr inf"),
        ("warmup", "--warmup 801"),
        ("weight-decay", "--weight-decay -1"),
        ("clip", "--clip -1"),
        ("momentum", "--optimizer sgd --momentum 1"),
        ("beta1", "--beta1 1"),
        ("beta2", "--beta2 -0.1"),
        ("eps", "--eps 0"),
    ] {
        let error = refused(flags);
        assert!(
            error.starts_with(&format!("error[HW1030]: --{setting} is ")),
            "{error}"
        );
    }
    // Computed settings are checked too.
    let mut config = good;
    config.training.steps = u64::MAX;
    let error = config.validate(&model).unwrap_err().to_string();
    assert!(error.starts_with("--steps is "), "{error}");
}

fn refused(flags: &str) -> String {
    let words = ["highwater", "train"].into_iter();
    let words = words.chain(flags.split_whitespace());
    let Command::Train(args) = Cli::try_parse_from(words).expect(flags).command else {
        panic!("not train")
    };
    let refused = resolve::run(&MemoryFiles::new(), &args.run.flags);
    refused.expect_err(flags).to_string()
}
