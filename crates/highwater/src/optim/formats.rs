//! How optimizers hold parameters and moments.

use highwater_graph::{DType, Shape};
use highwater_ops::{self as ops, Formats, StateCell};

/// What the updates of a parameter in `BF16` or `F16` are added to. Most are smaller than half of its last
/// digit, and would be lost in rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Master {
    /// A copy of the parameter in `F32`, as in mixed precision of DeepSpeed: 4 bytes more for each number.
    /// The parameter is what that rounds to.
    F32,
    /// What an `F32` has beyond the parameter in `BF16`, in 16 bits: 2 bytes more for each number, and the
    /// same bits as [`Master::F32`], of the parameter too.
    Split,
    /// Nothing: updates of the parameter in `BF16` are rounded up or down at random, by the engine's random
    /// numbers, so that they are kept on average.
    Stochastic,
}

/// How an optimizer holds its moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Moments {
    /// In `F32`.
    #[default]
    F32,
    /// In a byte each, with a scale in `F32` for each 256 of them, as `bitsandbytes.optim.AdamW8bit`: see
    /// [`highwater_ops::Moments::Int8`]. A choice that changes numbers a little.
    Int8,
}

impl Master {
    /// What a parameter of a dtype has if nothing is asked for; none if it needs none.
    fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::BF16 => Some(Self::Split),
            DType::F16 => Some(Self::F32),
            _ => None,
        }
    }
}

/// The forms in which a parameter of a dtype and its moments are held.
///
/// # Errors
/// What is wrong, where there is no such form of this dtype.
pub(super) fn formats(
    dtype: DType,
    master: Option<Master>,
    moments: Moments,
) -> Result<Formats, String> {
    let default = Master::of(dtype);
    let master = match default.and(master).or(default) {
        Some(master @ (Master::Split | Master::Stochastic)) if dtype != DType::BF16 => {
            return Err(format!(
                "Master::{master:?} is for parameters in bfloat16, not {dtype}: take Master::F32"
            ));
        }
        None => ops::Master::None,
        Some(Master::F32) => ops::Master::F32,
        Some(Master::Split) => ops::Master::Split,
        Some(Master::Stochastic) => ops::Master::Stochastic(ops::Draws::default()),
    };
    let moments = match moments {
        Moments::Int8 if dtype == DType::F64 => {
            return Err(format!(
                "Moments::Int8 is for parameters of up to 32 bits, not {dtype}"
            ));
        }
        Moments::F32 => ops::Moments::Float,
        Moments::Int8 => ops::Moments::Int8,
    };
    Ok(Formats {
        master,
        moments,
        step: 0,
    })
}

/// The cells beside a piece of a parameter; none of what is never trained.
pub(super) fn cells(
    formats: &Formats,
    dtype: DType,
    shape: &Shape,
    moments: &[&str],
) -> Vec<StateCell> {
    if !dtype.is_float() {
        return Vec::new();
    }
    formats.cells(dtype, shape, moments)
}

/// The same forms after so many updates, with random bits from a stream of the engine's, behind so many
/// elements.
pub(super) fn drawing(
    formats: Formats,
    step: u64,
    (seed, offset): (u64, u64),
    start: usize,
) -> Formats {
    let start = start as u64;
    let draws = ops::Draws {
        seed,
        offset,
        start,
    };
    let master = match formats.master {
        ops::Master::Stochastic(_) => ops::Master::Stochastic(draws),
        other => other,
    };
    Formats {
        master,
        step,
        ..formats
    }
}
