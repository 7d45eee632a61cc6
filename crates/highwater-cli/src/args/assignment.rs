//! `--set SETTING=VALUE`.

use std::str::FromStr;

use toml::Value;

/// A `--set`.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) value: Value,
}

impl FromStr for Assignment {
    type Err = String;

    /// Reads `SETTING=VALUE`, where the value is TOML's, or else a string as it stands.
    fn from_str(text: &str) -> Result<Self, String> {
        let (path, value) = text
            .split_once('=')
            .filter(|(path, _)| !path.trim().is_empty())
            .ok_or("expected SETTING=VALUE, such as optimizer.lr=3e-4")?;
        let value = value.trim();
        Ok(Self {
            path: path.trim().to_owned(),
            text: text.to_owned(),
            value: match value.parse::<Value>() {
                // No setting is a date.
                Ok(Value::Datetime(_)) => Value::String(value.to_owned()),
                Ok(value) => value,
                Err(error) if value.starts_with(['"', '\'', '[', '{']) => {
                    return Err(error.message().to_owned());
                }
                Err(_) => Value::String(value.to_owned()),
            },
        })
    }
}
