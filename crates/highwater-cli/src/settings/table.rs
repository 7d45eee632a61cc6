//! Settings by where they stand in `config.toml`, as `--config` and `--set` name them. Each becomes the flag that says
//! the same, so that what depends on it follows.

use highwater_models::config::nearest;
use toml::Value;

use super::values::{Problem, adamw, disk, list, method, named, put, size, source, texts, value};
use crate::args::TrainArgs;
use crate::args::values::share;
use crate::config::{Forbid, OptimizerKind};

/// One setting.
pub(crate) struct Setting {
    /// Where it stands.
    pub path: &'static str,
    /// The flag that says the same.
    pub flag: &'static str,
    /// What it may be, such as a file says it; empty where any number will tell.
    pub example: &'static str,
    put: fn(&mut TrainArgs, Value) -> Result<(), Problem>,
}

const fn at(
    path: &'static str,
    flag: &'static str,
    example: &'static str,
    put: fn(&mut TrainArgs, Value) -> Result<(), Problem>,
) -> Setting {
    Setting {
        path,
        flag,
        example,
        put,
    }
}

/// All of them, in the order of the file.
pub(crate) static SETTINGS: &[Setting] = &[
    at("task", "task", "\"image-classification\"", |a, v| {
        put(&mut a.run.task, v)
    }),
    at("model.source", "model", "", source),
    at(
        "model.tokenizer",
        "tokenizer",
        "\"tokenizer.json\"",
        |a, v| put(&mut a.run.tokenizer, v),
    ),
    at("model.dropout", "dropout", "", |a, v| {
        put(&mut a.run.dropout, v)
    }),
    at("model.lora.rank", "lora", "16", |a, v| {
        put(&mut a.run.lora.lora, v)
    }),
    at("model.lora.alpha", "lora-alpha", "32", |a, v| {
        put(&mut a.run.lora.lora_alpha, v)
    }),
    at("model.lora.dropout", "lora-dropout", "0.05", |a, v| {
        put(&mut a.run.lora.lora_dropout, v)
    }),
    at(
        "model.lora.targets",
        "lora-targets",
        "[\"q_proj\", \"v_proj\"]",
        |a, v| named(&mut a.run.lora.lora_targets, list(v)?),
    ),
    at("model.lora.rs", "lora-rs", "true", |a, v| {
        put(&mut a.run.lora.lora_rs, v)
    }),
    at("model.lora.dora", "lora-dora", "true", |a, v| {
        put(&mut a.run.lora.lora_dora, v)
    }),
    at("model.lora.quantize", "quantize", "\"nf4\"", |a, v| {
        put(&mut a.run.lora.quantize, v)
    }),
    at("data.path", "data", "\"data.jsonl\"", |a, v| {
        put(&mut a.run.data, v)
    }),
    at("data.eval_data", "eval-data", "\"valid.jsonl\"", |a, v| {
        put(&mut a.run.eval_data, v)
    }),
    at("data.token_dtype", "token-dtype", "\"u16\"", |a, v| {
        put(&mut a.run.token_dtype, v)
    }),
    at("data.held_out", "held-out", "", |a, v| match v {
        Value::String(text) => named(&mut a.run.held_out, share(&text).map_err(Problem::Value)?),
        v => put(&mut a.run.held_out, v),
    }),
    at("data.skip_bad", "skip-bad", "true", |a, v| {
        put(&mut a.run.skip_bad, v)
    }),
    at("data.order", "order", "", |a, v| put(&mut a.run.order, v)),
    at("data.records.loss_on", "loss-on", "\"all\"", |a, v| {
        put(&mut a.run.records.loss_on, v)
    }),
    at(
        "data.records.chat_template",
        "chat-template",
        "\"chatml\"",
        |a, v| put(&mut a.run.records.chat_template, v),
    ),
    at("data.records.packing", "no-packing", "false", |a, v| {
        let packing: bool = value(v)?;
        named(&mut a.run.records.no_packing, !packing)
    }),
    at("data.records.map", "map", "{ text = \"body\" }", |a, v| {
        let map: std::collections::BTreeMap<String, String> = value(v)?;
        named(&mut a.run.records.map, map.into_iter().collect())
    }),
    at("training.steps", "steps", "200", |a, v| {
        put(&mut a.run.steps, v)
    }),
    at("training.epochs", "epochs", "3", |a, v| {
        put(&mut a.run.epochs, v)
    }),
    at("training.batch", "batch", "", |a, v| {
        put(&mut a.run.batch, v)
    }),
    at("training.seq", "seq", "", |a, v| put(&mut a.run.seq, v)),
    at("training.size", "size", "224", |a, v| {
        put(&mut a.run.size, v)
    }),
    at("training.accumulate", "accumulate", "", |a, v| {
        put(&mut a.run.accumulate, v)
    }),
    at("training.precision", "precision", "\"bf16\"", |a, v| {
        put(&mut a.run.precision, v)
    }),
    at("training.seed", "seed", "", |a, v| put(&mut a.run.seed, v)),
    at(
        "training.label_smoothing",
        "label-smoothing",
        "0.1",
        |a, v| put(&mut a.run.preference.label_smoothing, v),
    ),
    at(
        "training.preference.method",
        "preference",
        "\"dpo\"",
        |a, v| put(&mut a.run.preference.preference, v),
    ),
    at("training.preference.beta", "beta", "0.1", |a, v| {
        put(&mut a.run.preference.beta, v)
    }),
    at(
        "training.preference.dpo_loss",
        "dpo-loss",
        "\"ipo\"",
        |a, v| put(&mut a.run.preference.dpo_loss, v),
    ),
    at(
        "training.preference.label_smoothing",
        "label-smoothing",
        "0.1",
        |a, v| put(&mut a.run.preference.label_smoothing, v),
    ),
    at("optimizer.method", "optimizer", "", |a, v| {
        named(&mut a.run.optimizer, method(&v)?)
    }),
    at("optimizer.method.adamw.beta1", "beta1", "0.9", |a, v| {
        adamw(a)?;
        put(&mut a.run.beta1, v)
    }),
    at("optimizer.method.adamw.beta2", "beta2", "0.999", |a, v| {
        adamw(a)?;
        put(&mut a.run.beta2, v)
    }),
    at("optimizer.method.adamw.eps", "eps", "1e-8", |a, v| {
        adamw(a)?;
        put(&mut a.run.eps, v)
    }),
    at(
        "optimizer.method.sgd.momentum",
        "momentum",
        "0.9",
        |a, v| {
            named(&mut a.run.optimizer, OptimizerKind::Sgd)?;
            put(&mut a.run.momentum, v)
        },
    ),
    at("optimizer.lr", "lr", "", |a, v| put(&mut a.run.lr, v)),
    at("optimizer.warmup", "warmup", "10", |a, v| {
        put(&mut a.run.warmup, v)
    }),
    at("optimizer.schedule", "schedule", "", |a, v| {
        put(&mut a.run.schedule, v)
    }),
    at("optimizer.weight_decay", "weight-decay", "", |a, v| {
        put(&mut a.run.weight_decay, v)
    }),
    at("optimizer.decay", "decay", "", |a, v| {
        put(&mut a.run.decay, v)
    }),
    at("optimizer.clip", "clip", "", |a, v| put(&mut a.run.clip, v)),
    at("optimizer.master", "master", "\"split\"", |a, v| {
        put(&mut a.run.master, v)
    }),
    at("optimizer.moments", "moments", "\"int8\"", |a, v| {
        put(&mut a.run.moments, v)
    }),
    at("machine.memory", "memory", "", |a, v| {
        named(&mut a.run.memory, size(v)?)
    }),
    at("machine.policy", "policy", "", |a, v| {
        put(&mut a.run.policy, v)
    }),
    at("machine.threads", "threads", "", |a, v| {
        put(&mut a.run.threads, v)
    }),
    at(
        "machine.device_memory",
        "device-memory",
        "\"2GiB\"",
        |a, v| named(&mut a.run.device_memory, size(v)?),
    ),
    at("machine.host_memory", "host-memory", "\"1GiB\"", |a, v| {
        named(&mut a.run.host_memory, size(v)?)
    }),
    at("machine.disk", "disk", "\"/data=40GiB\"", |a, v| {
        named(&mut a.run.disk, disk(v)?)
    }),
    at("machine.forbid", "forbid", "[\"disk-writes\"]", |a, v| {
        named(&mut a.run.forbid, list::<Forbid>(v)?)
    }),
    at("output.save_every", "save-every", "", |a, v| {
        put(&mut a.output.save_every, v)
    }),
    at("output.keep", "keep", "", |a, v| put(&mut a.output.keep, v)),
    at("output.eval_every", "eval-every", "50", |a, v| {
        put(&mut a.output.eval_every, v)
    }),
    at(
        "output.sample",
        "sample",
        "[\"Once upon a time\"]",
        |a, v| named(&mut a.output.sample, texts(v)?),
    ),
    at(
        "output.max_shard_size",
        "max-shard-size",
        "\"5GB\"",
        |a, v| named(&mut a.output.max_shard_size, size(v)?),
    ),
    at("output.tensorboard", "tensorboard", "true", |a, v| {
        put(&mut a.output.tensorboard, v)
    }),
];

