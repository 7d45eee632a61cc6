//! Failures as users see them, and the program's exit codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | a mistake in the program itself |
//! | 2 | wrong usage, or a model or setting that is not possible |
//! | 3 | the memory budget is below the least that would do |
//! | 4 | a file or data cannot be read or written, or is damaged |
//! | 5 | the loss became infinite or not a number |
//! | 129, 130, 143 | stopped by SIGHUP, SIGINT or SIGTERM; the state was saved |

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};

use highwater::data::DataError as PictureError;
use highwater_memory::FilesError;
use highwater_memory::saved::SavedError;
use highwater_memory::spill::SpillError;
use highwater_models::weights::WeightsProblem;
use highwater_models::{ConfigError, DataError, TokenizerError, WeightsError};
use serde_json::{Value, json};

use crate::engine_error::without_lines;
use crate::state::step_of;

/// The table of exit codes, for `--help`.
pub const EXIT_CODES: &str = "Exit codes:
  0         done
  1         a mistake in the program itself
  2         wrong usage, or a model or setting that is not possible
  3         the memory budget is below the least that would do
  4         a file or data cannot be read or written, or is damaged
  5         the loss became infinite or not a number
  129, 130, 143
            stopped by SIGHUP, SIGINT or SIGTERM; the state was saved, unless it was stopped twice";

/// Why the program ends without having done what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A mistake in the program itself.
    Internal = 1,
    /// Wrong usage, or a model or setting that is not possible.
    Usage = 2,
    /// The memory budget is below the least that would do.
    Budget = 3,
    /// A file or data cannot be read or written, or is damaged.
    Files = 4,
    /// The loss became infinite or not a number.
    NonFinite = 5,
}

/// What went wrong, and what the user can do about it.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    id: Cow<'static, str>,
    error: Box<dyn Error + Send + Sync>,
    hints: Vec<String>,
}

impl Failure {
    /// A failure for that reason.
    pub fn new(code: Code, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let id = match code {
            Code::Internal => "HW1001",
            Code::Usage => "HW1002",
            Code::Budget => "HW1003",
            Code::Files => "HW1004",
            Code::NonFinite => "HW1005",
        };
        Self {
            code,
            id: id.into(),
            error: error.into(),
            hints: Vec::new(),
        }
    }

    /// Gives it a code of its own, one of `ERRORS.md`.
    #[must_use]
    pub fn id(mut self, id: impl Into<Cow<'static, str>>) -> Self {
        self.id = id.into();
        self
    }

    /// Wrong usage.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message.into())
    }

    /// What the system does not let this program do: its environment is at fault, not the program.
    pub fn system(what: &str, error: &io::Error) -> Self {
        let message = format!("the system does not let this program {what}: {error}");
        let failure = Self::new(Code::Files, message);
        match (error.kind(), error.raw_os_error()) {
            // Too many open files: ENFILE and EMFILE.
            (_, Some(23 | 24)) => failure.hint("allow it more open files: `ulimit -n 1024`"),
            (ErrorKind::NotFound, _) => failure.hint("it needs /proc and /dev: mount them"),
            (ErrorKind::OutOfMemory | ErrorKind::WouldBlock, _) => failure.hint(
                "allow it more processes and memory (`ulimit -u`, `ulimit -v`), or --threads 1",
            ),
            _ => failure,
        }
    }

    /// What a process of this program ended with, and said.
    pub fn told(code: Option<i32>, said: &str) -> Self {
        let codes = [Code::Usage, Code::Budget, Code::Files, Code::NonFinite];
        let known = |candidate: &Code| code == Some(*candidate as i32);
        let code = codes.into_iter().find(known).unwrap_or(Code::Internal);
        let mut lines: Vec<_> = said.lines().collect();
        let hints = lines.iter().rposition(|line| !line.starts_with("hint: "));
        let hints = lines.split_off(hints.map_or(0, |last| last + 1));
        let said = lines.join("\n");
        let told = said
            .strip_prefix("error[")
            .and_then(|told| told.split_once("]: "));
        let (id, said) = match told {
            Some((id, said)) => (Some(id.to_owned()), said),
            None => (None, said.strip_prefix("error: ").unwrap_or(&said)),
        };
        let said = match said {
            "" => "a process of this program was stopped",
            said => said,
        };
        let failure = hints
            .iter()
            .fold(Self::new(code, said.to_owned()), |failure, hint| {
                failure.hint(hint.trim_start_matches("hint: "))
            });
        match id {
            Some(id) => failure.id(id),
            None => failure,
        }
    }

    /// Adds something that the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds several.
    #[must_use]
    pub fn hints(mut self, hints: impl IntoIterator<Item = String>) -> Self {
        self.hints.extend(hints);
        self
    }

    /// Says in which step it happened.
    #[must_use]
    pub fn at_step(mut self, step: u64) -> Self {
        self.error = format!("step {step}: {}", self.error).into();
        self
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code as u8
    }

    /// What happened and its causes, a line each. Places in the program's source are for whoever mends it: they are
    /// left out but for its own mistakes.
    pub(crate) fn message(&self) -> String {
        let message = self.whole_message();
        if self.code == Code::Internal {
            return message;
        }
        without_lines(&message).0
    }

    fn whole_message(&self) -> String {
        let mut message = self.error.to_string();
        let mut said = message.clone();
        let mut source = self.error.source();
        while let Some(cause) = source {
            // Most errors here tell their cause themselves.
            let text = cause.to_string();
            if !said.contains(&text) {
                message = format!("{message}\n  because: {text}");
                said = text;
            }
            source = cause.source();
        }
        message
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        json!({"error": {
            "code": self.id,
            "exit_code": self.code(),
            "message": self.message(),
            "hints": self.hints,
        }})
    }
}

