//! Highwater trains neural networks inside a memory budget that you state, and gives the same numbers
//! as if there were no budget.
//!
//! Operations on [`Tensor`]s build a graph; `optimizer.step()` compiles it, forward, backward and
//! updates together, into an instruction list that fits the budget (keeping, dropping and recomputing
//! values as it must), and runs it. The code you write is PyTorch's training loop.

mod autograd;
mod backward;
mod checkpoint;
mod compile;
mod context;
mod engine;
mod error;
mod evaluate;
mod execute;
mod forecast;
pub mod nn;
mod ops;
pub mod optim;
mod parameter;
mod rates;
mod raw;
mod store;
mod tensor;

pub use checkpoint::checkpoint;
pub use context::{is_grad_enabled, no_grad, scope};
pub use engine::{Builder, Engine, OnPlan, StepReport};
pub use error::{Error, Result};
pub use forecast::{Forecast, Holder, Price};
pub use highwater_graph::{Category, DType, Layout, Shape};
pub use highwater_memory as memory;
pub use highwater_memory::Bytes;
pub use highwater_ops::philox;
pub use highwater_plan::{self as plan, Policy};
pub use nn::Module;
pub use parameter::Parameter;
pub use rates::Rates;
pub use tensor::{Tensor, eval};

/// What an operation of another crate is declared with.
pub mod op {
    pub use highwater_graph::{Backward, Cost, DType, Effect, Layout, Op, OpError, Shape, Spec};
    pub use highwater_ops::laws;
    pub use highwater_ops::{
        Args, Array, Entry, Fill, KernelError, KernelFn, Pool, Reject, Sample, View, op_as,
    };
    pub use smallvec::{SmallVec, smallvec};
}
