//! The fast kernels: an image at a time.
//!
//! A task is an image of one channel, so that gradients of windows that overlap are added by one thread, in
//! the order of windows. Images that are not `f32`, or do not lie side by side, are widened whole into
//! scratch memory of the thread's, and sums stay there in `f32` until they are rounded once. Maxima of
//! windows of one size go by rows of places (`row.rs`), 256 columns at a time; averages are added in `f64`, a
//! window that is as wide as the image in 32 lanes. Places are bytes where they fit, and are checked as they
//! are read.

#![expect(unsafe_code, reason = "tasks write images of their own")]

use super::average::{AvgPool2d, AvgPool2dBackward};
use super::maximum::windows_of;
use super::row::{largest_by_rows, largest_by_windows};
use super::windows::{Window, Windows, sides};
use crate::kernels::blocks::Reader;
use crate::kernels::float::{Float, as_f32_mut, is_f32};
use crate::kernels::indices::position;
use crate::kernels::simd::sum_block;
use crate::{Args, Disjoint, Kernel, KernelError, View, op_as};
use highwater_graph::{DType, Layout, Op, Spec};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Gradients and places that are read at a time.
const PIECE: usize = 512;

/// Stages an image, and what comes of it, where they are not `f32` side by side.
pub(super) struct MaxKernel<T>(pub(super) PhantomData<fn() -> T>);

/// Stages an image that is not `f32`.
pub(super) struct MaxBackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

/// Stages what comes of an image, if it is not `f32`.
pub(super) struct SelectKernel<T>(pub(super) PhantomData<fn() -> T>);

/// Stages an image, and what comes of it, where they are not `f32` side by side.
pub(super) struct AvgKernel<T>(pub(super) PhantomData<fn() -> T>);

/// Stages an image that is not `f32`.
pub(super) struct AvgBackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

/// Elements of an image.
fn plane(spec: &Spec) -> usize {
    sides(spec.shape()).iter().product()
}

/// Elements of staging for images that are read, and for images that are written.
fn staged<T: Float>(read: Option<&Spec>, written: Option<&Spec>) -> [usize; 2] {
    let read = read.filter(|spec| !(is_f32::<T>() && spec.layout.is_contiguous()));
    let written = written.filter(|_| !is_f32::<T>());
    [read.map_or(0, plane), written.map_or(0, plane)]
}

fn scratch_bytes([read, written]: [usize; 2], threads: usize) -> u64 {
    (threads * (read + written) * size_of::<f32>()) as u64
}

/// Staging of all threads.
struct Staging<'a> {
    memory: Disjoint<'a, f32>,
    lens: [usize; 2],
}

impl<'a> Staging<'a> {
    fn new(scratch: &'a mut [u8], lens: [usize; 2]) -> Self {
        Self {
            memory: Disjoint::new(bytemuck::cast_slice_mut(scratch)),
            lens,
        }
    }

    /// What one thread reads and writes in.
    ///
    /// # Safety
    /// The thread works on one image at a time.
    unsafe fn of(&self, thread: usize) -> [&'a mut [f32]; 2] {
        let [read, written] = self.lens;
        // SAFETY: a part of the thread's own.
        let both = unsafe { (self.memory).part(thread * (read + written), read + written) };
        let (read, written) = both.split_at_mut(read);
        [read, written]
    }
}

/// The elements of an image as `f32`, side by side.
fn image<'a, T: Float>(
    reader: &'a Reader<'_, T>,
    (index, len): (usize, usize),
    staging: &'a mut [f32],
) -> &'a [f32] {
    if staging.is_empty() {
        let direct = reader.direct(index * len, len);
        return direct
            .and_then(crate::kernels::float::as_f32)
            .unwrap_or_default();
    }
    reader.read(index * len, staging)
}

/// Lets `f` fill an image, where it lies if that is `f32`.
fn fill<T: Float>(image: &mut [T], staging: &mut [f32], f: impl FnOnce(&mut [f32])) {
    if let Some(image) = as_f32_mut(image) {
        return f(image);
    }
    f(staging);
    T::round(staging, image);
}

