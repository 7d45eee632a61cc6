//! What surrounds a call: grad mode, module path, checkpoint. Per thread, as in PyTorch.

use highwater_graph::Location;
use highwater_graph::{Checkpoint, CheckpointPolicy, DType, Phase, Site};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

thread_local! {
    static GRAD_ENABLED: Cell<bool> = const { Cell::new(true) };
    static PARAMETER_DTYPE: Cell<DType> = const { Cell::new(DType::F32) };
    static PHASE: Cell<Option<Phase>> = const { Cell::new(None) };
    static SKIP_INIT: Cell<bool> = const { Cell::new(false) };
    static AUTOCAST: Cell<Option<DType>> = const { Cell::new(None) };
    static CHECKPOINT: Cell<Option<u32>> = const { Cell::new(None) };
    static MODULE: RefCell<Arc<str>> = RefCell::new("".into());
    static MICRO_BATCH: RefCell<Option<MicroBatch>> = const { RefCell::new(None) };
    static BATCH: RefCell<Arc<()>> = RefCell::default();
}

/// Puts a value back when it goes out of scope, also through a panic.
pub(super) struct Restore<F: FnMut()>(pub(super) F);

impl<F: FnMut()> Drop for Restore<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Runs `f` without recording what backward would need, as `torch.no_grad`.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    let before = GRAD_ENABLED.replace(false);
    let _restore = Restore(|| GRAD_ENABLED.set(before));
    f()
}

/// As [`no_grad`]: `torch.inference_mode`. Tensors made inside are like others here, and may be used in a graph
/// later as constants.
pub fn inference_mode<R>(f: impl FnOnce() -> R) -> R {
    no_grad(f)
}

/// Whether operations made now take part in backward, as `torch.is_grad_enabled`.
pub fn is_grad_enabled() -> bool {
    GRAD_ENABLED.get()
}

/// Runs `f` with operations in half precision where that serves training, as `torch.autocast`: products
/// read their inputs as `dtype`, `BF16` or `F16`; sums and losses read `F32`; what takes one dtype alone
/// reads the widest of its inputs; others take what they are given. With any other dtype nothing is cast
/// inside, so that `autocast(DType::F32, ..)` switches it off within another.
///
/// Casts are nodes of the graph: what is computed again sees the same ones. A tensor that is read twice in
/// a dtype is cast once. Parameters stay what they are, and so are their gradients. Backward is not cast:
/// call it inside or outside. With `F16` small gradients vanish unless the loss is scaled.
///
/// ```
/// use highwater::{DType, autocast, nn::Linear, prelude::*};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let layer = Linear::new(&engine, 4, 2, true)?;
/// let x = Tensor::randn(&engine, [3, 4])?;
/// let y = autocast(DType::BF16, || layer.forward(&x))?;
/// assert_eq!(y.dtype(), DType::BF16);
/// let loss = autocast(DType::BF16, || y.square()?.mean())?;
/// assert_eq!(loss.dtype(), DType::F32);
/// # Ok(())
/// # }
/// ```
pub fn autocast<R>(dtype: DType, f: impl FnOnce() -> R) -> R {
    let low = matches!(dtype, DType::BF16 | DType::F16).then_some(dtype);
    let before = AUTOCAST.replace(low);
    let _restore = Restore(|| AUTOCAST.set(before));
    f()
}

/// The dtype of [`autocast`], where it is on: `torch.get_autocast_dtype`.
pub fn autocast_dtype() -> Option<DType> {
    AUTOCAST.get()
}

/// Runs `f` with parameters that are made inside in `dtype`, as `torch.set_default_dtype` before a model is
/// made: in `BF16` or `F16` they take half the memory, and so do their gradients. Optimizers add their updates
/// to a [`Master`](crate::optim::Master). Buffers stay `F32`.
///
/// ```
/// use highwater::{DType, nn::Linear, prelude::*, with_parameter_dtype};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let layer = with_parameter_dtype(DType::BF16, || Linear::new(&engine, 4, 2, true))?;
/// assert_eq!(layer.weight.dtype(), DType::BF16);
/// # Ok(())
/// # }
/// ```
pub fn with_parameter_dtype<R>(dtype: DType, f: impl FnOnce() -> R) -> R {
    let before = PARAMETER_DTYPE.replace(dtype);
    let _restore = Restore(|| PARAMETER_DTYPE.set(before));
    f()
}

