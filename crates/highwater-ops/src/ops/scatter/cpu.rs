//! The fast kernels: as `scatter_add`, tiles of columns whose elements are taken in the order of indices, by one
//! task each. No atomics, and the same bits with any threads.
//!
//! `scatter` copies elements. The others keep two `f64` for each place of a tile in scratch memory: the more
//! places a line has, the narrower are its tiles, so that a thread keeps some megabytes at most.

#![expect(unsafe_code, reason = "tasks own columns of one output")]

use super::{Scatter, ScatterReduce, ScatterReduction, ScatterWeights};
use crate::kernels::blocks::{BLOCK, Reader};
use crate::kernels::float::Float;
use crate::kernels::lines::Lines;
use crate::kernels::places::{Places, check};
use crate::{Args, Disjoint, Element, Kernel, KernelError, Pairs, Pool, View, op_as};
use highwater_graph::{Op, Shape, Spec};
use std::marker::PhantomData;

/// Columns of the output that one task writes to at most, and at least, where there are as many.
const COLUMNS: [usize; 2] = [64, 4];
/// Places whose state a thread keeps, but for the fewest columns.
const KEPT: usize = 1 << 17;
/// Elements that one task takes at least.
const TAKEN: usize = 1 << 14;

/// What is written about a place: two numbers, which the reduction gives a meaning.
type State = [f64; 2];

/// How source and output lie about the dimension.
#[derive(Clone, Copy)]
struct Tiles {
    /// The source's lines.
    lines: Lines,
    /// Places of a line of the output.
    extent: usize,
    width: usize,
}

/// One tile: the line before the dimension, the first column behind it, and how many there are.
#[derive(Clone, Copy)]
struct Tile {
    row: usize,
    column: usize,
    width: usize,
}

impl Tiles {
    fn new(source: &Shape, base: &Shape, dim: usize) -> Self {
        let (lines, extent) = (Lines::new(source, dim), Lines::new(base, dim).extent);
        let width = KEPT / extent.max(1);
        let width = width.clamp(COLUMNS[1], COLUMNS[0]).min(lines.inner);
        Self {
            lines,
            extent,
            width,
        }
    }

    /// Places of the largest tile.
    fn places(self) -> usize {
        self.extent * self.width
    }

    /// Hands out the tiles, and the numbers of threads.
    fn for_each(self, pool: &Pool, f: impl Fn(Tile, usize) + Send + Sync) {
        let Lines {
            outer,
            inner,
            extent,
        } = self.lines;
        let across = inner.div_ceil(self.width.max(1));
        let tile = self.width * extent.max(self.extent);
        let (tiles, each) = (outer * across, TAKEN.div_ceil(tile.max(1)));
        pool.for_each_on_thread(tiles.div_ceil(each), |task, thread| {
            for number in task * each..tiles.min((task + 1) * each) {
                let column = number % across * self.width;
                let tile = Tile {
                    row: number / across,
                    column,
                    width: self.width.min(inner - column),
                };
                f(tile, thread);
            }
        });
    }

    /// Where in the output the elements of a tile lie, a row of neighbours at a time: whole rows are one.
    fn rows(self, tile: Tile) -> impl Iterator<Item = (usize, usize, usize)> {
        let inner = self.lines.inner;
        let (count, len) = if tile.width == inner {
            (1, self.extent * inner)
        } else {
            (self.extent, tile.width)
        };
        let first = tile.row * self.extent * inner + tile.column;
        (0..count).map(move |i| (i * tile.width, first + i * inner, len))
    }

    /// Hands `f` the source's elements of a tile, some at a time in the order of indices: where they stand in the
    /// source, and for each where in the tile it goes.
    fn visit(self, tile: Tile, places: &Places<'_>, mut f: impl FnMut(usize, &[usize])) {
        let Lines { extent, inner, .. } = self.lines;
        let start = tile.row * extent * inner + tile.column;
        let mut slots = [0; BLOCK];
        if inner == 1 {
            for first in (0..extent).step_by(BLOCK) {
                let slots = &mut slots[..BLOCK.min(extent - first)];
                places.read(start + first, slots);
                f(start + first, slots);
            }
            return;
        }
        let slots = &mut slots[..tile.width];
        for k in 0..extent {
            let at = start + k * inner;
            if places.repeated {
                slots.fill(places.one(at));
            } else {
                places.read(at, slots);
            }
            for (column, slot) in slots.iter_mut().enumerate() {
                *slot = *slot * tile.width + column;
            }
            f(at, slots);
        }
    }

