use crate::args::RunArgs;
use crate::config::{Method, ModelSource, RunConfig};
use crate::model::Blueprint;
use crate::settings::resolve;
use highwater_memory::Files;
use highwater_memory::files::MemoryFiles;
use std::path::Path;

fn default_config() -> (RunConfig, Blueprint) {
    let resolved = resolve::run(&MemoryFiles::new(), &RunArgs::default()).unwrap();
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

/// Makes one setting absurd.
type Change = fn(&mut RunConfig);

#[test]
fn absurd_settings_are_named() {
    let (good, model) = default_config();
    good.validate(&model).unwrap();
    let changes: [(&str, Change); 21] = [
        ("steps", |c| c.training.steps = 1_000_000_001),
        ("steps", |c| c.training.steps = u64::MAX),
        ("batch", |c| c.training.batch = 0),
        ("batch", |c| c.training.batch = usize::MAX),
        ("seq", |c| c.training.seq = 0),
        ("seq", |c| c.training.seq = 257),
        ("accumulate", |c| c.training.accumulate = 0),
        ("seed", |c| c.training.seed = u64::MAX),
        ("threads", |c| c.machine.threads = 0),
        ("threads", |c| c.machine.threads = 1025),
        ("save-every", |c| c.output.save_every = 0),
        ("keep", |c| c.output.keep = 0),
        ("dropout", |c| c.model.dropout = 1.0),
        ("held-out", |c| c.data.held_out = -0.1),
        ("lr", |c| c.optimizer.lr = 0.0),
        ("lr", |c| c.optimizer.lr = f64::NAN),
        ("lr", |c| c.optimizer.lr = f64::INFINITY),
        ("warmup", |c| c.optimizer.warmup = 801),
        ("weight-decay", |c| c.optimizer.weight_decay = -1.0),
        ("clip", |c| c.optimizer.clip = Some(-1.0)),
        ("momentum", |c| {
            c.optimizer.method = Method::Sgd { momentum: 1.0 }
        }),
    ];
    for (setting, change) in changes {
        let mut config = good.clone();
        change(&mut config);
        let error = config.validate(&model).expect_err(setting).to_string();
        assert!(error.starts_with(&format!("`{setting}` is ")), "{error}");
    }
    for (beta1, beta2, eps) in [(1.0, 0.9, 1e-8), (0.9, -0.1, 1e-8), (0.9, 0.9, 0.0)] {
        let mut config = good.clone();
        config.optimizer.method = Method::Adamw { beta1, beta2, eps };
        config.validate(&model).unwrap_err();
    }
}
