//! What can go wrong, as one enum.

use highwater_graph::Location;
use highwater_graph::{Node, OpError, Site};
use highwater_memory::spill::SpillError;
use highwater_memory::{ArenaError, Bytes, FilesError, PartError, SlotsError};
use highwater_ops::KernelError;
use highwater_plan::Tier;

/// An error of the engine. Each says what is wrong, where, and what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A node could not be made: nothing has changed.
    #[error("{source}\n  at {location}{}{}", in_module(module), next_of(source))]
    Op {
        /// What the operation refused.
        source: Box<OpError>,
        /// Path of the module, or empty.
        module: String,
        /// The caller's source line.
        location: Location,
    },
    /// A kernel stopped while the step ran.
    #[error(
        "{op}: {source}\n  at {location}{}{}",
        in_module(module),
        after(source)
    )]
    Kernel {
        /// The operation.
        op: &'static str,
        /// What it said.
        source: KernelError,
        /// Path of the module, or empty.
        module: String,
        /// The source line that made the node.
        location: Location,
    },
    /// A kernel panicked: a bug of the operation.
    #[error("{op}: the kernel panicked: {message}\n  at {location}")]
    Panic {
        /// The operation.
        op: &'static str,
        /// What it said.
        message: String,
        /// The source line that made the node.
        location: Location,
    },
    /// A guarded value is not finite. No cell was written: parameters are the last good ones.
    #[error(
        "{what} is not finite; nothing was updated. First non-finite result: {node}\n  hint: lower \
         the learning rate, clip gradients, or look at the data of this step; to go on without it, \
         zero_grad() and take the next batch"
    )]
    NonFinite {
        /// The guarded value.
        what: &'static str,
        /// Operation, module and source line of the first node with a non-finite result.
        node: String,
    },
    /// Gradients are not finite at the least scale of a [`GradScaler`](crate::optim::GradScaler) either.
    /// Steps with such gradients were skipped: parameters are the last good ones.
    #[error(
        "gradients are not finite even at the smallest loss scale, {scale:e}; the step was skipped\n  at {location}\n  \
         hint: look at the data and the weights, or compute in bf16 or f32"
    )]
    ScaleFloor {
        /// The scale.
        scale: f64,
        /// The caller's source line.
        location: Location,
    },
    /// The step cannot run inside the budget, however much is recomputed. Nothing was run.
    #[error(
        "does not fit: needs at least {} of {tier}{}, has {}{}\n  largest at that point: {holder}\n  \
         hint: give it {} or more, {}{}",
        needed(*floor_bytes, *budget_bytes).0,
        beside(*reserve_bytes, *host_bytes),
        needed(*floor_bytes, *budget_bytes).1,
        in_module(at),
        needed(*floor_bytes, *budget_bytes).0,
        or_more(full),
        less(floor_bytes.saturating_sub(reserve_bytes + host_bytes), *kept_bytes)
    )]
    OverBudget {
        /// What there is too little of: `memory` or `device memory`.
        tier: &'static str,
        /// Least bytes that would do, reserve and state included.
        floor_bytes: u64,
        /// The budget.
        budget_bytes: u64,
        /// What of the floor the process takes beside its tensors: code, threads, libraries, and
        /// whatever the program itself has allocated. 0 if the process is not bounded.
        reserve_bytes: u64,
        /// What of the floor is host memory.
        host_bytes: u64,
        /// What tensors take that the program holds itself: inputs and kept results.
        kept_bytes: u64,
        /// The tiers below that are full there: with more room on them, the floor may be lower.
        full: Vec<Tier>,
        /// The node that sets the floor.
        at: String,
        /// The largest value held there.
        holder: String,
    },
    /// There is no room for state (parameters, moments, inputs, kept values).
    #[error(
        "no room for {} of {what}: {source}\n  hint: give the engine more memory, where that is apart more \
         device memory; what the program itself allocates counts too", Bytes(*bytes)
    )]
    State {
        /// What it was for.
        what: &'static str,
        /// How many bytes.
        bytes: u64,
        /// What the allocator said.
        source: SlotsError,
    },
    /// There is no room in the host memory that the engine was given.
    #[error(
        "no room in host memory for {} of {what}: {} of {} are taken\n  hint: give \
         Builder::host_memory() more bytes", Bytes(*bytes), Bytes(*taken_bytes), Bytes(*room_bytes)
    )]
    HostFull {
        /// What it was for.
        what: String,
        /// How many bytes, in whole pages.
        bytes: u64,
        /// Bytes that the engine may take there.
        room_bytes: u64,
        /// Bytes that it takes there now.
        taken_bytes: u64,
    },
    /// There is no room on the disk that the engine was given.
    #[error(
        "no room on disk for {} of {what}: {} of {} are taken\n  hint: give Builder::disk() more \
         bytes", Bytes(*bytes), Bytes(*taken_bytes), Bytes(*room_bytes)
    )]
    DiskFull {
        /// What it was for.
        what: String,
        /// How many bytes, with what is written about them.
        bytes: u64,
        /// Bytes that the engine may take there.
        room_bytes: u64,
        /// Bytes that cells take there now.
        taken_bytes: u64,
    },
    /// Bytes that wait on disk could not be written, or not read back as they were written.
    #[error(
        "{what}{}: {source}{}\n  hint: {}",
        place(source),
        caused(source),
        advice(source)
    )]
    Disk {
        /// Name of the parameter, moment or gradient, or of the operation that made the value.
        what: String,
        /// What happened.
        source: SpillError,
    },
    /// An earlier step failed halfway: cells may be partly updated.
    #[error(
        "the engine is poisoned: {0}\n  hint: to go on, load saved state into every parameter and \
         moment, then call Engine::clear_poison()"
    )]
    Poisoned(String),
    /// The value is gone: it was too large to keep when the step was evaluated.
    #[error(
        "this tensor ({spec}, made at {made_at}) was not kept when the step was evaluated at \
         {evaluated_at}\n  hint: call keep() on it before, or read it before"
    )]
    Expired {
        /// Dtype and shape.
        spec: String,
        /// Where it was made.
        made_at: Location,
        /// Where the step was evaluated.
        evaluated_at: Location,
    },
    /// Backward reached a value whose history ended with an earlier step.
    #[error(
        "backward() at {location} reaches {spec} made at {made_at}, whose graph was consumed by an \
         earlier evaluation\n  hint: compute it again in this step, or detach() it"
    )]
    HistoryConsumed {
        /// Dtype and shape.
        spec: String,
        /// Where the value was made.
        made_at: Location,
        /// Where backward was called.
        location: Location,
    },
    /// Wrong use of a tensor: a read of the wrong dtype, backward of something without gradient...
    #[error("{message}\n  at {location}")]
    Usage {
        /// What is wrong and what to do.
        message: String,
        /// The caller's source line.
        location: Location,
    },
    /// Tensors or parameters of two engines met in one call.
    #[error(
        "{what}; engines share nothing\n  at {location}\n  hint: make both with one engine, or read the \
         values and give them to the other with Engine::tensor()"
    )]
    OtherEngine {
        /// The call, and which of its tensors is of another engine.
        what: String,
        /// The caller's source line.
        location: Location,
    },
    /// An engine cannot be built as asked.
    #[error("engine: {0}")]
    Build(String),
    /// The planner and the verifier disagree, or the planner was handed nonsense: a bug of ours.
    #[error("internal: {0}")]
    Internal(String),
    /// The system refused memory.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// A file could not be read or written.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Samples, arrays or pictures that could not be loaded.
    #[error("{0}\n  hint: look at the sample or file that is named; nothing of its batch was used")]
    Data(#[from] highwater_data::DataError),
    /// Saved state does not fit what it is loaded into.
    #[error("saved state: {0}")]
    Saved(String),
}