/// A setting that cannot be taken.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// Where it stands.
    pub path: String,
    pub(super) problem: Problem,
}

impl Wrong {
    /// What is wrong, for people.
    pub(crate) fn text(&self) -> String {
        let (path, flag) = (&self.path, flag(&self.path));
        match &self.problem {
            Problem::Unknown => unknown(path),
            Problem::Twice => match flag {
                Some(flag) => format!("`{path}` is said otherwise too: by --{flag}, or twice so"),
                None => format!("`{path}` is said twice"),
            },
            Problem::Value(why) => {
                let such = SETTINGS.iter().find(|setting| setting.path == path);
                let such = such.map_or("", |setting| setting.example);
                let such = match such {
                    "" => String::new(),
                    such => format!("; such as {such}"),
                };
                format!("`{path}`: {}{such}", why.trim_end())
            }
        }
    }
}

/// The flag that says the same as a setting.
pub(crate) fn flag(path: &str) -> Option<&'static str> {
    let setting = SETTINGS.iter().find(|setting| setting.path == path);
    setting.map(|setting| setting.flag)
}

/// Takes a setting, or all of a table of them, as flags. What a flag says already must be the same.
///
/// # Errors
/// [`Wrong`] for the first that is not possible.
pub(crate) fn take(args: &mut TrainArgs, path: &str, value: &Value) -> Result<(), Wrong> {
    let wrong = |problem| Wrong {
        path: path.to_owned(),
        problem,
    };
    let setting = SETTINGS.iter().find(|setting| setting.path == path);
    let within = within(path);
    if let Some(setting) = setting {
        (setting.put)(args, value.clone()).map_err(wrong)?;
    }
    match value {
        Value::Table(table) if !within.is_empty() => {
            let mut each = table.iter();
            each.try_for_each(|(key, value)| take(args, &format!("{path}.{key}"), value))
        }
        _ if setting.is_some() => Ok(()),
        _ if within.is_empty() => Err(wrong(Problem::Unknown)),
        _ => Err(wrong(Problem::Value(format!(
            "it has settings of its own: {}",
            within.join(", ")
        )))),
    }
}

