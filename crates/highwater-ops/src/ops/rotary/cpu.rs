//! The fast kernel: a row at a time, in place.
//!
//! A row reads its cosines and sines where they lie dense, which are in the second cache from the head
//! before; both halves of a pair are made from registers, so that nothing is moved but `x` itself. A task is
//! as many rows as come to 32,768 elements, nothing is summed, and one loop over slices is what the compiler
//! makes vectors of. It runs at 70% of the pace of a copy (BENCHMARKS.md).

#![expect(unsafe_code, reason = "threads have buffers of their own")]

use super::{NAME, Rotary, expanded};
use crate::device::in_place;
use crate::kernels::blocks::{Reader, map_rows, row_bytes};
use crate::kernels::float::Float;
use crate::kernels::simd::multiversion;
use crate::{Args, Disjoint, Kernel, KernelError, Pairs, View, op_as};
use highwater_graph::{Op, Shape, Spec};
use std::marker::PhantomData;

/// May overwrite its input. Keeps in scratch memory rows of the tables and, for narrow types, of `x`, for
/// each thread.
pub(super) struct RotaryKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for RotaryKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let last = |spec: &Spec| spec.shape().last().copied().unwrap_or(1);
        let tables = (2 * last(&inputs[1]) * threads * size_of::<f32>()) as u64;
        tables + row_bytes::<T>(last(&inputs[0]), threads)
    }

    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(&inputs[..1], outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op: Rotary = *op_as(op)?;
        let ([x, cos, sin], [y]) = (&*args.inputs, &mut *args.outputs) else {
            return Err(KernelError::WrongOp { op: NAME });
        };
        let half = cos.dims().last().copied().unwrap_or(0);
        let tables = [
            Table::new(cos, x.spec().shape())?,
            Table::new(sin, x.spec().shape())?,
        ];
        let scratch: &mut [f32] = bytemuck::cast_slice_mut(args.scratch);
        let (buffers, staging) = scratch.split_at_mut(2 * half * args.pool.threads());
        let buffers = Disjoint::new(buffers);
        map_rows::<T>(args.pool, x, y, staging, &|thread, row, data| {
            // SAFETY: a thread works on one row at a time.
            let buffers = unsafe { buffers.part(thread * 2 * half, 2 * half) };
            let (cos_buffer, sin_buffer) = buffers.split_at_mut(half);
            let cos = tables[0].row(row, cos_buffer);
            let sin = tables[1].row(row, sin_buffer);
            let sign = if op.inverse { -1.0 } else { 1.0 };
            let data = &mut data[..2 * half];
            if op.interleaved {
                rotate_neighbours(data.as_chunks_mut().0, cos, sin, sign);
            } else {
                let (a, b) = data.split_at_mut(half);
                rotate_halves(a, b, cos, sin, sign);
            }
        })
    }
}

/// Cosines or sines in the order of `x`'s rows.
struct Table<'a> {
    reader: Reader<'a, f32>,
    half: usize,
    /// After so many rows they come again.
    rows: usize,
}

impl<'a> Table<'a> {
    fn new(view: &'a View<'_>, x: &Shape) -> Result<Self, KernelError> {
        let (&half, own) = view.dims().split_last().unwrap_or((&0, &[]));
        let rows = x.split_last().map_or(&[][..], |(_, rows)| rows);
        if rows.ends_with(own) {
            // Rows that lie one after the other are read where they lie.
            let (reader, rows) = (Reader::new(view)?, own.iter().product());
            return Ok(Self { reader, half, rows });
        }
        let layout = expanded(view.spec(), x).ok_or_else(|| KernelError::Unsupported {
            expected: "a broadcast",
            got: format!("{:?}", view.layout()),
        })?;
        Ok(Self {
            reader: Reader::through(view, &layout)?,
            half,
            rows: rows.iter().product(),
        })
    }

    fn row<'b>(&'b self, row: usize, buffer: &'b mut [f32]) -> &'b [f32] {
        if self.half == 0 {
            return &[];
        }
        self.reader.read(row % self.rows * self.half, buffer)
    }
}

multiversion! {
    /// Rotates pairs of an element of each half.
    fn rotate_halves[I](a: &mut [f32], b: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
        for ((a, b), (&cos, &sin)) in a.iter_mut().zip(b).zip(cos.iter().zip(sin)) {
            let sin = sign * sin;
            (*a, *b) = (I::fma(*a, cos, -(*b * sin)), I::fma(*b, cos, *a * sin));
        }
    }
}

multiversion! {
    /// Rotates pairs of neighbours.
    fn rotate_neighbours[I](pairs: &mut [[f32; 2]], cos: &[f32], sin: &[f32], sign: f32) {
        for ([a, b], (&cos, &sin)) in pairs.iter_mut().zip(cos.iter().zip(sin)) {
            let sin = sign * sin;
            (*a, *b) = (I::fma(*a, cos, -(*b * sin)), I::fma(*b, cos, *a * sin));
        }
    }
}
