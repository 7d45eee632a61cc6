//! `generate`: continues a text with a trained model.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use highwater_memory::{Bytes, Files};
use highwater_models::config::in_words;
use highwater_models::{Sampling, Tokenizer};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::Failure;
use crate::loaded::load;
use crate::newest::Which;
use crate::output;
use crate::stream::go_on;

/// A trained model, and how tokens are drawn from it: shared by `generate` and `chat`.
#[derive(Args, Debug)]
pub struct SampleArgs {
    /// Folder of a run
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Which model of a run.
    #[command(flatten)]
    pub which: Which,

    /// A Hugging Face model folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with = "dir")]
    pub model: Option<PathBuf>,

    /// How freely to choose: 0 takes the likeliest token always [default: what generation_config.json says,
    /// otherwise 0.8]
    #[arg(long, value_name = "X")]
    pub temperature: Option<f64>,

    /// Draw from so many of the likeliest tokens only; 0 for all [default: what generation_config.json says,
    /// otherwise all]
    #[arg(long, value_name = "N")]
    pub top_k: Option<u32>,

    /// Draw from the fewest of the likeliest tokens only that have this share together [default: what
    /// generation_config.json says, otherwise 1]
    #[arg(long, value_name = "SHARE")]
    pub top_p: Option<f64>,

    /// Draw from tokens only that are at least so likely, as a share of the likeliest [default: what
    /// generation_config.json says, otherwise 0]
    #[arg(long, value_name = "SHARE")]
    pub min_p: Option<f64>,

    /// Above 1, tokens become less likely that the text has already [default: what generation_config.json says,
    /// otherwise 1]
    #[arg(long, value_name = "X")]
    pub repetition_penalty: Option<f64>,

    /// End before this text; may be given several times [default: what generation_config.json says, otherwise
    /// nowhere]
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,

    /// Seed of the choice
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Memory for the whole process [default: what the run had]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,

    /// Threads to compute with [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

impl SampleArgs {
    /// That the flags are possible.
    ///
    /// # Errors
    /// [`Failure`] for the first that is not.
    pub fn check(&self) -> Result<(), Failure> {
        let threads = self.threads.is_none_or(|n| (1..=1024).contains(&n));
        if !threads {
            return Err(Failure::usage("--threads must be 1 to 1024"));
        }
        if self.stop.iter().any(String::is_empty) {
            return Err(Failure::usage("--stop must have at least one character"));
        }
        self.sampling(&Stated::default()).map(drop)
    }

    /// How tokens are drawn: as flags say, otherwise as the model's file does.
    ///
    /// # Errors
    /// [`Failure`] for numbers that are not possible.
    pub fn sampling(&self, stated: &Stated) -> Result<Sampling, Failure> {
        let sampling = Sampling {
            temperature: self.temperature.or(stated.temperature).unwrap_or(0.8),
            // 0 means all, in the file too.
            top_k: self
                .top_k
                .or(stated.top_k)
                .filter(|&top_k| top_k > 0)
                .map(|top_k| top_k as usize),
            top_p: self.top_p.or(stated.top_p).unwrap_or(1.0),
            min_p: self.min_p.or(stated.min_p).unwrap_or(0.0),
            repetition_penalty: self
                .repetition_penalty
                .or(stated.repetition_penalty)
                .unwrap_or(1.0),
            seed: self.seed,
            context: usize::MAX,
        };
        let penalty = sampling.repetition_penalty;
        let wrong = [
            (
                !(sampling.temperature.is_finite() && sampling.temperature >= 0.0),
                "--temperature must be a number from 0 up",
            ),
            (
                !(sampling.top_p > 0.0 && sampling.top_p <= 1.0),
                "--top-p must be above 0 and at most 1",
            ),
            (
                !(0.0..=1.0).contains(&sampling.min_p),
                "--min-p must be from 0 to 1",
            ),
            (
                !(penalty.is_finite() && penalty > 0.0),
                "--repetition-penalty must be a number above 0",
            ),
        ];
        let wrong = wrong.into_iter().find(|(is_wrong, _)| *is_wrong);
        wrong.map_or(Ok(sampling), |(_, message)| Err(Failure::usage(message)))
    }
}

/// What the file `generation_config.json` beside a model says of drawing, as transformers writes it.
#[derive(Clone, Debug, Default)]
pub struct Stated {
    do_sample: Option<bool>,
    temperature: Option<f64>,
    top_k: Option<u32>,
    top_p: Option<f64>,
    min_p: Option<f64>,
    repetition_penalty: Option<f64>,
    /// Texts to end before.
    pub stop: Vec<String>,
    /// What else it has that would change what is drawn, and does not here.
    pub unread: Vec<&'static str>,
}

/// Fields that change what transformers draws, with the values that leave it as it is.
const OTHERS: [(&str, &[f64]); 17] = [
    ("bad_words_ids", &[]),
    ("begin_suppress_tokens", &[]),
    ("constraints", &[]),
    ("epsilon_cutoff", &[0.0]),
    ("eta_cutoff", &[0.0]),
    ("exponential_decay_length_penalty", &[]),
    ("force_words_ids", &[]),
    ("forced_bos_token_id", &[]),
    ("forced_eos_token_id", &[]),
    ("guidance_scale", &[1.0]),
    ("min_length", &[0.0]),
    ("min_new_tokens", &[0.0]),
    ("no_repeat_ngram_size", &[0.0]),
    ("num_beams", &[1.0]),
    ("sequence_bias", &[]),
    ("suppress_tokens", &[]),
    ("typical_p", &[1.0]),
];

impl Stated {
    /// Reads it from a model's folder; nothing is stated without it.
    ///
    /// # Errors
    /// [`Failure`] for a file that is not what transformers writes.
    pub fn read(files: &dyn Files, folder: &Path) -> Result<Self, Failure> {
        let path = folder.join("generation_config.json");
        if files.metadata(&path)?.is_none() {
            return Ok(Self::default());
        }
        let text = highwater_text::read_text(files, &path)?;
        let told = |problem: String| {
            let failure = Failure::usage(format!("{}: {problem}", path.display())).id("HW1033");
            failure.hint("correct it, or say with flags how to draw and move it away")
        };
        let fields: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| told(error.to_string()))?;
        let mut stated = Self {
            do_sample: field(&fields, "do_sample").map_err(told)?,
            temperature: field(&fields, "temperature").map_err(told)?,
            top_k: field(&fields, "top_k").map_err(told)?,
            top_p: field(&fields, "top_p").map_err(told)?,
            min_p: field(&fields, "min_p").map_err(told)?,
            repetition_penalty: field(&fields, "repetition_penalty").map_err(told)?,
            stop: stop_strings(&fields).map_err(told)?,
            unread: unread(&fields),
        };
        match stated.do_sample {
            Some(false) => stated.temperature = Some(0.0),
            // What transformers takes where the file has none.
            Some(true) => {
                stated.temperature.get_or_insert(1.0);
                stated.top_k.get_or_insert(50);
            }
            None => {}
        }
        Ok(stated)
    }
}

