//! The queue of a device: kernels are launched into it, complete in order, and are timed by its clock.
//!
//! The executor knows a kernel's end by its [`Completion`] alone, so that one that only starts it here, and
//! tells its end and its time later, has a queue of its own in this place.

use crate::Result;
use std::time::Instant;

/// Kernels of the processor: each has completed when it is launched.
#[derive(Debug)]
pub(super) struct Queue {
    /// When the last kernel completed, or what it waited for after that.
    idle_since: Instant,
    /// When the last that was launched completed.
    completed: Instant,
}

/// A kernel that was launched.
#[derive(Debug)]
#[must_use = "a kernel has completed when its queue says so"]
pub(super) struct Completion {
    at: Instant,
}

impl Queue {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            idle_since: now,
            completed: now,
        }
    }

    /// Launches a kernel behind those that were launched before.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn launch(&mut self, kernel: impl FnOnce() -> Result<()>) -> Result<Completion> {
        kernel()?;
        self.completed = Instant::now();
        Ok(Completion { at: self.completed })
    }

    /// Waits for a kernel. Answers the seconds that the device took for it: from the completion of the one
    /// before, or from the end of what had to be waited for.
    #[expect(clippy::needless_pass_by_value, reason = "a kernel completes once")]
    pub(super) fn complete(&mut self, kernel: Completion) -> f64 {
        debug_assert!(kernel.at <= self.completed, "of another queue");
        let before = std::mem::replace(&mut self.idle_since, kernel.at);
        kernel.at.duration_since(before).as_secs_f64()
    }

    /// Something else was waited for: that is no kernel's time.
    pub(super) fn waited(&mut self) {
        self.idle_since = Instant::now();
    }
}
