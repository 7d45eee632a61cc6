//! The fast kernels: targets are independent, and each is one thread's.
//!
//! Forward keeps the states of one frame. Backward keeps those of all frames of the targets that threads work on, as
//! `f64` in scratch memory, and goes back over them: nothing is kept from forward. Where targets are packed, so that
//! none is known to be short, it keeps those of all targets, which are no longer together than the packed ones.

#![expect(unsafe_code, reason = "tasks own the frames of one target")]

use super::lattice::{Sizes, Target, states};
use super::{CtcLoss, CtcLossBackward};
use crate::kernels::float::Float;
use crate::kernels::indices::Indices;
use crate::{Args, Disjoint, Kernel, KernelError, View, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// A target in the batch.
struct Place {
    item: usize,
    /// Frames that are its.
    frames: usize,
    /// Its labels' number.
    labels: usize,
    /// Where they start among all.
    start: usize,
}

/// What the loss is of.
struct Batch<'a, T> {
    op: CtcLoss,
    sizes: Sizes,
    log_probs: &'a [T],
    offset: usize,
    strides: [usize; 3],
    targets: Indices<'a>,
    input_lengths: Indices<'a>,
    target_lengths: Indices<'a>,
}

/// The extents of a batch that was checked.
fn sizes(log_probs: &Spec, targets: &Spec) -> Sizes {
    let dims = log_probs.shape().dims();
    let [frames, batch, classes] = [0, 1, 2].map(|i| dims.get(i).copied().unwrap_or(0));
    let labels = targets.shape().dims();
    Sizes {
        frames,
        batch,
        classes,
        width: labels.last().copied().unwrap_or(0),
        packed: labels.len() == 1,
    }
}

impl<'a, T> Batch<'a, T> {
    fn new(op: CtcLoss, inputs: &'a [View<'a>], log_probs: &'a [T]) -> Result<Self, KernelError> {
        let layout = inputs[0].layout();
        let stride = |i: usize| layout.strides().get(i).copied().unwrap_or(0);
        let batch = Self {
            op,
            sizes: sizes(inputs[0].spec(), inputs[1].spec()),
            log_probs,
            offset: layout.offset(),
            strides: [stride(0), stride(1), stride(2)],
            targets: Indices::of(&inputs[1])?,
            input_lengths: Indices::of(&inputs[2])?,
            target_lengths: Indices::of(&inputs[3])?,
        };
        batch.check()?;
        Ok(batch)
    }

    /// Checks lengths, and the labels within them.
    fn check(&self) -> Result<(), KernelError> {
        let Sizes {
            frames,
            batch,
            classes,
            width,
            packed,
        } = self.sizes;
        self.input_lengths.check(frames + 1, None)?;
        self.target_lengths.check(width + 1, None)?;
        let mut total = 0;
        for item in 0..batch {
            let (start, labels) = self.labels(item, total);
            total += labels;
            if packed && total > width {
                break;
            }
            for position in start..start + labels {
                let index = self.targets.get(position);
                if index as u64 >= classes as u64 {
                    return Err(KernelError::IndexOutOfRange {
                        index,
                        position,
                        below: classes,
                    });
                }
            }
        }
        if packed && total != width {
            return Err(KernelError::Unsupported {
                expected: "target lengths that sum up to the targets",
                got: format!("lengths that sum up to {total} or more, of {width} labels"),
            });
        }
        Ok(())
    }

    /// Where the labels of a target start, so many being before it, and how many there are.
    fn labels(&self, item: usize, before: usize) -> (usize, usize) {
        let start = if self.sizes.packed {
            before
        } else {
            item * self.sizes.width
        };
        (start, self.target_lengths.get(item) as usize)
    }

    fn place(&self, item: usize) -> Place {
        let before = |packed: bool| {
            let items = if packed { 0..item } else { 0..0 };
            items
                .map(|item| self.target_lengths.get(item) as usize)
                .sum()
        };
        let (start, labels) = self.labels(item, before(self.sizes.packed));
        Place {
            item,
            frames: self.input_lengths.get(item) as usize,
            labels,
            start,
        }
    }

    /// The target, whose labels are copied.
    fn target<'b>(&self, place: &Place, labels: &'b mut [usize]) -> Target<'b> {
        let labels = &mut labels[..place.labels];
        for (i, label) in labels.iter_mut().enumerate() {
            *label = self.targets.get(place.start + i) as usize;
        }
        Target {
            labels,
            blank: self.op.blank,
        }
    }
}

