//! The fast forward kernel, and what it shares with the backward one: a few rows at a time, which stay in
//! a cache from one pass to the next.
//!
//! A row is what shares statistics. A task is one row, or as many short ones as come to 256 elements side by
//! side, and goes over its elements three times: for the mean, for squares of differences from it, and to
//! scale them. Elements are taken 1,024 side by side, of one sample after the other, and each place has a sum
//! of its own in `f64` (8 KiB), so that additions are of neighbours, by vectors, whatever belongs to which
//! row; these sums are added in their order at the end. What rows have in common (mean, in two parts, scale
//! and shift) is spread over as many places before the loops, so that nothing in these is looked up. Cuts
//! follow from the shape.

#![expect(unsafe_code, reason = "tasks write their own rows and statistics")]

use super::{BatchNorm, BatchNormInference, Geometry, GroupNorm, Kind};
use crate::device::in_place;
use crate::kernels::blocks::{Reader, Source};
use crate::kernels::float::{Float, as_f32, as_f32_mut};
use crate::kernels::simd::multiversion;
use crate::{Args, Disjoint, Kernel, KernelError, Pairs, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;
use std::ops::Range;

/// Elements side by side that are worked on at a time.
pub(super) const LANES: usize = 1024;
/// Elements side by side that one task takes, if rows are short.
const SHORT: usize = 256;

/// Parts of rows that one task works on: whole rows, or parts of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Geometry {
    /// Rows that a task takes: of short ones several, as long as neighbours lie side by side.
    fn rows_per_task(&self) -> usize {
        (SHORT / self.width().max(1)).clamp(1, SHORT)
    }

    pub(super) fn tasks(&self) -> usize {
        self.rows.div_ceil(self.rows_per_task())
    }

    pub(super) fn task(&self, task: usize) -> Rows {
        let step = self.rows_per_task();
        let first = task * step;
        Rows {
            first,
            count: step.min(self.rows - first),
        }
    }

    /// Pieces of the elements that lie side by side in each of `outer`.
    pub(super) fn pieces(&self, rows: Rows) -> impl Iterator<Item = Range<usize>> {
        let width = rows.count * self.width();
        (0..width)
            .step_by(LANES)
            .map(move |start| start..width.min(start + LANES))
    }

    /// Where a piece lies in one of `outer`.
    pub(super) fn start(&self, outer: usize, rows: Rows, piece: &Range<usize>) -> usize {
        (outer * self.rows + rows.first) * self.width() + piece.start
    }

    /// Hands `f` the row, counted from the first, the part of it and the elements of a piece that belong to
    /// both.
    pub(super) fn for_each_part(
        &self,
        piece: &Range<usize>,
        mut f: impl FnMut(usize, usize, Range<usize>),
    ) {
        let mut at = piece.start;
        while at < piece.end {
            let part = at / self.pixels;
            let end = piece.end.min((part + 1) * self.pixels);
            let (row, part) = (part / self.parts, part % self.parts);
            f(row, part, at - piece.start..end - piece.start);
            at = end;
        }
    }
}

/// May overwrite `x`.
pub(super) struct ForwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for ForwardKernel<T> {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(&inputs[..1], outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let (kind, eps) = match op.downcast::<BatchNorm>() {
            Some(op) => (Kind::Batch, op.eps),
            None => match op.downcast::<GroupNorm>() {
                Some(op) => (Kind::Groups(op.groups), op.eps),
                None => (Kind::Inference, op_as::<BatchNormInference>(op)?.eps),
            },
        };
        forward::<T>(kind, eps, args)
    }
}

