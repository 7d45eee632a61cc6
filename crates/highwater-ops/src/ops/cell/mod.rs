//! Adding to a cell, replacing what it holds, and moving it towards a value.

mod cpu;
mod lerp;
mod reference;

pub use lerp::LerpCell;

use crate::kernels::cells::{check_cells_and_value, rows_of_cell, update_cost, update_rejects};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::table::f32s;
use crate::{Entry, Fill, Sample};
use highwater_graph::{Cost, DType, Effect, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ACCUMULATE, ASSIGN, LERP];

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

const LERP: Entry = Entry {
    name: LerpCell::NAME,
    rows: rows_of_floats! {
        T: [T] -> []; cpu::lerp_cell::<T>; Precise::new(reference::lerp)
    },
    reference: reference::lerp,
    samples: || {
        let mut all = samples(|| Arc::new(LerpCell { weight: 0.125 }), 1e-6);
        all.extend(samples(|| Arc::new(LerpCell { weight: 0.9 }), 1e-6));
        all
    },
    rejects: || update_rejects(|| Arc::new(LerpCell { weight: 0.125 }), 2),
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
        let cell = f32s(layout.shape().clone());
        sample(cell, layout)
    };
    let rows = values[4].clone();
    let rows = sample(rows_of_cell(rows.shape()), rows);
    values.into_iter().map(whole).chain([rows]).collect()
}