/// What stands in a table of settings.
fn within(path: &str) -> Vec<&'static str> {
    let inside = |setting: &&str| {
        setting
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('.'))
    };
    SETTINGS
        .iter()
        .map(|setting| setting.path)
        .filter(inside)
        .collect()
}

/// That there is no such setting, with the name that may have been meant.
fn unknown(path: &str) -> String {
    let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
    let paths: Vec<&str> = SETTINGS.iter().map(|setting| setting.path).collect();
    let last = |path: &&str| path.rsplit('.').next() == Some(name);
    let beside = |path: &&'static str| {
        let rest = match table {
            "" => Some(*path),
            table => path.strip_prefix(table)?.strip_prefix('.'),
        };
        rest?.split('.').next()
    };
    let beside: Vec<&str> = paths.iter().filter_map(beside).collect();
    let meant = if beside.is_empty() {
        nearest(path, &paths)
    } else {
        let elsewhere = || paths.iter().copied().find(last);
        nearest(name, &beside).or_else(elsewhere)
    };
    let found = match table {
        "" => format!("there is no setting `{name}`"),
        _ if beside.is_empty() => format!("there is no setting `{path}`"),
        table => format!("there is no setting `{name}` in `{table}`"),
    };
    match meant {
        Some(meant) => format!("{found}; did you mean `{meant}`?"),
        None => found,
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
