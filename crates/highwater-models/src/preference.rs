//! Learning from pairs of answers, of which one is preferred.

use highwater::{Result, Tensor};
use serde::{Deserialize, Serialize};

use crate::Packed;

/// How fast `discopop` goes from one of its parts to the other: the paper's, and TRL's `discopop_tau`.
const DISCOPOP_TAU: f64 = 0.05;

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

/// What [`dpo_loss`] makes of a pair, by the names and the formulas of TRL's `DPOConfig.loss_type`. `c` and `r` are how
/// much more likely the chosen and the rejected answer have become, as logarithms, `s` is the sigmoid, `e` the label
/// smoothing, and `d = beta (c - r)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DpoLoss {
    /// `-log s(d)` (Rafailov et al. 2023).
    #[default]
    Sigmoid,
    /// The same of logarithms per token.
    SigmoidNorm,
    /// `max(1 - d, 0)` (Zhao et al. 2023).
    Hinge,
    /// `(c - r - 1 / (2 beta))^2` of logarithms per token (Azar et al. 2023).
    Ipo,
    /// `(e log s(-d) - (1 - e) log s(d)) / (1 - 2 e)`, for labels of which a share `e` is wrong (Chowdhury et al. 2024).
    Robust,
    /// `s(d) (log s(d) - log(1 - e)) + s(-d) (log s(-d) - log e)` (Ji et al. 2024).
    ExoPair,
    /// `-log s(beta c) - (log s(-beta c) + log s(-beta r)) / 2` (Chen et al. 2024).
    NcaPair,
    /// `-log s(beta c) - log s(-beta r)` (Jung et al. 2024).
    BcoPair,
    /// `(c - 1 / (2 beta))^2 + (r + 1 / (2 beta))^2` (Wu et al. 2024).
    SppoHard,
    /// `1 - s(beta c) + s(beta r)` (D'Oosterlinck et al. 2024).
    ApoZero,
    /// `s(beta c) + 1 - s(d)` (D'Oosterlinck et al. 2024).
    ApoDown,
    /// `-(1 - m) log s(d) + m exp(-d)` with `m = s(20 d)` (Lu et al. 2024).
    Discopop,
}

impl DpoLoss {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Sigmoid,
        Self::SigmoidNorm,
        Self::Hinge,
        Self::Ipo,
        Self::Robust,
        Self::ExoPair,
        Self::NcaPair,
        Self::BcoPair,
        Self::SppoHard,
        Self::ApoZero,
        Self::ApoDown,
        Self::Discopop,
    ];

    /// TRL's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sigmoid => "sigmoid",
            Self::SigmoidNorm => "sigmoid_norm",
            Self::Hinge => "hinge",
            Self::Ipo => "ipo",
            Self::Robust => "robust",
            Self::ExoPair => "exo_pair",
            Self::NcaPair => "nca_pair",
            Self::BcoPair => "bco_pair",
            Self::SppoHard => "sppo_hard",
            Self::ApoZero => "apo_zero",
            Self::ApoDown => "apo_down",
            Self::Discopop => "discopop",
        }
    }

    /// Whether it goes by label smoothing.
    pub fn has_label_smoothing(self) -> bool {
        matches!(self, Self::Robust | Self::ExoPair)
    }

    /// Whether the logarithms of an answer are divided by its tokens.
    fn is_per_token(self) -> bool {
        matches!(self, Self::SigmoidNorm | Self::Ipo)
    }
}

/// How [`dpo_loss`] learns from pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DpoOptions {
    /// The loss of a pair.
    pub loss_type: DpoLoss,
    /// How close the model stays to what it began as: the larger, the closer.
    pub beta: f64,
    /// For the losses that have it: from 0, or for `exo_pair` from above 0, to below 0.5.
    pub label_smoothing: f64,
}

impl Default for DpoOptions {
    fn default() -> Self {
        Self {
            loss_type: DpoLoss::Sigmoid,
            beta: 0.1,
            label_smoothing: 0.0,
        }
    }
}

