//! The fast kernels: the pixels that are seen at 64 places are found once, and then taken from all channels.
//!
//! What is seen, and the grid's gradient, are made 64 places at a time. The images' gradient is made some channels of
//! an image at a time, each place added in the order of the grid: no atomics, and the same bits with any threads.

#![expect(unsafe_code, reason = "tasks write disjoint parts of one output")]

use super::{GridBackward, GridSample, InputBackward, Tap};
use crate::kernels::blocks::Reader;
use crate::kernels::float::{Float, as_f32_mut, is_f32};
use crate::{Args, Disjoint, Kernel, KernelError, View, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Places whose pixels are found at a time.
const PLACES: usize = 64;
/// Channels whose gradients one task makes.
const CHANNELS: usize = 8;

/// The pixels seen at some places.
type Seen = [[Option<Tap>; 4]; PLACES];

/// Finds the pixels of as many places as there are in `to`, from the `start`-th of the grid on.
fn find<T: Float>(
    op: GridSample,
    sides: [usize; 2],
    grid: &Reader<'_, T>,
    start: usize,
    to: &mut [[Option<Tap>; 4]],
) {
    let mut buffer = [0.0; 2 * PLACES];
    let xy = &mut buffer[..2 * to.len()];
    grid.widen(2 * start, xy);
    let (xy, _) = xy.as_chunks::<2>();
    for (to, &xy) in to.iter_mut().zip(xy) {
        *to = op.taps(xy.map(f64::from), sides);
    }
}

/// Images, pixel by pixel.
struct Images<'a, T> {
    storage: &'a [T],
    offset: usize,
    strides: [usize; 4],
    channels: usize,
    sides: [usize; 2],
}

impl<'a, T: Float> Images<'a, T> {
    fn new(view: &'a View<'_>) -> Result<Self, KernelError> {
        let (layout, dims) = (view.layout(), view.dims());
        let at = |of: &[usize], i: usize| of.get(i).copied().unwrap_or(0);
        Ok(Self {
            storage: view.storage()?,
            offset: layout.offset(),
            strides: [0, 1, 2, 3].map(|i| at(layout.strides(), i)),
            channels: at(dims, 1),
            sides: [at(dims, 2), at(dims, 3)],
        })
    }

    /// The pixel of a plane.
    fn pixel(&self, image: usize, channel: usize, tap: &Tap) -> f32 {
        let [of_image, of_channel, of_row, of_column] = self.strides;
        let plane = self.offset + image * of_image + channel * of_channel;
        self.storage[plane + tap.row * of_row + tap.column * of_column].wide()
    }
}

/// How a grid's places are cut: where the first of a task's is, and how many there are.
#[derive(Clone, Copy)]
struct Cut {
    places: usize,
    across: usize,
}

impl Cut {
    fn new(grid: &Spec) -> Self {
        let places = grid.shape().dims().iter().skip(1).take(2).product();
        Self {
            places,
            across: usize::div_ceil(places, PLACES),
        }
    }

    /// The image, its first place and how many.
    fn task(self, task: usize) -> (usize, usize, usize) {
        let (image, first) = (task / self.across, task % self.across * PLACES);
        (image, first, PLACES.min(self.places - first))
    }
}

pub(super) fn forward<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op = *op_as::<GridSample>(op)?;
    let images = Images::<T>::new(&args.inputs[0])?;
    let (grid, cut) = (
        Reader::<T>::new(&args.inputs[1])?,
        Cut::new(args.inputs[1].spec()),
    );
    let batch = args.inputs[1].dims().first().copied().unwrap_or(0);
    let out = Disjoint::new(args.outputs[0].slice_mut::<T>()?);
    args.pool.for_each(batch * cut.across, |task| {
        let (image, first, count) = cut.task(task);
        let mut seen: Seen = [[None; 4]; PLACES];
        let seen = &mut seen[..count];
        find(op, images.sides, &grid, image * cut.places + first, seen);
        for channel in 0..images.channels {
            let start = (image * images.channels + channel) * cut.places + first;
            // SAFETY: tasks have places of their own.
            let out = unsafe { out.part(start, count) };
            for (out, taps) in out.iter_mut().zip(&*seen) {
                let mut sum = 0.0;
                for tap in taps.iter().flatten() {
                    sum += tap.weight as f32 * images.pixel(image, channel, tap);
                }
                *out = T::nearest(sum);
            }
        }
    });
    Ok(())
}