impl<T: Float> Batch<'_, T> {
    /// How probable classes are at a frame.
    fn at(&self, place: &Place, frame: usize) -> impl Fn(usize) -> f64 {
        let start = self.offset + frame * self.strides[0] + place.item * self.strides[1];
        move |class| f64::from(self.log_probs[start + class * self.strides[2]].wide())
    }

    /// The loss, by way of the states at each frame: `keep` is handed them.
    fn loss(
        &self,
        place: &Place,
        target: Target<'_>,
        alpha: &mut [f64],
        mut keep: impl FnMut(usize, &[f64]),
    ) -> f64 {
        let alpha = &mut alpha[..states(place.labels)];
        if place.frames == 0 {
            return target.loss_of_nothing();
        }
        target.begin(alpha, self.at(place, 0));
        keep(0, alpha);
        for frame in 1..place.frames {
            target.advance(alpha, self.at(place, frame));
            keep(frame, alpha);
        }
        Target::loss(alpha)
    }
}

/// For the references: checks what indices say.
pub(super) fn check(op: &dyn Op, inputs: &[View<'_>]) -> Result<(), KernelError> {
    let op = match op.downcast::<CtcLossBackward>() {
        Some(op) => op.0,
        None => *op_as::<CtcLoss>(op)?,
    };
    Batch::<f64>::new(op, inputs, &[]).map(|_| ())
}

/// One number in scratch memory.
type Number = [u8; 8];

/// What a thread keeps of a target: its labels, the states of one frame, and a row of classes.
fn own(sizes: Sizes) -> [usize; 3] {
    [sizes.width, states(sizes.width), sizes.classes]
}

/// Numbers that keep all states of all frames of the targets that are worked on at once.
fn kept(sizes: Sizes, threads: usize) -> usize {
    let Sizes {
        frames,
        batch,
        width,
        packed,
        ..
    } = sizes;
    if packed {
        frames * (2 * width + batch)
    } else {
        frames * states(width) * threads.min(batch)
    }
}

/// The loss.
pub(super) struct ForwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for ForwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let [labels, alpha, _] = own(sizes(&inputs[0], &inputs[1]));
        (threads * (labels + alpha) * size_of::<Number>()) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op = *op_as::<CtcLoss>(op)?;
        let batch = Batch::new(op, args.inputs, args.inputs[0].storage::<T>()?)?;
        let [own_labels, own_alpha, _] = own(batch.sizes);
        let threads = args.pool.threads();
        let (labels, alpha) = args
            .scratch
            .split_at_mut(threads * own_labels * size_of::<Number>());
        let labels = Disjoint::new(bytemuck::cast_slice_mut::<u8, usize>(labels));
        let alpha = Disjoint::new(bytemuck::cast_slice_mut::<u8, f64>(alpha));
        let out = Disjoint::new(args.outputs[0].slice_mut::<T>()?);
        args.pool
            .for_each_on_thread(batch.sizes.batch, |item, thread| {
                // SAFETY: a thread works on one target at a time, and has these parts to itself.
                let (labels, alpha) = unsafe {
                    (
                        labels.part(thread * own_labels, own_labels),
                        alpha.part(thread * own_alpha, own_alpha),
                    )
                };
                let place = batch.place(item);
                let target = batch.target(&place, labels);
                let loss = batch.loss(&place, target, alpha, |_, _| {});
                let is_left_out = op.zero_infinity && loss == f64::INFINITY;
                // SAFETY: every loss is written once.
                let out = unsafe { out.part(item, 1) };
                out[0] = T::nearest(if is_left_out { 0.0 } else { loss as f32 });
            });
        Ok(())
    }
}

