//! The second derivative, from other operations: for gradients of gradients alone.

use super::GeluApproximate;
use crate::{Add, AddScalar, Exp, Mul, MulScalar, Neg, Sigmoid, Square, Sub};
use highwater_graph::{Backward, OpError, Operand};
use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

/// Emits `d^2 (x Phi(x)) / dx^2`.
pub(super) fn emit(
    backward: &mut Backward<'_>,
    approximate: GeluApproximate,
    x: Operand,
) -> Result<Operand, OpError> {
    match approximate {
        GeluApproximate::None => exact(backward, x),
        GeluApproximate::Tanh => by_tanh(backward, &x),
    }
}

fn scaled(backward: &mut Backward<'_>, x: &Operand, value: f64) -> Result<Operand, OpError> {
    backward.emit_one(MulScalar { value }, std::slice::from_ref(x))
}

fn plus(backward: &mut Backward<'_>, x: &Operand, value: f64) -> Result<Operand, OpError> {
    backward.emit_one(AddScalar { value }, std::slice::from_ref(x))
}

fn times(backward: &mut Backward<'_>, a: &Operand, b: &Operand) -> Result<Operand, OpError> {
    backward.emit_one(Mul, &[a.clone(), b.clone()])
}

/// The density times `2 - x^2`.
fn exact(backward: &mut Backward<'_>, x: Operand) -> Result<Operand, OpError> {
    let square = backward.emit_one(Square, &[x])?;
    let exponent = scaled(backward, &square, -0.5)?;
    let bell = backward.emit_one(Exp, &[exponent])?;
    let density = scaled(backward, &bell, FRAC_2_SQRT_PI / (2.0 * SQRT_2))?;
    let rest = scaled(backward, &square, -1.0)?;
    let rest = plus(backward, &rest, 2.0)?;
    times(backward, &density, &rest)
}

/// With `f = x s(z)`, `z = x (L + C x^2)` and the sigmoid `s`: `s(z) s(-z) (2 z' + x z'' + x z'^2 (s(-z) -
/// s(z)))`. Products of two sigmoids are right far from zero too, where one less the other is not.
fn by_tanh(backward: &mut Backward<'_>, x: &Operand) -> Result<Operand, OpError> {
    const LINEAR: f64 = 2.0 * FRAC_2_SQRT_PI / SQRT_2;
    const CUBIC: f64 = 0.044_715 * LINEAR;
    let square = backward.emit_one(Square, std::slice::from_ref(x))?;
    let z = scaled(backward, &square, CUBIC)?;
    let z = plus(backward, &z, LINEAR)?;
    let z = times(backward, &z, x)?;
    let right = backward.emit_one(Sigmoid, std::slice::from_ref(&z))?;
    let negative = backward.emit_one(Neg, &[z])?;
    let left = backward.emit_one(Sigmoid, &[negative])?;
    let slope = scaled(backward, &square, 3.0 * CUBIC)?;
    let slope = plus(backward, &slope, LINEAR)?;
    // 2 z' + x z'' = 2 L + 12 C x^2
    let sum = scaled(backward, &square, 12.0 * CUBIC)?;
    let sum = plus(backward, &sum, 2.0 * LINEAR)?;
    let slope_square = backward.emit_one(Square, &[slope])?;
    let tilt = backward.emit_one(Sub, &[left.clone(), right.clone()])?;
    let tilt = times(backward, &tilt, x)?;
    let tilt = times(backward, &tilt, &slope_square)?;
    let inner = backward.emit_one(Add, &[sum, tilt])?;
    let bell = times(backward, &left, &right)?;
    times(backward, &bell, &inner)
}
