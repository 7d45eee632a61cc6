//! Elementwise kernels as functions of short contiguous slices, whatever the layouts.
//!
//! A task is 32,768 elements in the order in which the output lies in memory: few enough that threads share
//! them evenly, and enough that handing them out is nothing beside the work. Where all inputs lie in that
//! order, a function is handed a whole task at once, where it lies. Else it gets 1,024 elements at a time, 4
//! KiB of `f32`, and of inputs that lie otherwise, or that the output lies over, a copy on the stack, which
//! the first cache holds. So a transposed or broadcast operand is never there as a tensor of its own.
//! Narrower floats are widened and rounded in pieces of the same size. Rows are handed out as many to a task
//! as come to about as many elements.
//!
//! Nothing is summed here, and no element depends on the piece that it is in.

#![expect(unsafe_code, reason = "tasks write disjoint blocks of one output")]
#![expect(
    clippy::inline_always,
    reason = "where elements are `f32` no stage is to be made"
)]

pub(crate) use crate::device::BLOCK;
use crate::kernels::float::{Float, as_f32, as_f32_mut, is_f32};
use crate::kernels::strided::{Runs, gather_runs, runs, widen_runs};
use crate::{Disjoint, Element, KernelError, Pool, View};
use highwater_graph::Layout;

/// Elements that one task works on.
pub(crate) const TASK: usize = 32 * BLOCK;

/// Reads a tensor in the row-major order of its layout's shape.
#[derive(Debug)]
pub(crate) struct Reader<'a, T> {
    storage: &'a [T],
    offset: usize,
    runs: Runs,
    contiguous: bool,
}

impl<'a, T: Element> Reader<'a, T> {
    /// Reads `view` as it is laid out. Must not be used on memory that is written meanwhile.
    pub(crate) fn new(view: &'a View<'_>) -> Result<Self, KernelError> {
        Self::through(view, view.layout())
    }

    /// Reads `view` through another layout of its storage.
    pub(crate) fn through(view: &'a View<'_>, layout: &Layout) -> Result<Self, KernelError> {
        let storage = view.storage()?;
        assert!(
            layout.end() <= storage.len(),
            "a layout must end inside its storage"
        );
        Ok(Self {
            storage,
            offset: layout.offset(),
            runs: runs(layout),
            contiguous: layout.is_contiguous(),
        })
    }

    /// Reads `view`, broadcast to the shape of a dense output, in the order in which that lies in memory.
    pub(crate) fn in_order_of(view: &'a View<'_>, output: &Layout) -> Result<Self, KernelError> {
        Self::through(view, &in_order_of(view.layout(), output)?)
    }

    /// The `len` elements from the `start`-th, where they lie so.
    #[inline]
    pub(crate) fn direct(&self, start: usize, len: usize) -> Option<&'a [T]> {
        let from = self.offset + start;
        self.contiguous.then(|| &self.storage[from..from + len])
    }

    /// The elements from the `start`-th, as many as `buffer` holds: where they lie, or copied there.
    pub(crate) fn piece<'b>(&'b self, start: usize, buffer: &'b mut [T]) -> &'b [T] {
        if let Some(direct) = self.direct(start, buffer.len()) {
            return direct;
        }
        self.copy(start, buffer);
        buffer
    }

    /// Copies the elements from the `start`-th into `out`.
    pub(crate) fn copy(&self, start: usize, out: &mut [T]) {
        gather_runs(self.storage, self.offset, &self.runs, start, out);
    }
}

impl<T: Float> Reader<'_, T> {
    /// The elements from the `start`-th as `f32`, as many as `buffer` holds: where they lie, or
    /// widened there.
    #[inline]
    pub(crate) fn read<'b>(&'b self, start: usize, buffer: &'b mut [f32]) -> &'b [f32] {
        let direct = self.direct(start, buffer.len()).and_then(as_f32);
        direct.unwrap_or_else(|| {
            self.widen(start, buffer);
            buffer
        })
    }

    /// Widens the elements from the `start`-th into `out`.
    pub(crate) fn widen(&self, start: usize, out: &mut [f32]) {
        match self.direct(start, out.len()) {
            Some(direct) => T::widen(direct, out),
            None => widen_runs(self.storage, self.offset, &self.runs, start, out),
        }
    }
}