/// Its gradient.
pub(super) struct BackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for BackwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let sizes = sizes(&inputs[1], &inputs[2]);
        let [labels, states, classes] = own(sizes);
        let numbers = threads * (labels + states + classes) + kept(sizes, threads);
        (numbers * size_of::<Number>()) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op = op_as::<CtcLossBackward>(op)?.0;
        let (grad, inputs) = (&args.inputs[0], &args.inputs[1..]);
        let (stride, first) = (grad.layout().strides()[0], grad.layout().offset());
        let grad = grad.storage::<T>()?;
        let batch = Batch::new(op, inputs, inputs[0].storage::<T>()?)?;
        let sizes = batch.sizes;
        let [own_labels, own_beta, classes] = own(sizes);
        let threads = args.pool.threads();
        let (labels, rest) = args
            .scratch
            .split_at_mut(threads * own_labels * size_of::<Number>());
        let (beta, rest) = rest.split_at_mut(threads * own_beta * size_of::<Number>());
        let (rows, alphas) = rest.split_at_mut(threads * classes * size_of::<Number>());
        let labels = Disjoint::new(bytemuck::cast_slice_mut::<u8, usize>(labels));
        let [beta, rows, alphas] = [beta, rows, alphas]
            .map(|part| Disjoint::new(bytemuck::cast_slice_mut::<u8, f64>(part)));
        let out = Disjoint::new(args.outputs[0].slice_mut::<T>()?);
        let tasks = if sizes.packed {
            sizes.batch
        } else {
            threads.min(sizes.batch)
        };
        args.pool.for_each_on_thread(tasks, |task, thread| {
            // SAFETY: a thread does one task at a time, and has these parts to itself.
            let (labels, beta, row) = unsafe {
                (
                    labels.part(thread * own_labels, own_labels),
                    beta.part(thread * own_beta, own_beta),
                    rows.part(thread * classes, classes),
                )
            };
            for item in (task..sizes.batch).step_by(tasks) {
                let place = batch.place(item);
                let kept = if sizes.packed {
                    sizes.frames * (2 * place.start + item)
                } else {
                    task * sizes.frames * own_beta
                };
                // SAFETY: a task works on one target at a time, and targets that are packed have a part each.
                let alphas = unsafe { alphas.part(kept, sizes.frames * states(place.labels)) };
                let target = batch.target(&place, labels);
                let g = f64::from(grad[first + item * stride].wide());
                batch.gradient(
                    &place,
                    target,
                    g,
                    [alphas, &mut beta[..states(place.labels)], row],
                    |frame| {
                        // SAFETY: every row is the task's that has the target.
                        unsafe { out.part((frame * sizes.batch + item) * classes, classes) }
                    },
                );
            }
        });
        Ok(())
    }
}

impl<T: Float> Batch<'_, T> {
    /// Fills the rows of a target's gradient.
    fn gradient<'b>(
        &self,
        place: &Place,
        target: Target<'_>,
        g: f64,
        [alphas, beta, row]: [&mut [f64]; 3],
        out: impl Fn(usize) -> &'b mut [T],
    ) where
        T: 'b,
    {
        let count = states(place.labels);
        let loss = self.loss(place, target, beta, |frame, alpha| {
            alphas[frame * count..(frame + 1) * count].copy_from_slice(alpha);
        });
        let is_left_out = self.op.zero_infinity && loss == f64::INFINITY;
        let frames = if is_left_out { 0 } else { place.frames };
        for frame in frames..self.sizes.frames {
            out(frame).fill(T::zeroed());
        }
        Target::end(beta);
        for frame in (0..frames).rev() {
            if frame + 1 < frames {
                target.retreat(beta, self.at(place, frame + 1));
            }
            row.fill(0.0);
            let alpha = &alphas[frame * count..(frame + 1) * count];
            for (state, (alpha, beta)) in alpha.iter().zip(&*beta).enumerate() {
                row[target.class(state)] += (alpha + beta + loss).exp();
            }
            for (out, posterior) in out(frame).iter_mut().zip(&*row) {
                *out = T::nearest((-g * posterior) as f32);
            }
        }
    }
}
