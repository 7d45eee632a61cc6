//! Learning from pairs of answers, of which one is preferred.

use highwater::{Result, Tensor};

use crate::Packed;

/// An answer to be learnt from: a row, whose targets are the answer alone, and how many tokens it has.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The row, `[1, T]`, with what is asked.
    pub row: Packed<'a>,
    /// How many of its targets are not -100: a scalar, `F32`.
    pub learned: &'a Tensor,
}

/// What a pair comes to: scalars.
#[derive(Clone, Debug)]
pub struct PairLoss {
    /// What is to become less.
    pub loss: Tensor,
    /// How much more the model likes the chosen answer than the rejected one, by its own measure: above 0 it tells
    /// them apart.
    pub margin: Tensor,
}

/// Direct preference optimisation (Rafailov et al. 2023), as TRL's `DPOTrainer` with `loss_type="sigmoid"`:
/// `-log sigmoid(beta ((p_c - r_c) - (p_r - r_r)))`, where `p` and `r` are the log-probabilities of the chosen and the
/// rejected answer, by the model and by the one that it began as. Each is asked with a row for the mean cross-entropy
/// of its targets, as [`crate::CausalLm::packed_loss`] answers it; `reference` is to answer without gradient.
///
/// # Errors
/// What the models return.
pub fn dpo_loss(
    policy: &dyn Fn(&Packed<'_>) -> Result<Tensor>,
    reference: &dyn Fn(&Packed<'_>) -> Result<Tensor>,
    [chosen, rejected]: [Answer<'_>; 2],
    beta: f64,
) -> Result<PairLoss> {
    // Of each answer the cross-entropy by the reference less that by the model, summed.
    let gained = |answer: Answer<'_>| {
        let by_reference = reference(&answer.row)?;
        let by_policy = policy(&answer.row)?;
        by_reference.sub(&by_policy)?.mul(answer.learned)
    };
    let margin = gained(chosen)?.sub(&gained(rejected)?)?.mul_scalar(beta)?;
    let loss = margin.mul_scalar(-1.0)?.softplus()?;
    Ok(PairLoss { loss, margin })
}

/// Odds-ratio preference optimisation (Hong et al. 2024), which needs no other model: the mean cross-entropy of the
/// chosen answer, and `-beta log sigmoid` of the logarithm of how many times larger its odds are than those of the
/// rejected one, where an answer's probability is the geometric mean of its tokens'. As in the paper the answer alone
/// counts to the first part; TRL's `ORPOTrainer` counts what is asked too.
///
/// # Errors
/// What the model returns.
pub fn orpo_loss(
    policy: &dyn Fn(&Packed<'_>) -> Result<Tensor>,
    [chosen, rejected]: [Answer<'_>; 2],
    beta: f64,
) -> Result<PairLoss> {
    // log(p / (1 - p)) of p = exp(-loss).
    let log_odds = |loss: &Tensor| {
        let p = loss.mul_scalar(-1.0)?;
        let rest = p.exp()?.mul_scalar(-1.0)?.log1p()?;
        p.sub(&rest)
    };
    let [of_chosen, of_rejected] = [policy(&chosen.row)?, policy(&rejected.row)?];
    let margin = log_odds(&of_chosen)?.sub(&log_odds(&of_rejected)?)?;
    let odds = margin.mul_scalar(-1.0)?.softplus()?.mul_scalar(beta)?;
    Ok(PairLoss {
        loss: of_chosen.add(&odds)?,
        margin,
    })
}
