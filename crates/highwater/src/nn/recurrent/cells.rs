//! What one step computes.

use crate::Result;
use crate::tensor::Tensor;

/// What a cell of a recurrent layer computes.
pub(super) trait Cell: Copy {
    /// Blocks of rows in its weights.
    const GATES: usize;
    /// States that it carries: hidden, and what it keeps beside it.
    const STATES: usize;

    /// The next states of the present ones, given `x W_ih^T + b_ih` for the step and `h W_hh^T + b_hh`.
    fn step(self, input: &Tensor, hidden: &Tensor, states: &[Tensor]) -> Result<Vec<Tensor>>;
}

/// The function of a plain recurrent layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nonlinearity {
    /// The hyperbolic tangent.
    #[default]
    Tanh,
    /// `max(x, 0)`.
    Relu,
}

impl Cell for Nonlinearity {
    const GATES: usize = 1;
    const STATES: usize = 1;

    fn step(self, input: &Tensor, hidden: &Tensor, _states: &[Tensor]) -> Result<Vec<Tensor>> {
        let sum = input.add(hidden)?;
        Ok(vec![match self {
            Self::Tanh => sum.tanh()?,
            Self::Relu => sum.relu()?,
        }])
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LstmCell;

impl Cell for LstmCell {
    const GATES: usize = 4;
    const STATES: usize = 2;

    /// Gates in PyTorch's order: input, forget, cell, output.
    fn step(self, input: &Tensor, hidden: &Tensor, states: &[Tensor]) -> Result<Vec<Tensor>> {
        let gates = input.add(hidden)?.chunk(4, 1)?;
        let [i, f, o] = [&gates[0], &gates[1], &gates[3]].map(Tensor::sigmoid);
        let new = i?.mul(&gates[2].tanh()?)?;
        let c = f?.mul(&states[1])?.add(&new)?;
        let h = o?.mul(&c.tanh()?)?;
        Ok(vec![h, c])
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct GruCell;

impl Cell for GruCell {
    const GATES: usize = 3;
    const STATES: usize = 1;

    /// Gates in PyTorch's order: reset, update, new; the reset gate takes the product of the hidden state,
    /// bias included.
    fn step(self, input: &Tensor, hidden: &Tensor, states: &[Tensor]) -> Result<Vec<Tensor>> {
        let (x, h) = (input.chunk(3, 1)?, hidden.chunk(3, 1)?);
        let r = x[0].add(&h[0])?.sigmoid()?;
        let z = x[1].add(&h[1])?.sigmoid()?;
        let n = x[2].add(&r.mul(&h[2])?)?.tanh()?;
        // (1 - z) n + z h
        Ok(vec![n.add(&z.mul(&states[0].sub(&n)?)?)?])
    }
}
