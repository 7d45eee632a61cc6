//! The kernel: a piece of each input, all steps, a piece of the output, and on to the next.
//!
//! A task is 32,768 elements of the output, as of one operation. A piece is as many as come to 2 KiB of the
//! widest type that there is, 1,024 at most: eight slots of 2 KiB, and four of `f32` for narrow types, are 32
//! KiB, about a first cache. A step reads slots, or inputs where they lie, and fills a slot, the last one the
//! output; the first steps ask for the next pieces of the inputs meanwhile. What is handed on is rounded to
//! its type, so that bits are those of the operations one by one, and no element depends on the piece that it
//! is in. Saved are a writing and a reading of memory for each tensor that is handed on, and the tensor.

#![expect(unsafe_code, reason = "tasks write disjoint pieces of one output")]

use super::{Fused, SLOTS, Step, Taken};
use crate::device::in_place;
use crate::kernels::blocks::{BLOCK, TASK, check_dense, in_order_of, unsupported};
use crate::kernels::strided::{Runs, gather_runs, runs};
use crate::kernels::vector::prefetch;
use crate::{Args, Disjoint, Kernel, KernelError, Pairs, View, op_as};
use highwater_graph::{DType, Layout, Op, Spec};
use smallvec::SmallVec;

/// Bytes of a piece at most.
const PIECE: usize = 2048;

/// Bytes that a cache takes at a time.
const LINE: usize = 64;

/// Where a piece waits for the steps that read it.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot([u8; PIECE]);

/// Slots, and where elements wait as `f32` in a step.
type Buffers<'a> = ([&'a mut [u8]; SLOTS], [[f32; BLOCK]; 4]);

/// Of [`Fused`], whatever the dtypes.
pub(crate) struct FusedKernel;

impl Kernel for FusedKernel {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(inputs, outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let fused: &Fused = op_as(op)?;
        let output = &mut args.outputs[0];
        let (layout, numel, width) = (output.layout(), output.numel(), width(output.spec().dtype));
        if numel == 0 {
            return Ok(());
        }
        check_dense(layout)?;
        let inputs = args.inputs.iter().map(|input| Input::new(input, layout));
        let inputs: SmallVec<[Input<'_>; SLOTS]> = inputs.collect::<Result<_, _>>()?;
        let inside = fused.steps.iter().map(step_width);
        let widest = inside.chain(inputs.iter().map(|input| input.width)).max();
        let len = BLOCK.min(PIECE / widest.unwrap_or(1));
        let start = layout.offset() * width;
        let output = Disjoint::new(&mut output.bytes_mut()?[start..start + numel * width]);
        args.pool.for_each(numel.div_ceil(TASK), |task| {
            let mut slots = [Slot([0; PIECE]); SLOTS];
            let slots = slots.each_mut().map(|slot| &mut slot.0[..]);
            let mut buffers = (slots, [[0.0; BLOCK]; 4]);
            let end = numel.min((task + 1) * TASK);
            for start in (task * TASK..end).step_by(len) {
                let len = len.min(end - start);
                // SAFETY: pieces of different steps and tasks do not overlap.
                let out = unsafe { output.part(start * width, len * width) };
                piece(fused, &inputs, (start, len), &mut buffers, out);
            }
        });
        Ok(())
    }
}

fn width(dtype: DType) -> usize {
    dtype.element_bytes().map_or(0, |bytes| bytes as usize)
}

fn step_width(step: &Step) -> usize {
    width(step.output.dtype)
}

/// All steps on `len` elements from the `start`-th, in the order in which they lie in the output.
fn piece(
    fused: &Fused,
    inputs: &[Input<'_>],
    (start, len): (usize, usize),
    (slots, stage): &mut Buffers<'_>,
    out: &mut [u8],
) {
    for (input, slot) in inputs.iter().zip(slots.iter_mut()) {
        input.fill(start, out, &mut slot[..len * input.width]);
    }
    for (at, step) in fused.steps.iter().enumerate() {
        if let Some(input) = inputs.get(at) {
            input.prefetch(start + len, len);
        }
        // The last step has no slot: it fills the output.
        let slot = fused.slots.get(at).copied();
        let mut own = slot.map(|slot| std::mem::take(&mut slots[slot]));
        let reads = step.reads.iter().map(|read| match *read {
            Taken::Input(i) => {
                let bytes = len * inputs[i].width;
                let direct = inputs[i].direct(start, len);
                direct.unwrap_or_else(|| &slots[i][..bytes])
            }
            Taken::Step(j) => &slots[fused.slots[j]][..len * step_width(&fused.steps[j])],
        });
        let reads: SmallVec<[&[u8]; 3]> = reads.collect();
        let filled = match &mut own {
            Some(own) => &mut own[..len * step_width(step)],
            None => &mut *out,
        };
        (step.piece)(step.op.as_ref(), &reads, filled, stage);
        drop(reads);
        if let Some((slot, own)) = slot.zip(own) {
            slots[slot] = own;
        }
    }
}

/// An input, read in the order in which the output lies in memory.
struct Input<'a> {
    /// Its storage; `None` for the output's own memory.
    storage: Option<&'a [u8]>,
    width: usize,
    offset: usize,
    runs: Runs,
    contiguous: bool,
}

impl<'a> Input<'a> {
    fn new(view: &'a View<'_>, output: &Layout) -> Result<Self, KernelError> {
        if view.is_overwritten() && view.layout() != output {
            return Err(unsupported("one layout in place", view.layout()));
        }
        let through = in_order_of(view.layout(), output)?;
        let own = (!view.is_overwritten()).then(|| view.bytes());
        Ok(Self {
            storage: own.transpose()?,
            width: width(view.spec().dtype),
            offset: through.offset(),
            runs: runs(&through),
            contiguous: through.is_contiguous(),
        })
    }

    /// The bytes of `len` elements from the `start`-th, where they lie so.
    fn direct(&self, start: usize, len: usize) -> Option<&'a [u8]> {
        let storage = self.storage.filter(|_| self.contiguous)?;
        let from = (self.offset + start) * self.width;
        Some(&storage[from..from + len * self.width])
    }

    /// Asks for `len` elements from the `start`-th, where they lie so.
    fn prefetch(&self, start: usize, len: usize) {
        let from = (self.offset + start) * self.width;
        let ahead = self.storage.filter(|_| self.contiguous);
        let ahead = ahead.and_then(|storage| storage.get(from..from + len * self.width));
        for line in ahead.into_iter().flat_map(|ahead| ahead.chunks(LINE)) {
            prefetch(line.as_ptr().cast());
        }
    }

    /// Copies the elements from the `start`-th to a slot, unless they can be read where they lie. `out` is the
    /// same piece of the output.
    fn fill(&self, start: usize, out: &[u8], slot: &mut [u8]) {
        match self.storage {
            None => slot.copy_from_slice(out),
            Some(_) if self.contiguous => {}
            Some(storage) => match self.width {
                1 => self.gather::<1>(storage, start, slot),
                2 => self.gather::<2>(storage, start, slot),
                4 => self.gather::<4>(storage, start, slot),
                _ => self.gather::<8>(storage, start, slot),
            },
        }
    }

    fn gather<const WIDTH: usize>(&self, storage: &[u8], start: usize, slot: &mut [u8]) {
        let (storage, _) = storage.as_chunks::<WIDTH>();
        let (slot, _) = slot.as_chunks_mut::<WIDTH>();
        gather_runs(storage, self.offset, &self.runs, start, slot);
    }
}
