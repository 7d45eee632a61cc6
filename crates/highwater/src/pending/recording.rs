//! Who records: each thread has a recording of its own, and code may enter another.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

thread_local! {
    static CURRENT: RefCell<Recording> = RefCell::new(Recording::new());
}

/// Where operations are recorded: the graph under construction, and random numbers of its own.
///
/// Each thread has one, so programs seldom need this type. A step of one thread ends what that thread has
/// recorded, and no other thread notices. Use a `Recording` where the unit of work is no thread:
///
/// - Tasks of an async runtime move between threads. [`Recording::wrap`] lets a future record in one place
///   wherever it is polled.
/// - One thread serves several independent pieces of work in turn: [`Recording::enter`].
///
/// A tensor that is used in another recording than its own brings its graph along: both are one recording until the
/// next step of either ends that graph. Random numbers stay apart.
///
/// Clones are the same recording.
///
/// ```
/// use highwater::{Recording, prelude::*};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let (a, b) = (Recording::new(), Recording::new());
/// let x = engine.tensor(&[1.0, 2.0], [2])?;
/// let doubled = a.enter(|| x.mul_scalar(2.0))?;
/// let squared = b.enter(|| x.square())?;
/// assert_eq!(a.enter(|| doubled.to_vec::<f32>())?, [2.0, 4.0]);
/// assert_eq!(b.enter(|| squared.to_vec::<f32>())?, [1.0, 4.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Recording(Arc<u64>);

impl Default for Recording {
    fn default() -> Self {
        Self::new()
    }
}

impl Recording {
    /// One that nothing was recorded in.
    pub fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(MADE.fetch_add(1, Ordering::Relaxed) + 1))
    }

    /// That of the thread, or of the innermost [`Recording::enter`].
    pub fn current() -> Self {
        CURRENT.with_borrow(Self::clone)
    }

    /// Runs `f`, whose operations are recorded here.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = CURRENT.replace(self.clone());
        let _restore = super::context::Restore(|| {
            CURRENT.replace(before.clone());
        });
        f()
    }

    /// A future that records here, on whatever threads it is polled.
    pub fn wrap<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        Wrapped {
            recording: self.clone(),
            future: Box::pin(future),
        }
    }

    /// Its number: no other of the process has it.
    pub(crate) fn number(&self) -> u64 {
        *self.0
    }

    /// Answers afterwards whether anybody can still record here.
    pub(crate) fn downgrade(&self) -> std::sync::Weak<u64> {
        Arc::downgrade(&self.0)
    }
}

struct Wrapped<F> {
    recording: Recording,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Wrapped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let recording = self.recording.clone();
        recording.enter(|| self.future.as_mut().poll(context))
    }
}
