//! Why kernels stop, and why threads for them cannot be had.

use std::io;

/// Why a kernel stopped.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// An index outside the range it selects from.
    #[error("index {index} at position {position} is out of range: must be below {below}")]
    IndexOutOfRange {
        /// The index.
        index: i64,
        /// Its position in the flattened input.
        position: usize,
        /// One past the largest that would be taken.
        below: usize,
    },
    /// A value that must be finite is not.
    #[error("{what} is not finite")]
    NonFinite {
        /// Which value.
        what: &'static str,
    },
    /// A guard's answer: the step is to leave its updates out.
    #[error("{what} is not finite: the updates are left out")]
    Skip {
        /// Which value.
        what: &'static str,
    },
    /// A layout or dtype that the kernel does not take.
    #[error("the kernel takes {expected}, got {got}")]
    Unsupported {
        /// What it takes.
        expected: &'static str,
        /// What it got.
        got: String,
    },
    /// The operation is not of the type that the kernel was registered for.
    #[error("the kernel was registered for another operation than {op}")]
    WrongOp {
        /// The operation.
        op: &'static str,
    },
}

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The system refused a thread.
    #[error("cannot start thread {number} of {threads}: {source}")]
    Thread {
        /// Which one, counted from 1.
        number: usize,
        /// How many there were to be.
        threads: usize,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no memory for the buffers of matrix products.
    #[error("no {bytes} bytes of memory for packing buffers of {threads} threads")]
    Buffers {
        /// The bytes that were asked for.
        bytes: usize,
        /// How many threads they are for.
        threads: usize,
    },
}
