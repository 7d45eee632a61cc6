//! Averages of parameters over the steps.

use super::{common_engine, names};
use crate::Result;
use crate::error::usage_error;
use crate::pending::context::no_grad;
use crate::tensor::buffer::Buffer;
use crate::tensor::parameter::Parameter;
use half::{bf16, f16};
use highwater_graph::{DType, Location};
use std::collections::BTreeSet;

/// Exponential moving averages of parameters, as `torch.optim.swa_utils.AveragedModel` with
/// `get_ema_multi_avg_fn(decay)`: after each step `average = decay average + (1 - decay) parameter`, by one node
/// for each parameter, which runs with the next step. The first [`Ema::update`] copies the parameters.
/// Averages are `F32`, whatever the parameters are; they take 4 bytes for each number, and may wait on disk as
/// parameters do.
///
/// A module's buffers are not averaged: evaluation sees the module's own, as with `use_buffers=False`.
///
/// ```
/// use highwater::optim::{Ema, Sgd, SgdOptions};
/// use highwater::{nn::Linear, prelude::*};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let model = Linear::new(&engine, 2, 1, false)?;
/// let mut optimizer = Sgd::new(model.parameters(), SgdOptions::default())?;
/// let mut ema = Ema::new(model.parameters(), 0.999)?;
/// let x = Tensor::randn(&engine, [4, 2])?;
/// for _ in 0..3 {
///     model.forward(&x)?.square()?.mean()?.backward()?;
///     optimizer.step()?;
///     ema.update()?;
/// }
/// // The model with averaged parameters, for as long as the closure runs.
/// let loss = ema.with_averaged(|| model.forward(&x)?.square()?.mean()?.item())?;
/// # assert!(loss.is_finite());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Ema {
    decay: f64,
    averages: Vec<Average>,
    n_averaged: u64,
}

#[derive(Debug)]
struct Average {
    parameter: Parameter,
    average: Buffer,
}

impl Ema {
    /// Averages of parameters, which start as what those hold. One that stands twice has one average.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] unless the decay is from 0 to 1 (as in PyTorch), or where a parameter is `F64`;
    /// [`crate::Error::OtherEngine`]; [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(parameters: Vec<Parameter>, decay: f64) -> Result<Self> {
        let location = Location::caller();
        if !(0.0..=1.0).contains(&decay) {
            let message = format!("Ema: the decay must be a number from 0 to 1, not {decay}");
            return Err(usage_error(message, location));
        }
        common_engine("Ema", &parameters, location)?;
        let (mut seen, mut averages) = (BTreeSet::new(), Vec::new());
        for parameter in parameters {
            if !seen.insert(parameter.id()) {
                continue;
            }
            if !matches!(parameter.dtype(), DType::F32 | DType::BF16 | DType::F16) {
                let (name, dtype) = (parameter.name(), parameter.dtype());
                let message = format!("Ema: `{name}` is {dtype}; averages are of f32 and halves");
                return Err(usage_error(message, location));
            }
            let average = Buffer::new(parameter.engine(), parameter.shape().clone(), |_| {})?;
            average.set_name(&format!("average.{}", parameter.name()));
            let dtype = parameter.dtype();
            parameter.with_bytes(|from| average.with_values_mut(|to| widen(dtype, from, to)))??;
            averages.push(Average { parameter, average });
        }
        Ok(Self {
            decay,
            averages,
            n_averaged: 0,
        })
    }

    /// Moves the averages towards what the parameters are now, as `update_parameters`: after an optimizer's
    /// step. Computed with the next step, or when an average is read.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`]; what stops an evaluation, where very many updates are pending.
    #[track_caller]
    pub fn update(&mut self) -> Result<()> {
        for Average { parameter, average } in &self.averages {
            let value = no_grad(|| match parameter.dtype() {
                DType::F32 => parameter.detach(),
                _ => parameter.to_dtype(DType::F32)?.detach(),
            })?;
            if self.n_averaged == 0 {
                average.assign(&value)?;
            } else {
                average.lerp_(&value, 1.0 - self.decay)?;
            }
        }
        self.n_averaged += 1;
        Ok(())
    }

    /// How many updates there were.
    pub fn n_averaged(&self) -> u64 {
        self.n_averaged
    }

    /// Sets how many updates there were: loading state.
    pub fn set_n_averaged(&mut self, updates: u64) {
        self.n_averaged = updates;
    }

    /// The averages by the parameters' names, to be saved and loaded; by their numbers where those names are not
    /// all different, as in [`crate::optim::Optimizer::state_dict`].
    pub fn state_dict(&self) -> Vec<(String, Buffer)> {
        let names = names(self.averages.iter().map(|of| &of.parameter)).into_iter();
        let averages = self.averages.iter().map(|of| of.average.clone());
        names.zip(averages).collect()
    }

    /// Runs `f` with the averages in the parameters' place, rounded to their dtype, and puts the parameters
    /// back, to the bit. What is pending is computed before, and after `f`: read inside what is computed
    /// there. What parameters in half precision hold is meanwhile kept on the heap.
    ///
    /// # Errors
    /// Those of `f`; [`crate::Error::Usage`] where a closure has the bytes of a parameter; what stops an evaluation.
    #[track_caller]
    pub fn with_averaged<R>(&self, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let location = Location::caller();
        self.settle(location)?;
        let mut swapped = Swapped {
            of: self,
            location,
            originals: Vec::new(),
        };
        for average in &self.averages {
            let original = average.swap_in()?;
            swapped.originals.push(original);
        }
        let answer = f();
        swapped.put_back()?;
        answer
    }

    /// Computes what is pending, so that nothing reads a parameter.
    fn settle(&self, location: Location) -> Result<()> {
        let Some(first) = self.averages.first() else {
            return Ok(());
        };
        let engine = first.parameter.engine();
        engine.evaluate_all(&mut engine.lock(), location)
    }
}

