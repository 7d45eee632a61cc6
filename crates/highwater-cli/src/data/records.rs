//! Records to learn from: conversations, instructions, texts in files of JSON, CSV or Parquet, and the rows of tokens that are
//! made of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_memory::Files;
use highwater_models::Tokenizer;
use highwater_models::data::{Progress, Reads, is_token_set};
use highwater_text::prepare::{Examples, Preparation, prepare};
use highwater_text::records::holds_records;
use highwater_text::{
    ChatTemplate, Encoder, Example, FieldMap, Learn, SpecialTokens, ends_of_texts,
};
use serde::{Deserialize, Serialize};

use super::tokenizer::{Limit, read_within, tokenizer_of};
use crate::config::{LossOn, RecordsConfig, RunConfig};
use crate::error::Failure;
use crate::terminal::output;

/// So many records are looked at where nothing is made of them.
const CHECKED: usize = 16;
/// The name of the template that is built in.
pub(crate) const CHATML: &str = "chatml";

/// Whether data is a file of records, or a folder with one.
///
/// # Errors
/// [`Failure`] where it cannot be looked at.
pub(crate) fn has_records(files: &dyn Files, path: &Path) -> Result<bool, Failure> {
    let is_folder = files.metadata(path)?.is_some_and(|found| found.is_dir);
    Ok(holds_records(files, path)? && !(is_folder && is_token_set(files, path)?))
}

/// The template that was named, or else the one of a model's folder, which says what its special tokens are.
///
/// # Errors
/// [`Failure`] for one that cannot be read.
pub(crate) fn template(
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
pub(crate) fn template_source(files: &dyn Files, named: &str) -> Result<String, Failure> {
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

    /// The same, if this process may use as much memory as reading it takes.
    ///
    /// # Errors
    /// As [`Source::tokenizer`], and where it may not.
    pub(crate) fn tokenizer_within(
        &self,
        files: &dyn Files,
        limit: &Limit,
    ) -> Result<Tokenizer, Failure> {
        match &self.tokenizer {
            Some(path) => read_within(files, path, limit),
            None => Ok(Tokenizer::Bytes),
        }
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
pub(crate) fn endless_note(turns: u64, encoder: &Encoder<'_>) -> Option<String> {
    let template = encoder.template().filter(|_| turns > 0)?;
    Some(highwater_text::endless_turns(turns, template.source_name()))
}
