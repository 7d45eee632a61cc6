//! Recurrent layers over packed sequences: `Rnn`, `Lstm`, `Gru`; and their steps: `RnnCell`, `LstmCell`, `GruCell`.
//!
//! The part of a step that reads the input is one product for all steps at once; what is left is one product
//! of the hidden state a step, and pointwise operations. All steps are nodes of one graph, so that the planner
//! keeps or recomputes each as the budget wants.

mod cells;
mod stack;
mod steps;

pub use cells::Nonlinearity;
pub use steps::{GruCell, LstmCell, RnnCell};

use crate::Result;
use crate::engine::Engine;
use crate::nn::{Module, PackedSequence, Visitor};
use crate::tensor::Tensor;
use cells::{Cell, GruCell as GruStep, LstmCell as LstmStep};
use stack::Stack;

/// How a recurrent layer is built; PyTorch's defaults.
#[derive(Debug, Clone, Copy)]
pub struct RecurrentOptions {
    /// Layers, each of which reads the one before.
    pub num_layers: usize,
    /// Whether there are `b_ih` and `b_hh`.
    pub bias: bool,
    /// Whether sequences are also read from their ends, with weights of their own.
    pub bidirectional: bool,
    /// The probability of dropout between layers, in training mode.
    pub dropout: f64,
}

impl Default for RecurrentOptions {
    fn default() -> Self {
        Self {
            num_layers: 1,
            bias: true,
            bidirectional: false,
            dropout: 0.0,
        }
    }
}

macro_rules! layer {
    ($(#[$doc:meta])* $name:ident, $cell:ident: $cell_type:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name {
            stack: Stack,
            $cell: $cell_type,
        }

        impl Module for $name {
            fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
                self.stack.visit(path, visitor);
            }
        }
    };
}

layer! {
    /// `h' = f(W_ih x + b_ih + W_hh h + b_hh)` over sequences, as `torch.nn.RNN` (Elman, 1990). Parameters
    /// `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`, those of the reverse direction with
    /// `_reverse` behind.
    Rnn, nonlinearity: Nonlinearity
}

layer! {
    /// Long short-term memory, as `torch.nn.LSTM` (Hochreiter and Schmidhuber, 1997): weights
    /// `[4 hidden, ..]` in the order input, forget, cell, output; named as those of [`Rnn`].
    Lstm, cell: LstmStep
}

layer! {
    /// Gated recurrent units, as `torch.nn.GRU` (Cho et al., 2014): weights `[3 hidden, ..]` in the order
    /// reset, update, new; named as those of [`Rnn`].
    Gru, cell: GruStep
}

impl Rnn {
    /// All weights uniform within `1 / sqrt(hidden)`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for an extent of 0 or a dropout out of range; [`crate::Error::State`] if there
    /// is no room.
    #[track_caller]
    pub fn new(
        engine: &Engine,
        inputs: usize,
        hidden: usize,
        nonlinearity: Nonlinearity,
        options: RecurrentOptions,
    ) -> Result<Self> {
        let stack = Stack::new(engine, [inputs, hidden, Nonlinearity::GATES], options)?;
        Ok(Self {
            stack,
            nonlinearity,
        })
    }

    /// The hidden states of all steps, and the last of each sequence, `[layers * directions, B, hidden]`.
    /// `first` has the states to begin with, of that shape; zeros if left out.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if widths differ; [`crate::Error::Usage`] for states of another shape.
    #[track_caller]
    pub fn forward(
        &self,
        input: &PackedSequence,
        first: Option<&Tensor>,
    ) -> Result<(PackedSequence, Tensor)> {
        self.stack.run_hidden(self.nonlinearity, input, first)
    }
}

impl Gru {
    /// As [`Rnn::new`]: `inputs` numbers a step, `hidden` in each state, layers as the options say.
    ///
    /// ```
    /// use highwater::nn::{Gru, PackedSequence, RecurrentOptions};
    /// use highwater::prelude::*;
    ///
    /// fn main() -> Result<()> {
    ///     let engine = Engine::builder().arena(1 << 20).build()?;
    ///     let gru = Gru::new(&engine, 3, 5, RecurrentOptions::default())?;
    ///     // Two sequences, of four steps and of two; of one length they are packed all the same.
    ///     let x = Tensor::randn(&engine, [2, 4, 3])?;
    ///     let (steps, last) = gru.forward(&PackedSequence::pack(&x, &[4, 2])?, None)?;
    ///     assert_eq!(steps.pad()?.dims(), [2, 4, 5]);
    ///     assert_eq!(last.dims(), [1, 2, 5]);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Rnn::new`].
    #[track_caller]
    pub fn new(
        engine: &Engine,
        inputs: usize,
        hidden: usize,
        options: RecurrentOptions,
    ) -> Result<Self> {
        let stack = Stack::new(engine, [inputs, hidden, GruStep::GATES], options)?;
        let cell = GruStep;
        Ok(Self { stack, cell })
    }

    /// As [`Rnn::forward`].
    ///
    /// # Errors
    /// As [`Rnn::forward`].
    #[track_caller]
    pub fn forward(
        &self,
        input: &PackedSequence,
        first: Option<&Tensor>,
    ) -> Result<(PackedSequence, Tensor)> {
        self.stack.run_hidden(self.cell, input, first)
    }
}

impl Lstm {
    /// As [`Rnn::new`].
    ///
    /// # Errors
    /// As [`Rnn::new`].
    #[track_caller]
    pub fn new(
        engine: &Engine,
        inputs: usize,
        hidden: usize,
        options: RecurrentOptions,
    ) -> Result<Self> {
        let stack = Stack::new(engine, [inputs, hidden, LstmStep::GATES], options)?;
        let cell = LstmStep;
        Ok(Self { stack, cell })
    }

    /// As [`Rnn::forward`], with the states `(h, c)`.
    ///
    /// # Errors
    /// As [`Rnn::forward`].
    #[track_caller]
    pub fn forward(
        &self,
        input: &PackedSequence,
        first: Option<(&Tensor, &Tensor)>,
    ) -> Result<(PackedSequence, (Tensor, Tensor))> {
        let first = first.map(|(h, c)| [h, c]);
        let first = first.as_ref().map(|states| &states[..]);
        let (output, mut last) = self.stack.run(self.cell, input, first)?;
        let c = last.remove(1);
        Ok((output, (last.remove(0), c)))
    }
}