/// Averages that stand in the parameters' place, with what those held that are in half precision.
struct Swapped<'a> {
    of: &'a Ema,
    location: Location,
    originals: Vec<Option<Vec<u8>>>,
}

impl Swapped<'_> {
    fn put_back(&mut self) -> Result<()> {
        if self.originals.is_empty() {
            return Ok(());
        }
        self.of.settle(self.location)?;
        // The last goes first, so that those behind a failure are still known.
        while let Some(original) = self.originals.pop() {
            let average = &self.of.averages[self.originals.len()];
            average.swap_out(original)?;
        }
        Ok(())
    }
}

impl Drop for Swapped<'_> {
    fn drop(&mut self) {
        // After a panic or an error: what cannot be put back then, nothing can.
        let _ = self.put_back();
    }
}

impl Average {
    /// Puts the average into the parameter's place; answers what that held, unless the average holds it now.
    fn swap_in(&self) -> Result<Option<Vec<u8>>> {
        let dtype = self.parameter.dtype();
        if dtype == DType::F32 {
            return self.exchange().map(|()| None);
        }
        let original = self.parameter.with_bytes(<[u8]>::to_vec)?;
        let copied = (self.average).with_bytes(|average| {
            self.parameter
                .copy_from_slice(bytemuck::cast_slice(average))
        })?;
        copied.map(|()| Some(original))
    }

    fn swap_out(&self, original: Option<Vec<u8>>) -> Result<()> {
        match original {
            None => self.exchange(),
            Some(original) => (self.parameter).with_bytes_mut(|own| own.copy_from_slice(&original)),
        }
    }

    fn exchange(&self) -> Result<()> {
        self.parameter.with_bytes_mut(|parameter| {
            (self.average).with_bytes_mut(|average| parameter.swap_with_slice(average))
        })?
    }
}

/// The numbers of a parameter.
fn widen(dtype: DType, from: &[u8], to: &mut [f32]) {
    match dtype {
        DType::BF16 => {
            for (to, from) in to.iter_mut().zip(bytemuck::cast_slice::<_, bf16>(from)) {
                *to = from.to_f32();
            }
        }
        DType::F16 => {
            for (to, from) in to.iter_mut().zip(bytemuck::cast_slice::<_, f16>(from)) {
                *to = from.to_f32();
            }
        }
        _ => to.copy_from_slice(bytemuck::cast_slice(from)),
    }
}
