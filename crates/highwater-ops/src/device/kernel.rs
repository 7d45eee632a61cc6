//! What a kernel is: what it declares of itself, what it is handed, what it may answer.

use super::error::KernelError;
use super::pool::Pool;
use super::view::View;
use highwater_graph::{Cost, Op, Spec};
use smallvec::SmallVec;

/// Pairs of an input and an output.
pub type Pairs = SmallVec<[(usize, usize); 2]>;

/// Elements that are gathered, or wait as `f32`, at a time.
pub(crate) const BLOCK: usize = 1024;

/// Fills a piece of an output from the same piece of each input: as many elements of each, dense, as bytes
/// aligned to their dtypes. Elements may wait as `f32` in the last argument.
pub type Piece = fn(&dyn Op, &[&[u8]], &mut [u8], &mut [[f32; BLOCK]; 4]);

/// One way to run an operation: on one device, between tensors of certain dtypes. What it needs and
/// allows is its own to say; other kernels of the operation may differ in that.
///
/// A plain function that needs no scratch memory, works in no place but its outputs and fills all
/// of them is a kernel as it is. What a kernel may trust is the contract of
/// [`Registered::launch`](crate::Registered::launch), the only way to run one that is registered.
pub trait Kernel: Send + Sync {
    /// Bytes of scratch memory that a run with `threads` threads is handed. Results may not depend
    /// on the threads.
    fn scratch_bytes(
        &self,
        _op: &dyn Op,
        _inputs: &[Spec],
        _outputs: &[Spec],
        _threads: usize,
    ) -> u64 {
        0
    }

    /// Pairs (input, output) of one dtype and layout where the output may be written over the
    /// input. The kernel then finds the input in the output ([`View::is_overwritten`]). Offered
    /// only where `inputs` and `outputs` make it so.
    fn in_place(&self, _op: &dyn Op, _inputs: &[Spec], _outputs: &[Spec]) -> Pairs {
        Pairs::new()
    }

    /// For an output that a run may leave out: the part of the cost that this saves. The others
    /// must keep their bits; [`View::is_left_out`] tells which are. So the planner may choose
    /// between one run that fills everything and two that each fill a part, later and with less to
    /// hold in between.
    fn optional(
        &self,
        _op: &dyn Op,
        _output: usize,
        _inputs: &[Spec],
        _outputs: &[Spec],
    ) -> Option<Cost> {
        None
    }

    /// Whether the kernel takes an input, at position `read`, that sees elements of the cell which
    /// it writes at position `written`. It then finds them in that cell's storage
    /// ([`SharedWith::Input`](crate::SharedWith::Input)); nodes like that are refused otherwise.
    fn may_overlap(&self, _read: usize, _written: usize) -> bool {
        false
    }

    /// For an operation without scratch memory whose one output's elements are each a function of one
    /// element of each input, broadcast: that function, of pieces of any length. The bits are those of
    /// [`Kernel::launch`]. So a run of [`Fused`](crate::Fused) goes from operation to operation in a cache.
    fn piece(&self, _op: &dyn Op) -> Option<Piece> {
        None
    }

    /// Starts a run of a node: reads `args.inputs`, fills `args.outputs`; on the host's processor
    /// it is done when it answers. Allocates nothing; its memory is `args.scratch`. Must give the
    /// same bits whatever the addresses and the number of threads.
    ///
    /// # Errors
    /// What the numbers or layouts make impossible.
    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError>;
}

impl<F> Kernel for F
where
    F: Fn(&dyn Op, &mut Args<'_>) -> Result<(), KernelError> + Send + Sync,
{
    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        self(op, args)
    }
}

/// [`Kernel::in_place`] where the output may lie over every input like it.
pub(crate) fn in_place(inputs: &[Spec], outputs: &[Spec]) -> Pairs {
    (0..inputs.len())
        .filter(|&i| inputs[i] == outputs[0])
        .map(|i| (i, 0))
        .collect()
}

/// The operation as its own type.
///
/// # Errors
/// [`KernelError::WrongOp`] if the kernel is registered under another operation's name.
pub fn op_as<T: Op>(op: &dyn Op) -> Result<&T, KernelError> {
    op.downcast().ok_or(KernelError::WrongOp { op: op.name() })
}

/// Everything that one run of a kernel works on.
pub struct Args<'a> {
    /// Inputs in the node's order; those that the operation writes (cells) are writable.
    pub inputs: &'a mut [View<'a>],
    /// Outputs in the node's order. Their bytes are whatever lay there before.
    pub outputs: &'a mut [View<'a>],
    /// Scratch memory of the declared size, 64-byte aligned, with whatever lay there before.
    pub scratch: &'a mut [u8],
    /// Threads.
    pub pool: &'a Pool,
}

impl Args<'_> {
    /// Scratch memory as elements.
    pub fn scratch_as<T: bytemuck::Pod>(&mut self) -> &mut [T] {
        let len = self.scratch.len() / size_of::<T>() * size_of::<T>();
        bytemuck::cast_slice_mut(&mut self.scratch[..len])
    }
}

impl std::fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Args")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .field("scratch_bytes", &self.scratch.len())
            .finish_non_exhaustive()
    }
}