/// Places in windows, to write.
enum Places<'a> {
    Bytes(Disjoint<'a, u8>),
    Words(Disjoint<'a, i64>),
}

impl<'a> Places<'a> {
    fn new(view: &'a mut View<'_>) -> Result<Self, KernelError> {
        Ok(if view.spec().dtype == DType::U8 {
            Self::Bytes(Disjoint::new(view.slice_mut()?))
        } else {
            Self::Words(Disjoint::new(view.slice_mut()?))
        })
    }

    /// # Safety
    /// Each is set by one task.
    unsafe fn set(&self, at: usize, place: usize) {
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Bytes(bytes) => bytes.part(at, 1)[0] = place as u8,
                Self::Words(words) => words.part(at, 1)[0] = place as i64,
            }
        }
    }
}

impl<T: Float> Kernel for MaxKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, x: &[Spec], y: &[Spec], threads: usize) -> u64 {
        scratch_bytes(staged::<T>(Some(&x[0]), Some(&y[0])), threads)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let windows = windows_of(op);
        let x = &args.inputs[0];
        let [y, places] = &mut *args.outputs else {
            return Err(KernelError::WrongOp { op: op.name() });
        };
        let staging = Staging::new(args.scratch, staged::<T>(Some(x.spec()), Some(y.spec())));
        let (from, to) = (sides(x.dims()), sides(y.dims()));
        let (len, pooled) = (from[0] * from[1], to[0] * to[1]);
        let (x, places) = (Reader::<T>::new(x)?, Places::new(places)?);
        let images = y.numel() / pooled.max(1);
        let y = Disjoint::new(y.slice_mut::<T>()?);
        args.pool.for_each_on_thread(images, |index, thread| {
            // SAFETY: a thread works on one image at a time, and an image is visited once.
            let ([read, written], y) =
                unsafe { (staging.of(thread), y.part(index * pooled, pooled)) };
            let x = image(&x, (index, len), read);
            fill(y, written, |y| {
                for (row, y) in y.chunks_exact_mut(to[1].max(1)).enumerate() {
                    let first = index * pooled + row * to[1];
                    // SAFETY: as above.
                    let set = |col, place| unsafe { places.set(first + col, place) };
                    match &windows {
                        Windows::Fixed(settings) => {
                            largest_by_rows(settings, (x, from), row, y, set);
                        }
                        Windows::Adaptive(_) => {
                            largest_by_windows(&windows, (x, from), row, y, set);
                        }
                    }
                }
            });
        });
        Ok(())
    }
}

/// Hands `f` the positions in an image of the elements that were the largest of each window, with the number
/// of the window. Answers the first window whose place is none.
fn for_each_place(
    windows: &Windows,
    places: Found<'_>,
    first: usize,
    [from, to]: [[usize; 2]; 2],
    mut f: impl FnMut(usize, usize),
) -> Option<usize> {
    let mut wrong = None;
    for row in 0..to[0] {
        for col in 0..to[1] {
            let at = row * to[1] + col;
            let place = places.get(first + at);
            let columns = windows.columns(windows.at(1, col, from[1]));
            let y = windows.pixel(0, row, place / columns, from[0]);
            let x = windows.pixel(1, col, place % columns, from[1]);
            match y.zip(x) {
                Some((y, x)) => f(at, y * from[1] + x),
                None => wrong = wrong.or(Some(first + at)),
            }
        }
    }
    wrong
}

/// Places in windows, to read.
#[derive(Clone, Copy)]
struct Found<'a> {
    layout: &'a Layout,
    bytes: Option<&'a [u8]>,
    words: &'a [i64],
}

impl<'a> Found<'a> {
    fn new(view: &'a View<'_>) -> Result<Self, KernelError> {
        let is_bytes = view.spec().dtype == DType::U8;
        Ok(Self {
            layout: view.layout(),
            bytes: is_bytes.then(|| view.storage()).transpose()?,
            words: if is_bytes { &[] } else { view.storage()? },
        })
    }

    /// The place of the `flat`-th window.
    fn get(&self, flat: usize) -> usize {
        let layout = self.layout;
        let at = if layout.is_contiguous() {
            flat
        } else {
            position(layout.shape().dims(), layout.strides(), flat)
        };
        let at = layout.offset() + at;
        match self.bytes {
            Some(bytes) => bytes[at].into(),
            None => self.words[at] as usize,
        }
    }
}