impl Error {
    /// The error's code: it stays the same when the words change. `ERRORS.md` lists what each means.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Op { source, .. } => match &**source {
                OpError::Shape { .. } => "HW0101",
                OpError::DType { .. } => "HW0102",
                OpError::Arity { .. } => "HW0103",
                OpError::Attribute { .. } => "HW0104",
                OpError::NotDifferentiable { .. } => "HW0105",
                OpError::StaleCell { .. } => "HW0106",
                OpError::NoKernel { .. } => "HW0107",
                _ => "HW0100",
            },
            Self::Usage { .. } => "HW0110",
            Self::OtherEngine { .. } => "HW0111",
            Self::Expired { .. } => "HW0112",
            Self::HistoryConsumed { .. } => "HW0113",
            Self::Kernel { source, .. } => match source {
                KernelError::IndexOutOfRange { .. } => "HW0201",
                KernelError::NonFinite { .. } => "HW0202",
                _ => "HW0200",
            },
            Self::NonFinite { .. } => "HW0202",
            Self::Panic { .. } => "HW0203",
            Self::Poisoned(_) => "HW0204",
            Self::ScaleFloor { .. } => "HW0205",
            Self::OverBudget { .. } => "HW0301",
            Self::State { .. } => "HW0302",
            Self::HostFull { .. } => "HW0303",
            Self::DiskFull { .. } => "HW0304",
            Self::Build(_) => "HW0305",
            Self::Arena(_) => "HW0306",
            Self::Disk { .. } => "HW0401",
            Self::Files(_) => "HW0402",
            Self::Saved(_) => "HW0403",
            Self::Data(_) => "HW0404",
            Self::Internal(_) => "HW0901",
        }
    }

    /// The line of the user's program that it is about, if it is about one.
    pub fn location(&self) -> Option<Location> {
        match self {
            Self::Op { location, .. }
            | Self::Kernel { location, .. }
            | Self::Panic { location, .. }
            | Self::HistoryConsumed { location, .. }
            | Self::ScaleFloor { location, .. }
            | Self::Usage { location, .. }
            | Self::OtherEngine { location, .. } => Some(*location),
            Self::Expired { made_at, .. } => Some(*made_at),
            _ => None,
        }
    }

    /// Whether there was no room for a tensor, in memory or below.
    pub(crate) fn is_full(&self) -> bool {
        matches!(
            self,
            Self::State { .. } | Self::HostFull { .. } | Self::DiskFull { .. }
        )
    }
}

