//! The table of operations: one row each, from which kernels, laws and documentation follow.

use crate::{Kernels, Row};
use highwater_graph::{DType, Layout, Op, OpError, Shape, Spec};
use std::sync::Arc;

/// A tensor of the plain reference: logical row-major order, everything as `f64`.
#[derive(Clone, PartialEq)]
pub struct Array {
    /// The dtype that the numbers stand for.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
    /// Elements in row-major order.
    pub data: Vec<f64>,
}

impl Array {
    /// An array from its parts.
    ///
    /// # Panics
    /// If the number of elements is not the shape's.
    pub fn new(dtype: DType, shape: impl Into<Shape>, data: Vec<f64>) -> Self {
        let shape = shape.into();
        assert_eq!(
            shape.numel(),
            data.len(),
            "as many elements as the shape {shape} has"
        );
        Self { dtype, shape, data }
    }

    /// An `F32` array of the shape, filled by a function of the flat index.
    pub fn from_fn(shape: impl Into<Shape>, f: impl FnMut(usize) -> f64) -> Self {
        let shape = shape.into();
        let data = (0..shape.numel()).map(f).collect();
        Self {
            dtype: DType::F32,
            shape,
            data,
        }
    }
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 8;
        let first = &self.data[..self.data.len().min(SHOWN)];
        let more = if first.len() < self.data.len() {
            ", .."
        } else {
            ""
        };
        write!(f, "{} {} {first:?}{more}", self.dtype, self.shape)
    }
}

/// The plain reference of an operation, in `f64`: obvious, slow, allocating as it likes. Answers
/// the new contents of the inputs that the operation writes, in order, then the outputs, each in
/// the logical order of its shape.
pub type ReferenceFn = fn(&dyn Op, &[Array]) -> Vec<Array>;

/// How the laws fill a sample's input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// Normal deviates times a scale.
    Normal(f64),
    /// Uniform between two bounds.
    Uniform(f64, f64),
    /// Whole numbers from 0 up to, not including, the bound.
    Indices(usize),
    /// As [`Fill::Indices`], but a quarter of them are -100, the label that losses ignore.
    Labels(usize),
    /// The same number everywhere.
    Constant(f64),
}

/// One application of an operation that the laws try.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The operation with its attributes.
    pub op: Arc<dyn Op>,
    /// Inputs: dtype, layout (any storage that it ends in is made) and contents.
    pub inputs: Vec<(Spec, Fill)>,
    /// Largest difference between the fast kernel and the reference, relative to
    /// `1 + |reference|`, set before the fast kernel is written.
    pub tolerance: f64,
}

impl Sample {
    /// A sample on contiguous `F32` inputs of normal deviates, at a tolerance of 1e-5.
    pub fn new(op: impl Op, shapes: &[&[usize]]) -> Self {
        let inputs = shapes
            .iter()
            .map(|&shape| (Spec::contiguous(DType::F32, shape), Fill::Normal(1.0)))
            .collect();
        Self {
            op: Arc::new(op),
            inputs,
            tolerance: 1e-5,
        }
    }

    /// With another input at position `i`.
    #[must_use]
    pub fn input(mut self, i: usize, spec: Spec, fill: Fill) -> Self {
        self.inputs[i] = (spec, fill);
        self
    }

    /// With another tolerance.
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }
}

/// Inputs that must be refused.
#[derive(Debug, Clone)]
pub struct Reject {
    /// The operation with its attributes.
    pub op: Arc<dyn Op>,
    /// The inputs.
    pub inputs: Vec<Spec>,
    /// What the error must be like.
    pub error: fn(&OpError) -> bool,
}

impl Reject {
    /// Of an operation and its inputs.
    pub fn new(op: impl Op, inputs: Vec<Spec>, error: fn(&OpError) -> bool) -> Self {
        let op = Arc::new(op);
        Self { op, inputs, error }
    }
}

/// A contiguous tensor of `F32`.
pub(crate) fn f32s(shape: impl Into<Shape>) -> Spec {
    Spec::contiguous(DType::F32, shape)
}

/// A tensor of `F32` that lies as it is said.
pub(crate) fn f32_view(layout: Layout) -> Spec {
    let dtype = DType::F32;
    Spec { dtype, layout }
}

/// As [`f32_view`], by shape, strides and offset.
pub(crate) fn f32_strided(shape: impl Into<Shape>, strides: &[usize], offset: usize) -> Spec {
    f32_view(Layout::strided(shape, strides, offset))
}

/// Whether another number of inputs was wanted.
pub(crate) fn is_arity(error: &OpError) -> bool {
    matches!(error, OpError::Arity { .. })
}

/// Whether an input's dtype is refused.
pub(crate) fn is_dtype(error: &OpError) -> bool {
    matches!(error, OpError::DType { .. })
}

/// Whether an input's shape is refused.
pub(crate) fn is_shape(error: &OpError) -> bool {
    matches!(error, OpError::Shape { .. })
}

/// Whether an attribute is refused.
pub(crate) fn is_attribute(error: &OpError) -> bool {
    matches!(error, OpError::Attribute { .. })
}

/// One operation: a row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// [`Op::name`].
    pub name: &'static str,
    /// Its kernels, each for a device and dtypes.
    pub rows: &'static [Row],
    /// The plain reference.
    pub reference: ReferenceFn,
    /// Applications that the laws try.
    pub samples: fn() -> Vec<Sample>,
    /// Inputs that must be refused.
    pub rejects: fn() -> Vec<Reject>,
}

#[cfg(feature = "laws")]
impl Entry {
    /// The kernel for tensors of these dtypes, if there is a row for them.
    pub(crate) fn kernel(&self, inputs: &[Spec], outputs: &[Spec]) -> Option<crate::Registered> {
        let row = self.rows.iter().find(|row| row.takes(inputs, outputs));
        row.map(Row::registered)
    }
}

impl Kernels {
    /// Registers all kernels of an operation, in place of those there were for the same dtypes.
    pub fn add(&mut self, entry: &Entry) {
        self.add_rows(entry.name, entry.rows);
    }
}

/// How many rows there are together.
pub(crate) const fn count<T>(mut folders: &[&[T]]) -> usize {
    let mut count = 0;
    while let Some((first, rest)) = folders.split_first() {
        count += first.len();
        folders = rest;
    }
    count
}

/// All rows, one folder after the other.
pub(crate) const fn joined<T: Copy, const N: usize>(mut folders: &[&[T]]) -> [T; N] {
    let mut rows = [folders[0][0]; N];
    let mut row = 0;
    while let Some((folder, rest)) = folders.split_first() {
        let mut i = 0;
        while i < folder.len() {
            rows[row] = folder[i];
            (row, i) = (row + 1, i + 1);
        }
        folders = rest;
    }
    rows
}

/// The names and rows of entries.
pub(crate) const fn rows<const N: usize>(entries: &[Entry]) -> [(&'static str, &'static [Row]); N] {
    let mut rows: [(&'static str, &'static [Row]); N] = [("", &[]); N];
    let mut i = 0;
    while i < N {
        rows[i] = (entries[i].name, entries[i].rows);
        i += 1;
    }
    rows
}
