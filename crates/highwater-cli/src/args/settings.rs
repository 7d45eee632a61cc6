//! The settings of a run, each of which is stated here and nowhere else. To add one, add an entry, and code that uses
//! it: a field in `config/` and, in `settings/resolve/`, where it comes from.

use std::path::PathBuf;

use highwater_memory::Bytes;
use highwater_models::preference::DpoLoss;
use highwater_models::{Decay, Order, TokenWidth};
use toml::Value;

use super::table::{Problem, above, named, plain, settings, value, where_true};
use crate::config::{
    DiskConfig, Forbid, LossOn, Master, ModelSource, Moments, OptimizerKind, Policy, Precision,
    PreferenceMethod, Quantize, Schedule, Task,
};

const TEXT: Task = Task::TextGeneration;
const IMAGES: Task = Task::ImageClassification;

settings! {
    /// The settings of a run, as flags, `--set` and `config.toml` give them. `settings/resolve/` has their defaults.
    pub struct Settings;

    "Model and data" {
        /// What to train the model for
        task: Task, at("task"), value("TASK"), default("the task of --model"), example("\"image-classification\"");

        /// A Hugging Face model folder, or a preset with random weights. Text presets: gpt2-nano, gpt2, gpt2-medium,
        /// gpt2-large, gpt2-xl, llama-nano, llama-1b. Image presets: resnet18, resnet34, resnet50, densenet121, vit_b_16.
        /// To plan, a config.json is enough
        model: String, at("model.source"), value("PRESET|FOLDER"), put(source), example("\"gpt2-nano\""),
            default("gpt2-nano, or resnet18 with --task image-classification"), essential;

        /// Train from scratch: build the model of this config.json, or of the one in this folder, with random weights
        init_from: PathBuf, value("FILE");

        /// Training data: a file, or a folder of files. Examples (conversations, instructions, texts) come as .jsonl,
        /// .json, .csv, .tsv or .parquet, also as .gz or .zst. Plain text and token files (.npy, .bin) work too. For
        /// images, a folder with one folder per class, or train/ and val/ with such folders
        data: PathBuf, at("data.path"), value("PATH"), default("a built-in text"), example("\"data.jsonl\""), essential;

        /// Share of the data to hold out for validation, such as 0.05 or 5%. Text is split at its end
        held_out: f64, at("data.held_out"), value("SHARE"), flag(|arg| arg.visible_alias("val").value_parser(share)),
            put(|settings, found| match found {
                Value::String(text) => named(&mut settings.held_out, share(&text).map_err(Problem::Value)?),
                found => plain(&mut settings.held_out, found),
            }),
            bounds(0.0..1.0), example("0.05"), essential,
            default("0.05 for files of examples, 0.1 for images and the built-in text, otherwise 0");

        /// File or folder of validation data, instead of a share of --data
        eval_data: PathBuf, at("data.eval_data"), value("PATH"), example("\"valid.jsonl\""), task(TEXT),
            default("files in the data's folder named like valid.jsonl, val.bin or validation-*.parquet");

        /// The tokenizer.json for text
        tokenizer: PathBuf, at("model.tokenizer"), value("FILE"), example("\"tokenizer.json\""), task(TEXT),
            default("the one in the model's folder, otherwise each byte is a token");

        /// Type of the tokens in a .bin file without a header
        token_dtype: TokenWidth, at("data.token_dtype"), value("TYPE"), example("\"u16\""), task(TEXT),
            default("detected, otherwise u16");

        /// Order of the training data
        order: Order, at("data.order"), value("ORDER"), example("\"shuffled\""),
            default("shuffled for nano presets, files of examples and images, otherwise sequential");

        /// Skip images that cannot be read, and list them, instead of stopping
        skip_bad: bool, at("data.skip_bad"), example("true"), task(IMAGES);
    }

    "Adapters" {
        /// Train LoRA adapters of this rank and freeze the model's weights. Adapters are saved in PEFT's format
        lora: usize, at("model.lora.rank"), value("RANK"), alias("lora-rank"), alias("lora-r"), bounds(1..=1 << 14),
            example("16"), task(TEXT), essential;

        /// Scale the output of adapters by ALPHA / RANK (lora_alpha in PEFT)
        lora_alpha: f64, at("model.lora.alpha"), value("ALPHA"), bounds(above(0.0, 1e6)), example("32.0"), task(TEXT),
            default("twice the rank");

        /// Dropout probability of the input of adapters
        lora_dropout: f64, at("model.lora.dropout"), value("P"), bounds(0.0..1.0), example("0.05"), task(TEXT),
            default("0");

        /// Layers that get an adapter, such as q_proj,v_proj (target_modules in PEFT)
        lora_targets: Vec<String>, at("model.lora.targets"), value("NAMES"), flag(|arg| arg.value_delimiter(',')),
            example("[\"q_proj\", \"v_proj\"]"), task(TEXT), default("all-linear");

        /// Scale by ALPHA / sqrt(RANK) instead (rsLoRA)
        lora_rs: bool, at("model.lora.rs"), example("true"), task(TEXT);

        /// Train the magnitude of the weights separately (DoRA)
        lora_dora: bool, at("model.lora.dora"), example("true"), task(TEXT);

        /// Quantize the frozen weights (QLoRA)
        quantize: Quantize, at("model.lora.quantize"), value("FORMAT"), example("\"nf4\""), task(TEXT), essential;
    }

    "Format of examples" {
        /// Read the field NAME from FIELD of the data, such as text=body or messages=dialogue. May be repeated
        map: Vec<(String, String)>, at("data.records.map"), value("NAME=FIELD"), example("{ text = \"body\" }"), task(TEXT),
            put(|settings, found| {
                let map: std::collections::BTreeMap<String, String> = value(found)?;
                named(&mut settings.map, map.into_iter().collect())
            });

        /// Tokens that the loss is computed on
        loss_on: LossOn, at("data.records.loss_on"), value("TOKENS"), example("\"all\""), task(TEXT), default("assistant");

        /// Chat template: a Jinja file, or chatml
        chat_template: String, at("data.records.chat_template"), value("FILE|chatml"), example("\"chatml\""), task(TEXT),
            default("the template of the model's folder");

        /// Pad each example to a row of its own, instead of packing several into one
        no_packing: bool, at("data.records.packing"), example("false"), task(TEXT),
            put(|settings, found| named(&mut settings.no_packing, !value::<bool>(found)?));
    }

    "Preference optimization" {
        /// Train on pairs of chosen and rejected answers, as TRL does
        preference: PreferenceMethod, at("training.preference.method"), value("METHOD"), example("\"dpo\""), task(TEXT);

        /// Strength of --preference. For dpo, a larger beta stays closer to the reference model. For orpo, it is the
        /// weight of the odds ratio
        beta: f64, at("training.preference.beta"), value("X"), bounds(above(0.0, 1e6)), example("0.1"), task(TEXT),
            default("0.1");

        /// Loss of --preference dpo, by its name in TRL (loss_type)
        dpo_loss: DpoLoss, at("training.preference.dpo_loss"), value("NAME"), example("\"ipo\""), task(TEXT),
            default("sigmoid");
    }

    "Training" {
        /// Total number of optimizer steps. 0 saves the model as it is
        steps: u64, at("training.steps"), value("N"), alias("iters"), bounds(0..=1_000_000_000), example("200"),
            default("800 for nano presets, --epochs 3 for files of examples, otherwise 200"), essential, resume;

        /// Total number of passes over the training data, instead of --steps. It may be a fraction, such as 0.5
        epochs: f64, at("training.epochs"), value("N"), alias("num-train-epochs"), bounds(above(0.0, 1e6)),
            example("3.0"), essential, resume;

        /// Sequences or images per batch
        batch: usize, at("training.batch"), value("N"), alias("batch-size"), bounds(1..=1 << 16), example("8"), essential,
            default("4 for nano presets and files of examples, otherwise 8");

        /// Tokens per sequence
        seq: usize, at("training.seq"), value("N"), alias("max-seq-length"), example("128"), task(TEXT), essential,
            default("64 for nano presets, 1024 for files of examples, otherwise 128; less if the model's maximum is less");

        /// Height and width of images, in pixels. Images are resized and cropped to it
        size: usize, at("training.size"), value("N"), bounds(16..=4096), example("224"), task(IMAGES),
            default("the size in the model's folder, otherwise 224");

        /// Batches whose gradients are accumulated for one step
        accumulate: usize, at("training.accumulate"), value("N"), bounds(1..=1 << 16), example("2"), default("1");

        /// Precision of activations and matrix products, as with torch.autocast. Weights and their gradients are f32
        /// without --master
        precision: Precision, at("training.precision"), value("TYPE"), example("\"bf16\""), default("f32"), essential;

        /// Seed of initial weights, dropout and the order of the data
        seed: u64, at("training.seed"), value("N"), bounds(0..=i64::MAX as u64), example("0"), default("0");

        /// Dropout probability
        dropout: f64, at("model.dropout"), value("P"), bounds(0.0..1.0), example("0.1"), off(0.0), task(TEXT), default("0");

        /// Label smoothing of the training loss, as in torch.nn.CrossEntropyLoss. With --dpo-loss robust, the share of
        /// pairs that are mislabeled. With exo_pair, the probability of the rejected answer
        label_smoothing: f64, at("training.label_smoothing"), also_at("training.preference.label_smoothing"), value("X"),
            bounds(0.0..=1.0), example("0.1"), default("0, or 0.001 for exo_pair");
    }

    "Optimizer" {
        /// The optimizer
        optimizer: OptimizerKind, at("optimizer.method"), value("NAME"), example("\"sgd\""), default("adamw");

        /// Peak learning rate
        lr: f64, at("optimizer.lr"), value("X"), alias("learning-rate"), bounds(above(0.0, 100.0)), example("1e-4"),
            default("2e-3 for nano presets, 1e-3 for presets of images, otherwise 1e-4"), essential;

        /// Steps in which the learning rate rises to its peak
        warmup: u64, at("optimizer.warmup"), value("N"), example("10"), default("5% of the steps");

        /// Learning rate after the warmup
        schedule: Schedule, at("optimizer.schedule"), value("NAME"), example("\"linear\""), default("cosine");

        /// Decay rate of AdamW's first moment
        beta1: f64, at("optimizer.method.adamw.beta1"), value("X"), bounds(0.0..1.0), example("0.9"), default("0.9"),
            put(|settings, found| {
                named(&mut settings.optimizer, OptimizerKind::Adamw)?;
                plain(&mut settings.beta1, found)
            });

        /// Decay rate of AdamW's second moment
        beta2: f64, at("optimizer.method.adamw.beta2"), value("X"), bounds(0.0..1.0), example("0.999"),
            default("0.99 for nano presets, otherwise 0.999"),
            put(|settings, found| {
                named(&mut settings.optimizer, OptimizerKind::Adamw)?;
                plain(&mut settings.beta2, found)
            });

        /// Term that AdamW adds to the denominator
        eps: f64, at("optimizer.method.adamw.eps"), value("X"), bounds(above(0.0, 1.0)), example("1e-8"), default("1e-8"),
            put(|settings, found| {
                named(&mut settings.optimizer, OptimizerKind::Adamw)?;
                plain(&mut settings.eps, found)
            });

        /// Momentum of SGD
        momentum: f64, at("optimizer.method.sgd.momentum"), value("X"), bounds(0.0..1.0), example("0.9"), default("0"),
            put(|settings, found| {
                named(&mut settings.optimizer, OptimizerKind::Sgd)?;
                plain(&mut settings.momentum, found)
            });

        /// Weight decay
        weight_decay: f64, at("optimizer.weight_decay"), value("X"), bounds(0.0..=100.0), example("0.01"),
            default("0.1 for nano presets with adamw, 0.01 for adamw, 0 for sgd");

        /// Parameters that weight decay applies to: those with two or more dimensions, or all
        decay: Decay, at("optimizer.decay"), value("WHICH"), example("\"all\""), default("matrices");

        /// Clip gradients to this norm, as torch.nn.utils.clip_grad_norm_ does. 0 turns it off
        clip: f64, at("optimizer.clip"), value("X"), example("1.0"), default("1 for a model folder, otherwise 0"),
            bounds(where_true("a number from 0 up (0 turns clipping off)", |norm: &f64| {
                *norm == 0.0 || norm.is_finite() && *norm as f32 > 0.0
            }));

        /// Store weights in the type of --precision instead of f32. FORM is where the bits that they lose are kept
        master: Master, at("optimizer.master"), value("FORM"), example("\"split\""), default("off");

        /// Type of the optimizer's moments
        moments: Moments, at("optimizer.moments"), value("TYPE"), example("\"int8\""), default("f32");
    }

    "Memory and machine" {
        /// Memory budget of the whole process, such as 64MiB or 3GiB
        memory: Bytes, at("machine.memory"), value("SIZE"), flag(|arg| arg.allow_hyphen_values(true)), essential, resume,
            example("\"3GiB\""), default("64MiB for nano presets, otherwise 90% of the memory that the process may use"),
            bounds(where_true("at least 1MiB, such as 2GiB", |bytes| *bytes >= Bytes::MIB));

        /// Part of --memory that kernels compute in, apart from --host-memory
        device_memory: Bytes, at("machine.device_memory"), value("SIZE"), example("\"2GiB\""), resume,
            default("what is left of --memory"), bounds(where_true("at least one byte", |bytes| *bytes > Bytes(0)));

        /// Part of --memory that tensors are offloaded to, before they are offloaded to disk
        host_memory: Bytes, at("machine.host_memory"), value("SIZE"), example("\"1GiB\""), resume, default("none"),
            bounds(where_true("at least one byte", |bytes| *bytes > Bytes(0)));

        /// Offload tensors to a temporary file in DIR, at most SIZE, such as /data=40GiB. Models larger than memory
        /// train this way
        disk: DiskConfig, at("machine.disk"), value("DIR=SIZE"), example("\"/data=40GiB\""), default("off"), essential,
            resume;

        /// Restrict what the planner may do. May be repeated
        forbid: Vec<Forbid>, at("machine.forbid"), value("WHAT"), example("[\"disk-writes\"]");

        /// Which activations to recompute in the backward pass
        policy: Policy, at("machine.policy"), value("POLICY"), example("\"recompute\""), default("auto");

        /// Threads to compute with
        threads: usize, at("machine.threads"), value("N"), bounds(1..=1024), example("2"), default("all cores"), resume;
    }

    "Output" {
        /// Save the training state every N steps
        save_every: u64, at("output.save_every"), value("N"), bounds(1..), example("100"), default("100"), essential, resume;

        /// Number of saved states to keep
        keep: usize, at("output.keep"), value("N"), bounds(1..), example("3"), default("3"), resume;

        /// Compute the validation loss every N steps, and keep the best state
        eval_every: u64, at("output.eval_every"), value("N"), bounds(1..), example("50"), resume,
            default("after each epoch of examples if there are several, otherwise before and after training");

        /// Print what the model generates for this prompt, each time the validation loss is computed. May be repeated
        sample: Vec<String>, at("output.sample"), value("PROMPT"), example("[\"Once upon a time\"]"), task(TEXT), resume,
            put(|settings, found| match found {
                Value::String(text) => named(&mut settings.sample, vec![text]),
                found => plain(&mut settings.sample, found),
            });

        /// Maximum size of a weight file of the final model
        max_shard_size: Bytes, at("output.max_shard_size"), value("SIZE"), example("\"5GB\""), default("50GB"), resume;

        /// Write TensorBoard event files, to the folder tensorboard of the run
        tensorboard: bool, at("output.tensorboard"), example("true"), resume;
    }
}

/// A share, as a number or in percent.
fn share(text: &str) -> Result<f64, String> {
    let (number, of) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number < of => Ok(number / of),
        _ => Err("expected a share below 1, such as 0.05 or 5%".to_owned()),
    }
}

/// A model as `--model` or `--init-from` names it.
fn source(settings: &mut Settings, found: Value) -> Result<(), Problem> {
    let name = match found {
        Value::String(name) => name,
        found => match value(found)? {
            ModelSource::Preset(name) => name,
            ModelSource::Folder(path) => {
                let name = path.to_str().map(str::to_owned);
                name.ok_or_else(|| Problem::Value("its name is not valid UTF-8".to_owned()))?
            }
            ModelSource::Config(path) => return named(&mut settings.init_from, path),
        },
    };
    named(&mut settings.model, name)
}
