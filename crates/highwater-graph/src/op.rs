//! What an operation declares about itself.

use crate::{Backward, DType, Layout, Shape, Version};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt::Debug;
use std::hash::Hasher;

/// Dtype and layout of one input or output.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Element type.
    pub dtype: DType,
    /// Shape, strides and offset in its storage.
    pub layout: Layout,
}

impl Spec {
    /// A dense row-major tensor.
    pub fn contiguous(dtype: DType, shape: impl Into<Shape>) -> Self {
        Self {
            dtype,
            layout: Layout::contiguous(shape),
        }
    }

    /// Extents.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// Bytes of a dense tensor of this dtype and shape.
    pub fn bytes(&self) -> u64 {
        self.dtype.bytes(self.shape())
    }
}

impl std::fmt::Display for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape())
    }
}

/// What running a node does besides filling its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Nothing: the same inputs give the same bits.
    Pure,
    /// Draws random numbers from a counter that it holds: a replay draws the same ones.
    Random,
    /// Writes cells: may never be repeated.
    WritesCell,
    /// Looks at its inputs and may stop the step before any cell is written.
    Guard,
    /// Talks to other processes: may never be repeated.
    Collective,
}

impl Effect {
    /// Whether the planner may run the node again to have its outputs back.
    pub const fn is_repeatable(self) -> bool {
        matches!(self, Self::Pure | Self::Random)
    }
}

/// What becomes of an operation's inputs under autocast.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Autocast {
    /// They stay what they are. Where the operation takes no mixture of `F32` and half precision, all become the
    /// widest of them.
    #[default]
    AsTaken,
    /// `F32` becomes the dtype of autocast: products, whose sums are in `F32` all the same.
    Low,
    /// As [`Autocast::Low`], of the first input alone: others are the scales of a quantized weight.
    LowFirst,
    /// Half precision becomes `F32`: what sums, or what grows or shrinks fast.
    Full,
    /// All become the widest of them: what takes one dtype alone.
    Widest,
}

/// How inputs of several dtypes become one that holds them all, as `torch.result_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promotion {
    /// The first input that takes part; those before it stay what they are.
    pub first: usize,
    /// Whether whole numbers become floats.
    pub to_floats: bool,
}

impl Promotion {
    /// Of all inputs, whole numbers as they are.
    pub const ALL: Self = Self {
        first: 0,
        to_floats: false,
    };
}

/// What one run costs, for the planner's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Floating-point operations done in matrix products.
    pub matmul_flops: f64,
    /// Floating-point operations done elsewhere; transcendental functions count about ten.
    pub vector_flops: f64,
    /// Bytes read from inputs.
    pub read_bytes: u64,
    /// Bytes written to outputs and cells.
    pub written_bytes: u64,
}

impl std::ops::Sub for Cost {
    type Output = Self;

    /// What is left without a part; never less than nothing.
    fn sub(self, part: Self) -> Self {
        Self {
            matmul_flops: (self.matmul_flops - part.matmul_flops).max(0.0),
            vector_flops: (self.vector_flops - part.vector_flops).max(0.0),
            read_bytes: self.read_bytes.saturating_sub(part.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(part.written_bytes),
        }
    }
}

impl Cost {
    /// The cost of one pass: reads every input and writes every output once, with
    /// `flops_per_element` operations for each element of the outputs.
    pub fn elementwise(inputs: &[Spec], outputs: &[Spec], flops_per_element: f64) -> Self {
        let elements: usize = outputs.iter().map(|spec| spec.layout.numel()).sum();
        Self {
            vector_flops: flops_per_element * elements as f64,
            read_bytes: inputs.iter().map(Spec::bytes).sum(),
            written_bytes: outputs.iter().map(Spec::bytes).sum(),
            ..Self::default()
        }
    }
}

/// An operation with its attributes: everything that is known about it but its kernels, which are
/// rows of a registry keyed by (name, device, dtypes) and say themselves what they need and allow.
///
/// Attributes that change from step to step without changing structure (a learning rate, a random
/// counter, a step count) are fields too, but stay out of [`Op::hash_attributes`]: a plan is reused
/// for every graph with the same structure, and always runs the operations of the current one.
pub trait Op: Any + Debug + Send + Sync {
    /// The name, as PyTorch spells it where PyTorch has the operation. Key of the registry.
    fn name(&self) -> &'static str;

    /// Feeds every attribute that shapes, costs, effects or kernels' control flow depend on.
    fn hash_attributes(&self, hasher: &mut dyn Hasher);

    /// Checks the inputs and says what the outputs are. An output's layout must cover its storage
    /// densely, but need not be row-major.
    ///
    /// # Errors
    /// Inputs that the operation does not take.
    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError>;

    /// What a run costs with `threads` threads.
    fn cost(&self, inputs: &[Spec], outputs: &[Spec], threads: usize) -> Cost;

    /// What a run does besides filling its outputs.
    fn effect(&self) -> Effect {
        Effect::Pure
    }

    /// Positions of the inputs, all of them cells or views of cells, that the node overwrites: the
    /// cell's next version. What a view leaves out of its cell stays as it is.
    fn writes(&self) -> SmallVec<[usize; 4]> {
        SmallVec::new()
    }

    /// For a guard: whether a plan may leave it out where what it looks at would have to be held, or
    /// made again, for it.
    fn is_soft(&self) -> bool {
        false
    }

