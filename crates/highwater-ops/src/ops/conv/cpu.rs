//! The fast kernels: products whose factors are made of pixels as they are packed.
//!
//! A convolution is one product for each group, of the weight by a factor that has a row for each channel and
//! element of the kernel and a column for each place. That factor, as many times the images as the kernel has
//! elements, is never there: `patches.rs` makes what a task packs of it. A transposed convolution is a
//! product for each class of pixels that the same elements of the kernel reach, so that zeros between pixels
//! are neither made nor multiplied. The gradient of a weight is a product of gradients by the transposed
//! factor; where places are pixels and an image has 256 or more, images are read where they lie and added up
//! one after the other. `gemm` blocks, and sums in an order that follows from the depth alone; images and
//! groups come in their order. Packing without a copy between, and writing sums of one image where they go,
//! took a quarter to a half off products of few rows (BENCHMARKS.md). Channels that are groups by themselves
//! are no products of matrices: `depthwise/`.

#![expect(unsafe_code, reason = "tasks write rows of one factor")]

use super::depthwise::{self, Weights};
use super::patches::{Patches, Side};
use super::{Conv2d, Conv2dWeight, ConvSettings, ConvTranspose2d};
use crate::kernels::blocks::Reader;
use crate::kernels::float::Float;
use crate::kernels::gemm::{
    Coded, Factor, Grid, Mat, MatMut, Plus, gemm_coded, gemm_on_grid, gemm_sum, grid_staging_len,
    staging_len,
};
use crate::{Args, Disjoint, Kernel, KernelError, Pool, View, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Channels of a weight that are turned by one task.
const TURNED: usize = 16;

/// Pixels of an image that are enough for a product of their own: its factors are read where they lie.
const LONG: usize = 256;

/// Keeps sums, and a weight that is not row-major, in scratch memory.
pub(super) struct ConvKernel<T>(pub(super) PhantomData<fn() -> T>);

/// Keeps sums, and a group of the weight as its products read it, in scratch memory.
pub(super) struct TransposeKernel<T>(pub(super) PhantomData<fn() -> T>);

/// Keeps sums in scratch memory, where the output is narrower than they are.
pub(super) struct WeightKernel<T>(pub(super) PhantomData<fn() -> T>);

/// Bytes of `len` elements, up to a whole line of a cache.
fn lines<T>(len: usize) -> usize {
    (len * size_of::<T>()).next_multiple_of(64)
}

/// Splits scratch memory: `len` elements, and the rest.
fn split<T: Float>(scratch: &mut [u8], len: usize) -> (&mut [T], &mut [u8]) {
    let (first, rest) = scratch.split_at_mut(lines::<T>(len));
    let first = &mut first[..len * size_of::<T>()];
    (bytemuck::cast_slice_mut(first), rest)
}

/// The four extents of a view.
fn dims(view: &View<'_>) -> Result<[usize; 4], KernelError> {
    view.dims()
        .try_into()
        .map_err(|_| KernelError::Unsupported {
            expected: "four dimensions",
            got: format!("{view:?}"),
        })
}

impl ConvSettings {
    /// What a convolution sees of images.
    fn sides(&self, extents: [usize; 2], places: [usize; 2], kernel: [usize; 2]) -> [Side; 2] {
        std::array::from_fn(|i| Side {
            extent: extents[i],
            places: places[i],
            elements: kernel[i],
            step: self.stride[i],
            first: -(self.padding[i] as isize),
            tap: self.dilation[i] as isize,
        })
    }

    /// What the pixels `phase`, `phase + stride`, .. of a transposed convolution see of its images, of which
    /// `extent` lie in this direction; `pixels` are made.
    fn phase(&self, i: usize, phase: usize, pixels: usize, kernel: usize, extent: usize) -> Phase {
        let (stride, dilation) = (self.stride[i], self.dilation[i]);
        let at = (phase + self.padding[i]) as isize;
        let offset = |k: usize| at - (k * dilation) as isize;
        // Every so many elements reach them.
        let step = stride / gcd(stride, dilation);
        let reaches = |&k: &usize| offset(k).rem_euclid(stride as isize) == 0;
        let start = (0..step.min(kernel)).find(reaches);
        let elements = start.map_or(0, |start| (kernel - start).div_ceil(step));
        let start = start.unwrap_or(0);
        Phase {
            side: Side {
                extent,
                places: pixels.saturating_sub(phase).div_ceil(stride),
                elements,
                step: 1,
                first: offset(start).div_euclid(stride as isize),
                tap: -((step * dilation / stride) as isize),
            },
            start,
            step,
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// One class of pixels of a transposed convolution, in one direction.
#[derive(Debug, Clone, Copy)]
struct Phase {
    side: Side,
    /// The first element of the kernel that reaches them.
    start: usize,
    /// Elements from it to the next that does.
    step: usize,
}

/// A weight as a matrix of `rows`, where it lies or copied to `memory`.
fn matrix<'a, T: Float>(
    pool: &Pool,
    weight: &'a View<'_>,
    rows: usize,
    memory: &'a mut [T],
) -> Result<Mat<'a, T>, KernelError> {
    let layout = weight.layout();
    let cols = layout.numel() / rows.max(1);
    if let Some(flat) = layout.reshape(&[rows, cols].into()) {
        let storage = weight.storage::<T>()?;
        let &[row, col] = flat.strides() else {
            return Err(KernelError::WrongOp { op: "conv2d" });
        };
        let start = flat.offset().min(storage.len());
        return Ok(Mat::new(&storage[start..], [rows, cols], [row, col]));
    }
    let reader = Reader::<T>::new(weight)?;
    pool.for_each_chunk(memory, cols.max(1), |row, to| reader.copy(row * cols, to));
    Ok(Mat::dense(memory, rows, cols))
}

/// Elements of a copy of a weight, if one is needed.
fn copied(weight: &Spec) -> usize {
    let layout = &weight.layout;
    let (rows, numel) = (weight.shape()[0], layout.numel());
    let flat = layout.reshape(&[rows, numel / rows.max(1)].into());
    if flat.is_some() { 0 } else { numel }
}

/// A bias side by side, in memory for just that.
fn side_by_side<'a, T: Float>(
    bias: Option<&View<'_>>,
    memory: &'a mut [T],
) -> Result<Option<&'a [T]>, KernelError> {
    let Some(bias) = bias else {
        return Ok(None);
    };
    Reader::<T>::new(bias)?.copy(0, memory);
    Ok(Some(memory))
}