/// The code, and what is displayed, so that a `main` that answers this error tells it to people.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}] {self}", self.code())
    }
}

/// Why something failed, where its words do not say it.
fn caused(source: &SpillError) -> String {
    let cause = std::error::Error::source(source).map(ToString::to_string);
    let cause = cause.filter(|cause| !source.to_string().contains(cause));
    cause.map_or_else(String::new, |cause| format!(" ({cause})"))
}

/// Where the bytes are, where the words of what failed do not say it.
fn place(source: &SpillError) -> &'static str {
    match source {
        SpillError::File(_) => "",
        _ => " on disk",
    }
}

/// What to do about a failed transfer.
fn advice(source: &SpillError) -> &'static str {
    match source {
        source if source.is_full() => {
            "free some space on the disk, or name a folder of another one"
        }
        SpillError::File(PartError::Changed { .. }) => {
            "put the file back as it was, and begin again or load saved state"
        }
        SpillError::File(_) => "the file must stay in place and readable while it is in use",
        SpillError::Damaged { .. } => "the disk lost them: load saved state, and use another disk",
        _ => "look at the disk; what was being written is lost until saved state is loaded",
    }
}

/// What to do about what an operation refused, where its words do not say it.
fn next_of(source: &OpError) -> &'static str {
    match source {
        OpError::Shape { .. } => {
            "\n  hint: compare the shapes; reshape(), transpose() or expand() makes one fit the other"
        }
        OpError::DType { .. } => {
            "\n  hint: to_dtype() converts between dtypes, Engine::indices() makes a tensor of indices"
        }
        _ => "",
    }
}

/// What to do about what stopped a kernel.
fn after(source: &KernelError) -> &'static str {
    match source {
        KernelError::IndexOutOfRange { .. } => {
            "\n  hint: look at the data: indices, tokens and labels count from 0"
        }
        _ => "",
    }
}

/// What of a floor is for others than plans and state.
fn beside(reserve_bytes: u64, host_bytes: u64) -> String {
    let reserve = Bytes(reserve_bytes);
    let host = match host_bytes {
        0 => String::new(),
        host => format!("; {} are host memory", Bytes(host)),
    };
    match reserve_bytes {
        0 => String::new(),
        _ => {
            format!(" ({reserve} of it for the process itself: code, threads, its own data{host})")
        }
    }
}

/// What else would help.
fn or_more(full: &[Tier]) -> String {
    let more = |tier: &Tier| match tier {
        Tier::Host => "more host memory, of which none is left there, ",
        Tier::Disk => "more of the disk, of which none is left there, ",
    };
    full.iter().map(more).collect()
}

/// A floor and a budget, told apart.
fn needed(floor_bytes: u64, budget_bytes: u64) -> (String, String) {
    Bytes::needed_of(Bytes(floor_bytes), Bytes(budget_bytes))
}

/// What the program itself could do with less of.
fn less(tensor_bytes: u64, kept_bytes: u64) -> String {
    if kept_bytes > tensor_bytes / 2 {
        let kept = Bytes(kept_bytes);
        return format!(
            "or drop some of the inputs and kept tensors, which take {kept} of it between steps"
        );
    }
    "or reduce the batch or the sequence length".to_owned()
}

fn in_module(module: &str) -> String {
    if module.is_empty() {
        String::new()
    } else {
        format!(", in {module}")
    }
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation that refused its inputs, with the place in the user's program.
pub(crate) fn located(source: OpError, site: &Site) -> Error {
    Error::Op {
        source: Box::new(source),
        module: site.module.to_string(),
        location: site.location,
    }
}

/// A misuse, with the place in the user's program.
pub(crate) fn usage_error(message: impl Into<String>, location: Location) -> Error {
    Error::Usage {
        message: message.into(),
        location,
    }
}

/// Operation, module and line of a node, for messages.
pub(crate) fn describe(node: &Node) -> String {
    describe_at(node.op.name(), &node.site)
}

/// An operation and where it comes from: module and line.
pub(crate) fn describe_at(op: &str, site: &Site) -> String {
    let module = &site.module;
    let inside = if module.is_empty() {
        String::new()
    } else {
        format!(" in {module}")
    };
    format!("{op}{inside} at {}", site.location)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The codes in a text, each as often as it stands there.
    fn codes(text: &str) -> Vec<&str> {
        let starts = text.match_indices("HW").map(|(at, _)| &text[at..]);
        let codes = starts.filter_map(|code| code.get(..6));
        codes
            .filter(|code| code[2..].parse::<u16>().is_ok())
            .collect()
    }

    #[test]
    fn every_code_is_documented_once() {
        let source = include_str!("error.rs");
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        let used: BTreeSet<&str> = codes(source).into_iter().collect();
        assert!(used.len() > 20);
        let (library, _) = include_str!("../../../ERRORS.md")
            .split_once("## The program")
            .expect("two parts");
        let documented = codes(library);
        let once: BTreeSet<&str> = documented.iter().copied().collect();
        assert_eq!(
            once.len(),
            documented.len(),
            "a code stands twice: {documented:?}"
        );
        assert_eq!(once, used);
    }
}
