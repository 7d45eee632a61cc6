//! Moving what a cell holds some of the way towards a value: running averages.

use crate::kernels::cells::{check_cells_and_value, update_cost};
use highwater_graph::{Cost, Effect, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;

/// Moves what a cell holds towards a value: `cell <- cell + weight (value - cell)`, as
/// `torch.Tensor.lerp_`.
///
/// Inputs: the cell or a dense range of it, and a value of the same shape in any layout; both
/// of one float dtype. No outputs. The value may not be a view of the cell itself. The weight may change
/// from step to step: it is not part of a plan's structure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LerpCell {
    /// Share of the value.
    pub weight: f64,
}

impl LerpCell {
    /// Name in the registry.
    pub const NAME: &'static str = "lerp_cell";
}

impl Op for LerpCell {
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
        update_cost(inputs, 3.0)
    }

    fn effect(&self) -> Effect {
        Effect::WritesCell
    }

    fn writes(&self) -> SmallVec<[usize; 4]> {
        smallvec![0]
    }
}
