//! What parameters are filled with, by PyTorch's names: `torch.nn.init`.
//!
//! All write to a parameter in place, rounded to its float type, and draw from the engine's random numbers:
//! the same seed and calls give the same bits. They fail where something pending uses the parameter, or where
//! it does not hold floats.
//!
//! ```
//! use highwater::nn::init::{self, FanMode, Nonlinearity};
//! use highwater::{nn::Linear, prelude::*};
//!
//! # fn main() -> Result<()> {
//! let engine = Engine::builder().memory(128 << 20).seed(3).build()?;
//! let layer = Linear::new(&engine, 64, 32, true)?;
//! init::kaiming_normal_(&layer.weight, FanMode::FanIn, Nonlinearity::Relu)?;
//! if let Some(bias) = &layer.bias {
//!     init::zeros_(bias)?;
//! }
//! # Ok(())
//! # }
//! ```

use crate::Result;
use crate::error::usage_error;
use crate::tensor::parameter::Parameter;
use highwater_graph::Location;
use highwater_ops::philox::Deviates;
use std::f64::consts::SQRT_2;

/// What follows a layer: by how much it changes variances, [`calculate_gain`] says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Nonlinearity {
    /// Nothing.
    Linear,
    /// `sigmoid`.
    Sigmoid,
    /// `tanh`.
    Tanh,
    /// `relu`.
    Relu,
    /// `leaky_relu` of this slope below 0. With a slope of 0 what `torch.nn.init` has by default.
    LeakyRelu(f64),
    /// `selu`.
    Selu,
}

/// Which number of connections keeps its variance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FanMode {
    /// That of inputs: of activations, forward.
    #[default]
    FanIn,
    /// That of outputs: of gradients, backward.
    FanOut,
}

/// What standard deviations are multiplied by before a nonlinearity, as `torch.nn.init.calculate_gain`.
pub fn calculate_gain(nonlinearity: Nonlinearity) -> f64 {
    match nonlinearity {
        Nonlinearity::Linear | Nonlinearity::Sigmoid => 1.0,
        Nonlinearity::Tanh => 5.0 / 3.0,
        Nonlinearity::Relu => SQRT_2,
        Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        Nonlinearity::Selu => 0.75,
    }
}

/// Uniform deviates from `a` up and below `b`. In PyTorch 0 and 1 by default.
///
/// # Errors
/// [`crate::Error::Usage`] as said above, and unless `a` is at most `b`.
#[track_caller]
pub fn uniform_(parameter: &Parameter, a: f64, b: f64) -> Result<()> {
    if a > b || !(b - a).is_finite() {
        let message = format!("uniform_: a must be at most b, not {a} and {b}");
        return Err(usage_error(message, Location::caller()));
    }
    let (low, width) = (a as f32, (b - a) as f32);
    parameter.redraw(false, |x| low + width * x)
}

/// Normal deviates. In PyTorch of mean 0 and standard deviation 1 by default.
///
/// # Errors
/// [`crate::Error::Usage`] as said above, and for a standard deviation below 0.
#[track_caller]
pub fn normal_(parameter: &Parameter, mean: f64, std: f64) -> Result<()> {
    check_std("normal_", std)?;
    let (mean, std) = (mean as f32, std as f32);
    parameter.redraw(true, |x| mean + std * x)
}

/// Normal deviates of a mean and a standard deviation that lie between `a` and `b`. In PyTorch 0, 1, -2 and 2
/// by default.
///
/// # Errors
/// [`crate::Error::Usage`] as said above, for a standard deviation below 0, and unless `a` is at most `b`.
#[track_caller]
pub fn trunc_normal_(parameter: &Parameter, mean: f64, std: f64, a: f64, b: f64) -> Result<()> {
    check_std("trunc_normal_", std)?;
    if a.is_nan() || b.is_nan() || a > b {
        let message = format!("trunc_normal_: a must be at most b, not {a} and {b}");
        return Err(usage_error(message, Location::caller()));
    }
    if std == 0.0 {
        return constant_(parameter, mean.clamp(a, b));
    }
    // By the inverse of the distribution: uniform between what it is at the ends.
    let (low, high) = (
        erf((a - mean) / (std * SQRT_2)),
        erf((b - mean) / (std * SQRT_2)),
    );
    let draw = |x: f32| {
        let at = low + (high - low) * f64::from(x);
        (mean + std * SQRT_2 * erf_inverse(at)).clamp(a, b) as f32
    };
    parameter.redraw(false, draw)
}

/// One number everywhere.
///
/// # Errors
/// [`crate::Error::Usage`] as said above.
#[track_caller]
pub fn constant_(parameter: &Parameter, value: f64) -> Result<()> {
    parameter.refill(|piece| piece.fill(value as f32))
}

