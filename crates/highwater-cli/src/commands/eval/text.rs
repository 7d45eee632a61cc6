//! All of some text, batch by batch.

use std::path::PathBuf;
use std::sync::Arc;

use highwater_memory::{DiskFiles, Files};
use highwater_models::data::{PackedBatch, RowBatches, Rows};
use highwater_models::{DataError, Order, Tokens};

use crate::config::RunConfig;
use crate::data::{TextData, held_out, tokenize};
use crate::error::{Code, Failure};
use crate::model::{Batch, Blueprint};
use crate::terminal::output;

/// A file of tokens that goes when this does, however it ends.
struct Spool(PathBuf);

impl Spool {
    fn new(files: &dyn Files) -> Result<Self, Failure> {
        let folder = std::env::temp_dir();
        let name = |number| format!("highwater-eval-{}-{number}.tokens", std::process::id());
        for number in 0_u32.. {
            let path = folder.join(name(number));
            if files.metadata(&path)?.is_none() {
                return Ok(Self(path));
            }
        }
        Err(Failure::new(
            Code::Files,
            "no name is left for a file of tokens",
        ))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // Where nothing was made there is nothing to remove.
        let _ = DiskFiles.remove_file(&self.0);
    }
}

/// All of the data.
pub(crate) enum Text {
    /// One long row of tokens.
    Tokens(Tokens),
    /// Rows of records.
    Rows(Rows),
}

impl Text {
    /// Opens the data, of which tokens are made first where that is needed. They are in a file that has no name by
    /// the time that this returns.
    pub(super) fn open(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &Blueprint,
    ) -> Result<Self, Failure> {
        if let Some(told) = held_out::describe(&**files, config)? {
            output::news(&told);
        }
        let spool = Spool::new(&**files)?;
        let made = tokenize::spool(&**files, config, model, &spool.0)?;
        made.iter().flatten().for_each(|note| output::news(note));
        let model = model.text()?;
        let vocab_size = model.vocab_size() as u32;
        Ok(if config.data.records.is_some() {
            Self::Rows(Rows::open(&**files, &spool.0, vocab_size)?)
        } else if made.is_some() {
            Self::Tokens(Tokens::spooled(files, &spool.0, vocab_size)?)
        } else {
            let tokens = TextData::tokens(files, config, model, &spool.0)?;
            tokens.notes().iter().for_each(|note| output::news(note));
            Self::Tokens(tokens)
        })
    }

    /// Does something with each batch, the length of its sequences, and the share of the data that is done then.
    pub(super) fn each(
        &self,
        config: &RunConfig,
        look: &mut impl FnMut(&Batch, usize, f64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (batch, seq) = (config.training.batch, config.training.seq);
        match self {
            Self::Tokens(tokens) => each_sequence(tokens, (batch, seq), look),
            Self::Rows(rows) => each_row(rows, batch, look),
        }
    }
}

/// Does something with all tokens behind the first: in whole batches, what is left of whole sequences, and the rest.
fn each_sequence(
    tokens: &Tokens,
    (batch, seq): (usize, usize),
    look: &mut impl FnMut(&Batch, usize, f64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let all = tokens.count();
    if all < 2 {
        return Err(DataError::TooShort {
            part: "the data has",
            tokens: all,
            needs: "a loss needs",
            needed: 2,
        }
        .into());
    }
    let mut at = 0;
    while at + 1 < all {
        let left = all - 1 - at;
        let rows = (left / seq as u64).min(batch as u64) as usize;
        let seq = if rows > 0 { seq } else { left as usize };
        let count = rows.max(1) * seq;
        let mut window = vec![0; count + 1];
        tokens.read(at, &mut window)?;
        let targets = window[1..].to_vec();
        window.truncate(count);
        at += count as u64;
        let share = at as f64 / (all - 1) as f64;
        look(&Batch::Tokens(window, targets), seq, share)?;
    }
    Ok(())
}

/// Does something with all rows, those that fill no batch one by one.
fn each_row(
    rows: &Rows,
    batch: usize,
    look: &mut impl FnMut(&Batch, usize, f64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let count = rows.packed().rows;
    let whole = count / batch as u64 * batch as u64;
    for (range, batch) in [(0..whole, batch), (whole..count, 1)] {
        if range.is_empty() {
            continue;
        }
        let mut at = range.start;
        let (end, order) = (range.end, Order::Sequential);
        let mut batches = RowBatches::new(rows.clone(), (range, 1), batch, order, 0)?;
        while at < end {
            let next: PackedBatch = batches.next_batch()?;
            at += batch as u64;
            look(
                &Batch::Packed(next),
                rows.length(),
                at as f64 / count as f64,
            )?;
        }
    }
    Ok(())
}
