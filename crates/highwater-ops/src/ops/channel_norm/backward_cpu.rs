//! The fast backward kernel: a few rows at a time, sums first.
//!
//! Tasks and pieces are those of `cpu.rs`. Gradients, and their products with what was normalised, are added
//! in one pass, a sum in `f64` for each of 1,024 places (two times 8 KiB), and the second pass makes the
//! gradient of the input, over that of the output if it lies there. So `g` and `x` are read twice, the second
//! time from a cache if a row fits one. Sums of parts of rows are left in scratch memory and added in their
//! order, on one thread, for weight and bias.

#![expect(unsafe_code, reason = "tasks write their own rows and sums")]

use super::cpu::{LANES, Rows, one};
use super::{BACKWARD, ChannelNormBackward, Geometry, Kind};
use crate::device::in_place;
use crate::kernels::blocks::{Reader, Source};
use crate::kernels::float::{Float, as_f32, as_f32_mut};
use crate::kernels::simd::multiversion;
use crate::{Args, Disjoint, Kernel, KernelError, Pairs, View, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// May overwrite the gradient.
pub(super) struct BackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for BackwardKernel<T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], _: &[Spec], _: usize) -> u64 {
        let parts = op.downcast().map_or(0, |op: &ChannelNormBackward| {
            let geometry = Geometry::new(op.kind, inputs[1].shape());
            geometry.rows * geometry.parts
        });
        (2 * parts * size_of::<f64>()) as u64
    }

    fn in_place(&self, op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        let of_input = op
            .downcast()
            .is_some_and(|op: &ChannelNormBackward| op.wanted[0]);
        in_place(&inputs[..usize::from(of_input)], outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        backward::<T>(op_as(op)?, args)
    }
}

/// What all tasks share.
struct Shared<'a, T> {
    geometry: Geometry,
    kind: Kind,
    g: Source<'a, T>,
    x: Reader<'a, T>,
    mean: Reader<'a, f32>,
    rstd: Reader<'a, f32>,
    weight: Option<Reader<'a, T>>,
    /// The gradient of the input, if wanted.
    dx: Option<Disjoint<'a, T>>,
    /// Of each part of a row: the sum of its gradients, and of their products with what was normalised.
    sums: Disjoint<'a, [f64; 2]>,
}

fn backward<T: Float>(op: &ChannelNormBackward, args: &mut Args<'_>) -> Result<(), KernelError> {
    let [g, x, mean, rstd, weight @ ..] = &*args.inputs else {
        return Err(KernelError::WrongOp { op: BACKWARD.name });
    };
    let geometry = Geometry::new(op.kind, x.spec().shape());
    let (dx, parameters) = args.outputs.split_at_mut(usize::from(op.wanted[0]));
    let mut dx = dx.first_mut();
    let sums: &mut [[f64; 2]] = bytemuck::cast_slice_mut(args.scratch);
    let shared = Shared::<T> {
        geometry,
        kind: op.kind,
        g: match &dx {
            Some(dx) => Source::new(g, dx)?,
            None => Source::Other(Reader::new(g)?),
        },
        x: Reader::new(x)?,
        mean: Reader::new(mean)?,
        rstd: Reader::new(rstd)?,
        weight: weight.first().map(Reader::new).transpose()?,
        dx: match &mut dx {
            Some(dx) => Some(Disjoint::new(dx.slice_mut()?)),
            None => None,
        },
        sums: Disjoint::new(sums),
    };
    args.pool
        .for_each(geometry.tasks(), |task| shared.rows(geometry.task(task)));
    let which = [1, 0].into_iter().zip([op.wanted[1], op.wanted[2]]);
    for ((which, _), view) in which.filter(|&(_, wanted)| wanted).zip(parameters) {
        add_rows::<T>(view, sums, which)?;
    }
    Ok(())
}

