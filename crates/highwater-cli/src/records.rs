//! Records to learn from: conversations, instructions, texts in files of JSON, CSV or Parquet. What flags say of
//! them, what a run keeps of that, and the rows of tokens that are made of them.

mod packed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use highwater_memory::Files;
use highwater_models::Tokenizer;
use highwater_models::data::{Progress, Reads, is_token_set};
use highwater_text::prepare::{Examples, Preparation, prepare};
use highwater_text::records::holds_records;
use highwater_text::{
    ChatTemplate, Encoder, Example, FieldMap, Learn, SpecialTokens, TextError, ends_of_texts,
};
use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::data::tokenizer_of;
use crate::error::{Code, Failure};
use crate::output;

pub use packed::{PackedData, next};

/// So many records are looked at where nothing is made of them.
const CHECKED: usize = 16;
/// The name of the template that is built in.
const CHATML: &str = "chatml";

/// Flags of records. Not a doc comment for people: clap shows the fields'.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct RecordsArgs {
    /// What a field is called in the data, such as text=body or messages=dialogue; may be given several times
    #[arg(long, value_name = "NAME=FIELD", value_parser = field_name)]
    #[arg(help_heading = "Conversations and records")]
    pub map: Option<Vec<(String, String)>>,

    /// What is learnt of conversations and instructions: what the assistant says, or all of it [default: assistant]
    #[arg(long, value_name = "WHAT", help_heading = "Conversations and records")]
    pub loss_on: Option<LossOn>,

    /// How conversations are written: a file with a Jinja template, or chatml [default: the model folder's template]
    #[arg(
        long,
        value_name = "FILE|chatml",
        help_heading = "Conversations and records"
    )]
    pub chat_template: Option<String>,

    /// Give each record a row of its own, filled up with padding, where several would go into one
    #[arg(long, num_args = 0, default_missing_value = "true")]
    #[arg(help_heading = "Conversations and records")]
    pub no_packing: Option<bool>,
}

/// What of conversations is learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossOn {
    /// What the assistant says, and completions.
    #[default]
    Assistant,
    /// All of it.
    All,
}

/// How a run reads records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordsConfig {
    /// What is learnt.
    pub loss_on: LossOn,
    /// The template that was named: a path, or `chatml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<String>,
    /// Whether several records share a row.
    pub packing: bool,
    /// What fields are called in the data, by their expected names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub map: BTreeMap<String, String>,
}

fn field_name(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=');
    let parts = parts.filter(|(name, field)| !name.is_empty() && !field.is_empty());
    let (name, field) = parts.ok_or("expected NAME=FIELD, such as text=body")?;
    Ok((name.to_owned(), field.to_owned()))
}

impl RecordsArgs {
    /// The settings, for data of records; a failure where flags are given and the data has none.
    ///
    /// # Errors
    /// [`Failure`] for flags that mean nothing to the data, and for a template that is not there.
    pub fn config(
        &self,
        files: &dyn Files,
        data: Option<&Path>,
    ) -> Result<Option<RecordsConfig>, Failure> {
        let has_records = match data {
            Some(path) => has_records(files, path)?,
            None => false,
        };
        if !has_records {
            let given = [
                ("map", self.map.is_some()),
                ("loss-on", self.loss_on.is_some()),
                ("chat-template", self.chat_template.is_some()),
                ("no-packing", self.no_packing == Some(true)),
            ];
            return match given.into_iter().find(|(_, given)| *given) {
                None => Ok(None),
                Some((flag, _)) => Err(Failure::usage(format!(
                    "--{flag} has no effect on data without records"
                ))
                .hint("records are in files that end in .jsonl, .json, .csv, .tsv or .parquet")),
            };
        }
        let chat_template = match self.chat_template.as_deref() {
            Some(name) if name != CHATML => {
                let path = Path::new(name);
                if files.metadata(path)?.is_none() {
                    let message = format!("--chat-template: there is no file `{name}`");
                    return Err(Failure::usage(message).hint("give a file, or chatml"));
                }
                let path = std::path::absolute(path);
                let path = path.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
                Some(path.display().to_string())
            }
            named => named.map(str::to_owned),
        };
        Ok(Some(RecordsConfig {
            loss_on: self.loss_on.unwrap_or_default(),
            chat_template,
            packing: self.no_packing != Some(true),
            map: self.map.iter().flatten().cloned().collect(),
        }))
    }
}

/// Whether data is a file of records, or a folder with one.
///
/// # Errors
/// [`Failure`] where it cannot be looked at.
pub fn has_records(files: &dyn Files, path: &Path) -> Result<bool, Failure> {
    let is_folder = files.metadata(path)?.is_some_and(|found| found.is_dir);
    Ok(holds_records(files, path)? && !(is_folder && is_token_set(files, path)?))
}

/// The template that was named, or else the one of a model's folder, which says what its special tokens are.
///
/// # Errors
/// [`Failure`] for one that cannot be read.
pub fn template(
    files: &dyn Files,
    named: Option<&str>,
    folder: Option<&Path>,
) -> Result<Option<ChatTemplate>, Failure> {
    let special = folder.map(|folder| SpecialTokens::load(files, folder));
    let special = special.transpose()?.unwrap_or_default();
    Ok(match (named, folder) {
        (Some(CHATML), _) => Some(ChatTemplate::chatml(&special)?),
        (Some(path), _) => Some(ChatTemplate::read(files, Path::new(path), &special)?),
        (None, Some(folder)) => ChatTemplate::load(files, folder, &special)?,
        (None, None) => None,
    })
}