/// What all tasks share.
struct Forward<'a, T> {
    geometry: Geometry,
    eps: f64,
    x: Source<'a, T>,
    y: Disjoint<'a, T>,
    /// Mean and variance, if they are given.
    given: Option<[Reader<'a, f32>; 2]>,
    parameters: [Option<Reader<'a, T>>; 2],
    /// Those that are wanted: mean, `rstd`, variance.
    statistics: [Option<Disjoint<'a, f32>>; 3],
}

fn forward<T: Float>(kind: Kind, eps: f64, args: &mut Args<'_>) -> Result<(), KernelError> {
    let inputs = &*args.inputs;
    let is_given = kind == Kind::Inference;
    let (y, statistics) = args.outputs.split_at_mut(1);
    let geometry = Geometry::new(kind, y[0].spec().shape());
    let first = if is_given { 3 } else { 1 };
    let parameter = |i: usize| inputs.get(first + i).map(Reader::new).transpose();
    let mut disjoint = [const { None }; 3];
    // Where statistics are given, `rstd` is the only one.
    let places = disjoint.iter_mut().skip(usize::from(is_given));
    for (place, view) in places.zip(statistics) {
        *place = Some(Disjoint::new(view.slice_mut::<f32>()?));
    }
    let given = if is_given {
        Some([Reader::new(&inputs[1])?, Reader::new(&inputs[2])?])
    } else {
        None
    };
    let x = Source::new(&inputs[0], &y[0])?;
    let forward = Forward::<T> {
        geometry,
        eps,
        x,
        y: Disjoint::new(y[0].slice_mut()?),
        given,
        parameters: [parameter(0)?, parameter(1)?],
        statistics: disjoint,
    };
    args.pool
        .for_each(geometry.tasks(), |task| forward.rows(geometry.task(task)));
    Ok(())
}

/// A mean, as the sum of two numbers of which the first is the mean rounded, and `rstd`.
#[derive(Debug, Clone, Copy, Default)]
struct Statistics {
    high: f32,
    low: f32,
    rstd: f32,
}

impl<T: Float> Forward<'_, T> {
    /// Normalises some rows.
    fn rows(&self, rows: Rows) {
        let mut statistics = [Statistics::default(); SHORT];
        let statistics = &mut statistics[..rows.count];
        match &self.given {
            Some(given) => self.given(rows, given, statistics),
            None => self.compute(rows, statistics),
        }
        let [mut high, mut low, mut scale, mut bias] = [[0.0; LANES]; 4];
        for piece in self.geometry.pieces(rows) {
            self.geometry.for_each_part(&piece, |row, part, lanes| {
                let Statistics {
                    high: mean,
                    low: rest,
                    rstd,
                } = statistics[row];
                let parameter = self.geometry.parameter(rows.first + row, part);
                let [weight, shift] = [1.0, 0.0];
                high[lanes.clone()].fill(mean);
                low[lanes.clone()].fill(rest);
                scale[lanes.clone()]
                    .fill(rstd * one(self.parameters[0].as_ref(), parameter, weight));
                bias[lanes].fill(one(self.parameters[1].as_ref(), parameter, shift));
            });
            for outer in 0..self.geometry.outer {
                self.write(self.geometry.start(outer, rows, &piece), piece.len(), |y| {
                    normalise(y, &high, &low, &scale, &bias);
                });
            }
        }
    }

    /// Hands `f` elements of `x` for it to turn into those of `y`.
    fn write(&self, start: usize, len: usize, f: impl FnOnce(&mut [f32])) {
        // SAFETY: a piece of a row, which one task visits once.
        let y = unsafe { self.y.part(start, len) };
        if let Some(y) = as_f32_mut(y) {
            self.x.widen_over(start, y);
            return f(y);
        }
        let mut buffer = [0.0; LANES];
        let buffer = &mut buffer[..len];
        self.x.load(start, y, buffer);
        f(buffer);
        T::round(buffer, y);
    }

    /// Hands `f` elements of `x`.
    fn read(&self, start: usize, len: usize, f: impl FnOnce(&[f32])) {
        if let Source::Other(reader) = &self.x
            && let Some(x) = reader.direct(start, len).and_then(as_f32)
        {
            return f(x);
        }
        let mut buffer = [0.0; LANES];
        let buffer = &mut buffer[..len];
        match &self.x {
            Source::Other(reader) => f(reader.read(start, buffer)),
            Source::Same => {
                // SAFETY: a piece of a row of this task, which is written when this has been read.
                self.x
                    .load(start, unsafe { self.y.part(start, len) }, buffer);
                f(buffer);
            }
        }
    }

    /// Statistics that are given.
    fn given(&self, rows: Rows, [mean, var]: &[Reader<'_, f32>; 2], to: &mut [Statistics]) {
        for (row, to) in to.iter_mut().enumerate() {
            let [mut mean_, mut var_] = [[0.0]; 2];
            mean.widen(rows.first + row, &mut mean_);
            var.widen(rows.first + row, &mut var_);
            to.high = mean_[0];
            to.rstd = (1.0 / (f64::from(var_[0]) + self.eps).sqrt()) as f32;
            self.set(1, rows.first + row, to.rstd);
        }
    }

    /// Statistics of the rows themselves.
    fn compute(&self, rows: Rows, to: &mut [Statistics]) {
        let geometry = &self.geometry;
        let count = geometry.count() as f64;
        let mut totals = [0.0; SHORT];
        self.sums(rows, &mut totals, |_, x, lanes| add(x, lanes));
        for (row, (to, total)) in to.iter_mut().zip(&mut totals).enumerate() {
            let mean = *total / count;
            to.high = mean as f32;
            to.low = (mean - f64::from(to.high)) as f32;
            self.set(0, rows.first + row, to.high);
            *total = 0.0;
        }
        let [mut high, mut low] = [[0.0; LANES]; 2];
        let mut filled = None;
        self.sums(rows, &mut totals, |piece, x, lanes| {
            if filled.as_ref() != Some(piece) {
                geometry.for_each_part(piece, |row, _, lanes| {
                    high[lanes.clone()].fill(to[row].high);
                    low[lanes].fill(to[row].low);
                });
                filled = Some(piece.clone());
            }
            add_squares(x, &high, &low, lanes);
        });
        for (row, (to, total)) in to.iter_mut().zip(&totals).enumerate() {
            let var = total / count;
            to.rstd = (1.0 / (var + self.eps).sqrt()) as f32;
            self.set(1, rows.first + row, to.rstd);
            self.set(2, rows.first + row, var as f32);
        }
    }

    /// Adds to the total of each row what `add` adds to lanes, element by element.
    fn sums(
        &self,
        rows: Rows,
        totals: &mut [f64],
        mut add: impl FnMut(&Range<usize>, &[f32], &mut [f64]),
    ) {
        let mut lanes = [0.0; LANES];
        for piece in self.geometry.pieces(rows) {
            let lanes = &mut lanes[..piece.len()];
            lanes.fill(0.0);
            for outer in 0..self.geometry.outer {
                let start = self.geometry.start(outer, rows, &piece);
                self.read(start, piece.len(), |x| add(&piece, x, lanes));
            }
            self.geometry.for_each_part(&piece, |row, _, part| {
                totals[row] += lanes[part].iter().sum::<f64>();
            });
        }
    }

    /// Writes a statistic, if it is wanted.
    fn set(&self, which: usize, row: usize, value: f32) {
        if let Some(statistic) = &self.statistics[which] {
            // SAFETY: an element of a row, which one task visits.
            let place = unsafe { statistic.part(row, 1) };
            place[0] = value;
        }
    }
}

/// An element, or what there is otherwise.
pub(super) fn one<T: Float>(reader: Option<&Reader<'_, T>>, at: usize, otherwise: f32) -> f32 {
    let mut value = [otherwise];
    if let Some(reader) = reader {
        reader.widen(at, &mut value);
    }
    value[0]
}

multiversion! {
    /// Adds elements to lanes.
    fn add[I](x: &[f32], lanes: &mut [f64]) {
        for (lane, &x) in lanes.iter_mut().zip(x) {
            *lane += f64::from(x);
        }
    }
}

multiversion! {
    /// Adds the squares of distances from means.
    fn add_squares[I](x: &[f32], high: &[f32], low: &[f32], lanes: &mut [f64]) {
        let means = high.iter().zip(low);
        for ((lane, &x), (&high, &low)) in lanes.iter_mut().zip(x).zip(means) {
            let distance = (x - high) - low;
            *lane += f64::from(distance * distance);
        }
    }
}

multiversion! {
    /// Normalises elements.
    fn normalise[I](x: &mut [f32], high: &[f32], low: &[f32], scale: &[f32], bias: &[f32]) {
        let means = high.iter().zip(low);
        let maps = scale.iter().zip(bias);
        for ((x, (&high, &low)), (&scale, &bias)) in x.iter_mut().zip(means).zip(maps) {
            *x = I::fma((*x - high) - low, scale, bias);
        }
    }
}
