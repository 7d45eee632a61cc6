//! Hooks: what users do with a gradient on its way.

use crate::Result;
use crate::engine::Engine;
use crate::engine::backward::check_whole;
use crate::pending::handle::Handle;
use crate::tensor::Tensor;
use highwater_graph::Location;
use std::sync::Arc;

/// Takes a hook away again: what [`Tensor::register_hook`] answers, as PyTorch's `RemovableHandle`. Dropping it
/// leaves the hook where it is.
#[derive(Debug, Clone)]
pub struct HookHandle {
    engine: Engine,
    number: u64,
}

impl HookHandle {
    /// Removes the hook; nothing where it is gone already.
    pub fn remove(&self) {
        let mut state = self.engine.lock();
        state.pending.hooks.remove(self.number);
        state.recordings.remove_hook(self.number);
    }
}

impl Tensor {
    /// Has `hook` see this tensor's gradient in each backward that reaches it, as `torch.Tensor.register_hook`:
    /// it may answer a tensor of the same shape and dtype in its place. Several are called in the order in which
    /// they came, each with what the one before answered; gradients that [`grad`](crate::grad) answers and those
    /// that parameters accumulate are what they left.
    ///
    /// A hook is called while the graph is built, once for each backward: the gradient is a tensor that nothing
    /// has computed yet, of which it may make others, and steps compute what comes of it as often as their plan
    /// says without calling it again. It may keep the gradient, to read it after `backward`, but not have
    /// anything computed itself. Without `create_graph` it runs under [`no_grad`](crate::no_grad). A parameter's
    /// hooks stay until they are removed, others until the step that ends their graph.
    ///
    /// ```
    /// use highwater::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let engine = Engine::builder().arena(1 << 20).build()?;
    /// let w = Parameter::new(&engine, [2], |w| w.copy_from_slice(&[1.0, 2.0]))?;
    /// let y = w.square()?;
    /// y.register_hook(|grad| grad.mul_scalar(10.0).map(Some))?;
    /// y.sum()?.backward()?;
    /// assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [20.0, 40.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a tensor that requires no gradient, and for a view; `backward` answers what
    /// the hook does, and an error where that has something computed or answers another shape or dtype.
    #[track_caller]
    pub fn register_hook(
        &self,
        hook: impl Fn(&Self) -> Result<Option<Self>> + Send + Sync + 'static,
    ) -> Result<HookHandle> {
        let location = Location::caller();
        let mut state = self.engine.lock();
        let operand = state.operand(&self.handle)?;
        check_whole("register_hook(): the tensor", &state, &operand, location)?;
        let weak = Arc::downgrade(&self.engine.0);
        let replace = move |handle: Arc<Handle>| {
            let Some(engine) = weak.upgrade().map(Engine) else {
                return Ok(None);
            };
            let replaced = hook(&Self::from_handle(&engine, handle))?;
            Ok(replaced.map(|tensor| tensor.handle))
        };
        let number = state.pending.hooks.add(operand.source, Arc::new(replace));
        Ok(HookHandle {
            engine: self.engine.clone(),
            number,
        })
    }
}
