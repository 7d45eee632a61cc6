//! Learning from pairs of answers: what flags say of it, and the loss of a batch.

use std::ops::Range;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use highwater::nn::without_adapters;
use highwater::{DType, Engine, Tensor, autocast, no_grad};
use highwater_models::data::PackedBatch;
use highwater_models::preference::{Answer, DpoLoss, DpoOptions, PairLoss, dpo_loss, orpo_loss};
use highwater_models::{CausalLm, Packed};
use serde::{Deserialize, Serialize};

use crate::config::SettingsError;
use crate::error::Failure;

/// What the paper of `exo_pair` takes.
const EXO_SMOOTHING: f64 = 1e-3;

/// Flags of preferences. Not a doc comment for people: clap shows the fields'.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct PreferenceArgs {
    /// Learn from pairs of answers, chosen and rejected: dpo compares with the model as it was (with --lora without
    /// its adapters, else a frozen copy), orpo needs none
    #[arg(
        long,
        value_name = "METHOD",
        help_heading = "Conversations and records"
    )]
    pub preference: Option<PreferenceMethod>,

    /// How much --preference weighs: for dpo how close to stay to the model as it was, for orpo against likelihood
    /// alone [default: 0.1]
    #[arg(long, value_name = "X", help_heading = "Conversations and records")]
    pub beta: Option<f64>,

    /// The loss of --preference dpo, by TRL's names [default: sigmoid]
    #[arg(long, value_name = "NAME", help_heading = "Conversations and records")]
    #[arg(value_parser = PossibleValuesParser::new(DpoLoss::ALL.map(DpoLoss::name)).try_map(|text| dpo_loss_of(&text)))]
    pub dpo_loss: Option<DpoLoss>,

    /// Spread this share of each target's probability over all tokens or classes, in training alone. With
    /// --preference dpo: for robust the share of pairs whose labels are wrong, for exo_pair what is left to the
    /// rejected answer [default: 0, 0.001 for exo_pair]
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub label_smoothing: Option<f64>,
}

fn dpo_loss_of(name: &str) -> Result<DpoLoss, String> {
    let found = DpoLoss::ALL.into_iter().find(|loss| loss.name() == name);
    found.ok_or_else(|| format!("there is no loss `{name}`"))
}

/// How to learn from pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreferenceMethod {
    /// Direct preference optimisation.
    Dpo,
    /// Odds-ratio preference optimisation; likelihoods are of the answers, as in the paper (TRL's also count the prompt).
    Orpo,
}

/// How a run learns from pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreferenceConfig {
    /// By which loss.
    pub method: PreferenceMethod,
    /// How much it weighs.
    pub beta: f64,
    /// The loss of a pair, for direct preference optimisation.
    #[serde(default, skip_serializing_if = "is_sigmoid")]
    pub dpo_loss: DpoLoss,
    /// Label smoothing, for the losses that have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_smoothing: Option<f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_sigmoid(loss: &DpoLoss) -> bool {
    *loss == DpoLoss::Sigmoid
}

impl PreferenceArgs {
    /// The settings, if pairs are learnt from.
    ///
    /// # Errors
    /// [`Failure`] for data without records, and for a weight alone.
    pub fn config(&self, has_records: bool) -> Result<Option<PreferenceConfig>, Failure> {
        let Some(method) = self.preference else {
            let alone = [
                ("beta", self.beta.is_some()),
                ("dpo-loss", self.dpo_loss.is_some()),
            ];
            return match alone.into_iter().find(|(_, given)| *given) {
                None => Ok(None),
                Some((flag, _)) => {
                    let message = format!("--{flag} has no effect without --preference");
                    Err(Failure::usage(message).hint("say --preference dpo, or leave it out"))
                }
            };
        };
        if !has_records {
            let message = "--preference learns from records, and the data has none";
            return Err(
                Failure::usage(message).hint("--data takes a file with chosen and rejected")
            );
        }
        let of_dpo = [
            ("dpo-loss", self.dpo_loss.is_some()),
            ("label-smoothing", self.label_smoothing.is_some()),
        ];
        if method == PreferenceMethod::Orpo
            && let Some((flag, _)) = of_dpo.into_iter().find(|(_, given)| *given)
        {
            let message = format!("--{flag} has no effect with --preference orpo");
            return Err(Failure::usage(message).hint("leave it out, or say --preference dpo"));
        }
        let dpo_loss = self.dpo_loss.unwrap_or_default();
        Ok(Some(PreferenceConfig {
            method,
            beta: self.beta.unwrap_or(0.1),
            dpo_loss,
            label_smoothing: self.smoothing(dpo_loss)?,
        }))
    }

    /// The label smoothing of what is learnt from by itself, not in pairs.
    pub fn cross_entropy_smoothing(&self) -> Option<f64> {
        let given = self.label_smoothing.filter(|_| self.preference.is_none());
        given.filter(|&share| share != 0.0)
    }

    fn smoothing(&self, loss: DpoLoss) -> Result<Option<f64>, Failure> {
        match (loss, self.label_smoothing) {
            (DpoLoss::ExoPair, given) => Ok(Some(given.unwrap_or(EXO_SMOOTHING))),
            (DpoLoss::Robust, None) => {
                let message = "--dpo-loss robust needs --label-smoothing";
                let hint =
                    "say what share of the pairs is labelled wrong, such as --label-smoothing 0.1";
                Err(Failure::usage(message).hint(hint))
            }
            (loss, Some(_)) if !loss.has_label_smoothing() => {
                let message = format!(
                    "--label-smoothing has no effect with --dpo-loss {}",
                    loss.name()
                );
                Err(Failure::usage(message).hint("leave it out, or say --dpo-loss robust"))
            }
            (_, given) => Ok(given),
        }
    }
}

impl PreferenceConfig {
    /// Checks the range.
    ///
    /// # Errors
    /// [`SettingsError::Range`].
    pub fn validate(&self) -> Result<(), SettingsError> {
        crate::config::positive("beta", self.beta, 1e6)?;
        let Some(smoothing) = self.label_smoothing else {
            return Ok(());
        };
        let least = self.dpo_loss == DpoLoss::ExoPair;
        let is_good = (0.0..0.5).contains(&smoothing) && !(least && smoothing <= 0.0);
        crate::config::require(is_good, "label-smoothing", &smoothing, || {
            let from = if least { "above 0" } else { "from 0" };
            format!("a number {from} to below 0.5")
        })
    }

    /// Whether it compares with a copy of the model as it was.
    pub fn needs_copy(&self, has_adapters: bool) -> bool {
        self.method == PreferenceMethod::Dpo && !has_adapters
    }
}

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