/// Runs `f` with parameters that are made inside left without the values that they would be drawn: zeros, as
/// `torch.nn.utils.skip_init` leaves whatever is there, for a model whose values are loaded at once. Random numbers
/// go on as if they had been drawn. Initialisers ([`nn::init`](crate::nn::init)) write nothing inside, whatever they
/// are called with.
///
/// ```
/// use highwater::{nn::Linear, prelude::*, skip_init};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let layer = skip_init(|| Linear::new(&engine, 4, 2, true))?;
/// assert_eq!(layer.weight.to_vec::<f32>()?, [0.0; 8]);
/// # Ok(())
/// # }
/// ```
pub fn skip_init<R>(f: impl FnOnce() -> R) -> R {
    let before = SKIP_INIT.replace(true);
    let _restore = Restore(|| SKIP_INIT.set(before));
    f()
}

/// Runs `f`, of which an optimizer's update is made: nothing is recorded or cast, and nodes belong to the update.
pub(crate) fn in_update<R>(f: impl FnOnce() -> R) -> R {
    in_phase(Phase::Update, || autocast(DType::F32, || no_grad(f)))
}

/// Runs `f` with its nodes as part of a phase, whatever makes them.
pub(crate) fn in_phase<R>(phase: Phase, f: impl FnOnce() -> R) -> R {
    let before = PHASE.replace(Some(phase));
    let _restore = Restore(|| PHASE.set(before));
    f()
}

/// Whether [`skip_init`] surrounds this.
pub(crate) fn skips_init() -> bool {
    SKIP_INIT.get()
}

/// Which part of a batch is computed.
#[derive(Debug, Clone)]
pub(crate) struct MicroBatch {
    /// One for all parts of a batch.
    pub(crate) batch: Arc<()>,
    pub(crate) index: usize,
    pub(crate) count: usize,
}

/// Runs `f`, the forward of the `index`-th of `count` parts that a batch is cut into, counted from 0, in this order
/// and on one thread. Modules that have statistics of batches may ask what is a batch:
/// [`BatchNormOptions::whole_batches`](crate::nn::BatchNormOptions::whole_batches).
/// [`accumulate`](crate::optim::accumulate) does this for whoever uses it. With the first part a new batch begins,
/// whether the one before was finished or not.
pub fn micro_batch<R>(index: usize, count: usize, f: impl FnOnce() -> R) -> R {
    if index == 0 {
        BATCH.set(Arc::default());
    }
    let batch = BATCH.with_borrow(Arc::clone);
    let part = MicroBatch {
        batch,
        index,
        count,
    };
    let before = MICRO_BATCH.replace(Some(part));
    let _restore = Restore(|| MICRO_BATCH.set(before.clone()));
    f()
}

/// The part of [`micro_batch`], inside one.
pub(crate) fn current_micro_batch() -> Option<MicroBatch> {
    MICRO_BATCH.with_borrow(Clone::clone)
}

/// The dtype of [`with_parameter_dtype`].
pub(crate) fn parameter_dtype() -> DType {
    PARAMETER_DTYPE.get()
}

/// Runs `f` as part of the module `name`: nodes made inside carry the path in errors and reports.
/// Nested scopes are joined by dots.
pub fn scope<R>(name: &str, f: impl FnOnce() -> R) -> R {
    let before = MODULE.with_borrow(Arc::clone);
    let path = if before.is_empty() {
        name.into()
    } else {
        format!("{before}.{name}").into()
    };
    MODULE.set(path);
    let _restore = Restore(|| MODULE.set(Arc::clone(&before)));
    f()
}

/// Runs `f` with its nodes marked as belonging to checkpoint `region`, all to be recomputed.
pub(crate) fn in_checkpoint<R>(region: u32, f: impl FnOnce() -> R) -> R {
    let before = CHECKPOINT.replace(Some(region));
    let _restore = Restore(|| CHECKPOINT.set(before));
    f()
}

/// Where a node made now, called from `location`, comes from.
pub(crate) fn site(location: Location, phase: Phase) -> Site {
    Site {
        module: MODULE.with_borrow(Arc::clone),
        location,
        phase: PHASE.get().unwrap_or(phase),
        checkpoint: CHECKPOINT.get().map(|region| Checkpoint {
            region,
            policy: CheckpointPolicy::MustRecompute,
        }),
        grad_enabled: is_grad_enabled(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_restored_through_panics() {
        let panicked = std::panic::catch_unwind(|| no_grad(|| scope("a", || panic!("inside"))));
        assert!(panicked.is_err() && is_grad_enabled());
        let path = scope("h", || {
            scope("3", || site(Location::caller(), Phase::Forward).module)
        });
        assert_eq!(&*path, "h.3");
        assert_eq!(&*site(Location::caller(), Phase::Forward).module, "");
    }
}
