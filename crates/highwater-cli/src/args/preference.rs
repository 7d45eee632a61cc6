//! Flags of learning from pairs of answers.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use highwater_models::preference::DpoLoss;

use crate::config::PreferenceMethod;

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