/// Checks that places in windows lie on pixels: of the images that the first input has, or the gradients of
/// whose maxima it has.
pub(super) fn check_places(op: &dyn Op, inputs: &[View<'_>]) -> Result<(), KernelError> {
    let windows = windows_of(op);
    let to = sides(inputs[1].dims());
    let from = match op.downcast::<super::maximum::MaxPool2dBackward>() {
        Some(op) => op.sides,
        None => sides(inputs[0].dims()),
    };
    let pooled = to[0] * to[1];
    for first in (0..inputs[1].numel()).step_by(pooled.max(1)) {
        let places = Found::new(&inputs[1])?;
        out_of_range(
            for_each_place(&windows, places, first, [from, to], |_, _| ()),
            &windows,
            from,
        )?;
    }
    Ok(())
}

fn out_of_range(
    wrong: Option<usize>,
    windows: &Windows,
    from: [usize; 2],
) -> Result<(), KernelError> {
    wrong.map_or(Ok(()), |position| {
        Err(KernelError::IndexOutOfRange {
            index: windows.most(from) as i64,
            position,
            below: windows.most(from),
        })
    })
}

/// The first window whose place was none, as tasks find them.
struct Wrong(AtomicUsize);

impl Wrong {
    fn new() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }

    fn note(&self, wrong: Option<usize>) {
        if let Some(wrong) = wrong {
            self.0.fetch_min(wrong, Ordering::Relaxed);
        }
    }

    fn first(self) -> Option<usize> {
        Some(self.0.into_inner()).filter(|&first| first != usize::MAX)
    }
}

impl<T: Float> Kernel for MaxBackwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, _: &[Spec], dx: &[Spec], threads: usize) -> u64 {
        scratch_bytes(staged::<T>(None, Some(&dx[0])), threads)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let (windows, dx) = (windows_of(op), &mut args.outputs[0]);
        let (from, to) = (sides(dx.dims()), sides(args.inputs[0].dims()));
        let staging = Staging::new(args.scratch, staged::<T>(None, Some(dx.spec())));
        let (len, pooled) = (from[0] * from[1], to[0] * to[1]);
        let g = Reader::<T>::new(&args.inputs[0])?;
        let places = Found::new(&args.inputs[1])?;
        let (images, wrong) = (dx.numel() / len.max(1), Wrong::new());
        let dx = Disjoint::new(dx.slice_mut::<T>()?);
        args.pool.for_each_on_thread(images, |index, thread| {
            // SAFETY: a thread works on one image at a time, and an image is visited once.
            let ([_, written], dx) = unsafe { (staging.of(thread), dx.part(index * len, len)) };
            fill(dx, written, |dx| {
                dx.fill(0.0);
                let mut grads = Pieces::new(&g, index * pooled, pooled);
                let first = index * pooled;
                wrong.note(for_each_place(
                    &windows,
                    places,
                    first,
                    [from, to],
                    |at, x| {
                        dx[x] += grads.get(at);
                    },
                ));
            });
        });
        out_of_range(wrong.first(), &windows, from)
    }
}

/// Elements that are read one after the other.
struct Pieces<'a, T> {
    reader: &'a Reader<'a, T>,
    first: usize,
    len: usize,
    /// What is in the buffer.
    start: usize,
    buffer: [f32; PIECE],
}

impl<'a, T: Float> Pieces<'a, T> {
    fn new(reader: &'a Reader<'a, T>, first: usize, len: usize) -> Self {
        Self {
            reader,
            first,
            len,
            start: usize::MAX,
            buffer: [0.0; PIECE],
        }
    }

    fn get(&mut self, at: usize) -> f32 {
        let start = at / PIECE * PIECE;
        if start != self.start {
            let len = PIECE.min(self.len - start);
            self.reader
                .widen(self.first + start, &mut self.buffer[..len]);
            self.start = start;
        }
        self.buffer[at - start]
    }
}

impl<T: Float> Kernel for SelectKernel<T> {
    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let (windows, y) = (windows_of(op), &mut args.outputs[0]);
        let (from, to) = (sides(args.inputs[0].dims()), sides(y.dims()));
        let (len, pooled) = (from[0] * from[1], to[0] * to[1]);
        let x = Reader::<T>::new(&args.inputs[0])?;
        let places = Found::new(&args.inputs[1])?;
        let (images, wrong) = (y.numel() / pooled.max(1), Wrong::new());
        let y = Disjoint::new(y.slice_mut::<T>()?);
        args.pool.for_each(images, |index| {
            // SAFETY: an image is visited once.
            let y = unsafe { y.part(index * pooled, pooled) };
            let first = index * pooled;
            wrong.note(for_each_place(
                &windows,
                places,
                first,
                [from, to],
                |at, place| {
                    x.copy(index * len + place, &mut y[at..=at]);
                },
            ));
        });
        out_of_range(wrong.first(), &windows, from)
    }
}