    /// The value that fills the output, if it is a constant known when the graph is built.
    fn constant(&self) -> Option<f64> {
        None
    }

    /// What becomes of the inputs under autocast.
    fn autocast(&self) -> Autocast {
        Autocast::AsTaken
    }

    /// How inputs of several dtypes become one; with none, the operation sees them as they are, and refuses what
    /// it does not take.
    fn promotion(&self) -> Option<Promotion> {
        None
    }

    /// Emits the nodes that compute the gradients of the inputs. What they read is what backward
    /// saves: there is no list beside it.
    ///
    /// # Errors
    /// [`OpError::NotDifferentiable`] unless the operation says otherwise; whatever emitting says.
    fn backward(&self, _backward: &mut Backward<'_>) -> Result<(), OpError> {
        Err(OpError::NotDifferentiable { op: self.name() })
    }
}

/// What an operation says of itself, asked once, when its node is made: anybody may write an [`Op`], and what was
/// checked has to be what is run.
#[derive(Debug, Clone)]
pub struct Traits {
    /// [`Op::effect`].
    pub effect: Effect,
    /// [`Op::writes`].
    pub writes: SmallVec<[usize; 4]>,
    /// [`Op::is_soft`].
    pub is_soft: bool,
    /// [`Op::constant`].
    pub constant: Option<f64>,
}

impl Traits {
    /// Asks an operation.
    pub fn of(op: &dyn Op) -> Self {
        Self {
            effect: op.effect(),
            writes: op.writes(),
            is_soft: op.is_soft(),
            constant: op.constant(),
        }
    }
}

impl dyn Op {
    /// The operation as its own type, for its kernels.
    pub fn downcast<T: Op>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

/// Why a node cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// Shapes, ranks or layouts that do not fit together.
    #[error("{op}: expected {expected}, got {got}")]
    Shape {
        /// Operation.
        op: &'static str,
        /// What would have been taken.
        expected: String,
        /// What came.
        got: String,
    },
    /// An element type that the operation does not take.
    #[error("{op}: expected dtype {expected}, got {got}")]
    DType {
        /// Operation.
        op: &'static str,
        /// What would have been taken.
        expected: String,
        /// What came.
        got: DType,
    },
    /// The wrong number of inputs.
    #[error("{op}: expected {expected} inputs, got {got}")]
    Arity {
        /// Operation.
        op: &'static str,
        /// How many it takes.
        expected: usize,
        /// How many came.
        got: usize,
    },
    /// An attribute out of range.
    #[error("{op}: {attribute} must be {expected}, got {got}")]
    Attribute {
        /// Operation.
        op: &'static str,
        /// Which attribute.
        attribute: &'static str,
        /// What would have been taken.
        expected: String,
        /// What came.
        got: String,
    },
    /// Backward was asked of an operation that has none.
    #[error("{op}: has no gradient; call detach() on its input, or leave it outside the loss")]
    NotDifferentiable {
        /// Operation.
        op: &'static str,
    },
    /// A version of a cell that an update has since overwritten.
    #[error(
        "{op}: needs version {wanted} of {cell}, read at {read_at}, but it was overwritten (now \
         version {current}) at {written_at}; compute the loss again after the update, or detach()"
    )]
    StaleCell {
        /// Operation that needs it.
        op: &'static str,
        /// Name of the cell.
        cell: String,
        /// The version it was built on.
        wanted: Version,
        /// The version there is.
        current: Version,
        /// Where the old version was read.
        read_at: crate::Location,
        /// Where the cell was written.
        written_at: String,
    },
    /// No kernel of the operation on the device takes these element types.
    #[error("{op} has no {device} kernel for {dtypes}; {known}")]
    NoKernel {
        /// Operation.
        op: &'static str,
        /// Device.
        device: &'static str,
        /// The element types: of the inputs, then of the outputs.
        dtypes: String,
        /// What there is instead, or how to register one.
        known: String,
    },
    /// An input that reads a cell which the node overwrites through another input.
    #[error(
        "{op}: input {read} reads {cell}, which the node overwrites as input {written}, and its \
         kernel does not take that; give it a copy"
    )]
    Overlap {
        /// Operation.
        op: &'static str,
        /// Name of the cell.
        cell: String,
        /// Position of the input that reads it.
        read: usize,
        /// Position of the input that is overwritten.
        written: usize,
    },
}

impl OpError {
    /// A [`OpError::Shape`] from anything printable.
    pub fn shape(op: &'static str, expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self::Shape {
            op,
            expected: expected.into(),
            got: got.into(),
        }
    }

    /// Checks the number of inputs.
    ///
    /// # Errors
    /// [`OpError::Arity`] if it differs.
    pub fn check_arity(op: &'static str, inputs: &[Spec], expected: usize) -> Result<(), Self> {
        if inputs.len() == expected {
            Ok(())
        } else {
            Err(Self::Arity {
                op,
                expected,
                got: inputs.len(),
            })
        }
    }

    /// Checks an input's dtype.
    ///
    /// # Errors
    /// [`OpError::DType`] if it differs.
    pub fn check_dtype(op: &'static str, input: &Spec, expected: DType) -> Result<(), Self> {
        if input.dtype == expected {
            Ok(())
        } else {
            Err(Self::DType {
                op,
                expected: expected.to_string(),
                got: input.dtype,
            })
        }
    }
}