impl fmt::Display for Failure {
    /// `error[CODE]:` with what happened, its causes, and a `hint:` for each thing to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.id, self.message())?;
        self.hints
            .iter()
            .try_for_each(|hint| write!(f, "\nhint: {hint}"))
    }
}

impl From<FilesError> for Failure {
    fn from(error: FilesError) -> Self {
        let (full, dropped) = (error.is_disk_full(), is_of_dropped_state(&error));
        let failure = Self::new(Code::Files, error);
        if dropped {
            return failure.hint("the run goes on, and dropped this state for a newer one meanwhile: run the command again");
        }
        if full {
            return failure
                .id("HW1010")
                .hint("free some space, and do it again; a run continues from its last saved state with `highwater resume`");
        }
        failure
    }
}

/// Whether a file is gone together with the saved state that it was of.
fn is_of_dropped_state(error: &FilesError) -> bool {
    let state = error.path.parent();
    let name = state.and_then(|state| state.file_name()?.to_str());
    error.is_not_found()
        && name.and_then(step_of).is_some()
        && state.is_some_and(|state| !state.exists())
}

impl From<SpillError> for Failure {
    fn from(error: SpillError) -> Self {
        let full = error.is_full();
        let code = match &error {
            // A folder that cannot be one for this is a setting that is not possible.
            SpillError::Create { source, .. } if is_of_the_folder(source.kind()) => Code::Usage,
            _ => Code::Files,
        };
        let failure = Self::new(code, error).id("HW1011");
        if full {
            return failure.hint("free some space, or name a folder on another disk");
        }
        failure
    }
}

/// Whether a file cannot be made in a folder because of what the folder is.
fn is_of_the_folder(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
    )
}

impl From<SavedError> for Failure {
    fn from(error: SavedError) -> Self {
        match error {
            SavedError::Files(error) => error.into(),
            error => Self::new(Code::Files, error).id("HW1012"),
        }
    }
}

impl From<WeightsError> for Failure {
    fn from(error: WeightsError) -> Self {
        match error.problem {
            // These name the path themselves.
            WeightsProblem::Files(error) => error.into(),
            WeightsProblem::Saved(error) => error.into(),
            ref problem => {
                let hint = of_weights(problem);
                Self::new(Code::Files, error).id("HW1013").hint(hint)
            }
        }
    }
}

/// What to do about weights that are damaged.
pub(crate) const DAMAGED_WEIGHTS: &str =
    "fetch or copy the file again, or name the folder that it belongs to";

/// What to do about weights that are damaged, or not what `config.json` describes.
fn of_weights(problem: &WeightsProblem) -> &'static str {
    match problem {
        WeightsProblem::MissingSome { tensor, others: 0 } if tensor == "lm_head.weight" => {
            "if the head is the token embedding, say \"tie_word_embeddings\": true in config.json"
        }
        WeightsProblem::MissingSome { .. }
        | WeightsProblem::TooFewLayers { .. }
        | WeightsProblem::TooManyLayers { .. }
        | WeightsProblem::Undescribed { .. }
        | WeightsProblem::Shape { .. } => {
            "config.json and the weights are of two models, or one of them is cut short: fetch both again"
        }
        WeightsProblem::Untied => {
            "say \"tie_word_embeddings\": false in config.json, or leave the head out"
        }
        WeightsProblem::NotFloat { .. } => {
            "use the folder of the model that is not quantized, or convert it to floats in Python"
        }
        _ => DAMAGED_WEIGHTS,
    }
}