    /// Where in the output a place of a tile is.
    fn position(self, tile: Tile, slot: usize) -> usize {
        let (to, column) = (slot / tile.width, tile.column + slot % tile.width);
        (tile.row * self.extent + to) * self.lines.inner + column
    }
}

/// Copies; may overwrite what it writes to.
pub(super) struct ScatterKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Element> Kernel for ScatterKernel<T> {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        over_base(inputs, outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let dim = op_as::<Scatter>(op)?.dim;
        let [source, index, base] = &*args.inputs else {
            return Ok(());
        };
        let tiles = Tiles::new(index.spec().shape(), args.outputs[0].spec().shape(), dim);
        if tiles.extent == 0 {
            return check(index, 0);
        }
        let places = Places::new(index, dim, tiles.extent)?;
        let base = (!base.is_overwritten()).then(|| Reader::<T>::new(base));
        let (base, source) = (base.transpose()?, Reader::<T>::new(source)?);
        let out = Disjoint::new(args.outputs[0].slice_mut::<T>()?);
        tiles.for_each(args.pool, |tile, _| {
            // SAFETY: a task only touches its own columns, one part at a time.
            let part = |start: usize, len: usize| unsafe { out.part(start, len) };
            if let Some(base) = &base {
                for (_, start, len) in tiles.rows(tile) {
                    base.copy(start, part(start, len));
                }
            }
            let mut buffer = [T::zeroed(); BLOCK];
            tiles.visit(tile, &places, |at, slots| {
                let x = source.piece(at, &mut buffer[..slots.len()]);
                for (&slot, &x) in slots.iter().zip(x) {
                    part(tiles.position(tile, slot), 1)[0] = x;
                }
            });
        });
        places.verdict(tiles.lines)
    }
}

/// The output may lie over what is written to.
fn over_base(inputs: &[Spec], outputs: &[Spec]) -> Pairs {
    let base = inputs.get(2).filter(|&base| *base == outputs[0]);
    base.map(|_| (2, 0)).into_iter().collect()
}

/// Bytes of the threads' states.
fn kept_bytes(inputs: &[Spec], dim: usize, threads: usize) -> u64 {
    let tiles = Tiles::new(inputs[1].shape(), inputs[2].shape(), dim);
    (threads * tiles.places() * size_of::<State>()) as u64
}

/// What is read and kept of a reduction.
struct Work<'a, T> {
    tiles: Tiles,
    places: Places<'a>,
    source: Reader<'a, T>,
    states: Disjoint<'a, State>,
}

impl<'a, T: Float> Work<'a, T> {
    fn new(dim: usize, inputs: &'a [View<'_>], scratch: &'a mut [u8]) -> Result<Self, KernelError> {
        let tiles = Tiles::new(inputs[1].spec().shape(), inputs[2].spec().shape(), dim);
        Ok(Self {
            tiles,
            places: Places::new(&inputs[1], dim, tiles.extent)?,
            source: Reader::new(&inputs[0])?,
            states: Disjoint::new(bytemuck::cast_slice_mut(scratch)),
        })
    }

    /// The states of a tile, for the thread that works on it.
    fn states(&self, tile: Tile, thread: usize) -> &'a mut [State] {
        let start = thread * self.tiles.places();
        // SAFETY: a thread works on one tile at a time, and has this part to itself.
        unsafe { self.states.part(start, self.tiles.extent * tile.width) }
    }

    /// Hands `f` the elements of the source in their order, some at a time: where they stand, where they go, and
    /// what they are.
    fn visit(&self, tile: Tile, mut f: impl FnMut(usize, &[usize], &[f32])) {
        let mut buffer = [0.0; BLOCK];
        self.tiles.visit(tile, &self.places, |at, slots| {
            let x = &mut buffer[..slots.len()];
            self.source.widen(at, x);
            f(at, slots, x);
        });
    }
}

