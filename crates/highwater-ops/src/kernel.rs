//! What a kernel is handed, what it may answer, and the registry of kernels.

#![expect(unsafe_code, reason = "the executor hands kernels memory by address")]

use crate::Pool;
use highwater_graph::{DType, Layout, Op, OpError, Spec};
use std::marker::PhantomData;

/// Where kernels run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The host's processor.
    Cpu,
}

impl Device {
    /// The device's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
        }
    }
}

/// Runs one node: reads `args.inputs`, fills `args.outputs`. Allocates nothing; its memory is
/// `args.scratch`. Must give the same bits whatever the addresses and the number of threads.
pub type KernelFn = fn(&dyn Op, &mut Args<'_>) -> Result<(), KernelError>;

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

/// The operation as its own type.
///
/// # Errors
/// [`KernelError::WrongOp`] if the kernel is registered under another operation's name.
pub fn op_as<T: Op>(op: &dyn Op) -> Result<&T, KernelError> {
    op.downcast().ok_or(KernelError::WrongOp { op: op.name() })
}

/// A Rust type whose slices tensors of one dtype can be seen as.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// Whether tensors of `dtype` are made of this type.
    fn is(dtype: DType) -> bool;
}

macro_rules! element {
    ($($type:ty: $pattern:pat),* $(,)?) => {$(
        impl Element for $type {
            fn is(dtype: DType) -> bool {
                matches!(dtype, $pattern)
            }
        }
    )*};
}
element!(f32: DType::F32, f64: DType::F64, half::bf16: DType::BF16, half::f16: DType::F16);
element!(i64: DType::I64, u32: DType::U32, u8: DType::U8 | DType::Bool);

/// A tensor in memory: an input to read, or an output or cell to fill.
///
/// An output may lie exactly over an input if the operation offered that pair in
/// [`Op::in_place`]; [`View::same_memory`] tells.
#[derive(Debug)]
pub struct View<'a> {
    storage: *mut u8,
    storage_bytes: usize,
    writable: bool,
    spec: &'a Spec,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: a view is an address with bounds; who may touch it when is the contract of `View::new`.
unsafe impl Send for View<'_> {}
// SAFETY: as above; shared views only hand out shared slices.
unsafe impl Sync for View<'_> {}

impl<'a> View<'a> {
    /// A view of the `storage_bytes` bytes at `storage`.
    ///
    /// # Safety
    /// The memory must be valid and initialised for reads (and, if `writable`, writes) for `'a`
    /// and aligned to the dtype. Nobody else may write it while the view lives; if `writable`,
    /// nobody else may read it either, but for the view of an input under an in-place pair.
    pub unsafe fn new(
        storage: *mut u8,
        storage_bytes: usize,
        writable: bool,
        spec: &'a Spec,
    ) -> Self {
        Self {
            storage,
            storage_bytes,
            writable,
            spec,
            memory: PhantomData,
        }
    }

    /// An output that this run leaves out; only for those that [`Op::optional`] lists. It has no
    /// storage.
    pub fn left_out(spec: &'a Spec) -> Self {
        Self {
            storage: std::ptr::null_mut(),
            storage_bytes: 0,
            writable: false,
            spec,
            memory: PhantomData,
        }
    }

    /// Whether this run leaves the output out.
    pub fn is_left_out(&self) -> bool {
        self.storage.is_null()
    }

    /// Dtype and layout.
    pub fn spec(&self) -> &'a Spec {
        self.spec
    }

    /// Layout in the storage.
    pub fn layout(&self) -> &'a Layout {
        &self.spec.layout
    }

    /// Extents.
    pub fn dims(&self) -> &'a [usize] {
        self.spec.shape().dims()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.spec.layout.numel()
    }

    /// Whether both lie in the same storage (the in-place case).
    pub fn same_memory(&self, other: &View<'_>) -> bool {
        self.storage == other.storage && self.storage_bytes != 0
    }

    /// The whole storage as elements, for kernels that read strides. Must not be called on an input
    /// that an output lies over while that output's slice is in use: see [`View::same_memory`].
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] for another dtype.
    pub fn storage<T: Element>(&self) -> Result<&[T], KernelError> {
        let len = self.elements::<T>()?;
        // SAFETY: valid for reads by the contract of `new`; `elements` checked bounds, dtype and
        // alignment.
        Ok(unsafe { std::slice::from_raw_parts(self.storage.cast::<T>(), len) })
    }

    /// The whole storage as elements, to fill through strides.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] for another dtype or a read-only view.
    pub fn storage_mut<T: Element>(&mut self) -> Result<&mut [T], KernelError> {
        if !self.writable {
            return Err(self.unsupported("a writable tensor"));
        }
        let len = self.elements::<T>()?;
        // SAFETY: as in `storage`, and writable and not shared by the contract of `new`.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.storage.cast::<T>(), len) })
    }

    /// The elements of a contiguous tensor in order.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] for another dtype or a layout that is not contiguous.
    pub fn slice<T: Element>(&self) -> Result<&[T], KernelError> {
        let (start, len) = self.contiguous_range()?;
        Ok(&self.storage::<T>()?[start..start + len])
    }

    /// The elements of a contiguous tensor in order, to fill.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] for another dtype, a layout that is not contiguous, or a
    /// read-only view.
    pub fn slice_mut<T: Element>(&mut self) -> Result<&mut [T], KernelError> {
        let (start, len) = self.contiguous_range()?;
        Ok(&mut self.storage_mut::<T>()?[start..start + len])
    }

    fn contiguous_range(&self) -> Result<(usize, usize), KernelError> {
        if !self.layout().is_contiguous() {
            return Err(self.unsupported("a contiguous tensor"));
        }
        let len = self.numel();
        Ok((if len == 0 { 0 } else { self.layout().offset() }, len))
    }

    fn elements<T: Element>(&self) -> Result<usize, KernelError> {
        if !T::is(self.spec.dtype) {
            return Err(self.unsupported(std::any::type_name::<T>()));
        }
        let len = self.storage_bytes / size_of::<T>();
        assert!(
            self.layout().end() <= len,
            "a layout must end inside its storage"
        );
        assert!(
            self.storage.cast::<T>().is_aligned(),
            "storage must be aligned to its dtype"
        );
        Ok(len)
    }

    fn unsupported(&self, expected: &'static str) -> KernelError {
        KernelError::Unsupported {
            expected,
            got: format!("{:?}", self.spec),
        }
    }
}

/// Everything that one run of a kernel works on.
#[derive(Debug)]
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

/// The kernels there are, by operation and device.
#[derive(Debug, Clone, Default)]
pub struct Kernels {
    #[expect(clippy::disallowed_types, reason = "its order is never read")]
    rows: std::collections::HashMap<(&'static str, Device), KernelFn, highwater_graph::BuildMixer>,
}

impl Kernels {
    /// The kernels of this crate's table.
    pub fn builtin() -> Self {
        let mut kernels = Self::default();
        for entry in crate::OPS {
            kernels.register(entry.name, Device::Cpu, entry.kernel);
        }
        kernels
    }

    /// Adds a kernel, or replaces the one there was.
    pub fn register(&mut self, op: &'static str, device: Device, kernel: KernelFn) {
        self.rows.insert((op, device), kernel);
    }

    /// The kernel of an operation on a device.
    ///
    /// # Errors
    /// [`OpError::NoKernel`] if there is none.
    pub fn get(&self, op: &'static str, device: Device) -> Result<KernelFn, OpError> {
        let missing = OpError::NoKernel {
            op,
            device: device.name(),
        };
        self.rows.get(&(op, device)).copied().ok_or(missing)
    }
}