/// Adds up the sums of all parts that share an element of the weight.
fn add_rows<T: Float>(
    view: &mut View<'_>,
    sums: &[[f64; 2]],
    which: usize,
) -> Result<(), KernelError> {
    let to = view.slice_mut::<T>()?;
    let channels = to.len();
    for (channel, to) in to.iter_mut().enumerate() {
        let sums = sums[channel.min(sums.len())..].iter().step_by(channels);
        *to = T::nearest(sums.map(|sums| sums[which]).sum::<f64>() as f32);
    }
    Ok(())
}

/// What is multiplied and added for each element of a piece.
#[derive(Debug)]
struct Lanes {
    mean: [f32; LANES],
    rstd: [f32; LANES],
    /// The weight times `rstd`.
    scale: [f32; LANES],
    /// Minus the mean of scaled gradients, and minus the mean of their products with what was normalised;
    /// both times `rstd`.
    offset: [f32; LANES],
    slope: [f32; LANES],
}

impl<T: Float> Shared<'_, T> {
    /// The gradients of some rows.
    fn rows(&self, rows: Rows) {
        let geometry = &self.geometry;
        let mut lanes = Lanes {
            mean: [0.0; LANES],
            rstd: [0.0; LANES],
            scale: [0.0; LANES],
            offset: [0.0; LANES],
            slope: [0.0; LANES],
        };
        // SAFETY: sums of the rows of this task.
        let sums = unsafe {
            let parts = geometry.parts;
            self.sums.part(rows.first * parts, rows.count * parts)
        };
        sums.fill([0.0; 2]);
        for piece in geometry.pieces(rows) {
            geometry.for_each_part(&piece, |row, _, part| {
                let row = rows.first + row;
                lanes.mean[part.clone()].fill(first(&self.mean, row));
                lanes.rstd[part].fill(first(&self.rstd, row));
            });
            let mut totals = [[0.0; LANES]; 2];
            for outer in 0..geometry.outer {
                let start = geometry.start(outer, rows, &piece);
                self.sum(start, piece.len(), &lanes, &mut totals);
            }
            geometry.for_each_part(&piece, |row, part, range| {
                let sums = &mut sums[row * geometry.parts + part];
                sums[0] += totals[0][range.clone()].iter().sum::<f64>();
                sums[1] += totals[1][range].iter().sum::<f64>();
            });
        }
        let Some(dx) = &self.dx else {
            return;
        };
        for piece in geometry.pieces(rows) {
            let mut known = (usize::MAX, [0.0; 2]);
            geometry.for_each_part(&piece, |row, part, range| {
                if known.0 != row {
                    known = (
                        row,
                        self.means(rows.first + row, &sums[row * geometry.parts..]),
                    );
                }
                let (means, row) = (known.1, rows.first + row);
                let rstd = first(&self.rstd, row);
                lanes.mean[range.clone()].fill(first(&self.mean, row));
                lanes.rstd[range.clone()].fill(rstd);
                lanes.scale[range.clone()].fill(rstd * self.weight(row, part));
                lanes.offset[range.clone()].fill((-f64::from(rstd) * means[0]) as f32);
                lanes.slope[range].fill((-f64::from(rstd) * means[1]) as f32);
            });
            for outer in 0..geometry.outer {
                self.write(dx, geometry.start(outer, rows, &piece), piece.len(), &lanes);
            }
        }
    }

    fn weight(&self, row: usize, part: usize) -> f32 {
        one(
            self.weight.as_ref(),
            self.geometry.parameter(row, part),
            1.0,
        )
    }

    /// The means, over a row, of scaled gradients and of their products with what was normalised.
    fn means(&self, row: usize, sums: &[[f64; 2]]) -> [f64; 2] {
        let mut means = [0.0; 2];
        if self.kind == Kind::Inference {
            return means;
        }
        for (part, sums) in sums[..self.geometry.parts].iter().enumerate() {
            let weight = f64::from(self.weight(row, part));
            means[0] += weight * sums[0];
            means[1] += weight * sums[1];
        }
        means.map(|mean| mean / self.geometry.count() as f64)
    }

    fn sum(&self, start: usize, len: usize, lanes: &Lanes, totals: &mut [[f64; LANES]; 2]) {
        let [of_g, of_gx] = totals;
        if let Source::Other(g) = &self.g
            && let Some(g) = g.direct(start, len).and_then(as_f32)
            && let Some(x) = self.x.direct(start, len).and_then(as_f32)
        {
            return accumulate(g, x, &lanes.mean, &lanes.rstd, of_g, of_gx);
        }
        let [mut g_buffer, mut x_buffer] = [[0.0; LANES]; 2];
        let x = self.x.read(start, &mut x_buffer[..len]);
        let g = match (&self.g, &self.dx) {
            (Source::Other(reader), _) => reader.read(start, &mut g_buffer[..len]),
            (Source::Same, dx) => {
                // SAFETY: a piece of a row of this task, which is written when this has been read.
                let over = dx.as_ref().map(|dx| unsafe { &*dx.part(start, len) });
                let buffer = &mut g_buffer[..len];
                self.g.load(start, over.unwrap_or_default(), buffer);
                buffer
            }
        };
        accumulate(g, x, &lanes.mean, &lanes.rstd, of_g, of_gx);
    }

    fn write(&self, dx: &Disjoint<'_, T>, start: usize, len: usize, lanes: &Lanes) {
        let mut x_buffer;
        let x = if let Some(x) = self.x.direct(start, len).and_then(as_f32) {
            x
        } else {
            x_buffer = [0.0; LANES];
            self.x.read(start, &mut x_buffer[..len])
        };
        // SAFETY: a piece of a row, which one task writes once.
        let dx = unsafe { dx.part(start, len) };
        let finish = |g: &mut [f32]| {
            let Lanes {
                mean,
                rstd,
                scale,
                offset,
                slope,
            } = lanes;
            finish(g, x, mean, rstd, scale, offset, slope);
        };
        if let Some(dx) = as_f32_mut(dx) {
            self.g.widen_over(start, dx);
            return finish(dx);
        }
        let mut buffer = [0.0; LANES];
        let buffer = &mut buffer[..len];
        self.g.load(start, dx, buffer);
        finish(buffer);
        T::round(buffer, dx);
    }
}

