//! The loss of pairs of answers, and rows as tensors.

use std::ops::Range;

use highwater::nn::without_adapters;
use highwater::{DType, Engine, Tensor, autocast, no_grad};
use highwater_models::data::PackedBatch;
use highwater_models::preference::{Answer, DpoOptions, PairLoss, dpo_loss, orpo_loss};
use highwater_models::{CausalLm, Packed};

use crate::config::{PreferenceConfig, PreferenceMethod};
use crate::error::Failure;

/// Rows as tensors.
pub(crate) struct RowInputs {
    tokens: Tensor,
    targets: Tensor,
    lengths: Tensor,
    positions: Tensor,
}

impl RowInputs {
    /// Some rows of a batch.
    pub(crate) fn of(
        engine: &Engine,
        batch: &PackedBatch,
        rows: Range<usize>,
    ) -> Result<Self, Failure> {
        let count = batch.rows().max(1);
        let [width, documents] = [&batch.tokens.len(), &batch.lengths.len()].map(|all| all / count);
        let part = |each: usize| rows.start * each..rows.end * each;
        let shape = [rows.len(), width];
        let positions = &batch.positions[part(width)];
        Ok(Self {
            tokens: engine.indices(&batch.tokens[part(width)], shape)?,
            targets: Tensor::from_slice(engine, &batch.targets[part(width)], shape)?,
            lengths: engine.indices(&batch.lengths[part(documents)], [rows.len(), documents])?,
            positions: Tensor::from_slice(engine, positions, shape)?,
        })
    }

    /// As models are given them.
    pub(crate) fn packed(&self) -> Packed<'_> {
        Packed {
            tokens: &self.tokens,
            targets: &self.targets,
            lengths: &self.lengths,
            positions: &self.positions,
        }
    }
}

/// The mean loss of the pairs of a batch, computed in `dtype`, and the share of those whose chosen answer the model
/// prefers. `before` is the model as it was, where there is a copy of it.
pub(crate) fn loss(
    model: &dyn CausalLm,
    before: Option<&dyn CausalLm>,
    batch: &PackedBatch,
    (preference, dtype): (PreferenceConfig, DType),
) -> Result<(Tensor, Tensor), Failure> {
    let engine = model.engine();
    let pairs = batch.rows() / 2;
    let (mut losses, mut told): (Vec<Tensor>, Vec<Tensor>) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let inputs = [2 * pair, 2 * pair + 1].map(|row| -> Result<_, Failure> {
            let count = Tensor::from_slice(engine, &[batch.counts[row] as f32], [1])?;
            Ok((
                RowInputs::of(engine, batch, row..row + 1)?,
                count.squeeze(0)?,
            ))
        });
        let [chosen, rejected] = inputs;
        let (chosen, rejected) = (chosen?, rejected?);
        let answers = [&chosen, &rejected].map(|(row, learned)| Answer {
            row: row.packed(),
            learned,
        });
        let found = autocast(dtype, || pair_loss(model, before, answers, preference))?;
        told.push(found.margin);
        losses.push(found.loss);
    }
    let all: Vec<&Tensor> = told.iter().collect();
    let margins = Tensor::stack(&all, 0)?.detach()?;
    let zero = Tensor::full(engine, [1], 0.0, margins.dtype())?;
    let right = margins.gt(&zero)?.to_dtype(DType::F32)?.mean()?;
    let losses: Vec<&Tensor> = losses.iter().collect();
    Ok((Tensor::stack(&losses, 0)?.mean()?, right))
}

fn pair_loss(
    model: &dyn CausalLm,
    before: Option<&dyn CausalLm>,
    answers: [Answer<'_>; 2],
    preference: PreferenceConfig,
) -> highwater::Result<PairLoss> {
    // A model that is only looked at is in evaluation mode already.
    let trains = highwater::is_grad_enabled();
    let policy = |row: &Packed<'_>| model.packed_loss(row);
    let reference = |row: &Packed<'_>| {
        no_grad(|| {
            if let Some(before) = before {
                return before.packed_loss(row);
            }
            model.eval();
            let loss = without_adapters(|| model.packed_loss(row));
            model.train(trains);
            loss
        })
    };
    match preference.method {
        PreferenceMethod::Dpo => {
            let options = DpoOptions {
                loss_type: preference.dpo_loss,
                beta: preference.beta,
                label_smoothing: preference.label_smoothing.unwrap_or(0.0),
            };
            dpo_loss(&policy, &reference, answers, options)
        }
        PreferenceMethod::Orpo => orpo_loss(&policy, answers, preference.beta),
    }
}