/// Zeros.
///
/// # Errors
/// [`crate::Error::Usage`] as said above.
#[track_caller]
pub fn zeros_(parameter: &Parameter) -> Result<()> {
    constant_(parameter, 0.0)
}

/// Ones.
///
/// # Errors
/// [`crate::Error::Usage`] as said above.
#[track_caller]
pub fn ones_(parameter: &Parameter) -> Result<()> {
    constant_(parameter, 1.0)
}

/// Ones on the diagonal of a matrix, zeros elsewhere.
///
/// # Errors
/// [`crate::Error::Usage`] as said above, and for what is no matrix.
#[track_caller]
pub fn eye_(parameter: &Parameter) -> Result<()> {
    let &[_, columns] = parameter.dims() else {
        let message = format!("eye_ is for a matrix, not for {}", parameter.shape());
        return Err(usage_error(message, Location::caller()));
    };
    let mut at = 0;
    parameter.refill(|piece| {
        for x in piece.iter_mut() {
            *x = f32::from(u8::from(at / columns == at % columns));
            at += 1;
        }
    })
}

/// Glorot's uniform deviates (2010), within `gain sqrt(6 / (fan_in + fan_out))`. In PyTorch the gain is 1 by
/// default.
///
/// # Errors
/// [`crate::Error::Usage`] as said above, and for less than two dimensions.
#[track_caller]
pub fn xavier_uniform_(parameter: &Parameter, gain: f64) -> Result<()> {
    let (fan_in, fan_out) = fans("xavier_uniform_", parameter)?;
    let bound = gain * (6.0 / (fan_in + fan_out)).sqrt();
    uniform_(parameter, -bound.abs(), bound.abs())
}

/// Glorot's normal deviates (2010), of standard deviation `gain sqrt(2 / (fan_in + fan_out))`. In PyTorch the
/// gain is 1 by default.
///
/// # Errors
/// As [`xavier_uniform_`].
#[track_caller]
pub fn xavier_normal_(parameter: &Parameter, gain: f64) -> Result<()> {
    let (fan_in, fan_out) = fans("xavier_normal_", parameter)?;
    normal_(
        parameter,
        0.0,
        (gain * (2.0 / (fan_in + fan_out)).sqrt()).abs(),
    )
}

/// He's uniform deviates (2015), within `gain sqrt(3 / fan)`. In PyTorch by default [`FanMode::FanIn`] and
/// [`Nonlinearity::LeakyRelu`] of slope 0.
///
/// # Errors
/// As [`xavier_uniform_`].
#[track_caller]
pub fn kaiming_uniform_(
    parameter: &Parameter,
    mode: FanMode,
    nonlinearity: Nonlinearity,
) -> Result<()> {
    let std = kaiming_std("kaiming_uniform_", parameter, mode, nonlinearity)?;
    let bound = 3.0_f64.sqrt() * std;
    uniform_(parameter, -bound, bound)
}

/// He's normal deviates (2015), of standard deviation `gain / sqrt(fan)`. In PyTorch by default
/// [`FanMode::FanIn`] and [`Nonlinearity::LeakyRelu`] of slope 0.
///
/// # Errors
/// As [`xavier_uniform_`].
#[track_caller]
pub fn kaiming_normal_(
    parameter: &Parameter,
    mode: FanMode,
    nonlinearity: Nonlinearity,
) -> Result<()> {
    let std = kaiming_std("kaiming_normal_", parameter, mode, nonlinearity)?;
    normal_(parameter, 0.0, std)
}

/// An orthogonal matrix (Saxe et al. 2014) times `gain`, drawn evenly from all; of more dimensions all but the
/// first are columns. Its rows are orthonormal, or its columns where those are fewer. Takes 8 bytes on the heap
/// for each element meanwhile, and two passes of Gram and Schmidt. In PyTorch the gain is 1 by default.
///
/// # Errors
/// [`crate::Error::Usage`] as said above, and for less than two dimensions.
#[track_caller]
pub fn orthogonal_(parameter: &Parameter, gain: f64) -> Result<()> {
    let shape = parameter.shape();
    if shape.rank() < 2 {
        let message = format!("orthogonal_ is for two dimensions or more, not for {shape}");
        return Err(usage_error(message, Location::caller()));
    }
    let rows = shape[0];
    let columns = shape.numel().checked_div(rows).unwrap_or(0);
    let (vectors, length) = (rows.min(columns), rows.max(columns));
    let (seed, offset) = parameter.engine().lock().next_random();
    let mut drawn = vec![0.0_f32; vectors * length];
    Deviates::new(seed, offset, true).fill(&mut drawn);
    let mut basis: Vec<f64> = drawn.into_iter().map(f64::from).collect();
    orthonormalise(&mut basis, length.max(1));
    let mut at = 0;
    parameter.refill(|piece| {
        for x in piece.iter_mut() {
            let (row, column) = (at / columns, at % columns);
            let held = if rows > columns {
                basis[column * length + row]
            } else {
                basis[row * length + column]
            };
            *x = (gain * held) as f32;
            at += 1;
        }
    })
}