/// Fills a piece of an output from the same piece of each input. The first argument is the position of the piece.
pub(crate) type Fill<'f, T, U, const N: usize> = &'f (dyn Fn(usize, [&[T]; N], &mut [U]) + Sync);

/// Fills `output` with a function of the `inputs`, elementwise: inputs broadcast to the output's
/// shape; any layouts; the output must be dense, and may lie over inputs of its own layout.
///
/// `f(start, inputs, output)` is called on pieces: slices of one length, where `start` is the
/// position of the first element in the output's memory (its flat index, if the output is
/// row-major), a multiple of [`BLOCK`]. What it computes for an element must not depend on the
/// piece that it is in. It is called so seldom that one copy of this serves all functions.
pub(crate) fn map<T: Element, U: Element, const N: usize>(
    pool: &Pool,
    inputs: [&View<'_>; N],
    output: &mut View<'_>,
    f: Fill<'_, T, U, N>,
) -> Result<(), KernelError> {
    let numel = output.numel();
    if numel == 0 {
        return Ok(());
    }
    let layout = output.layout();
    check_dense(layout)?;
    // `None`: the output's own memory.
    let mut readers: [Option<Reader<'_, T>>; N] = [const { None }; N];
    for (input, reader) in inputs.iter().zip(&mut readers) {
        if input.is_overwritten() {
            if input.layout() != layout || !T::is(output.spec().dtype) {
                return Err(unsupported("one layout in place", input.layout()));
            }
        } else {
            *reader = Some(Reader::in_order_of(input, layout)?);
        }
    }
    let offset = layout.offset();
    let output = Disjoint::new(&mut output.storage_mut::<U>()?[offset..offset + numel]);
    let direct = readers
        .iter()
        .all(|reader| reader.as_ref().is_some_and(|reader| reader.contiguous));
    let step = if direct { TASK } else { BLOCK };
    pool.for_each(numel.div_ceil(TASK), |task| {
        let end = numel.min((task + 1) * TASK);
        let mut buffers = [[T::zeroed(); BLOCK]; N];
        for start in (task * TASK..end).step_by(step) {
            let len = step.min(end - start);
            // SAFETY: pieces of different steps and tasks do not overlap.
            let out = unsafe { output.part(start, len) };
            if !direct {
                fill_buffers(&readers, &mut buffers, start, out);
            }
            let pieces = std::array::from_fn(|i| {
                let direct = readers[i]
                    .as_ref()
                    .and_then(|reader| reader.direct(start, len));
                direct.unwrap_or_else(|| &buffers[i][..len])
            });
            f(start, pieces, out);
        }
    });
    Ok(())
}

/// That an output's elements, in the order in which they lie in memory, lie there without gaps.
pub(crate) fn check_dense(layout: &Layout) -> Result<(), KernelError> {
    let in_memory = layout.permute(&layout.storage_order());
    if in_memory.is_some_and(|layout| layout.is_contiguous()) {
        Ok(())
    } else {
        Err(unsupported("a dense output", layout))
    }
}

/// A layout, broadcast to the shape of a dense output, in the order in which that lies in memory.
pub(crate) fn in_order_of(layout: &Layout, output: &Layout) -> Result<Layout, KernelError> {
    let expanded = layout.expand(output.shape());
    let through = expanded.and_then(|layout| layout.permute(&output.storage_order()));
    through.ok_or_else(|| unsupported("a broadcast", layout))
}

/// The refusal of a layout.
pub(crate) fn unsupported(expected: &'static str, layout: &Layout) -> KernelError {
    KernelError::Unsupported {
        expected,
        got: format!("{layout:?}"),
    }
}

/// Copies to `buffers` the pieces that cannot be read where they lie.
fn fill_buffers<T: Element, U: Element, const N: usize>(
    readers: &[Option<Reader<'_, T>>; N],
    buffers: &mut [[T; BLOCK]; N],
    start: usize,
    out: &[U],
) {
    for (reader, buffer) in readers.iter().zip(buffers) {
        let buffer = &mut buffer[..out.len()];
        match reader {
            Some(reader) if reader.contiguous => {}
            Some(reader) => reader.copy(start, buffer),
            None => buffer.copy_from_slice(bytemuck::cast_slice(out)),
        }
    }
}

/// [`map`] for a function of `f32`, whatever floats the tensors hold: inputs are widened and outputs
/// rounded, a piece at a time.
pub(crate) fn map_floats<T: Float, const N: usize>(
    pool: &Pool,
    inputs: [&View<'_>; N],
    output: &mut View<'_>,
    f: Fill<'_, f32, f32, N>,
) -> Result<(), KernelError> {
    map::<T, T, N>(pool, inputs, output, &|start, inputs, out| {
        let mut stage = ([[0.0; BLOCK]; N], [0.0; BLOCK]);
        let stage = (&mut stage.0, &mut stage.1);
        on_floats(inputs, out, stage, |at, x, y| f(start + at, x, y));
    })
}

/// Where elements of `N` inputs, and of an output, wait as `f32`.
pub(crate) type Stage<'a, const N: usize> = (&'a mut [[f32; BLOCK]; N], &'a mut [f32; BLOCK]);

/// Hands `f` slices of floats of one length as `f32`, where they lie if they are that; else inputs are
/// widened and outputs rounded, a piece at a time. `f` is told the position of the piece.
#[inline(always)]
pub(crate) fn on_floats<T: Float, const N: usize>(
    inputs: [&[T]; N],
    out: &mut [T],
    stage: Stage<'_, N>,
    f: impl Fn(usize, [&[f32]; N], &mut [f32]),
) {
    match as_f32_mut(out) {
        Some(out) => f(0, inputs.map(|x| as_f32(x).unwrap_or_default()), out),
        None => staged(inputs, out, stage, &f),
    }
}

/// As [`Fill`], of one thread.
type OnPiece<'f, const N: usize> = dyn Fn(usize, [&[f32]; N], &mut [f32]) + 'f;

/// [`on_floats`] of what is not `f32`.
fn staged<T: Float, const N: usize>(
    inputs: [&[T]; N],
    out: &mut [T],
    (wide, results): Stage<'_, N>,
    f: &OnPiece<'_, N>,
) {
    for (i, out) in out.chunks_mut(BLOCK).enumerate() {
        let (at, len) = (i * BLOCK, out.len());
        for (input, wide) in inputs.iter().zip(&mut *wide) {
            T::widen(&input[at..at + len], &mut wide[..len]);
        }
        let results = &mut results[..len];
        f(at, wide.each_ref().map(|wide| &wide[..len]), results);
        T::round(results, out);
    }
}

/// Bytes of scratch memory that [`map_rows`] stages rows in, for rows of `width` elements.
pub(crate) fn row_bytes<T: Float>(width: usize, threads: usize) -> u64 {
    let rows = if is_f32::<T>() { 0 } else { threads };
    (rows * width * size_of::<f32>()) as u64
}

/// Fills the rows of a row-major `output` (the last dimension is a row) each from the same row of
/// `input`, over which the output may lie.
///
/// `f(thread, row, data)` finds the input's row in `data` and leaves the output's there; `thread` is
/// below [`Pool::threads`], for scratch memory that threads do not share. `staging` is of
/// [`row_bytes`].
pub(crate) fn map_rows<T: Float>(
    pool: &Pool,
    input: &View<'_>,
    output: &mut View<'_>,
    staging: &mut [f32],
    f: &(dyn Fn(usize, usize, &mut [f32]) + Sync),
) -> Result<(), KernelError> {
    let width = output.dims().last().copied().unwrap_or(1);
    let source = Source::<T>::new(input, output)?;
    let output = output.slice_mut::<T>()?;
    if output.is_empty() {
        return Ok(());
    }
    let (rows, step) = (output.len() / width, (TASK / width).max(1));
    let (output, staging) = (Disjoint::new(output), Disjoint::new(staging));
    pool.for_each_on_thread(rows.div_ceil(step), |task, thread| {
        for row in task * step..rows.min((task + 1) * step) {
            // SAFETY: every row is visited once.
            let out = unsafe { output.part(row * width, width) };
            if let Some(out) = as_f32_mut(out) {
                source.widen_over(row * width, out);
                f(thread, row, out);
                continue;
            }
            // SAFETY: a thread works on one row at a time, and has this part to itself.
            let data = unsafe { staging.part(thread * width, width) };
            source.load(row * width, out, data);
            f(thread, row, data);
            T::round(data, out);
        }
    });
    Ok(())
}

/// An input that may be the memory of a row-major output.
#[derive(Debug)]
pub(crate) enum Source<'a, T> {
    /// The output's own memory.
    Same,
    /// Other memory.
    Other(Reader<'a, T>),
}

impl<'a, T: Float> Source<'a, T> {
    /// How to read `input` while `output` is written.
    pub(crate) fn new(input: &'a View<'_>, output: &View<'_>) -> Result<Self, KernelError> {
        if !input.is_overwritten() {
            return Ok(Self::Other(Reader::new(input)?));
        }
        if input.layout() == output.layout() {
            return Ok(Self::Same);
        }
        Err(unsupported("one layout in place", input.layout()))
    }

    /// Widens the elements from the `start`-th into `out`, the same part of an output of `f32`.
    pub(crate) fn widen_over(&self, start: usize, out: &mut [f32]) {
        if let Self::Other(reader) = self {
            reader.widen(start, out);
        }
    }

    /// Widens the elements from the `start`-th into `to`; `out` is the same part of the output.
    pub(crate) fn load(&self, start: usize, out: &[T], to: &mut [f32]) {
        match self {
            Self::Same => T::widen(out, to),
            Self::Other(reader) => reader.widen(start, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SharedWith;
    use highwater_graph::{DType, Shape, Spec};

    fn spec(layout: Layout) -> Spec {
        Spec {
            dtype: DType::F32,
            layout,
        }
    }

    fn view<'a>(data: &'a mut [f32], spec: &'a Spec) -> View<'a> {
        View::write(bytemuck::cast_slice_mut(data), spec)
    }

    fn subtract(_: usize, [a, b]: [&[f32]; 2], out: &mut [f32]) {
        assert!(a.len() == out.len() && b.len() == out.len());
        for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
            *out = a - b;
        }
    }

    #[test]
    fn any_layouts_meet_element_by_element() {
        // Miri takes a thousand times as long.
        let n = if cfg!(miri) { 2 } else { 50 };
        let shape = Shape::from([3, n, 70]);
        let dense = Layout::contiguous(shape.clone());
        let swapped = Layout::contiguous([70, n, 3]).permute(&[2, 1, 0]).unwrap();
        let layouts = [
            dense.clone(),
            swapped.clone(),
            Layout::contiguous([n, 1]),
            Layout::contiguous([70]),
            Layout::contiguous(Shape::scalar()),
            Layout::contiguous([3, n, 90]).narrow(2, 11, 70).unwrap(),
            Layout::strided([3, n, 70], &[140 * n, 140, 2], 1),
        ];
        let data = |seed: usize, len: usize| -> Vec<f32> {
            (0..len).map(|i| ((i * 37 + seed) % 1009) as f32).collect()
        };
        for (a, b) in layouts
            .iter()
            .flat_map(|a| layouts.iter().map(move |b| (a, b)))
        {
            for out in [&dense, &swapped] {
                let (mut x, mut y) = (data(1, a.end()), data(5, b.end()));
                let mut z = vec![f32::NAN; out.end()];
                let (a, b, o) = (spec(a.clone()), spec(b.clone()), spec(out.clone()));
                let mut target = view(&mut z, &o);
                let inputs = [&view(&mut x, &a), &view(&mut y, &b)];
                map(&Pool::new(2).unwrap(), inputs, &mut target, &subtract).unwrap();
                let at = |spec: &Spec| spec.layout.expand(&shape).unwrap();
                let (a, b) = (at(&a), at(&b));
                for ((i, j), k) in a.positions().zip(b.positions()).zip(out.positions()) {
                    assert_eq!(z[k].to_bits(), (x[i] - y[j]).to_bits());
                }
            }
        }
    }

    #[test]
    fn an_output_may_lie_over_an_input_of_its_layout_only() {
        let o = spec(Layout::contiguous([130, 130]));
        let t = spec(o.layout.transpose(0, 1).unwrap());
        let pool = Pool::new(2).unwrap();
        let mut x: Vec<f32> = (0..130 * 130).map(|i| i as f32).collect();
        let mut y = vec![1.0; x.len()];
        let [a, swapped] = [&o, &t].map(|spec| View::shared(SharedWith::Output(0), spec));
        let mut out = view(&mut x, &o);
        map(&pool, [&a, &view(&mut y, &o)], &mut out, &subtract).unwrap();
        assert!(map(&pool, [&a, &swapped], &mut out, &subtract).is_err());
        assert!((0..x.len()).all(|i| x[i].to_bits() == (i as f32 - 1.0).to_bits()));
    }
}