/// What the sum of a window is divided by.
fn divisor(pool: &AvgPool2d, [rows, cols]: [Window; 2]) -> f64 {
    let count = if pool.count_include_pad {
        rows.padded * cols.padded
    } else {
        rows.len() * cols.len()
    };
    count as f64
}

impl<T: Float> Kernel for AvgKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, x: &[Spec], y: &[Spec], threads: usize) -> u64 {
        scratch_bytes(staged::<T>(Some(&x[0]), Some(&y[0])), threads)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let pool: &AvgPool2d = op_as(op)?;
        let (x, y) = (&args.inputs[0], &mut args.outputs[0]);
        let staging = Staging::new(args.scratch, staged::<T>(Some(x.spec()), Some(y.spec())));
        let (from, to) = (sides(x.dims()), sides(y.dims()));
        let (len, pooled) = (from[0] * from[1], to[0] * to[1]);
        let x = Reader::<T>::new(x)?;
        let images = y.numel() / pooled.max(1);
        let y = Disjoint::new(y.slice_mut::<T>()?);
        args.pool.for_each_on_thread(images, |index, thread| {
            // SAFETY: a thread works on one image at a time, and an image is visited once.
            let ([read, written], y) =
                unsafe { (staging.of(thread), y.part(index * pooled, pooled)) };
            let x = image(&x, (index, len), read);
            fill(y, written, |y| {
                for (at, y) in y.iter_mut().enumerate() {
                    let rows = pool.windows.at(0, at / to[1], from[0]);
                    let cols = pool.windows.at(1, at % to[1], from[1]);
                    let sum = sum(x, [rows, cols], from[1]);
                    *y = (sum / divisor(pool, [rows, cols])) as f32;
                }
            });
        });
        Ok(())
    }
}

/// The sum of a window of neighbours.
fn sum(x: &[f32], [rows, cols]: [Window; 2], width: usize) -> f64 {
    if cols.len() == width {
        return sum_block(&x[rows.start * width..rows.end * width]);
    }
    let row = |y: usize| &x[y * width..][cols.start..cols.end];
    let sums = rows
        .pixels()
        .map(|y| row(y).iter().map(|&x| f64::from(x)).sum::<f64>());
    sums.sum()
}

impl<T: Float> Kernel for AvgBackwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, _: &[Spec], dx: &[Spec], threads: usize) -> u64 {
        scratch_bytes(staged::<T>(None, Some(&dx[0])), threads)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let AvgPool2dBackward { pool, sides: from } = *op_as(op)?;
        let dx = &mut args.outputs[0];
        let to = sides(args.inputs[0].dims());
        let staging = Staging::new(args.scratch, staged::<T>(None, Some(dx.spec())));
        let (len, pooled) = (from[0] * from[1], to[0] * to[1]);
        let g = Reader::<T>::new(&args.inputs[0])?;
        let images = dx.numel() / len.max(1);
        let dx = Disjoint::new(dx.slice_mut::<T>()?);
        args.pool.for_each_on_thread(images, |index, thread| {
            // SAFETY: a thread works on one image at a time, and an image is visited once.
            let ([_, written], dx) = unsafe { (staging.of(thread), dx.part(index * len, len)) };
            fill(dx, written, |dx| {
                dx.fill(0.0);
                let mut grads = Pieces::new(&g, index * pooled, pooled);
                for at in 0..pooled {
                    let rows = pool.windows.at(0, at / to[1], from[0]);
                    let cols = pool.windows.at(1, at % to[1], from[1]);
                    let share = f64::from(grads.get(at)) / divisor(&pool, [rows, cols]);
                    for y in rows.pixels() {
                        for x in &mut dx[y * from[1]..][cols.start..cols.end] {
                            *x += share as f32;
                        }
                    }
                }
            });
        });
        Ok(())
    }
}
