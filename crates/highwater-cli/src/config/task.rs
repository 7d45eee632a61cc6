//! What a model learns to do.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What a model learns to do; the names are Hugging Face's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Predict the next token.
    #[default]
    TextGeneration,
    /// Predict the class of an image.
    ImageClassification,
}

impl Task {
    /// Whether it is the one of settings that name none.
    pub fn is_text(&self) -> bool {
        *self == Self::TextGeneration
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::TextGeneration => "text-generation",
            Self::ImageClassification => "image-classification",
        }
    }

    /// What its data is counted in.
    pub fn unit(self) -> &'static str {
        match self {
            Self::TextGeneration => "tokens",
            Self::ImageClassification => "images",
        }
    }
}
