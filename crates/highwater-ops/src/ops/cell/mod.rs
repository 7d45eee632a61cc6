//! Adding to a cell and replacing what it holds; what all operations that write cells check.

mod cpu;
mod lerp;
mod reference;

pub use lerp::LerpCell;

use crate::kernels::float::{Precise, rows_of_floats};
use crate::ops::matmul::one_float_dtype;
use crate::{Entry, Fill, Reject, Sample};
use highwater_graph::{Cost, DType, Effect, Layout, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ACCUMULATE, ASSIGN, lerp::ENTRY];

/// Elements that one task updates.
pub(crate) const CHUNK: usize = 1 << 14;

macro_rules! cell_op {
    ($(#[$doc:meta])* $op:ident, $name:literal, $flops:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $op;

        impl $op {
            /// Name in the registry.
            pub const NAME: &'static str = $name;
        }

        impl Op for $op {
            fn name(&self) -> &'static str {
                Self::NAME
            }

            fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

            fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
                OpError::check_arity(Self::NAME, inputs, 2)?;
                check_cells_and_value(Self::NAME, inputs)?;
                Ok(SmallVec::new())
            }

            fn cost(&self, inputs: &[Spec], _outputs: &[Spec], _threads: usize) -> Cost {
                update_cost(inputs, $flops)
            }

            fn effect(&self) -> Effect {
                Effect::WritesCell
            }

            fn writes(&self) -> SmallVec<[usize; 4]> {
                smallvec![0]
            }
        }
    };
}

cell_op! {
    /// Adds a value to a cell: `cell <- cell + value`.
    ///
    /// Inputs: the cell or a dense range of it, and a value of the same shape in any layout; both
    /// of one float dtype. No outputs. The value may not be a view of the cell itself.
    Accumulate, "accumulate", 1.0
}

cell_op! {
    /// Replaces what a cell holds: `cell <- value`.
    ///
    /// Inputs: the cell or a dense range of it, and a value of the same shape in any layout; both
    /// of one float dtype. No outputs. The value may not be a view of the cell itself.
    Assign, "assign", 0.0
}

/// Checks that all inputs are of one float dtype and one shape, and all but the last (the gradient or value)
/// dense: whole cells, or ranges of rows of them.
pub(crate) fn check_cells_and_value(op: &'static str, inputs: &[Spec]) -> Result<(), OpError> {
    let shape = inputs[0].shape();
    let all: SmallVec<[&Spec; 4]> = inputs.iter().collect();
    one_float_dtype(op, &all)?;
    for (i, spec) in inputs.iter().enumerate() {
        if spec.shape() != shape {
            let expected = format!("the cell's shape {shape} for input {i}");
            return Err(OpError::shape(op, expected, spec.shape().to_string()));
        }
        if i + 1 < inputs.len() && !spec.layout.is_contiguous() {
            let expected = format!("a dense cell, or whole rows of one, for input {i}");
            return Err(OpError::shape(op, expected, format!("{:?}", spec.layout)));
        }
    }
    Ok(())
}

/// The cost of reading every input once and writing all but the last.
pub(crate) fn update_cost(inputs: &[Spec], flops_per_element: f64) -> Cost {
    let (value, cells) = inputs.split_last().expect("a value after the cells");
    let cells: u64 = cells.iter().map(Spec::bytes).sum();
    Cost {
        vector_flops: flops_per_element * value.layout.numel() as f64,
        read_bytes: cells + value.bytes(),
        written_bytes: cells,
        ..Cost::default()
    }
}

/// What every operation on cells of one shape and a value must refuse.
pub(crate) fn update_rejects(op: fn() -> Arc<dyn Op>, arity: usize) -> Vec<Reject> {
    let of = |dtype, shape: &[usize]| Spec::contiguous(dtype, shape);
    let good = vec![of(DType::F32, &[3, 5]); arity];
    let with = |i: usize, spec: Spec| {
        let mut inputs = good.clone();
        inputs[i] = spec;
        inputs
    };
    let transposed = Spec {
        dtype: DType::F32,
        layout: Layout::strided([3, 5], &[1, 3], 0),
    };
    let is_shape: fn(&OpError) -> bool = |error| matches!(error, OpError::Shape { .. });
    let reject = |inputs, error| Reject {
        op: op(),
        inputs,
        error,
    };
    vec![
        reject(good[1..].to_vec(), |error| {
            matches!(error, OpError::Arity { .. })
        }),
        reject(with(arity - 1, of(DType::F32, &[5, 3])), is_shape),
        reject(with(arity - 1, of(DType::F32, &[5])), is_shape),
        reject(with(0, transposed), is_shape),
        reject(with(arity - 1, of(DType::BF16, &[3, 5])), |error| {
            matches!(error, OpError::DType { .. })
        }),
    ]
}

pub(crate) const ACCUMULATE: Entry = Entry {
    name: Accumulate::NAME,
    rows: rows_of_floats! {
        T: [T] -> []; cpu::accumulate::<T>; Precise::new(reference::accumulate)
    },
    reference: reference::accumulate,
    samples: || samples(|| Arc::new(Accumulate), 1e-6),
    rejects: || update_rejects(|| Arc::new(Accumulate), 2),
};

pub(crate) const ASSIGN: Entry = Entry {
    name: Assign::NAME,
    rows: rows_of_floats! { T: [T] -> []; cpu::assign::<T>; cpu::assign::<f64> },
    reference: reference::assign,
    samples: || samples(|| Arc::new(Assign), 0.0),
    rejects: || update_rejects(|| Arc::new(Assign), 2),
};

fn samples(op: fn() -> Arc<dyn Op>, tolerance: f64) -> Vec<Sample> {
    let values = [
        Layout::contiguous([5, 37]),
        Layout::contiguous([]),
        Layout::contiguous([0, 5]),
        Layout::contiguous([130, 131]),
        Layout::strided([37, 65], &[1, 37], 0),
        Layout::strided([3, 1, 130, 65], &[65, 7, 0, 1], 9),
    ];
    let sample = |cell: Spec, layout: Layout| {
        let dtype = DType::F32;
        Sample {
            op: op(),
            inputs: vec![
                (cell, Fill::Normal(1.0)),
                (Spec { dtype, layout }, Fill::Normal(1.0)),
            ],
            tolerance,
        }
    };
    let whole = |layout: Layout| {
        let cell = Spec::contiguous(DType::F32, layout.shape().clone());
        sample(cell, layout)
    };
    let rows = values[4].clone();
    let rows = sample(rows_of_cell(rows.shape()), rows);
    values.into_iter().map(whole).chain([rows]).collect()
}

/// Rows of a larger cell, for samples.
pub(crate) fn rows_of_cell(shape: &Shape) -> Spec {
    let whole = Layout::contiguous(shape.clone());
    let before = 3 * whole.strides()[0];
    let layout = Layout::strided(shape.clone(), whole.strides(), before);
    Spec {
        dtype: DType::F32,
        layout,
    }
}
