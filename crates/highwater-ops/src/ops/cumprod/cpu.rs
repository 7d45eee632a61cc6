//! The kernels. That of floats: a row at a time along the last dimension, a tile of lines along others, as `cumsum`.
//!
//! The gradient goes over a line twice: from its end for `s`, which lies over `g`, and from its start for what is
//! before each factor.

use super::{CumProd, CumProdBackward};
use crate::kernels::blocks::BLOCK;
use crate::kernels::lines::{OfLine, OfPair};
use crate::kernels::simd::multiversion;
use crate::kernels::whole::{Whole, running};
use crate::{Args, KernelError, op_as};
use highwater_graph::Op;

impl OfLine for CumProd {
    fn dim(&self) -> usize {
        self.dim
    }

    fn row(&self, x: &mut [f32]) {
        let mut product = 1.0_f64;
        for x in x {
            product *= f64::from(*x);
            *x = product as f32;
        }
    }

    fn columns(&self, x: &mut [f32], width: usize) {
        let mut products = [1.0; BLOCK];
        let products = &mut products[..width];
        let rows = x.chunks_exact_mut(width);
        rows.for_each(|row| multiply(products, row));
    }
}

impl OfPair for CumProdBackward {
    fn dim(&self) -> usize {
        self.dim
    }

    fn row(&self, g: &mut [f32], x: &[f32]) {
        let mut behind = 0.0;
        for (g, &x) in g.iter_mut().zip(x).rev() {
            let sum = f64::from(*g) + behind;
            *g = sum as f32;
            behind = sum * f64::from(x);
        }
        let mut before = 1.0;
        for (g, &x) in g.iter_mut().zip(x) {
            *g = (f64::from(*g) * before) as f32;
            before *= f64::from(x);
        }
    }

    fn columns(&self, g: &mut [f32], x: &[f32], width: usize) {
        let mut behind = [0.0; BLOCK];
        let pairs = g.chunks_exact_mut(width).zip(x.chunks_exact(width));
        pairs
            .rev()
            .for_each(|(g, x)| add_behind(&mut behind[..width], g, x));
        let mut before = [1.0; BLOCK];
        let pairs = g.chunks_exact_mut(width).zip(x.chunks_exact(width));
        pairs.for_each(|(g, x)| scale_by_before(&mut before[..width], g, x));
    }
}

multiversion! {
    /// Multiplies products by a row, and leaves them there.
    fn multiply[I](products: &mut [f64], x: &mut [f32]) {
        for (product, x) in products.iter_mut().zip(x) {
            *product *= f64::from(*x);
            *x = *product as f32;
        }
    }
}

multiversion! {
    /// Adds what comes of the rows behind.
    fn add_behind[I](behind: &mut [f64], g: &mut [f32], x: &[f32]) {
        for ((behind, g), &x) in behind.iter_mut().zip(g).zip(x) {
            let sum = f64::from(*g) + *behind;
            *g = sum as f32;
            *behind = sum * f64::from(x);
        }
    }
}

multiversion! {
    /// Multiplies by the product of the rows before.
    fn scale_by_before[I](before: &mut [f64], g: &mut [f32], x: &[f32]) {
        for ((before, g), &x) in before.iter_mut().zip(g).zip(x) {
            *g = (f64::from(*g) * *before) as f32;
            *before *= f64::from(x);
        }
    }
}

/// Running products of whole numbers.
pub(super) fn wholes<T: Whole>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let dim = op_as::<CumProd>(op)?.dim;
    running::<T>(args, dim, false, i64::wrapping_mul)
}