/// Whether each channel is a group by itself, with a kernel that is small enough to have at hand.
fn is_depthwise(groups: usize, weight: &[usize]) -> bool {
    groups > 1 && weight[1] == 1 && weight[2] * weight[3] <= depthwise::MOST
}

/// Elements of a bias.
fn bias_len(inputs: &[Spec]) -> usize {
    inputs.get(2).map_or(0, |bias| bias.layout.numel())
}

impl<T: Float> Kernel for ConvKernel<T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], outputs: &[Spec], threads: usize) -> u64 {
        let groups = op.downcast().map_or(1, |op: &Conv2d| op.settings.groups);
        let y = outputs[0].shape();
        let staging = if is_depthwise(groups, inputs[1].shape()) {
            depthwise::scratch_len(&inputs[0], &outputs[0], threads)
        } else {
            grid_staging_len(y[1] / groups, y[0] * y[2] * y[3])
        };
        let copies = lines::<T>(copied(&inputs[1])) + lines::<T>(bias_len(inputs));
        (copies + lines::<f32>(staging)) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let Conv2d { settings, bias } = *op_as(op)?;
        let (x, weight) = (&args.inputs[0], &args.inputs[1]);
        let [images, _, height, width] = dims(x)?;
        let [outs, columns, kh, kw] = dims(weight)?;
        let [_, _, rows, cols] = dims(&args.outputs[0])?;
        let (memory, rest) = split::<T>(args.scratch, copied(weight.spec()));
        let (own, rest) = split::<T>(rest, if bias { outs } else { 0 });
        let bias = side_by_side(args.inputs.get(2), own)?;
        let staging: &mut [f32] = bytemuck::cast_slice_mut(rest);
        let sides = settings.sides([height, width], [rows, cols], [kh, kw]);
        if is_depthwise(settings.groups, weight.dims()) {
            let weights = Weights {
                kernels: weight,
                bias,
            };
            let y = &mut args.outputs[0];
            return depthwise::conv(args.pool, x, &weights, y, (sides, staging));
        }
        let weight = matrix(args.pool, weight, outs, memory)?;
        let out = args.outputs[0].slice_mut::<T>()?;
        if out.is_empty() {
            return Ok(());
        }
        let (per_group, pixels) = (outs / settings.groups, rows * cols);
        for group in 0..settings.groups {
            let channels = group * columns..(group + 1) * columns;
            let patches = Patches::<T>::new(x, channels, sides)?;
            let first = group * per_group;
            let out = &mut out[first * pixels..];
            let grid = Grid {
                extents: [images, 1, pixels],
                strides: [outs * pixels, pixels, 1],
            };
            gemm_on_grid(
                args.pool,
                (out, pixels, grid),
                Factor::Plain(weight.rows(first, per_group)),
                Factor::Coded(Coded::new(&patches, patches.extents())),
                bias.map(|bias| &bias[first..first + per_group]),
                staging,
            );
        }
        Ok(())
    }
}

