//! Flags of records.

use clap::Args;

use crate::config::LossOn;

/// Flags of records. Not a doc comment for people: clap shows the fields'.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct RecordsArgs {
    /// What a field is called in the data, such as text=body or messages=dialogue; may be given several times
    #[arg(long, value_name = "NAME=FIELD", value_parser = field_name)]
    #[arg(help_heading = "Conversations and records")]
    pub map: Option<Vec<(String, String)>>,

    /// What is learnt of conversations and instructions: what the assistant says, or all of it [default: assistant]
    #[arg(long, value_name = "WHAT", help_heading = "Conversations and records")]
    pub loss_on: Option<LossOn>,

    /// How conversations are written: a file with a Jinja template, or chatml [default: the model folder's template]
    #[arg(
        long,
        value_name = "FILE|chatml",
        help_heading = "Conversations and records"
    )]
    pub chat_template: Option<String>,

    /// Give each record a row of its own, filled up with padding, where several would go into one
    #[arg(long, num_args = 0, default_missing_value = "true")]
    #[arg(help_heading = "Conversations and records")]
    pub no_packing: Option<bool>,
}

fn field_name(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=');
    let parts = parts.filter(|(name, field)| !name.is_empty() && !field.is_empty());
    let (name, field) = parts.ok_or("expected NAME=FIELD, such as text=body")?;
    Ok((name.to_owned(), field.to_owned()))
}
