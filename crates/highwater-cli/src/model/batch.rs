//! What a step learns from at once.

use highwater::data::Array;
use highwater_models::BatchShape;
use highwater_models::data::PackedBatch;

use crate::config::RunConfig;

/// What a step learns from at once.
#[derive(Clone, Debug)]
pub enum Batch {
    /// Tokens and what follows each of them.
    Tokens(Vec<u32>, Vec<u32>),
    /// Rows of records.
    Packed(PackedBatch),
    /// Pairs of rows: an answer that is preferred, and another one.
    Pairs(PackedBatch),
    /// Images `[N, 3, H, W]` and the class of each `[N]`.
    Images(Array, Array),
}

impl Batch {
    /// What batches of groups of so many rows are.
    pub(crate) fn of_rows(group: usize) -> fn(PackedBatch) -> Self {
        match group {
            1 => Self::Packed,
            _ => Self::Pairs,
        }
    }

    /// Rows of nothing, to plan with.
    pub(crate) fn blank_rows(config: &RunConfig, batch: usize) -> Self {
        let group = config.rows_together();
        let (batch, seq) = (batch * group, config.training.seq);
        Self::of_rows(group)(PackedBatch::blank(BatchShape { batch, seq }))
    }

    /// How many tokens, images or pairs; of records the tokens that are learnt.
    pub fn units(&self) -> usize {
        match self {
            Self::Tokens(tokens, _) => tokens.len(),
            Self::Packed(rows) => rows.learned,
            Self::Pairs(rows) => rows.rows() / 2,
            Self::Images(_, classes) => classes.dims()[0],
        }
    }
}
