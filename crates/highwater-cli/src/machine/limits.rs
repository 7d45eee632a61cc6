//! What this machine does at most: measured in a process of its own.

use highwater::op::{Limits, Pool};
use serde::{Deserialize, Serialize};

use super::measuring;
use crate::error::{Code, Failure};

/// The limits of this machine, and what they were measured with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineLimits {
    /// [`Limits::f32_flops`].
    pub(crate) f32_flops: f64,
    /// [`Limits::bf16_flops`].
    pub(crate) bf16_flops: f64,
    /// [`Limits::copy_bytes`].
    pub(crate) copy_bytes: f64,
    /// Bytes of the copy, what is read and what is written.
    pub(crate) measured_with_bytes: u64,
}

impl MachineLimits {
    /// Measures, in a process of its own: what that takes of memory is all given back before training
    /// takes its own. Nothing where that is not possible.
    pub(crate) fn measure_in_child(threads: usize, memory_bytes: u64) -> Option<Self> {
        measuring::measure_in_child(&["--limits"], threads, measuring::share(memory_bytes))
    }

    /// Measures, in this process.
    ///
    /// # Errors
    /// [`Failure`] where threads cannot be started.
    pub(crate) fn measure(threads: usize, bytes: u64) -> Result<Self, Failure> {
        let pool = Pool::new(threads);
        let pool = pool.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
        let Limits {
            f32_flops,
            bf16_flops,
            copy_bytes,
        } = Limits::measure(&pool, bytes as usize);
        Ok(Self {
            f32_flops,
            bf16_flops,
            copy_bytes,
            measured_with_bytes: bytes,
        })
    }
}
