//! Failures of data: tokens, images, records.

use highwater::data::DataError as ImageError;
use highwater_models::DataError;
use highwater_text::TextError;

use super::failure::{Code, Failure};

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        let hint = match &error {
            DataError::TooShort { .. } => Some("use a smaller --batch or --seq, or more data"),
            DataError::Vocabulary { .. } => Some("use the tokenizer of this model (--tokenizer)"),
            DataError::Token { .. } => Some(
                "the data was tokenized for another model, or has tokens of another type (--token-dtype)",
            ),
            _ => None,
        };
        let id = match &error {
            DataError::Missing { .. } => "HW1020",
            DataError::TooShort { .. } => "HW1021",
            DataError::Vocabulary { .. } => "HW1022",
            DataError::Token { .. } => "HW1023",
            _ => "HW1024",
        };
        let failure = match error {
            DataError::Files(error) => error.into(),
            DataError::Tokenizer(error) => error.into(),
            error => Self::new(Code::Files, error).id(id),
        };
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Files(error) => error.into(),
            error @ ImageError::Usage(_) => Self::new(Code::Usage, error),
            error => Self::new(Code::Files, error).id("HW1024"),
        }
    }
}

impl From<TextError> for Failure {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Files(error) => error.into(),
            TextError::Tokenizer(error) => error.into(),
            TextError::Data(error) => error.into(),
            error => {
                let hint = error.hint().map(str::to_owned);
                let failure = Self::new(Code::Files, error).id("HW1042");
                match hint {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
        }
    }
}