/// Hands `f` what an output has in a tile, as `f32` and a piece at a time, and rounds what it leaves there. `load`
/// fills the piece that starts somewhere in the output.
fn map_tile<T: Float>(
    rows: impl Iterator<Item = (usize, usize, usize)>,
    out: &Disjoint<'_, T>,
    load: impl Fn(usize, &[T], &mut [f32]),
    mut f: impl FnMut(usize, &mut [f32]),
) {
    let mut buffer = [0.0; BLOCK];
    for (slot, start, len) in rows {
        for first in (0..len).step_by(BLOCK) {
            let len = BLOCK.min(len - first);
            // SAFETY: a task only touches its own columns, one part at a time.
            let out = unsafe { out.part(start + first, len) };
            let x = &mut buffer[..len];
            load(start + first, out, x);
            f(slot + first, x);
            T::round(x, out);
        }
    }
}

/// Joins; may overwrite what it writes to.
pub(super) struct ReduceKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for ReduceKernel<T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let dim = op.downcast().map_or(0, |op: &ScatterReduce| op.dim);
        kept_bytes(inputs, dim, threads)
    }

    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        over_base(inputs, outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op = *op_as::<ScatterReduce>(op)?;
        if args.outputs[0].numel() == 0 {
            return check(&args.inputs[1], 0);
        }
        let work = Work::<T>::new(op.dim, args.inputs, args.scratch)?;
        let base = &args.inputs[2];
        let base = (!base.is_overwritten()).then(|| Reader::<T>::new(base));
        let base = base.transpose()?;
        let out = Disjoint::new(args.outputs[0].slice_mut::<T>()?);
        let load = |start: usize, out: &[T], x: &mut [f32]| match &base {
            Some(base) => base.widen(start, x),
            None => T::widen(out, x),
        };
        let tiles = work.tiles;
        tiles.for_each(args.pool, |tile, thread| {
            let states = work.states(tile, thread);
            let first = f64::from(u8::from(op.include_self));
            map_tile(tiles.rows(tile), &out, load, |slot, x| {
                for (state, &x) in states[slot..].iter_mut().zip(&*x) {
                    *state = [f64::from(x), first];
                }
            });
            work.visit(tile, |_, slots, x| {
                for (&slot, &x) in slots.iter().zip(x) {
                    join(op.reduction, &mut states[slot], f64::from(x));
                }
            });
            let nothing = |_: usize, _: &[T], _: &mut [f32]| {};
            map_tile(tiles.rows(tile), &out, nothing, |slot, x| {
                for (&[value, count], x) in states[slot..].iter().zip(x) {
                    let is_mean = op.reduction == ScatterReduction::Mean && count > 0.0;
                    *x = (if is_mean { value / count } else { value }) as f32;
                }
            });
        });
        work.places.verdict(tiles.lines)
    }
}

/// Joins one element to those of its place, whose state is what they make so far and how many there are.
fn join(reduction: ScatterReduction, [value, count]: &mut State, x: f64) {
    let joined = match reduction {
        ScatterReduction::Sum | ScatterReduction::Mean => *value + x,
        ScatterReduction::Prod => *value * x,
        ScatterReduction::Amax if is_better(x, *value) => x,
        ScatterReduction::Amin if is_better(-x, -*value) => x,
        ScatterReduction::Amax | ScatterReduction::Amin => *value,
    };
    *value = if *count > 0.0 { joined } else { x };
    *count += 1.0;
}

/// Whether an element takes the place of another: it is larger, or the first NaN.
fn is_better(x: f64, than: f64) -> bool {
    x > than || (x.is_nan() && !than.is_nan())
}

