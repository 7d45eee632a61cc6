//! `--set SETTING=VALUE`.

use std::str::FromStr;

use toml::Value;

/// A `--set`.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) value: Value,
    /// The value as it stands, if that is a number or a boolean.
    pub(crate) bare: Option<String>,
}

impl FromStr for Assignment {
    type Err = String;

    /// Reads `SETTING=VALUE`, where the value is TOML's, or else a string as it stands.
    fn from_str(text: &str) -> Result<Self, String> {
        let (path, value) = text
            .split_once('=')
            .filter(|(path, _)| !path.trim().is_empty())
            .ok_or("expected SETTING=VALUE, such as optimizer.lr=3e-4")?;
        let word = value.trim();
        let value = match word.parse::<Value>() {
            // No setting is a date.
            Ok(Value::Datetime(_)) => Value::String(word.to_owned()),
            Ok(value) => value,
            Err(error) if word.starts_with(['"', '\'', '[', '{']) => {
                return Err(error.message().to_owned());
            }
            Err(_) => Value::String(word.to_owned()),
        };
        let is_bare = value.is_integer() || value.is_float() || value.is_bool();
        Ok(Self {
            path: path.trim().to_owned(),
            text: text.to_owned(),
            value,
            bare: is_bare.then(|| word.to_owned()),
        })
    }
}
