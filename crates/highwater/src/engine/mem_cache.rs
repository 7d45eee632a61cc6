//! A scope that lets go of what it holds, and says what that freed.

use crate::engine::Engine;
use highwater_memory::Bytes;
use std::any::Any;
use std::fmt;

/// What memory held before and after something was let go of. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// Mapped for tensors before.
    pub allocated_before: u64,
    /// Mapped for tensors after.
    pub allocated_after: u64,
    /// Of these what does not go away by itself before: parameters, moments, gradients, inputs, kept results.
    pub state_before: u64,
    /// And after.
    pub state_after: u64,
    /// What is left of the budget for tensors after; `u64::MAX` where there is none.
    pub left: u64,
}

impl Freed {
    /// How many bytes less are mapped.
    pub fn bytes(&self) -> u64 {
        self.allocated_before.saturating_sub(self.allocated_after)
    }
}

/// `freed 12.0 MiB: 14.0 MiB allocated, now 2.0 MiB; state 12.0 MiB, now 2.0 MiB; 50.0 MiB left`.
impl fmt::Display for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [freed, before, after, state_before, state_after] = [
            self.bytes(),
            self.allocated_before,
            self.allocated_after,
            self.state_before,
            self.state_after,
        ]
        .map(Bytes);
        write!(
            f,
            "freed {freed}: {before} allocated, now {after}; state {state_before}, now {state_after}; "
        )?;
        match self.left {
            u64::MAX => f.write_str("no budget"),
            left => write!(f, "{} left", Bytes(left)),
        }
    }
}

/// A scope that owns what it is given to hold, as what people write around `del`, `gc.collect()` and
/// `torch.cuda.empty_cache()`: [`MemCache::clear`] drops all of it, gives pages back to the system
/// ([`Engine::empty_cache`]), and says what that freed. Dropping the scope drops what it holds.
///
/// In Rust a tensor frees its memory when its last handle is dropped, so that this is for those that stay named,
/// or for knowing. A tensor that is held elsewhere too is not freed.
///
/// ```
/// use highwater::prelude::*;
/// use highwater::{DType, MemCache};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let mut cache = MemCache::new(&engine);
/// cache.hold(Tensor::zeros(&engine, [1024, 1024], DType::F32)?);
/// let freed = cache.clear();
/// assert!(freed.bytes() >= 4 << 20);
/// println!("{freed}");
/// # Ok(())
/// # }
/// ```
pub struct MemCache {
    engine: Engine,
    held: Vec<Box<dyn Any + Send>>,
}

impl fmt::Debug for MemCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemCache")
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

impl MemCache {
    /// Holds nothing yet.
    pub fn new(engine: &Engine) -> Self {
        let engine = engine.clone();
        Self {
            engine,
            held: Vec::new(),
        }
    }

    /// Keeps something until it clears: a tensor, a module, an optimizer, vectors of them.
    pub fn hold(&mut self, value: impl Send + 'static) {
        self.held.push(Box::new(value));
    }

    /// Drops what it holds and gives memory back that nothing needs any more: what was dropped elsewhere, and
    /// pages that the next step would only use again.
    pub fn clear(&mut self) -> Freed {
        let store = &self.engine.0.store;
        let now = || (store.mapped_bytes(), store.state_bytes());
        let (allocated_before, state_before) = now();
        self.held.clear();
        self.engine.empty_cache();
        let (allocated_after, state_after) = now();
        let left = match store.budget() {
            u64::MAX => u64::MAX,
            budget => budget.saturating_sub(state_after),
        };
        Freed {
            allocated_before,
            allocated_after,
            state_before,
            state_after,
            left,
        }
    }
}