/// The derivatives of both.
pub(super) struct WeightsKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for WeightsKernel<T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let dim = op.downcast().map_or(0, |op: &ScatterWeights| op.dim);
        kept_bytes(inputs, dim, threads)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op = *op_as::<ScatterWeights>(op)?;
        if args.inputs[2].numel() == 0 {
            return check(&args.inputs[1], 0);
        }
        let work = Work::<T>::new(op.dim, args.inputs, args.scratch)?;
        let base = Reader::<T>::new(&args.inputs[2])?;
        let [of_source, of_base] = &mut *args.outputs else {
            return Ok(());
        };
        let of_source = Disjoint::new(of_source.slice_mut::<T>()?);
        let of_base = Disjoint::new(of_base.slice_mut::<T>()?);
        let tiles = work.tiles;
        tiles.for_each(args.pool, |tile, thread| {
            let states = work.states(tile, thread);
            let load = |start: usize, _: &[T], x: &mut [f32]| base.widen(start, x);
            let nothing = if op.reduction == Some(ScatterReduction::Prod) {
                [1.0, 0.0]
            } else {
                [0.0, 0.0]
            };
            // Until all are taken in, the output says whether the element before is one of them.
            map_tile(tiles.rows(tile), &of_base, load, |slot, x| {
                for (state, x) in states[slot..].iter_mut().zip(x) {
                    *state = nothing;
                    if op.include_self {
                        take(op.reduction, state, f64::from(*x), -1.0);
                    }
                    *x = 1.0;
                }
            });
            work.visit(tile, |at, slots, x| {
                for (i, (&slot, &x)) in slots.iter().zip(x).enumerate() {
                    take(
                        op.reduction,
                        &mut states[slot],
                        f64::from(x),
                        (at + i) as f64,
                    );
                    if !op.include_self {
                        // SAFETY: a task only touches its own columns, one part at a time.
                        let own = unsafe { of_base.part(tiles.position(tile, slot), 1) };
                        T::round(&[0.0], own);
                    }
                }
            });
            work.visit(tile, |at, slots, x| {
                // SAFETY: every element is visited once, by the task that has its columns.
                let out = unsafe { of_source.part(at, x.len()) };
                let mut weights = [0.0; BLOCK];
                for (i, (&slot, &x)) in slots.iter().zip(x).enumerate() {
                    let at = (at + i) as f64;
                    weights[i] = weight(op.reduction, states[slot], f64::from(x), at) as f32;
                }
                T::round(&weights[..x.len()], out);
            });
            if op.include_self {
                map_tile(tiles.rows(tile), &of_base, load, |slot, x| {
                    for (&state, x) in states[slot..].iter().zip(x) {
                        *x = weight(op.reduction, state, f64::from(*x), -1.0) as f32;
                    }
                });
            }
        });
        work.places.verdict(tiles.lines)
    }
}

/// Takes in one element of a place, which stands at `at`. A state is what weights need: the last one's position; how
/// many there are; the product of those that are not zero, and how many are; the extremum, and how many equal it.
fn take(reduction: Option<ScatterReduction>, state: &mut State, x: f64, at: f64) {
    let [value, count] = state;
    match reduction {
        None => *value = at,
        Some(ScatterReduction::Sum | ScatterReduction::Mean) => *count += 1.0,
        Some(ScatterReduction::Prod) if x == 0.0 => *count += 1.0,
        Some(ScatterReduction::Prod) => *value *= x,
        Some(reduction @ (ScatterReduction::Amax | ScatterReduction::Amin)) => {
            let sign = if reduction == ScatterReduction::Amax {
                1.0
            } else {
                -1.0
            };
            if *count == 0.0 || is_better(sign * x, sign * *value) {
                *state = [x, 1.0];
            } else if is_same(x, *value) {
                *count += 1.0;
            }
        }
    }
}

/// The derivative of a place by one of its elements.
fn weight(reduction: Option<ScatterReduction>, [value, count]: State, x: f64, at: f64) -> f64 {
    match reduction {
        None => f64::from(u8::from(is_same(value, at))),
        Some(ScatterReduction::Sum) => 1.0,
        Some(ScatterReduction::Mean) => 1.0 / count,
        Some(ScatterReduction::Prod) if count == 0.0 => value / x,
        // The product of the others has no zero if this is the only one.
        Some(ScatterReduction::Prod) if count < 2.0 && x == 0.0 => value,
        Some(ScatterReduction::Amax | ScatterReduction::Amin) if is_same(x, value) => 1.0 / count,
        Some(ScatterReduction::Prod | ScatterReduction::Amax | ScatterReduction::Amin) => 0.0,
    }
}

#[expect(clippy::float_cmp, reason = "one was made from the other")]
fn is_same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}
