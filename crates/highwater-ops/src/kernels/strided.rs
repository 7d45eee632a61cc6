//! Reading tensors of any layout piece by piece, without allocating.
//!
//! Dimensions that form one regular run are merged first. Divisions tell where an innermost run starts, and
//! no more: what is in it is copied as a block, repeated, or read by its stride. A piece is 512 elements, 2
//! KiB of `f32` on the stack, whose copy is still in the first cache when it is read; a dense tensor of `f32`
//! is not copied.

use crate::kernels::float::{Float, PIECE, as_f32};
use highwater_graph::{Layout, RANK_MAX};
use smallvec::SmallVec;

/// (extent, stride) of dimensions, outermost first.
pub(crate) type Runs = SmallVec<[(usize, usize); RANK_MAX]>;

/// (extent, stride) of the dimensions, outermost first, without those of extent 1 and with
/// neighbours that form one regular run merged; never on the heap.
pub(crate) fn runs(layout: &Layout) -> Runs {
    let mut runs = Runs::new();
    for (&extent, &stride) in layout.shape().iter().zip(layout.strides()) {
        match runs.last_mut() {
            _ if extent == 1 => {}
            Some(outer) if outer.1 == stride * extent => *outer = (outer.0 * extent, stride),
            _ => runs.push((extent, stride)),
        }
    }
    runs
}

/// Copies the elements from the `start`-th on, in row-major order of the shape, until `out` is
/// full.
pub(crate) fn gather<T: Copy>(storage: &[T], layout: &Layout, start: usize, out: &mut [T]) {
    gather_runs(storage, layout.offset(), &runs(layout), start, out);
}

/// [`gather`] for a layout of this offset and these [`runs`].
pub(crate) fn gather_runs<T: Copy>(
    storage: &[T],
    offset: usize,
    runs: &[(usize, usize)],
    start: usize,
    out: &mut [T],
) {
    let Some((&(extent, stride), outer)) = runs.split_last() else {
        out.fill_with(|| storage[offset]);
        return;
    };
    let (mut row, mut column, mut done) = (start / extent.max(1), start % extent.max(1), 0);
    while done < out.len() {
        let mut position = offset + column * stride;
        let mut rest = row;
        for &(extent, stride) in outer.iter().rev() {
            position += rest % extent * stride;
            rest /= extent;
        }
        let len = (extent - column).min(out.len() - done);
        let piece = &mut out[done..done + len];
        match stride {
            0 => piece.fill(storage[position]),
            1 => piece.copy_from_slice(&storage[position..position + len]),
            _ => {
                let run = storage[position..].iter().step_by(stride);
                piece.iter_mut().zip(run).for_each(|(to, &x)| *to = x);
            }
        }
        done += len;
        (row, column) = (row + 1, 0);
    }
}

/// [`gather_runs`] of elements as `f32`.
pub(crate) fn widen_runs<T: Float>(
    storage: &[T],
    offset: usize,
    runs: &[(usize, usize)],
    start: usize,
    out: &mut [f32],
) {
    if let Some(storage) = as_f32(storage) {
        return gather_runs(storage, offset, runs, start, out);
    }
    let mut buffer = [T::zeroed(); PIECE];
    for (i, out) in out.chunks_mut(PIECE).enumerate() {
        let buffer = &mut buffer[..out.len()];
        gather_runs(storage, offset, runs, start + i * PIECE, buffer);
        T::widen(buffer, out);
    }
}

/// [`gather`] of elements as `f32`.
pub(crate) fn widen<T: Float>(storage: &[T], layout: &Layout, start: usize, out: &mut [f32]) {
    if out.is_empty() {
    } else if layout.is_contiguous() {
        let from = layout.offset() + start;
        T::widen(&storage[from..from + out.len()], out);
    } else {
        widen_runs(storage, layout.offset(), &runs(layout), start, out);
    }
}

/// Hands `f` the elements `start..start + len` of the row-major order as `f32` in pieces, with the
/// offset of each from `start`. A dense `f32` tensor comes as one piece, any other in pieces of
/// [`PIECE`] (the last may be shorter).
pub(crate) fn for_each_piece<T: Float>(
    storage: &[T],
    layout: &Layout,
    start: usize,
    len: usize,
    f: &mut dyn FnMut(usize, &[f32]),
) {
    if let Some(storage) = as_f32(storage).filter(|_| layout.is_contiguous()) {
        let from = if len == 0 { 0 } else { layout.offset() + start };
        return f(0, &storage[from..from + len]);
    }
    let mut buffer = [0.0; PIECE];
    for done in (0..len).step_by(PIECE) {
        let piece = &mut buffer[..PIECE.min(len - done)];
        widen(storage, layout, start + done, piece);
        f(done, piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_elements_in_order() {
        let storage: Vec<f32> = (0_u16..3000).map(f32::from).collect();
        let layouts = [
            Layout::contiguous([13, 90]),
            Layout::contiguous([13, 90]).transpose(0, 1).unwrap(),
            Layout::strided([3, 1, 5, 70], &[700, 9, 0, 3], 11),
            Layout::strided([40, 30], &[0, 0], 7),
            Layout::strided([], &[], 5),
        ];
        for layout in &layouts {
            let want: Vec<f32> = layout.positions().map(|p| storage[p]).collect();
            for start in [0, 1, want.len() / 2] {
                let mut got = vec![0.0; want.len() - start];
                for_each_piece(
                    &storage,
                    layout,
                    start,
                    want.len() - start,
                    &mut |at, piece| {
                        got[at..at + piece.len()].copy_from_slice(piece);
                    },
                );
                assert_eq!(got, want[start..], "{layout:?} from {start}");
            }
        }
    }
}
