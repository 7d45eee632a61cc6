//! What handles print as with `{:?}`: what they are, never what they hold. A tensor reaches its engine,
//! which reaches everything that is pending.

use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use std::fmt::{Debug, Formatter, Result};
use std::sync::PoisonError;
use std::sync::TryLockError::{Poisoned, WouldBlock};

impl Debug for Tensor {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "Tensor({})", self.handle.spec)
    }
}

impl Debug for Parameter {
    /// Without the name while another call has the engine, such as one that fills a parameter.
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let state = match self.engine().0.state.try_lock() {
            Ok(state) => Some(state),
            Err(Poisoned(state)) => Some(PoisonError::into_inner(state)),
            Err(WouldBlock) => None,
        };
        let spec = &self.handle.spec;
        match state
            .as_ref()
            .and_then(|state| state.pending.graph.cell(self.id()))
        {
            Some(cell) => write!(f, "Parameter({}, {spec})", cell.name),
            None => write!(f, "Parameter({spec})"),
        }
    }
}