/// Direct preference optimisation, as TRL's `DPOTrainer`. The model and the one that it began as are asked with a row
/// for the mean cross-entropy of its targets, as [`crate::CausalLm::packed_loss`] answers it; `reference` is to answer
/// without gradient. The margin is `beta` times how much more the chosen answer gained than the rejected one.
///
/// # Errors
/// What the models return.
pub fn dpo_loss(
    policy: &dyn Fn(&Packed<'_>) -> Result<Tensor>,
    reference: &dyn Fn(&Packed<'_>) -> Result<Tensor>,
    [chosen, rejected]: [Answer<'_>; 2],
    options: DpoOptions,
) -> Result<PairLoss> {
    // Of each answer the mean cross-entropy by the reference less that by the model.
    let gained = |answer: Answer<'_>| reference(&answer.row)?.sub(&policy(&answer.row)?);
    let means = [gained(chosen)?, gained(rejected)?];
    let sums = [
        means[0].mul(chosen.learned)?,
        means[1].mul(rejected.learned)?,
    ];
    let margin = sums[0].sub(&sums[1])?.mul_scalar(options.beta)?;
    let gains = if options.loss_type.is_per_token() {
        means
    } else {
        sums
    };
    let loss = of_gains(&gains, options)?;
    Ok(PairLoss { loss, margin })
}

/// The loss of a pair whose answers have become so much more likely.
fn of_gains([c, r]: &[Tensor; 2], options: DpoOptions) -> Result<Tensor> {
    let DpoOptions {
        loss_type,
        beta,
        label_smoothing: e,
    } = options;
    // Minus the logarithm of the sigmoid.
    let unlikely = |x: &Tensor| x.mul_scalar(-1.0)?.softplus();
    let scaled = |x: &Tensor| x.mul_scalar(beta);
    let negative = |x: &Tensor| x.mul_scalar(-1.0);
    let apart = c.sub(r)?;
    let d = scaled(&apart)?;
    match loss_type {
        DpoLoss::Sigmoid | DpoLoss::SigmoidNorm => unlikely(&d),
        DpoLoss::Hinge => negative(&d)?.add_scalar(1.0)?.relu(),
        DpoLoss::Ipo => apart.add_scalar(-0.5 / beta)?.square(),
        DpoLoss::Robust => {
            let right = unlikely(&d)?.mul_scalar(1.0 - e)?;
            let wrong = unlikely(&negative(&d)?)?.mul_scalar(e)?;
            right.sub(&wrong)?.mul_scalar(1.0 / (1.0 - 2.0 * e))
        }
        DpoLoss::ExoPair => {
            // Each side as its share times how far its logarithm is from what it should be.
            let side = |x: &Tensor, share: f64| {
                x.sigmoid()?
                    .mul(&negative(&unlikely(x)?)?.add_scalar(-share.ln())?)
            };
            side(&d, 1.0 - e)?.add(&side(&negative(&d)?, e)?)
        }
        DpoLoss::NcaPair => {
            let (c, r) = (scaled(c)?, scaled(r)?);
            let both = unlikely(&negative(&c)?)?.add(&unlikely(&negative(&r)?)?)?;
            unlikely(&c)?.add(&both.mul_scalar(0.5)?)
        }
        DpoLoss::BcoPair => unlikely(&scaled(c)?)?.add(&unlikely(&negative(&scaled(r)?)?)?),
        DpoLoss::SppoHard => {
            let off = |x: &Tensor, by: f64| x.add_scalar(by)?.square();
            off(c, -0.5 / beta)?.add(&off(r, 0.5 / beta)?)
        }
        DpoLoss::ApoZero => {
            let less = scaled(c)?.sigmoid()?.mul_scalar(-1.0)?.add_scalar(1.0)?;
            less.add(&scaled(r)?.sigmoid()?)
        }
        DpoLoss::ApoDown => {
            let less = d.sigmoid()?.mul_scalar(-1.0)?.add_scalar(1.0)?;
            less.add(&scaled(c)?.sigmoid()?)
        }
        DpoLoss::Discopop => {
            let share = d.mul_scalar(1.0 / DISCOPOP_TAU)?.sigmoid()?;
            let rest = share.mul_scalar(-1.0)?.add_scalar(1.0)?;
            let exponential = negative(&d)?.exp()?.mul(&share)?;
            unlikely(&d)?.mul(&rest)?.add(&exponential)
        }
    }
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