pub(super) fn grid_backward<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op = op_as::<GridBackward>(op)?.0;
    let (grad, images) = (
        Reader::<T>::new(&args.inputs[0])?,
        Images::<T>::new(&args.inputs[1])?,
    );
    let (grid, cut) = (
        Reader::<T>::new(&args.inputs[2])?,
        Cut::new(args.inputs[2].spec()),
    );
    let batch = args.inputs[2].dims().first().copied().unwrap_or(0);
    let out = Disjoint::new(args.outputs[0].slice_mut::<T>()?);
    args.pool.for_each(batch * cut.across, |task| {
        let (image, first, count) = cut.task(task);
        let mut seen: Seen = [[None; 4]; PLACES];
        let seen = &mut seen[..count];
        let start = image * cut.places + first;
        find(op, images.sides, &grid, start, seen);
        let (mut sums, mut buffer) = ([[0.0_f64; 2]; PLACES], [0.0; PLACES]);
        for channel in 0..images.channels {
            let g = &mut buffer[..count];
            grad.widen((image * images.channels + channel) * cut.places + first, g);
            for ((sums, &g), taps) in sums.iter_mut().zip(&*g).zip(&*seen) {
                for tap in taps.iter().flatten() {
                    let product = f64::from(g * images.pixel(image, channel, tap));
                    sums[0] += tap.slopes[0] * product;
                    sums[1] += tap.slopes[1] * product;
                }
            }
        }
        // SAFETY: tasks have places of their own.
        let out = unsafe { out.part(2 * start, 2 * count) };
        for (out, &sum) in out.iter_mut().zip(sums.as_flattened()) {
            *out = T::nearest(sum as f32);
        }
    });
    Ok(())
}

/// The images' gradient. Types narrower than `f32` are summed in scratch memory.
pub(super) struct InputKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for InputKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, _: &[Spec], outputs: &[Spec], threads: usize) -> u64 {
        match *outputs[0].shape().dims() {
            [_, channels, rows, columns] if !is_f32::<T>() => {
                let sums = CHANNELS.min(channels) * rows * columns;
                (threads * sums * size_of::<f32>()) as u64
            }
            _ => 0,
        }
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let InputBackward { forward, sides } = *op_as(op)?;
        let &[batch, channels, _, _] = args.outputs[0].dims() else {
            return Err(KernelError::WrongOp { op: op.name() });
        };
        let grad = Reader::<T>::new(&args.inputs[0])?;
        let (grid, cut) = (
            Reader::<T>::new(&args.inputs[1])?,
            Cut::new(args.inputs[1].spec()),
        );
        let out = Disjoint::new(args.outputs[0].slice_mut::<T>()?);
        let scratch = Disjoint::new(bytemuck::cast_slice_mut::<u8, f32>(args.scratch));
        let (plane, groups) = (sides[0] * sides[1], channels.div_ceil(CHANNELS));
        let kept = CHANNELS.min(channels) * plane;
        args.pool
            .for_each_on_thread(batch * groups, |task, thread| {
                let (image, first) = (task / groups, task % groups * CHANNELS);
                let count = CHANNELS.min(channels - first);
                // SAFETY: tasks have channels of their own.
                let out = unsafe { out.part((image * channels + first) * plane, count * plane) };
                let add = |sums: &mut [f32]| {
                    sums.fill(0.0);
                    for start in (0..cut.places).step_by(PLACES) {
                        let mut seen: Seen = [[None; 4]; PLACES];
                        let seen = &mut seen[..PLACES.min(cut.places - start)];
                        find(forward, sides, &grid, image * cut.places + start, seen);
                        let mut buffer = [0.0; PLACES];
                        let g = &mut buffer[..seen.len()];
                        for (i, sums) in sums.chunks_exact_mut(plane).enumerate() {
                            let channel = image * channels + first + i;
                            grad.widen(channel * cut.places + start, g);
                            for (&g, taps) in g.iter().zip(&*seen) {
                                for tap in taps.iter().flatten() {
                                    sums[tap.row * sides[1] + tap.column] += tap.weight as f32 * g;
                                }
                            }
                        }
                    }
                };
                if let Some(out) = as_f32_mut(out) {
                    return add(out);
                }
                // SAFETY: a thread does one task at a time, and has this part to itself.
                let sums = unsafe { scratch.part(thread * kept, count * plane) };
                add(sums);
                T::round(sums, out);
            });
        Ok(())
    }
}
