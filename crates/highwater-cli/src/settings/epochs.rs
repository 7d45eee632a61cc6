//! Settings as text, with how often the data is gone through.

use toml::{Table, Value};

use crate::config::RunConfig;
use crate::error::{Code, Failure};

/// With how often the data is gone through, where that was said, instead of what follows from it.
pub(crate) fn with_epochs(mut table: Table, config: &RunConfig) -> Table {
    let Some(epochs) = config.training.epochs else {
        return table;
    };
    if let Some(Value::Table(training)) = table.get_mut("training") {
        training.remove("steps");
        training.insert("epochs".to_owned(), Value::Float(epochs.count));
    }
    if let Some(Value::Table(optimizer)) = table.get_mut("optimizer")
        && !epochs.warmup_is_said
    {
        optimizer.remove("warmup");
    }
    table
}

/// Settings as text, with how often the data is gone through.
///
/// # Errors
/// None but a mistake of the program.
pub(crate) fn text_with_epochs(text: String, config: &RunConfig) -> Result<String, Failure> {
    if config.training.epochs.is_none() {
        return Ok(text);
    }
    let table = text.parse::<Table>();
    let table = table.map_err(|error| Failure::new(Code::Internal, error))?;
    let text = toml::to_string(&with_epochs(table, config));
    text.map_err(|error| Failure::new(Code::Internal, error))
}
