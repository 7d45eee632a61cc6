//! Highwater trains neural networks inside a memory budget that you state, and gives the same numbers
//! as if there were no budget.
//!
//! Operations on [`Tensor`]s build a graph; `optimizer.step()` compiles it, forward, backward and
//! updates together, into an instruction list that fits the budget (keeping, dropping and recomputing
//! values as it must), and runs it. The code you write is PyTorch's training loop.
//!
//! ```
//! use highwater::prelude::*;
//!
//! fn main() -> Result<()> {
//!     let engine = Engine::builder().memory(128 << 20).seed(1).build()?;
//!     let model = Linear::new(&engine, 2, 1, true)?;
//!     let options = AdamWOptions { lr: 0.1, ..Default::default() };
//!     let mut optimizer = AdamW::new(model.parameters(), options)?;
//!     let x = engine.tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2])?;
//!     let y = engine.tensor(&[8.0, 18.0, 28.0], [3, 1])?;
//!     let mut last = f32::INFINITY;
//!     for _ in 0..20 {
//!         let loss = (model.forward(&x)? - &y)?.square()?.mean()?;
//!         loss.backward()?;
//!         optimizer.step()?;
//!         last = loss.item()?;
//!     }
//!     assert!(last < 200.0);
//!     Ok(())
//! }
//! ```
//!
//! # What outlives a step
//!
//! `step()`, [`eval`] and a read such as [`Tensor::item`] evaluate what is pending. After a step
//! there are still: parameters and other cells; inputs made from data; and of results those of at
//! most 64 KiB, those marked [`Tensor::keep`], and those that were read before. Other handles have
//! expired, and using one is an error that says where it was made and what to do. Gradients add up
//! until a step takes them.
//!
//! # What the budget covers
//!
//! [`Builder::memory`] bounds the whole process: tensors, and a reserve for everything else that is
//! measured when the engine is built. What your program allocates later counts too: it is noticed
//! when the next step starts, and takes room from the plan; if nothing fits any more, the step is
//! refused and says how much of the floor is the process itself. [`Builder::arena`] bounds tensors
//! alone.
//!
//! [`Builder::device_memory`] and [`Builder::host_memory`] hold the memory that kernels work in apart from
//! other memory of the machine, in which parameters, moments, gradients and values of a step then wait as
//! they do on the disk of [`Builder::disk`]. [`Engine::tiers`] tells what each of them holds.
//!
//! # Saving
//!
//! [`Module::state_dict`] and [`optim::Optimizer::state_dict`] name every tensor;
//! [`Parameter::with_bytes`] reads one without a copy and [`Parameter::with_bytes_mut`] fills it.
//! The module `saved` of the crate `highwater-memory` (here [`memory`]) writes folders of such bytes
//! atomically, with checksums, through [`memory::Files`]; `highwater-models` reads and writes
//! safetensors files by the same trait, whose version for the file system is [`memory::DiskFiles`].

mod autograd;
pub mod data;
mod engine;
mod error;
mod measure;
pub mod nn;
pub mod optim;
mod pending;
pub mod prelude;
mod problem;
mod report;
mod run;
mod store;
mod tensor;

pub use engine::builder::Builder;
pub use engine::mem_cache::{Freed, MemCache};
pub use engine::reserve::SetAside;
pub use engine::{Engine, OnPlan};
pub use error::{Error, Result};
pub use highwater_graph::{Category, CheckpointPolicy, DType, Layout, Location, Shape};
pub use highwater_memory as memory;
pub use highwater_memory::Bytes;
pub use highwater_ops::philox;
pub use highwater_plan::{self as plan, Policy};
pub use nn::Module;
pub use pending::context::{
    autocast, autocast_dtype, inference_mode, is_grad_enabled, micro_batch, no_grad, scope,
    skip_init, with_parameter_dtype,
};
pub use pending::recording::Recording;
pub use problem::profile::OperationProfile;
pub use problem::rates::{Curve, Point, Rates};
pub use report::decisions::Decision;
pub use report::forecast::Forecast;
pub use report::held::{Held, Holder, Layer};
pub use report::price::Price;
pub use report::{StepReport, Totals};
pub use store::disk::DiskRates;
pub use store::io::Io;
pub use store::tiers::{TierUse, TierUses};
pub use tensor::buffer::Buffer;
pub use tensor::checkpoint::{CheckpointedOp, checkpoint, checkpoint_sequential, checkpoint_with};
pub use tensor::chunked::chunked;
pub use tensor::dim::Dim;
pub use tensor::function::{FunctionContext, custom_gradient};
pub use tensor::grad::{GradOptions, grad, grad_of_used, grad_with};
pub use tensor::gradcheck::{GradcheckOptions, gradcheck, gradgradcheck};
pub use tensor::hooks::HookHandle;
pub use tensor::parameter::Parameter;
pub use tensor::tier::Tier;
pub use tensor::{Tensor, eval};

/// What an operation of another crate is declared with.
pub mod op {
    pub use highwater_graph::{
        Autocast, Backward, Cost, DType, Effect, Layout, Op, OpError, Operand, Promotion, Shape,
        Spec,
    };
    #[cfg(feature = "laws")]
    pub use highwater_ops::laws;
    pub use highwater_ops::{
        Args, Array, DTypes, Draws, Entry, Fill, Formats, Kernel, KernelError, Limits, Master,
        Moments, Pairs, Pool, Reject, Row, Sample, SharedWith, StateCell, View, WeightFormat, cpu,
        op_as,
    };
    pub use smallvec::{SmallVec, smallvec};
}

/// Has the code of the README, the guide and the tutorial compiled and run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/1-tensors.md")]
    struct Tensors;
    #[doc = include_str!("../../../docs/guide/2-gradients.md")]
    struct Gradients;
    #[doc = include_str!("../../../docs/guide/3-modules.md")]
    struct Modules;
    #[doc = include_str!("../../../docs/guide/4-training.md")]
    struct Training;
    #[doc = include_str!("../../../docs/guide/5-budget.md")]
    struct Budget;
    #[doc = include_str!("../../../docs/guide/6-operations.md")]
    struct Operations;
    #[doc = include_str!("../../../docs/guide/7-pitfalls.md")]
    struct Pitfalls;
    #[doc = include_str!("../../../docs/guide/threads.md")]
    struct Threads;
    #[doc = include_str!("../../../docs/guide/checkpoint.md")]
    struct Checkpoint;
    #[doc = include_str!("../../../docs/tutorials/rust.md")]
    struct Tutorial;
}
