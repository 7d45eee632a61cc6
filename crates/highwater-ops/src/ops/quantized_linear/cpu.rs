//! The kernels: products by a factor that is decoded as it is packed.
//!
//! `gemm` blocks, sums and holds in registers what it does of any product; the weight differs in how it is
//! packed alone. A task that packs has the rows and columns that it packs decoded, a block of 64 numbers at a
//! time through 256 bytes on the stack, in memory that the pool keeps: the weight is never there in another
//! form, and bits are those of a product by the decoded one. What decoding takes of a product has not been
//! measured.

use super::{QuantizedLinear, QuantizedLinearBackward, WeightFormat};
use crate::kernels::float::Float;
use crate::kernels::gemm::{Coded, Factor, MatMut, Plus, gemm_coded};
use crate::ops::linear::{each_matrix, staging_bytes};
use crate::{Args, Kernel, KernelError, View, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;
use std::ops::Range;

/// Codes and scales of a weight, row after row.
struct Weight<'a> {
    format: WeightFormat,
    width: usize,
    codes: &'a [u8],
    scales: &'a [f32],
}

impl<'a> Weight<'a> {
    fn new(
        format: WeightFormat,
        width: usize,
        codes: &'a View<'_>,
        scales: &'a View<'_>,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            format,
            width,
            codes: codes.slice()?,
            scales: scales.slice()?,
        })
    }

    /// Decodes some rows and columns to elements of `T`.
    fn decode<T: Float>(&self, rows: Range<usize>, columns: Range<usize>, to: &mut [u8]) {
        let to: &mut [T] = bytemuck::cast_slice_mut(to);
        let (bytes, scales) = (
            self.format.row_bytes(self.width),
            WeightFormat::scales(self.width),
        );
        let mut block = [0.0; WeightFormat::BLOCK];
        for (row, to) in rows.zip(to.chunks_exact_mut(columns.len().max(1))) {
            let codes = &self.codes[row * bytes..][..bytes];
            let scales = &self.scales[row * scales..][..scales];
            let (mut at, mut to) = (columns.start, to);
            while at < columns.end {
                let i = at / WeightFormat::BLOCK;
                let len = columns.end.min((i + 1) * WeightFormat::BLOCK) - at;
                let (now, later) = to.split_at_mut(len);
                self.format.decode(codes, scales[i], at, &mut block[..len]);
                T::round(&block[..len], now);
                (at, to) = (at + len, later);
            }
        }
    }
}

/// Multiplies all rows of the first input by the weight, or by its transpose.
fn multiply<T: Float>(
    args: &mut Args<'_>,
    (format, width): (WeightFormat, usize),
    transposed: bool,
) -> Result<(), KernelError> {
    let inputs = &*args.inputs;
    let weight = Weight::new(format, width, &inputs[1], &inputs[2])?;
    let decode = |rows, columns, to: &mut [u8]| weight.decode::<T>(rows, columns, to);
    let outs = inputs[1].dims()[0];
    let factor = Coded::<T>::new(&decode, [outs, width]);
    let factor = if transposed { factor.t() } else { factor };
    let cols = if transposed { outs } else { width };
    let out = args.outputs[0].slice_mut::<T>()?;
    let staging: &mut [f32] = bytemuck::cast_slice_mut(args.scratch);
    each_matrix(&inputs[0], out, cols, |out: MatMut<'_, T>, x| {
        let (x, factor) = (Factor::Plain(x), Factor::Coded(factor));
        gemm_coded(args.pool, out, x, factor, Plus::Nothing, staging);
    })
}

/// `y = x wᵀ`.
pub(super) struct Forward<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for Forward<T> {
    fn scratch_bytes(&self, _: &dyn Op, _: &[Spec], outputs: &[Spec], _threads: usize) -> u64 {
        staging_bytes::<T>(&outputs[0])
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let QuantizedLinear { format, width } = *op_as(op)?;
        multiply::<T>(args, (format, width), true)
    }
}

/// `dx = g w`.
pub(super) struct Backward<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for Backward<T> {
    fn scratch_bytes(&self, _: &dyn Op, _: &[Spec], outputs: &[Spec], _threads: usize) -> u64 {
        staging_bytes::<T>(&outputs[0])
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let QuantizedLinearBackward { format, width } = *op_as(op)?;
        multiply::<T>(args, (format, width), false)
    }
}