/// The part of a weight that reaches a class of pixels, turned: `[O, I elements]` of a group that has `I`
/// rows from `first` on.
fn turn<T: Float>(
    pool: &Pool,
    weight: &View<'_>,
    (first, inputs): (usize, usize),
    phases: [Phase; 2],
    to: &mut [T],
) -> Result<(), KernelError> {
    let layout = weight.layout();
    let (storage, strides) = (weight.storage::<T>()?, layout.strides());
    let outs = weight.dims()[1];
    let [down, across] = phases.map(|phase| phase.side.elements);
    let len = inputs * down * across;
    let to = Disjoint::new(to);
    pool.for_each(outs.div_ceil(TURNED), |task| {
        for input in 0..inputs {
            for out in task * TURNED..outs.min((task + 1) * TURNED) {
                // SAFETY: elements of one row and input, which one task writes once.
                let to = unsafe { to.part(out * len + input * down * across, down * across) };
                let start = layout.offset() + (first + input) * strides[0] + out * strides[1];
                for (i, to) in to.chunks_exact_mut(across.max(1)).enumerate() {
                    let start = start
                        + (phases[0].start + i * phases[0].step) * strides[2]
                        + phases[1].start * strides[3];
                    for (j, to) in to.iter_mut().enumerate() {
                        *to = storage[start + j * phases[1].step * strides[3]];
                    }
                }
            }
        }
    });
    Ok(())
}

impl<T: Float> Kernel for TransposeKernel<T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], outputs: &[Spec], threads: usize) -> u64 {
        let groups = op
            .downcast()
            .map_or(1, |op: &ConvTranspose2d| op.settings.groups);
        let y = outputs[0].shape();
        let staging = if is_depthwise(groups, inputs[1].shape()) {
            depthwise::scratch_len(&inputs[0], &outputs[0], threads)
        } else {
            grid_staging_len(y[1] / groups, y[0] * y[2] * y[3])
        };
        let weight = inputs[1].layout.numel() / groups;
        let copies = lines::<T>(weight) + lines::<T>(bias_len(inputs));
        (copies + lines::<f32>(staging)) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let ConvTranspose2d { settings, bias, .. } = *op_as(op)?;
        let groups = settings.groups;
        let (x, weight) = (&args.inputs[0], &args.inputs[1]);
        let [images, ins, height, width] = dims(x)?;
        let [_, per_group, kh, kw] = dims(weight)?;
        let [_, outs, rows, cols] = dims(&args.outputs[0])?;
        let (turned, rest) = split::<T>(args.scratch, weight.numel() / groups);
        let (memory, rest) = split::<T>(rest, if bias { outs } else { 0 });
        let bias = side_by_side(args.inputs.get(2), memory)?;
        let staging: &mut [f32] = bytemuck::cast_slice_mut(rest);
        if is_depthwise(groups, weight.dims()) {
            let sides = settings.sides([rows, cols], [height, width], [kh, kw]);
            let weights = Weights {
                kernels: weight,
                bias,
            };
            let y = &mut args.outputs[0];
            return depthwise::transpose(args.pool, x, &weights, y, (sides, staging));
        }
        let out = args.outputs[0].slice_mut::<T>()?;
        let pixels = rows * cols;
        if out.is_empty() {
            return Ok(());
        }
        let [stride_down, stride_across] = settings.stride;
        let classes = || {
            classes([stride_down.min(rows), stride_across.min(cols)]).map(|(y, x)| {
                let down = settings.phase(0, y, rows, kh, height);
                let across = settings.phase(1, x, cols, kw, width);
                let elements = down.side.elements * across.side.elements;
                ((y, x), [down, across], elements)
            })
        };
        if classes().any(|(_, _, elements)| elements == 0) {
            args.pool.for_each_chunk(out, pixels, |plane, to| {
                to.fill(bias.map_or(T::zeroed(), |bias| bias[plane % outs]));
            });
        }
        for group in 0..groups {
            let inputs = ins / groups;
            let first = group * per_group;
            for ((y, x_), phases, elements) in classes().filter(|&(_, _, elements)| elements > 0) {
                let sides = phases.map(|phase| phase.side);
                let depth = inputs * elements;
                let turned = &mut turned[..per_group * depth];
                turn(args.pool, weight, (group * inputs, inputs), phases, turned)?;
                let channels = group * inputs..(group + 1) * inputs;
                let patches = Patches::<T>::new(x, channels, sides)?;
                let strides = [outs * pixels, stride_down * cols, stride_across];
                let extents = match settings.stride {
                    [1, 1] => [images, 1, pixels],
                    _ => [images, sides[0].places, sides[1].places],
                };
                let grid = Grid { extents, strides };
                gemm_on_grid(
                    args.pool,
                    (&mut out[first * pixels + y * cols + x_..], pixels, grid),
                    Factor::Plain(Mat::dense(turned, per_group, depth)),
                    Factor::Coded(Coded::new(&patches, patches.extents())),
                    bias.map(|bias| &bias[first..first + per_group]),
                    staging,
                );
            }
        }
        Ok(())
    }
}

