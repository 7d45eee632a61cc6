//! The rows that were made of records, divided, and batches of them.

use std::ops::Range;
use std::path::Path;

use highwater_memory::Files;
use highwater_models::data::{PackedCounts, RowBatches, Rows};
use highwater_models::{DataError, Order};

use super::text::HELD_OUT_TOKENS;
use crate::config::RunConfig;
use crate::error::Failure;
use crate::model::Batch;

/// Of fewer rows, or pairs of them, a share that comes to less than one is none.
const ENOUGH: u64 = 10;

/// The rows of a run, divided.
#[derive(Debug)]
pub struct PackedData {
    rows: Rows,
    /// In groups of rows, as what follows.
    train: Range<u64>,
    held_out: Range<u64>,
    /// Rows of a group: two of a pair of answers.
    group: usize,
}

impl PackedData {
    /// Opens the rows that were made.
    ///
    /// # Errors
    /// [`Failure`] for a file that is not what was written, and where too little is left to train on.
    pub fn open(
        files: &dyn Files,
        config: &RunConfig,
        vocab_size: usize,
        spool: &Path,
    ) -> Result<Self, Failure> {
        let rows = Rows::open(files, spool, vocab_size as u32)?;
        if rows.length() != config.training.seq {
            let (found, seq) = (rows.length(), config.training.seq);
            return Err(DataError::Format {
                path: spool.to_owned(),
                problem: format!("rows of {found} tokens; the run needs sequences of {seq}"),
            }
            .into());
        }
        let group = config.rows_together();
        let count = rows.packed().rows / group as u64;
        let share = config.data.held_out;
        let (cut, count) = if let Some(others) = rows.held_out() {
            (count, count + others.rows / group as u64)
        } else {
            let least = u64::from(share > 0.0 && count >= ENOUGH);
            let held_out = ((count as f64 * share) as u64).max(least);
            (count.saturating_sub(held_out), count)
        };
        let held_out = count - cut;
        if cut == 0 {
            return Err(DataError::TooShort {
                part: "the data has",
                tokens: (count * group as u64) * rows.length() as u64,
                needs: "the training split needs",
                needed: (held_out + 1) * (group * rows.length()) as u64,
            }
            .into());
        }
        Ok(Self {
            rows,
            train: 0..cut,
            held_out: cut..count,
            group,
        })
    }

    /// Batches to train on, from the start.
    ///
    /// # Errors
    /// [`Failure`] where there is no row.
    pub fn batches(&self, config: &RunConfig) -> Result<RowBatches, Failure> {
        Ok(RowBatches::new(
            self.rows.clone(),
            (self.train.clone(), self.group),
            config.training.batch,
            config.data.order,
            config.training.seed,
        )?)
    }

    /// What the held-out loss is measured on, a row at a time.
    ///
    /// # Errors
    /// [`Failure`] of the file.
    pub fn held_out(
        &self,
        config: &RunConfig,
    ) -> Result<impl Iterator<Item = Result<Batch, Failure>> + use<>, Failure> {
        let most = (HELD_OUT_TOKENS / config.training.seq).max(1) as u64;
        let range = self.held_out.clone();
        let count = (range.end - range.start).min(most);
        let batches = (count > 0).then(|| {
            RowBatches::new(
                self.rows.clone(),
                (range, self.group),
                1,
                Order::Sequential,
                0,
            )
        });
        let mut batches = batches.transpose()?;
        let kind = Batch::of_rows(self.group);
        Ok((0..count).map_while(move |_| {
            let batch = batches.as_mut()?.next_batch();
            Some(batch.map(kind).map_err(Failure::from))
        }))
    }

    /// Tokens of rows to train on, padding with them, and those held out.
    pub fn counts(&self) -> [u64; 2] {
        let length = (self.group * self.rows.length()) as u64;
        [&self.train, &self.held_out].map(|part| (part.end - part.start) * length)
    }

    /// What the rows are known by.
    ///
    /// # Errors
    /// [`Failure`] of the file.
    pub fn digest(&self) -> Result<highwater_memory::saved::Digest, Failure> {
        Ok(self.rows.digest()?)
    }

    /// What was made of the records, for people.
    pub fn summary(&self) -> String {
        let train = self.summary_of(&self.rows.packed(), "");
        match self.rows.held_out() {
            None => train,
            Some(others) => format!("{train}\n{}", self.summary_of(&others, "held out, ")),
        }
    }

    fn summary_of(&self, packed: &PackedCounts, what: &str) -> String {
        let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
        let unit = if self.group == 1 { "examples" } else { "pairs" };
        let places = packed.rows * self.rows.length() as u64;
        let cut = match packed.cut {
            0 => String::new(),
            cut => format!(
                "; {cut} were longer than --seq and were truncated ({} tokens dropped)",
                packed.cut_tokens
            ),
        };
        let left_out = match packed.left_out {
            0 => String::new(),
            of => {
                format!("; {of} were skipped, because the loss is computed on none of their tokens")
            }
        };
        format!(
            "{what}{} {unit}: {} tokens, loss on {:.0}% of them, in {} rows of {} tokens ({:.1}% \
            padding){cut}{left_out}",
            packed.documents / self.group as u64,
            packed.tokens,
            percent(packed.learned, packed.tokens),
            packed.rows,
            self.rows.length(),
            percent(places - packed.tokens.min(places), places),
        )
    }
}

/// The next batch of rows.
///
/// # Errors
/// [`Failure`] of the file.
pub(super) fn next(batches: &mut RowBatches) -> Result<Batch, Failure> {
    Ok(Batch::of_rows(batches.group())(batches.next_batch()?))
}