/// The text of a template that was named.
///
/// # Errors
/// [`Failure`] for one that cannot be read.
pub fn template_source(files: &dyn Files, named: &str) -> Result<String, Failure> {
    Ok(match named {
        CHATML => ChatTemplate::CHATML.to_owned(),
        path => highwater_text::read_text(files, Path::new(path))?,
    })
}

/// What rows are made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// How records are read.
    pub records: RecordsConfig,
    /// The data.
    pub data: PathBuf,
    /// What is held out, where that is named.
    pub eval_data: Option<PathBuf>,
    /// What the data is read for.
    pub reads: Reads,
    /// The `tokenizer.json`; bytes without one. Its folder has the template and says which tokens are special.
    pub tokenizer: Option<PathBuf>,
    /// Whether records are pairs of answers.
    pub pairs: bool,
    /// How many tokens the model has.
    pub vocab_size: u32,
    /// Tokens of a row.
    pub seq: usize,
    /// Threads to make them with.
    pub threads: usize,
}

impl Source {
    /// What a run's rows are made of, if its data has records.
    pub fn of(config: &RunConfig, vocab_size: usize) -> Option<Self> {
        Some(Self {
            records: config.data.records.clone()?,
            data: config.data.path.clone()?,
            eval_data: config.data.eval_data.clone(),
            reads: config.data.reads,
            tokenizer: config.model.tokenizer.clone(),
            pairs: config.training.preference.is_some(),
            vocab_size: vocab_size as u32,
            seq: config.training.seq,
            threads: config.machine.threads,
        })
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`Failure`] for one that cannot be read.
    pub fn tokenizer(&self, files: &dyn Files) -> Result<Tokenizer, Failure> {
        tokenizer_of(files, self.tokenizer.as_deref())
    }

    /// What makes tokens of examples.
    ///
    /// # Errors
    /// [`Failure`] for a template or settings that cannot be read.
    pub fn encoder<'a>(
        &self,
        files: &dyn Files,
        tokenizer: &'a Tokenizer,
    ) -> Result<Encoder<'a>, Failure> {
        let folder = self.tokenizer.as_deref().and_then(Path::parent);
        let template = template(files, self.records.chat_template.as_deref(), folder)?;
        let learn = match self.records.loss_on {
            LossOn::Assistant => Learn::Answers,
            LossOn::All => Learn::Everything,
        };
        let ends = folder.map(|folder| ends_of_texts(files, folder, tokenizer));
        let end = ends.transpose()?.and_then(|ends| ends.first().copied());
        Ok(Encoder::new(tokenizer, template, end, learn)?)
    }

    /// What is to be prepared.
    pub fn preparation(&self) -> Preparation<'_> {
        Preparation {
            data: &self.data,
            held_out: self.eval_data.as_deref(),
            reads: self.reads,
            progress: Progress::default(),
            map: FieldMap(self.records.map.clone()),
            vocab_size: self.vocab_size,
            length: self.seq,
            packing: self.records.packing,
            pairs: self.pairs,
            threads: self.threads,
        }
    }

    /// That there are records, and that they can be read as the settings say, as far as the first ones tell.
    ///
    /// # Errors
    /// As [`Source::make`].
    pub fn check(&self, files: &Arc<dyn Files>) -> Result<(), Failure> {
        let tokenizer = self.tokenizer(&**files)?;
        let encoder = self.encoder(&**files, &tokenizer)?;
        let mut examples = Examples::open(files, &encoder, &self.preparation())?;
        let first: Vec<_> = examples.by_ref().take(CHECKED).collect();
        let mut endless = 0;
        for example in first {
            let (place, example) = example?;
            let documents = examples.encode(&place, &example)?;
            endless += documents.iter().map(|it| it.endless as u64).sum::<u64>();
        }
        if let Some(note) = endless_note(endless, &encoder) {
            output::news(&note);
        }
        Ok(())
    }

    /// The first record.
    ///
    /// # Errors
    /// As [`Source::make`].
    pub fn first(
        &self,
        files: &Arc<dyn Files>,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Example>, Failure> {
        let encoder = self.encoder(&**files, tokenizer)?;
        let mut examples = Examples::open(files, &encoder, &self.preparation())?;
        let first = examples.next().transpose()?;
        Ok(first.map(|(_, example)| example))
    }

    /// Makes the rows; answers what of the records is not read.
    ///
    /// # Errors
    /// [`Failure`] for records, a template or a tokenizer that cannot be read or used.
    pub fn make(
        &self,
        files: &Arc<dyn Files>,
        out: &Path,
        progress: Progress<'_>,
    ) -> Result<Vec<String>, Failure> {
        let tokenizer = self.tokenizer(&**files)?;
        let encoder = self.encoder(&**files, &tokenizer)?;
        let preparation = Preparation {
            progress,
            ..self.preparation()
        };
        let prepared = prepare(files, &encoder, &preparation, out)?;
        let notes = endless_note(prepared.endless, &encoder).into_iter();
        Ok(notes.chain(prepared.unread.describe()).collect())
    }
}

/// What to say where a model would not learn to stop.
pub fn endless_note(turns: u64, encoder: &Encoder<'_>) -> Option<String> {
    let template = encoder.template().filter(|_| turns > 0)?;
    Some(highwater_text::endless_turns(turns, template.source_name()))
}

impl From<TextError> for Failure {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Files(error) => error.into(),
            TextError::Tokenizer(error) => error.into(),
            TextError::Data(error) => error.into(),
            error => {
                let hint = error.hint().map(str::to_owned);
                let failure = Self::new(Code::Files, error).id("HW1042");
                match hint {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
        }
    }
}
