//! The fields of a `config.json`, as families read them.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::limits::require;
use super::{ConfigError, read_field};

/// The fields of a `config.json`.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a Map<String, Value>);

impl Fields<'_> {
    /// A field, or `default` where it is absent or null.
    pub(super) fn get<T: DeserializeOwned>(
        self,
        field: &str,
        default: T,
    ) -> Result<T, ConfigError> {
        Ok(self.some(field)?.unwrap_or(default))
    }

    /// A field, if it is there and not null.
    pub(super) fn some<T: DeserializeOwned>(self, field: &str) -> Result<Option<T>, ConfigError> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read_field(field, value.clone()).map(Some),
        }
    }

    /// A field that may be null, or `default` where it is absent.
    pub(super) fn nullable<T: DeserializeOwned>(
        self,
        field: &str,
        default: T,
    ) -> Result<Option<T>, ConfigError> {
        match self.0.get(field) {
            None => Ok(Some(default)),
            Some(_) => self.some(field),
        }
    }
}

/// A count that is not 0.
pub(super) fn above_0(
    fields: Fields<'_>,
    field: &'static str,
    default: usize,
) -> Result<usize, ConfigError> {
    let count = fields.get(field, default)?;
    require(count > 0, field, &count, || "1 or more".to_owned())?;
    Ok(count)
}

/// Width of a head where the stream is shared among them evenly.
pub(super) fn head_dim(
    fields: Fields<'_>,
    width: usize,
    heads: usize,
) -> Result<usize, ConfigError> {
    if let Some(given) = fields.some("head_dim")? {
        return Ok(given);
    }
    let even = heads > 0 && width.is_multiple_of(heads);
    let expected = || format!("a divisor of hidden_size, {width}");
    require(even, "num_attention_heads", &heads, expected)?;
    Ok(width / heads)
}
