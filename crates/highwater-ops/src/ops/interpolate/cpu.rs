//! The fast kernels: an image at a time.
//!
//! A task is an image of one channel. What a column is made of (two pixels, and the share of the second) is
//! worked out once for all rows of all images, and what a row is made of once a row: the innermost loop is
//! arithmetic and look-ups in two rows of the image, which stay in the first cache. Gradients of an image are
//! added by one thread, row after row, in `f32`, and rounded once.

#![expect(unsafe_code, reason = "tasks write images of their own")]

use super::{Between, Interpolate, InterpolateBackward, Interpolation, sides};
use crate::kernels::blocks::Reader;
use crate::kernels::float::{Float, as_f32_mut, is_f32};
use crate::{Args, Disjoint, Kernel, KernelError, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Keeps what columns are made of in scratch memory, and rows that are read.
pub(super) struct ForwardKernel<T>(pub(super) PhantomData<fn() -> T>);

/// Keeps what columns are made of in scratch memory, a row, and the sums of an image that is not `f32`.
pub(super) struct BackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

/// What a column is made of.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Column {
    first: u32,
    second: u32,
    share: f32,
}

/// Words of a column.
const COLUMN: usize = size_of::<Column>() / size_of::<f32>();

/// What columns are made of, and the rest of scratch memory.
fn columns<'a>(
    op: &Interpolate,
    width: usize,
    scratch: &'a mut [u8],
) -> (&'a [Column], &'a mut [f32]) {
    let scratch: &mut [f32] = bytemuck::cast_slice_mut(scratch);
    let (columns, rest) = scratch.split_at_mut(COLUMN * op.size[1]);
    let columns: &mut [Column] = bytemuck::cast_slice_mut(columns);
    for (at, column) in columns.iter_mut().enumerate() {
        let Between {
            first,
            second,
            share,
        } = op.between(1, at, width);
        *column = Column {
            first: first as u32,
            second: second as u32,
            share: share as f32,
        };
    }
    (columns, rest)
}

/// Words of scratch memory of a thread that makes images.
fn staged<T: Float>(x: &Spec, y: &Spec) -> usize {
    let row = if is_f32::<T>() { 0 } else { y.shape()[3] };
    2 * x.shape()[3] + row
}

impl<T: Float> Kernel for ForwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, x: &[Spec], y: &[Spec], threads: usize) -> u64 {
        let words = COLUMN * y[0].shape()[3] + threads * staged::<T>(&x[0], &y[0]);
        (words * size_of::<f32>()) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op: &Interpolate = op_as(op)?;
        let (x, y) = (&args.inputs[0], &mut args.outputs[0]);
        let (staged, [height, width]) = (staged::<T>(x.spec(), y.spec()), sides(x.dims()));
        let (columns, staging) = columns(op, width, args.scratch);
        let x = Reader::<T>::new(x)?;
        let [rows, cols] = op.size;
        let images = y.numel() / (rows * cols);
        let (y, staging) = (Disjoint::new(y.slice_mut::<T>()?), Disjoint::new(staging));
        args.pool.for_each_on_thread(images, |index, thread| {
            // SAFETY: a thread works on one image at a time, and an image is visited once.
            let (y, staging) = unsafe {
                let len = rows * cols;
                (
                    y.part(index * len, len),
                    staging.part(thread * staged, staged),
                )
            };
            let (buffers, row) = staging.split_at_mut(2 * width);
            let (above, below) = buffers.split_at_mut(width);
            for (at, y) in y.chunks_exact_mut(cols).enumerate() {
                let between = op.between(0, at, height);
                let line = |row: usize| (index * height + row) * width;
                let above = x.read(line(between.first), above);
                let below = x.read(line(between.second), below);
                let make = |y: &mut [f32]| match op.mode {
                    Interpolation::Nearest => {
                        for (y, column) in y.iter_mut().zip(columns) {
                            *y = above[column.first as usize];
                        }
                    }
                    Interpolation::Bilinear { .. } => {
                        mix(y, columns, [above, below], between.share as f32);
                    }
                };
                if let Some(y) = as_f32_mut(y) {
                    make(y);
                } else {
                    make(row);
                    T::round(row, y);
                }
            }
        });
        Ok(())
    }
}

/// A row of pixels of the four around each.
fn mix(y: &mut [f32], columns: &[Column], [above, below]: [&[f32]; 2], down: f32) {
    for (y, column) in y.iter_mut().zip(columns) {
        let (first, second) = (column.first as usize, column.second as usize);
        let across = |row: &[f32]| (1.0 - column.share) * row[first] + column.share * row[second];
        *y = (1.0 - down) * across(above) + down * across(below);
    }
}

/// Words of scratch memory of a thread that adds up gradients of images.
fn summed<T: Float>(g: &Spec, dx: &Spec) -> usize {
    let image = if is_f32::<T>() {
        0
    } else {
        dx.shape()[2] * dx.shape()[3]
    };
    g.shape()[3] + image
}

impl<T: Float> Kernel for BackwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, g: &[Spec], dx: &[Spec], threads: usize) -> u64 {
        let words = COLUMN * g[0].shape()[3] + threads * summed::<T>(&g[0], &dx[0]);
        (words * size_of::<f32>()) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let InterpolateBackward { forward, sides } = op_as(op)?;
        let (g, dx) = (&args.inputs[0], &mut args.outputs[0]);
        let (summed, [height, width]) = (summed::<T>(g.spec(), dx.spec()), *sides);
        let (columns, staging) = columns(forward, width, args.scratch);
        let g = Reader::<T>::new(g)?;
        let [rows, cols] = forward.size;
        let images = dx.numel() / (height * width);
        let (dx, staging) = (Disjoint::new(dx.slice_mut::<T>()?), Disjoint::new(staging));
        args.pool.for_each_on_thread(images, |index, thread| {
            // SAFETY: a thread works on one image at a time, and an image is visited once.
            let (dx, staging) = unsafe {
                let len = height * width;
                (
                    dx.part(index * len, len),
                    staging.part(thread * summed, summed),
                )
            };
            let (row, sums) = staging.split_at_mut(cols);
            let add = |dx: &mut [f32], row: &mut [f32]| {
                dx.fill(0.0);
                for at in 0..rows {
                    let g = g.read((index * rows + at) * cols, row);
                    spread(dx, width, forward, (at, height), columns, g);
                }
            };
            if let Some(dx) = as_f32_mut(dx) {
                add(dx, row);
            } else {
                add(sums, row);
                T::round(sums, dx);
            }
        });
        Ok(())
    }
}

/// Adds the gradients of a row of the result to those of the pixels that it is made of.
fn spread(
    dx: &mut [f32],
    width: usize,
    op: &Interpolate,
    (at, height): (usize, usize),
    columns: &[Column],
    g: &[f32],
) {
    let between = op.between(0, at, height);
    if op.mode == Interpolation::Nearest {
        let dx = &mut dx[between.first * width..][..width];
        for (g, column) in g.iter().zip(columns) {
            dx[column.first as usize] += g;
        }
        return;
    }
    let down = between.share as f32;
    for (row, share) in [(between.first, 1.0 - down), (between.second, down)] {
        let dx = &mut dx[row * width..][..width];
        for (g, column) in g.iter().zip(columns) {
            let g = share * g;
            dx[column.first as usize] += (1.0 - column.share) * g;
            dx[column.second as usize] += column.share * g;
        }
    }
}
