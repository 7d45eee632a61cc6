//! Flags of adapters.

use clap::Args;

use crate::config::Quantize;

/// Flags of adapters. Not a doc comment for people: clap shows the fields'.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct LoraArgs {
    /// Train adapters of this rank beside the model's linear layers, which are frozen, as PEFT's LoRA; `final` has
    /// them in PEFT's files then
    #[arg(long, aliases = ["lora-rank", "lora-r"], value_name = "RANK", help_heading = "Adapters")]
    pub lora: Option<usize>,

    /// What adapters answer is multiplied by ALPHA / RANK [default: twice the rank]
    #[arg(long, value_name = "ALPHA", help_heading = "Adapters")]
    pub lora_alpha: Option<f64>,

    /// Probability of dropout of what adapters read [default: 0]
    #[arg(long, value_name = "P", help_heading = "Adapters")]
    pub lora_dropout: Option<f64>,

    /// The layers that get one, such as q_proj,v_proj [default: all-linear]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    #[arg(help_heading = "Adapters")]
    pub lora_targets: Option<Vec<String>>,

    /// Divide ALPHA by the root of the rank (rsLoRA)
    #[arg(
        long,
        num_args = 0,
        default_missing_value = "true",
        help_heading = "Adapters"
    )]
    pub lora_rs: Option<bool>,

    /// Train the lengths of the rows of weight and adapter by themselves too (DoRA)
    #[arg(
        long,
        num_args = 0,
        default_missing_value = "true",
        help_heading = "Adapters"
    )]
    pub lora_dora: Option<bool>,

    /// Hold the frozen weights in few bits (QLoRA): nf4 takes 4.5 of them for each, int8 8.5
    #[arg(long, value_name = "FORMAT", help_heading = "Adapters")]
    pub quantize: Option<Quantize>,
}
