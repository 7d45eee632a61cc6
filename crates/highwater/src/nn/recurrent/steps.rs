//! One step of a recurrent layer as a module: `RnnCell`, `LstmCell`, `GruCell`.

use super::cells::{Cell, GruCell as GruStep, LstmCell as LstmStep, Nonlinearity};
use crate::engine::Engine;
use crate::error::usage_error;
use crate::nn::Module;
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use crate::{self as highwater, Result};
use highwater_graph::Location;

macro_rules! step {
    ($(#[$doc:meta])* $name:ident, $gates:literal, $cell:ident: $cell_type:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Module)]
        pub struct $name {
            #[doc = concat!("`[", $gates, "hidden, inputs]`.")]
            pub weight_ih: Parameter,
            #[doc = concat!("`[", $gates, "hidden, hidden]`.")]
            pub weight_hh: Parameter,
            #[doc = concat!("`[", $gates, "hidden]`.")]
            pub bias_ih: Option<Parameter>,
            #[doc = concat!("`[", $gates, "hidden]`.")]
            pub bias_hh: Option<Parameter>,
            #[module(skip)]
            $cell: $cell_type,
        }

        impl $name {
            #[track_caller]
            fn of(engine: &Engine, inputs: usize, hidden: usize, bias: bool, $cell: $cell_type) -> Result<Self> {
                if inputs == 0 || hidden == 0 {
                    let message = format!("a recurrent cell needs a width and hidden elements, not {inputs} and {hidden}");
                    return Err(usage_error(message, Location::caller()));
                }
                let bound = 1.0 / (hidden as f32).sqrt();
                let rows = <$cell_type as Cell>::GATES * hidden;
                let weight_ih = Parameter::uniform(engine, [rows, inputs], bound)?;
                let weight_hh = Parameter::uniform(engine, [rows, hidden], bound)?;
                let one = || bias.then(|| Parameter::uniform(engine, [rows], bound)).transpose();
                let (bias_ih, bias_hh) = (one()?, one()?);
                Ok(Self { weight_ih, weight_hh, bias_ih, bias_hh, $cell })
            }

            /// The next states, given those to begin with; zeros if there are none.
            #[track_caller]
            fn next(&self, x: &Tensor, states: Option<&[&Tensor]>) -> Result<Vec<Tensor>> {
                let location = Location::caller();
                let &[batch, _] = x.dims() else {
                    let message = format!("a recurrent cell takes [B, inputs], got {}", x.shape());
                    return Err(usage_error(message, location));
                };
                let hidden = self.weight_hh.dims()[1];
                let wanted = [batch, hidden];
                let states: Vec<Tensor> = match states {
                    Some(states) => states.iter().map(|&state| state.clone()).collect(),
                    None => {
                        let zeros = Tensor::zeros(x.engine(), wanted, x.dtype())?;
                        vec![zeros; <$cell_type as Cell>::STATES]
                    }
                };
                if let Some(other) = states.iter().find(|state| state.dims() != wanted) {
                    let message = format!(
                        "a state {} is given to a recurrent cell that wants [{batch}, {hidden}]",
                        other.shape()
                    );
                    return Err(usage_error(message, location));
                }
                let input = x.linear(&self.weight_ih, self.bias_ih.as_deref())?;
                let carried = states[0].linear(&self.weight_hh, self.bias_hh.as_deref())?;
                self.$cell.step(&input, &carried, &states)
            }
        }
    };
}

step! {
    /// `h' = f(W_ih x + b_ih + W_hh h + b_hh)`, one step of [`Rnn`](super::Rnn), as `torch.nn.RNNCell`.
    RnnCell, "", nonlinearity: Nonlinearity
}

step! {
    /// One step of [`Lstm`](super::Lstm), as `torch.nn.LSTMCell`: gates in the order input, forget, cell, output.
    LstmCell, "4 ", cell: LstmStep
}

step! {
    /// One step of [`Gru`](super::Gru), as `torch.nn.GRUCell`: gates in the order reset, update, new.
    GruCell, "3 ", cell: GruStep
}

impl RnnCell {
    /// All weights uniform within `1 / sqrt(hidden)`, as in PyTorch.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for an extent of 0; [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(
        engine: &Engine,
        inputs: usize,
        hidden: usize,
        bias: bool,
        nonlinearity: Nonlinearity,
    ) -> Result<Self> {
        Self::of(engine, inputs, hidden, bias, nonlinearity)
    }

    /// The next state `[B, hidden]` of the input `[B, inputs]` and a state, which is zeros if left out.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if widths differ; [`crate::Error::Usage`] for a state of another shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
        let state = state.as_ref().map(std::slice::from_ref);
        Ok(self.next(x, state)?.remove(0))
    }
}

impl LstmCell {
    /// As [`RnnCell::new`].
    ///
    /// # Errors
    /// As [`RnnCell::new`].
    #[track_caller]
    pub fn new(engine: &Engine, inputs: usize, hidden: usize, bias: bool) -> Result<Self> {
        Self::of(engine, inputs, hidden, bias, LstmStep)
    }

    /// The next states `(h, c)`, each `[B, hidden]`, of the input `[B, inputs]` and states, which are zeros if left
    /// out.
    ///
    /// ```
    /// use highwater::nn::LstmCell;
    /// use highwater::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let engine = Engine::builder().arena(1 << 20).build()?;
    /// let cell = LstmCell::new(&engine, 3, 5, true)?;
    /// let mut states = None;
    /// for _ in 0..4 {
    ///     let x = Tensor::randn(&engine, [2, 3])?;
    ///     states = Some(match &states {
    ///         None => cell.forward(&x, None)?,
    ///         Some((h, c)) => cell.forward(&x, Some((h, c)))?,
    ///     });
    /// }
    /// let (h, _) = states.unwrap();
    /// assert_eq!(h.dims(), [2, 5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RnnCell::forward`].
    #[track_caller]
    pub fn forward(
        &self,
        x: &Tensor,
        states: Option<(&Tensor, &Tensor)>,
    ) -> Result<(Tensor, Tensor)> {
        let states = states.map(|(h, c)| [h, c]);
        let mut next = self.next(x, states.as_ref().map(|states| &states[..]))?;
        let c = next.remove(1);
        Ok((next.remove(0), c))
    }
}

impl GruCell {
    /// As [`RnnCell::new`].
    ///
    /// # Errors
    /// As [`RnnCell::new`].
    #[track_caller]
    pub fn new(engine: &Engine, inputs: usize, hidden: usize, bias: bool) -> Result<Self> {
        Self::of(engine, inputs, hidden, bias, GruStep)
    }

    /// As [`RnnCell::forward`].
    ///
    /// # Errors
    /// As [`RnnCell::forward`].
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
        let state = state.as_ref().map(std::slice::from_ref);
        Ok(self.next(x, state)?.remove(0))
    }
}