impl From<TokenizerError> for Failure {
    fn from(error: TokenizerError) -> Self {
        let not_utf8 = matches!(error, TokenizerError::NotUtf8 { .. });
        let failure = Self::new(Code::Files, error).id("HW1014");
        if not_utf8 {
            return failure.hint("text for a tokenizer.json must be UTF-8; convert it first");
        }
        failure
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        let hint = match &error {
            DataError::TooShort { .. } => Some("use a smaller --batch or --seq, or more data"),
            DataError::Vocabulary { .. } => {
                Some("use the tokenizer that belongs to the model (--tokenizer)")
            }
            DataError::Token { .. } => {
                Some("the tokens are another model's, or of another width (--token-dtype)")
            }
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

impl From<PictureError> for Failure {
    fn from(error: PictureError) -> Self {
        match error {
            PictureError::Files(error) => error.into(),
            error @ PictureError::Usage(_) => Self::new(Code::Usage, error),
            error => Self::new(Code::Files, error).id("HW1024"),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Files(error) => error.into(),
            error @ ConfigError::UnknownPreset { .. } => Self::new(Code::Usage, error).id("HW1032"),
            error => {
                let hint = what_to_do(&error);
                Self::new(Code::Usage, error).id("HW1033").hint(hint)
            }
        }
    }
}

/// What to do about a model that is not possible here.
fn what_to_do(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::File { problem, .. } => what_to_do(problem),
        ConfigError::Unsupported { field, value, .. } => instead_of(field, value),
        ConfigError::Range { .. } => {
            "correct it if it is a mistake, or use a model within that limit"
        }
        _ => "fetch the model's config.json again, or correct it",
    }
}

/// What to take where a field of a configuration makes it a model that is not built here.
fn instead_of(field: &str, value: &str) -> &'static str {
    match field {
        "model_type" if value == "\"\"" => {
            "config.json does not say of which family the model is: fetch it again"
        }
        "model_type" => "use a model of one of these families",
        "quantization_config" => {
            "take the folder of the model that is not quantized; --lora with --quantize nf4 or int8 quantizes its weights"
        }
        "rope_type" | "rope_scaling" | "rope_parameters" | "partial_rotary_factor" => {
            "use a model with one of these, or without scaled positions"
        }
        "is_causal" | "use_bidirectional_attention" => {
            "take a model in which each token sees those before it alone: others are no language models that go on \
             with a text"
        }
        "hidden_act" | "hidden_activation" | "activation_function" => {
            "take a model with one of these functions: with another one it would be another model"
        }
        "layer_types" => "take a model whose layers see all tokens, or a window of them",
        _ => {
            "take a model of this family that has it so: with another value it would be another model"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[derive(Debug, thiserror::Error)]
    #[error("the step failed")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_and_hints_have_their_lines() {
        let failure = Failure::new(Code::Internal, Outer(std::io::Error::other("no power")))
            .hint("plug it in")
            .hint("or wait");
        assert_eq!(
            failure.to_string(),
            "error[HW1001]: the step failed\n  because: no power\nhint: plug it in\nhint: or wait"
        );
        assert_eq!(failure.code(), 1);
    }

    /// The codes in a text, each as often as it stands there.
    fn codes(text: &str) -> Vec<String> {
        let starts = text.match_indices("HW1").map(|(at, _)| &text[at..]);
        starts
            .filter_map(|code| code.get(..6).map(str::to_owned))
            .collect()
    }

    #[test]
    fn every_code_is_documented_once() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut used = BTreeSet::new();
        for entry in std::fs::read_dir(sources).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let text = std::fs::read_to_string(path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                used.extend(codes(code));
            }
        }
        assert!(used.len() > 15);
        let documented = codes(include_str!("../../../ERRORS.md"));
        let once: BTreeSet<String> = documented.iter().cloned().collect();
        assert_eq!(
            once.len(),
            documented.len(),
            "a code stands twice: {documented:?}"
        );
        assert_eq!(once, used);
    }

    #[test]
    fn what_was_said_is_not_said_again() {
        let files = highwater_memory::DiskFiles;
        let missing = highwater_memory::Files::open(&files, "/no/such/file".as_ref());
        let failure = Failure::from(missing.unwrap_err());
        assert_eq!(failure.code(), 4);
        assert_eq!(failure.to_string().matches("No such file").count(), 1);
    }
}
