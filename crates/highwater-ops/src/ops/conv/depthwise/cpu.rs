//! The kernels: an image of one channel at a time.

#![expect(unsafe_code, reason = "tasks write images of their own")]

use super::{correlate, gather, scatter};
use crate::kernels::blocks::Reader;
use crate::kernels::float::{Float, as_f32, as_f32_mut};
use crate::ops::conv::patches::Side;
use crate::{Disjoint, KernelError, Pool, View};
use highwater_graph::Spec;

/// Elements of a kernel that are widened at a time.
const KERNEL: usize = 1024;

/// Most elements of a kernel that is taken here.
pub(in crate::ops::conv) const MOST: usize = KERNEL;

/// Elements of scratch memory for images of both sides of a convolution: one of each for each thread.
pub(in crate::ops::conv) fn scratch_len(x: &Spec, y: &Spec, threads: usize) -> usize {
    threads * (plane(x.shape()) + plane(y.shape()))
}

fn plane(shape: &[usize]) -> usize {
    shape[2] * shape[3]
}

/// The elements of an image: where they lie, if that is side by side as `f32`, or widened.
fn image<'a, T: Float>(
    reader: &'a Reader<'_, T>,
    start: usize,
    memory: &'a mut [f32],
) -> &'a [f32] {
    match reader.direct(start, memory.len()).and_then(as_f32) {
        Some(direct) => direct,
        None => reader.read(start, memory),
    }
}

/// Scratch memory of all threads, of so many elements for images that are read, and for those written.
struct Memory<'a> {
    data: Disjoint<'a, f32>,
    lens: [usize; 2],
}

impl<'a> Memory<'a> {
    /// # Safety
    /// A thread works on one image at a time.
    unsafe fn of(&self, thread: usize) -> [&'a mut [f32]; 2] {
        let [read, written] = self.lens;
        // SAFETY: a part of the thread's own.
        let part = unsafe { self.data.part(thread * (read + written), read + written) };
        let (read, written) = part.split_at_mut(read);
        [read, written]
    }
}

/// Lets `f` fill an image that starts with `value` everywhere.
fn fill<T: Float>(image: &mut [T], memory: &mut [f32], value: f32, f: impl FnOnce(&mut [f32])) {
    if let Some(image) = as_f32_mut(image) {
        image.fill(value);
        return f(image);
    }
    memory.fill(value);
    f(memory);
    T::round(memory, image);
}

/// What a convolution reads beside its images.
pub(in crate::ops::conv) struct Weights<'a, T> {
    /// A kernel for each channel of what is convolved, or of what comes of it.
    pub(in crate::ops::conv) kernels: &'a View<'a>,
    pub(in crate::ops::conv) bias: Option<&'a [T]>,
}

/// `y` of `x`, each channel of which gives as many as there are kernels for it.
pub(in crate::ops::conv) fn conv<T: Float>(
    pool: &Pool,
    x: &View<'_>,
    weights: &Weights<'_, T>,
    y: &mut View<'_>,
    (sides, scratch): ([Side; 2], &mut [f32]),
) -> Result<(), KernelError> {
    let (from, to) = (x.dims(), y.dims());
    let lens = [plane(from), plane(to)];
    let (outs, times) = (to[1], to[1] / from[1].max(1));
    let memory = Memory {
        data: Disjoint::new(scratch),
        lens,
    };
    let (x, kernels) = (Reader::<T>::new(x)?, Reader::<T>::new(weights.kernels)?);
    let y = Disjoint::new(y.slice_mut::<T>()?);
    let elements = sides[0].elements * sides[1].elements;
    pool.for_each_on_thread(to[0] * outs, |index, thread| {
        // SAFETY: a thread works on one image at a time, and an image is visited once.
        let ([read, written], y) = unsafe { (memory.of(thread), y.part(index * lens[1], lens[1])) };
        let (sample, out) = (index / outs, index % outs);
        let channel = sample * from[1] + out / times;
        let x = image(&x, channel * lens[0], read);
        let mut buffer = [0.0; KERNEL];
        let kernel = kernels.read(out * elements, &mut buffer[..elements]);
        let bias = weights.bias.map_or(0.0, |bias| bias[out].wide());
        fill(y, written, bias, |y| gather(x, kernel, y, &sides));
    });
    Ok(())
}

/// `x` of `y`, as many channels of which go into one as there are kernels for it.
pub(in crate::ops::conv) fn transpose<T: Float>(
    pool: &Pool,
    y: &View<'_>,
    weights: &Weights<'_, T>,
    x: &mut View<'_>,
    (sides, scratch): ([Side; 2], &mut [f32]),
) -> Result<(), KernelError> {
    let (from, to) = (y.dims(), x.dims());
    let lens = [plane(from), plane(to)];
    let (outs, times) = (to[1], from[1] / to[1].max(1));
    let memory = Memory {
        data: Disjoint::new(scratch),
        lens,
    };
    let (y, kernels) = (Reader::<T>::new(y)?, Reader::<T>::new(weights.kernels)?);
    let x = Disjoint::new(x.slice_mut::<T>()?);
    let elements = sides[0].elements * sides[1].elements;
    pool.for_each_on_thread(to[0] * outs, |index, thread| {
        // SAFETY: a thread works on one image at a time, and an image is visited once.
        let ([read, written], x) = unsafe { (memory.of(thread), x.part(index * lens[1], lens[1])) };
        let (sample, out) = (index / outs, index % outs);
        let bias = weights.bias.map_or(0.0, |bias| bias[out].wide());
        fill(x, written, bias, |x| {
            for input in out * times..(out + 1) * times {
                let start = (sample * from[1] + input) * lens[0];
                let mut buffer = [0.0; KERNEL];
                let kernel = kernels.read(input * elements, &mut buffer[..elements]);
                scatter(image(&y, start, read), kernel, x, &sides);
            }
        });
    });
    Ok(())
}

/// The gradients of kernels, of `x` and of the gradient of `y`.
pub(in crate::ops::conv) fn weight<T: Float>(
    pool: &Pool,
    x: &View<'_>,
    y: &View<'_>,
    kernels: &mut View<'_>,
    (sides, scratch): ([Side; 2], &mut [f32]),
) -> Result<(), KernelError> {
    let (from, to) = (x.dims(), y.dims());
    let lens = [plane(from), plane(to)];
    let (outs, times) = (to[1], to[1] / from[1].max(1));
    let memory = Memory {
        data: Disjoint::new(scratch),
        lens,
    };
    let (x, y) = (Reader::<T>::new(x)?, Reader::<T>::new(y)?);
    let elements = sides[0].elements * sides[1].elements;
    let kernels = Disjoint::new(kernels.slice_mut::<T>()?);
    pool.for_each_on_thread(outs, |out, thread| {
        // SAFETY: a thread works on one channel at a time, and a channel is visited once.
        let ([of_x, of_y], kernel) =
            unsafe { (memory.of(thread), kernels.part(out * elements, elements)) };
        let mut sums = [0.0; KERNEL];
        let sums = &mut sums[..elements];
        for sample in 0..to[0] {
            let channel = sample * from[1] + out / times;
            let x = image(&x, channel * lens[0], of_x);
            let y = image(&y, (sample * outs + out) * lens[1], of_y);
            correlate(x, y, sums, &sides);
        }
        for (kernel, &sum) in kernel.iter_mut().zip(&*sums) {
            *kernel = T::nearest(sum as f32);
        }
    });
    Ok(())
}
