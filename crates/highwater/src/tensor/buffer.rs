//! Buffers: state that the forward part writes and that no optimizer trains.

use super::parameter::Parameter;
use crate::Result;
use highwater_graph::{Category, Shape};
use std::ops::Deref;

/// A tensor that belongs to a module and is not trained, as `register_buffer` makes in PyTorch:
/// running statistics, caches. Clones are the same buffer. Used wherever a tensor is; reads see the
/// newest version, and no gradient flows to it. It is written as a [`Parameter`] is: [`Parameter::assign`],
/// [`Parameter::lerp_`]. A guard that stops a step, such as that of a loss that is not finite, leaves it as it was.
#[derive(Debug, Clone)]
pub struct Buffer(Parameter);

impl Deref for Buffer {
    type Target = Parameter;
    fn deref(&self) -> &Parameter {
        &self.0
    }
}

impl Buffer {
    /// A buffer of `F32`s, filled by `init`.
    ///
    /// # Errors
    /// [`crate::Error::State`] if there is no room; [`crate::Error::Usage`] for a shape that no memory
    /// could hold.
    #[track_caller]
    pub fn new(
        engine: &crate::Engine,
        shape: impl Into<Shape>,
        init: impl FnOnce(&mut [f32]),
    ) -> Result<Self> {
        let category = Category::Buffer;
        let cell = Parameter::cell(engine, "buffer", shape, category, false, init)?;
        Ok(Self(cell))
    }

    /// The cell behind it, by which optimizers' and modules' state is saved and loaded.
    pub(crate) fn as_parameter(&self) -> &Parameter {
        &self.0
    }
}
