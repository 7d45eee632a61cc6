//! What new parameters hold, in whatever float type they are.

use crate::engine::Engine;
use crate::engine::lent::Fill;
use crate::error::usage_error;
use crate::pending::context::{parameter_dtype, skips_init};
use crate::tensor::parameter::Parameter;
use crate::{Error, Result};
use highwater_graph::{Category, DType, Location, Shape};
use highwater_ops::KernelError;
use highwater_ops::philox::Deviates;

/// Numbers that are rounded at once.
const PIECE: usize = 4096;

impl Parameter {
    /// A parameter, filled by `init`, that requires a gradient: of `F32`s, or of what
    /// [`with_parameter_dtype`](crate::with_parameter_dtype) says, to which the numbers are rounded. Those are
    /// all there for a moment then, in memory that counts.
    ///
    /// # Errors
    /// [`Error::State`] if there is no room.
    #[track_caller]
    pub fn new(
        engine: &Engine,
        shape: impl Into<Shape>,
        init: impl FnOnce(&mut [f32]),
    ) -> Result<Self> {
        let (shape, category) = (shape.into(), Category::Parameter);
        let dtype = float_dtype(Location::caller())?;
        if skips_init() {
            return Self::rounded(engine, dtype, &shape, |_| Ok(()));
        }
        if dtype == DType::F32 {
            return Self::cell(engine, "parameter", shape, category, true, init);
        }
        let name = "initial values";
        let values = Self::cell(engine, name, shape.clone(), category, false, init)?;
        Self::rounded(engine, dtype, &shape, |to| {
            values.with_bytes(|from| write(bytemuck::cast_slice(from), dtype, to))?
        })
    }

    /// A parameter of normal deviates of mean 0 from the engine's random numbers.
    ///
    /// # Errors
    /// As [`Parameter::new`].
    #[track_caller]
    pub fn normal(engine: &Engine, shape: impl Into<Shape>, std: f32) -> Result<Self> {
        Self::drawn(engine, &shape.into(), true, |x| x * std)
    }

    /// A parameter of uniform deviates between `-bound` and `bound`.
    ///
    /// # Errors
    /// As [`Parameter::new`].
    #[track_caller]
    pub fn uniform(engine: &Engine, shape: impl Into<Shape>, bound: f32) -> Result<Self> {
        Self::drawn(engine, &shape.into(), false, |x| (2.0 * x - 1.0) * bound)
    }

    /// Deviates, drawn and rounded piece by piece.
    #[track_caller]
    fn drawn(
        engine: &Engine,
        shape: &Shape,
        normal: bool,
        scale: impl Fn(f32) -> f32,
    ) -> Result<Self> {
        let dtype = float_dtype(Location::caller())?;
        let (seed, offset) = engine.lock().next_random();
        let mut deviates = Deviates::new(seed, offset, normal);
        Self::rounded(engine, dtype, shape, |bytes| {
            fill(dtype, bytes, |piece| {
                deviates.fill(piece);
                for x in piece.iter_mut() {
                    *x = scale(*x);
                }
            })
        })
    }

    /// Overwrites the values with deviates from the engine's random numbers, normal ones or uniform ones of
    /// `[0, 1)`, each changed by `scale`.
    #[track_caller]
    pub(crate) fn redraw(&self, normal: bool, scale: impl Fn(f32) -> f32) -> Result<()> {
        let (seed, offset) = self.engine().lock().next_random();
        let mut deviates = Deviates::new(seed, offset, normal);
        self.refill(|piece| {
            deviates.fill(piece);
            for x in piece.iter_mut() {
                *x = scale(*x);
            }
        })
    }

    /// Overwrites the values, some at a time, in their order.
    #[track_caller]
    pub(crate) fn refill(&self, next: impl FnMut(&mut [f32])) -> Result<()> {
        let dtype = self.dtype();
        if !dtype.is_float() {
            return Err(self.not_floats(Location::caller()));
        }
        if skips_init() {
            return Ok(());
        }
        self.with_bytes_mut(|bytes| fill(dtype, bytes, next))?
    }

    /// A parameter of a float type, whose bytes `fill` writes.
    #[track_caller]
    fn rounded(
        engine: &Engine,
        dtype: DType,
        shape: &Shape,
        mut fill: impl FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        let spec = Self::spec(dtype, shape, Location::caller())?;
        let mut filled = Ok(());
        let mut fill = |bytes: &mut [u8]| filled = fill(bytes);
        let fill: Option<Fill<'_>> = if skips_init() { None } else { Some(&mut fill) };
        let category = (Category::Parameter, true);
        let parameter = Self::of_spec(engine, "parameter", spec, category, fill)?;
        filled.map(|()| parameter)
    }

    /// Overwrites the values, as `param.copy_()` under `no_grad`: rounded to the parameter's float type.
    ///
    /// # Errors
    /// [`Error::Usage`] for another count of elements, for a parameter of whole numbers, or while something
    /// pending uses it.
    #[track_caller]
    pub fn copy_from_slice(&self, values: &[f32]) -> Result<()> {
        if values.len() != self.shape().numel() {
            let message = format!(
                "{} values for a parameter of {}",
                values.len(),
                self.shape()
            );
            return Err(usage_error(message, Location::caller()));
        }
        let dtype = self.dtype();
        if !dtype.is_float() {
            return Err(self.not_floats(Location::caller()));
        }
        self.with_bytes_mut(|own| write(values, dtype, own))?
    }
}

/// Fills bytes with numbers of a float type, some at a time.
fn fill(dtype: DType, bytes: &mut [u8], mut next: impl FnMut(&mut [f32])) -> Result<()> {
    let width = dtype.element_bytes().unwrap_or(1) as usize;
    let mut piece = [0.0; PIECE];
    for to in bytes.chunks_mut(PIECE * width) {
        let piece = &mut piece[..to.len() / width];
        next(piece);
        write(piece, dtype, to)?;
    }
    Ok(())
}

/// The type of parameters that are made now.
fn float_dtype(location: Location) -> Result<DType> {
    let dtype = parameter_dtype();
    if dtype.is_float() {
        return Ok(dtype);
    }
    let message = format!(
        "with_parameter_dtype: {dtype} is no float type, and nothing could train such parameters: take \
         DType::F32, BF16 or F16, or make it with Parameter::frozen()"
    );
    Err(usage_error(message, location))
}

/// Numbers in a float type.
fn write(values: &[f32], dtype: DType, to: &mut [u8]) -> Result<()> {
    let written = highwater_ops::round_to(values, dtype, to);
    written.map_err(|error: KernelError| Error::Internal(error.to_string()))
}