/// All pairs of numbers below two bounds.
fn classes([rows, cols]: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).flat_map(move |row| (0..cols).map(move |col| (row, col)))
}

impl<T: Float> Kernel for WeightKernel<T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], outputs: &[Spec], threads: usize) -> u64 {
        let groups = op
            .downcast()
            .map_or(1, |op: &Conv2dWeight| op.settings.groups);
        let staging = if is_depthwise(groups, outputs[0].shape()) {
            depthwise::scratch_len(&inputs[0], &inputs[1], threads)
        } else {
            let (rows, cols) = rows_and_cols(outputs[0].shape().dims());
            staging_len::<T>(rows / groups, cols)
        };
        (size_of::<f32>() * staging) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let Conv2dWeight { settings, kernel } = *op_as(op)?;
        let (x, g) = (&args.inputs[0], &args.inputs[1]);
        let [images, ins, height, width] = dims(x)?;
        let [_, outs, rows, cols] = dims(g)?;
        let sides = settings.sides([height, width], [rows, cols], kernel);
        let staging: &mut [f32] = bytemuck::cast_slice_mut(args.scratch);
        if is_depthwise(settings.groups, args.outputs[0].dims()) {
            let kernels = &mut args.outputs[0];
            return depthwise::weight::<T>(args.pool, x, g, kernels, (sides, staging));
        }
        let out = args.outputs[0].slice_mut::<T>()?;
        let (ins, outs) = (ins / settings.groups, outs / settings.groups);
        let width = ins * kernel[0] * kernel[1];
        if out.is_empty() {
            return Ok(());
        }
        for (group, out) in out.chunks_exact_mut(outs * width).enumerate() {
            let pixels = [Side::pixels(rows), Side::pixels(cols)];
            let grads = Patches::<T>::new(g, group * outs..(group + 1) * outs, pixels)?;
            let patches = Patches::<T>::new(x, group * ins..(group + 1) * ins, sides)?;
            let planes = |image| grads.image(image).zip(patches.image(image));
            if images > 0 && rows * cols >= LONG && planes(0).is_some() {
                out.fill(T::zeroed());
                let factors = (0..images).filter_map(planes).map(|(g, x)| (g, x.t()));
                let out = MatMut::dense(out, outs, width);
                gemm_sum(args.pool, out, factors, staging);
                continue;
            }
            gemm_coded(
                args.pool,
                MatMut::dense(out, outs, width),
                Factor::Coded(Coded::<T>::new(&grads, grads.extents())),
                Factor::Coded(Coded::<T>::new(&patches, patches.extents()).t()),
                Plus::Nothing,
                staging,
            );
        }
        Ok(())
    }
}

/// The rows of a weight, and what is in each.
fn rows_and_cols(weight: &[usize]) -> (usize, usize) {
    (weight[0], weight[1..].iter().product())
}