/// Makes rows orthonormal, one after the other. Twice, since what rounding leaves of the others in a row is
/// large where little is left of the row.
fn orthonormalise(basis: &mut [f64], length: usize) {
    for row in 0..basis.len() / length {
        let (before, rest) = basis.split_at_mut(row * length);
        let this = &mut rest[..length];
        for _ in 0..2 {
            for other in before.chunks(length) {
                let dot: f64 = this.iter().zip(other).map(|(a, b)| a * b).sum();
                for (a, b) in this.iter_mut().zip(other) {
                    *a -= dot * b;
                }
            }
        }
        let norm = this.iter().map(|a| a * a).sum::<f64>().sqrt();
        for a in this.iter_mut() {
            *a /= norm;
        }
    }
}

#[track_caller]
fn check_std(name: &str, std: f64) -> Result<()> {
    if std >= 0.0 && std.is_finite() {
        return Ok(());
    }
    let message = format!("{name}: the standard deviation must be a number from 0 up, not {std}");
    Err(usage_error(message, Location::caller()))
}

/// Inputs and outputs of a weight `[out, in, ..]`; dimensions behind are those of a kernel.
#[track_caller]
fn fans(name: &str, parameter: &Parameter) -> Result<(f64, f64)> {
    let &[outputs, inputs, ref kernel @ ..] = parameter.dims() else {
        let message = format!(
            "{name} is for two dimensions or more, not for {}",
            parameter.shape()
        );
        return Err(usage_error(message, Location::caller()));
    };
    let field = kernel.iter().product::<usize>();
    Ok(((inputs * field) as f64, (outputs * field) as f64))
}

#[track_caller]
fn kaiming_std(
    name: &str,
    parameter: &Parameter,
    mode: FanMode,
    nonlinearity: Nonlinearity,
) -> Result<f64> {
    let (fan_in, fan_out) = fans(name, parameter)?;
    let fan = match mode {
        FanMode::FanIn => fan_in,
        FanMode::FanOut => fan_out,
    };
    // Of no elements nothing is filled.
    Ok(calculate_gain(nonlinearity) / fan.max(1.0).sqrt())
}

/// The error function, by a series near 0 and a continued fraction elsewhere.
fn erf(x: f64) -> f64 {
    let magnitude = x.abs();
    if magnitude > 6.0 {
        return 1.0_f64.copysign(x);
    }
    if magnitude < 3.0 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term.abs() > 1e-17 * sum.abs() {
            n += 1.0;
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..=60)
        .rev()
        .fold(magnitude, |below, k| magnitude + f64::from(k) / 2.0 / below);
    let tail = (-x * x).exp() / (fraction * std::f64::consts::PI.sqrt());
    (1.0 - tail).copysign(x)
}

/// Where the error function has a value: a guess by Winitzki's formula, made right by Newton's steps.
fn erf_inverse(y: f64) -> f64 {
    if y.abs() >= 1.0 {
        return f64::INFINITY.copysign(y);
    }
    let a = 0.147;
    let log = (1.0 - y * y).ln();
    let b = 2.0 / (std::f64::consts::PI * a) + log / 2.0;
    let mut x = ((b * b - log / a).sqrt() - b).sqrt().copysign(y);
    for _ in 0..3 {
        let slope = std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp();
        if slope > 0.0 {
            x -= (erf(x) - y) / slope;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_and_its_inverse() {
        // From the C library.
        for (x, y) in [
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (2.999, 0.999_977_769_831_4),
            (3.001, 0.999_978_048_339_082),
            (3.5, 0.999_999_256_901_627_7),
        ] {
            assert!((erf(x) - y).abs() < 1e-12, "{x}: {}", erf(x));
            assert!((erf(-x) + y).abs() < 1e-12);
        }
        for y in [-0.999_999, -0.9, -0.1, 1e-9, 0.3, 0.95, 0.999_99] {
            assert!((erf(erf_inverse(y)) - y).abs() < 1e-12, "{y}");
        }
        assert!(erf_inverse(0.0) == 0.0 && erf_inverse(1.0) == f64::INFINITY);
    }

    #[test]
    fn gains_are_those_of_pytorch() {
        let gains = [
            (Nonlinearity::Linear, 1.0),
            (Nonlinearity::Tanh, 1.666_666_666_666_666_7),
            (Nonlinearity::Relu, 2.0_f64.sqrt()),
            (Nonlinearity::LeakyRelu(0.2), 1.386_750_490_563_073),
            (Nonlinearity::Selu, 0.75),
        ];
        for (of, gain) in gains {
            assert!((calculate_gain(of) - gain).abs() < 1e-12, "{of:?}");
        }
    }
}