/// One element.
fn first(reader: &Reader<'_, f32>, at: usize) -> f32 {
    let mut value = [0.0];
    reader.widen(at, &mut value);
    value[0]
}

multiversion! {
    /// Adds gradients, and their products with what was normalised, to lanes.
    fn accumulate[I](
        g: &[f32],
        x: &[f32],
        mean: &[f32],
        rstd: &[f32],
        of_g: &mut [f64],
        of_gx: &mut [f64],
    ) {
        let statistics = mean.iter().zip(rstd);
        let totals = of_g.iter_mut().zip(of_gx);
        for (((&g, &x), (&mean, &rstd)), (of_g, of_gx)) in g.iter().zip(x).zip(statistics).zip(totals)
        {
            *of_g += f64::from(g);
            *of_gx += f64::from(g * ((x - mean) * rstd));
        }
    }
}

multiversion! {
    /// Turns gradients of the output into those of the input.
    fn finish[I](
        g: &mut [f32],
        x: &[f32],
        mean: &[f32],
        rstd: &[f32],
        scale: &[f32],
        offset: &[f32],
        slope: &[f32],
    ) {
        let statistics = mean.iter().zip(rstd);
        let maps = scale.iter().zip(offset).zip(slope);
        let numbers = x.iter().zip(statistics).zip(maps);
        for (g, ((&x, (&mean, &rstd)), ((&scale, &offset), &slope))) in g.iter_mut().zip(numbers) {
            *g = I::fma((x - mean) * rstd, slope, I::fma(*g, scale, offset));
        }
    }
}