/// Texts to end before: one, or a list.
fn stop_strings(fields: &Map<String, Value>) -> Result<Vec<String>, String> {
    let name = "stop_strings";
    let mut texts = match fields.get(name) {
        Some(Value::String(text)) => vec![text.clone()],
        _ => field(fields, name)?.unwrap_or_default(),
    };
    texts.retain(|text: &String| !text.is_empty());
    Ok(texts)
}

/// Which of the other fields say something.
fn unread(fields: &Map<String, Value>) -> Vec<&'static str> {
    let says = |name: &str, neutral: &[f64]| match fields.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::Array(list)) => !list.is_empty(),
        Some(value) => value.as_f64().is_none_or(|value| !neutral.contains(&value)),
    };
    let others = OTHERS.iter();
    others
        .filter(|(name, neutral)| says(name, neutral))
        .map(|other| other.0)
        .collect()
}

/// A field, if it is there and not null.
fn field<T: DeserializeOwned>(
    fields: &Map<String, Value>,
    name: &str,
) -> Result<Option<T>, String> {
    let found = fields.get(name).filter(|value| !value.is_null());
    let read = |value: &Value| serde_json::from_value(value.clone());
    let read = found.map(read).transpose();
    read.map_err(|error| format!("`{name}`: {}", in_words(&error.to_string())))
}

/// `generate`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct GenerateArgs {
    /// The model.
    #[command(flatten)]
    pub sample: SampleArgs,

    /// The text to continue
    #[arg(long, value_name = "TEXT")]
    pub prompt: String,

    /// Tokens to add, unless the model ends the text before
    #[arg(long, alias = "max-tokens", value_name = "N", default_value_t = 100)]
    pub tokens: usize,
}

/// Continues a text.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn generate(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    if args.prompt.is_empty() {
        return Err(Failure::usage("--prompt must have at least one character"));
    }
    let mut prompt = Vec::new();
    let loaded = load(&args.sample, |tokenizer| {
        prompt = begun(tokenizer, &args.prompt)?;
        Ok(prompt.len() + args.tokens)
    })?;
    output::piece(&loaded.tokenizer.decode(&prompt)?);
    let until = (args.tokens, &*loaded.ends, &*loaded.stop);
    let (_, speed) = go_on(&loaded, &prompt, until)?;
    speed.tell();
    Ok(ExitCode::SUCCESS)
}

/// A text to go on from, as texts begin that a model learnt from.
pub(crate) fn begun(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, Failure> {
    let mut tokens = tokenizer.before_texts()?;
    tokens.extend(tokenizer.encode(text)?);
    Ok(tokens)
}

/// Whether a token ends what is said.
pub(crate) fn stop_at(ends: &[u32], token: u32) -> ControlFlow<()> {
    if ends.contains(&token) {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}
