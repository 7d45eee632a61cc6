//! What the engine refuses, in the words of who uses the program: flags instead of methods, modules
//! instead of lines of a source that nobody has at hand.

use highwater::Error;
use highwater::op::{KernelError, OpError};

use super::failure::{Code, Failure};
use super::models::DAMAGED_WEIGHTS;
use super::source_lines::without_lines;

/// What a batch norm expects of a batch.
const ONE_ELEMENT: &str = "more than one element of each channel";

impl Failure {
    /// Why a file of weights or adapters cannot be loaded.
    pub(crate) fn of_weights(error: Error) -> Self {
        match error {
            Error::Saved(problem) => Self::new(Code::Files, problem)
                .id("HW1013")
                .hint(DAMAGED_WEIGHTS),
            Error::Files(error) => error.into(),
            error => error.into(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = code(&error);
        if is_one_element(&error) {
            let (message, _) = without_lines(&error.to_string());
            return Self::usage(message).id(error.code()).hint(
                "batch norm needs several values per channel: use a larger --batch or --size",
            );
        }
        if code == Code::Internal {
            // Whoever mends it needs the lines.
            return Self::new(code, error.to_string()).id(error.code());
        }
        let (message, hints) = without_lines(&error.to_string());
        let failure = Self::new(code, message).id(error.code());
        let hints = match &error {
            Error::HostFull { .. } => vec!["use a larger --host-memory".to_owned()],
            Error::DiskFull { .. } => {
                vec!["use a larger SIZE for --disk, or more --memory".to_owned()]
            }
            Error::Arena(_) => vec![
                "allow the process more address space (`ulimit -v`) or memory".to_owned(),
            ],
            Error::State { .. } => vec![
                "use more --memory: parameters, optimizer state and values kept between steps must fit"
                    .to_owned(),
            ],
            Error::Build(text) if text.contains("is too small") => {
                vec!["use more --memory".to_owned()]
            }
            Error::Kernel {
                source: KernelError::IndexOutOfRange { .. },
                ..
            } => vec!["the tokenizer or the data has more tokens than the model's vocabulary: use the tokenizer of \
            this model".to_owned()],
            Error::ScaleFloor { .. } => vec![
                "the data or the weights cause this: start again with a lower --lr, or with --precision bf16"
                    .to_owned(),
            ],
            Error::NonFinite { .. } | Error::Kernel { .. } => vec![
                "try a lower --lr or a smaller --clip; states saved before this step are intact".to_owned(),
            ],
            _ => hints,
        };
        hints.into_iter().fold(failure, Self::hint)
    }
}

/// Whether a batch leaves a batch norm one number of each channel, which PyTorch's refuses too.
fn is_one_element(error: &Error) -> bool {
    let Error::Op { source, .. } = error else {
        return false;
    };
    matches!(&**source, OpError::Shape { expected, .. } if expected == ONE_ELEMENT)
}

fn code(error: &Error) -> Code {
    match error {
        Error::OverBudget { .. }
        | Error::State { .. }
        | Error::HostFull { .. }
        | Error::Arena(_)
        | Error::Build(_) => Code::Budget,
        Error::NonFinite { .. }
        | Error::ScaleFloor { .. }
        | Error::Kernel {
            source: KernelError::NonFinite { .. },
            ..
        } => Code::NonFinite,
        Error::Kernel {
            source: KernelError::IndexOutOfRange { .. },
            ..
        }
        | Error::Disk { .. }
        | Error::DiskFull { .. }
        | Error::Files(_)
        | Error::Saved(_) => Code::Files,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_source_are_not_told() {
        let error = Error::NonFinite {
            what: "the loss",
            node: "linear in h.3 at crates/models/src/gpt2.rs:12:9".to_owned(),
        };
        let failure = Failure::from(error).to_string();
        assert!(failure.starts_with("error[HW0202]: the loss is not finite"));
        assert!(
            failure.contains("linear in h.3\nhint: try a lower --lr"),
            "{failure}"
        );
        let (message, hints) = without_lines(
            "no room at all at src/a.rs:1:2; here\n  at src/b.rs:3:4, in h.1\n  hint: more",
        );
        assert_eq!(message, "no room at all; here (in h.1)");
        assert_eq!(hints, ["more"]);
    }

    #[test]
    fn hints_name_flags() {
        let full = Error::HostFull {
            what: "a moment".to_owned(),
            bytes: 5 << 20,
            room_bytes: 9 << 20,
            taken_bytes: 8 << 20,
        };
        let failure = Failure::from(full).to_string();
        assert!(failure.contains("--host-memory"), "{failure}");
        assert!(!failure.contains("Builder"), "{failure}");
    }
}
