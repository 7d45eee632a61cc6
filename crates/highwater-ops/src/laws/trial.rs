//! Runs a kernel once, in memory of its own with guards around everything.

#![expect(unsafe_code, reason = "kernels trust that their tensors fit together")]

use super::data::encode;
use crate::{Args, KernelError, Pool, Registered, SharedWith, View};
use highwater_graph::{DType, Layout, Op, Spec};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes on either side of every buffer that nobody may touch.
const GUARD: usize = 256;
const CANARY: u8 = 0xa5;

/// What may differ from run to run without changing a bit of the results.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) pool: &'a Pool,
    /// Elements by which buffers miss an alignment of 64 bytes: 0 for none.
    pub(crate) misaligned: usize,
    /// What lies in outputs and scratch memory before.
    pub(crate) garbage: u8,
    /// The output that lies over an input: (input, output).
    pub(crate) in_place: Option<(usize, usize)>,
    /// Outputs that the run leaves out.
    pub(crate) left_out: &'a [usize],
}

impl<'a> Setup<'a> {
    pub(crate) fn new(pool: &'a Pool) -> Self {
        Self {
            pool,
            misaligned: 0,
            garbage: 0xff,
            in_place: None,
            left_out: &[],
        }
    }
}

/// What went wrong in a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the kernel answers: {0}")]
    Kernel(#[from] KernelError),
    #[error("the kernel panics: {0}")]
    Panic(String),
    #[error("{0}")]
    Bytes(String),
}

/// A buffer between guards.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// `contents`, `offset` bytes behind a multiple of 64.
    fn new(contents: &[u8], offset: usize) -> Self {
        let len = contents.len();
        let mut memory = vec![CANARY; len + offset + 2 * GUARD + 64];
        let start = GUARD + memory[GUARD..].as_ptr().align_offset(64) + offset;
        memory[start..start + len].copy_from_slice(contents);
        Self { memory, start, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    fn check_guards(&self, what: &str) -> Result<(), Fault> {
        let behind = self.start + self.len;
        let touched = |&(_, &byte): &(usize, &u8)| byte != CANARY;
        let outside = |&(i, _): &(usize, &u8)| i < self.start || i >= behind;
        match self.memory.iter().enumerate().filter(outside).find(touched) {
            None => Ok(()),
            Some((i, _)) => {
                let at = i as isize - self.start as isize;
                let len = self.len;
                Err(Fault::Bytes(format!(
                    "writes outside {what}: at byte {at} of {len}"
                )))
            }
        }
    }
}

/// Runs a kernel on storages of the stated contents. Answers the bytes of the cells that it wrote,
/// in order, then those of the outputs.
pub(crate) fn run(
    kernel: &Registered,
    op: &dyn Op,
    inputs: &[(&Spec, &[f64])],
    outputs: &[Spec],
    setup: Setup<'_>,
) -> Result<Vec<Vec<u8>>, Fault> {
    let specs: Vec<Spec> = inputs.iter().map(|&(spec, _)| spec.clone()).collect();
    let offset = |i: usize, spec: &Spec| match setup.misaligned {
        0 => 0,
        k => (k + i) % 4 * spec.dtype.element_bytes().unwrap_or(4) as usize,
    };
    let given: Vec<Vec<u8>> = inputs
        .iter()
        .map(|(spec, storage)| encode(spec.dtype, storage))
        .collect();
    let mut sources: Vec<Buffer> = (given.iter().zip(&specs).enumerate())
        .map(|(i, (bytes, spec))| Buffer::new(bytes, offset(i, spec)))
        .collect();
    let mut results: Vec<Buffer> = (outputs.iter().enumerate())
        .map(|(o, spec)| {
            let garbage = vec![setup.garbage; spec.bytes() as usize];
            Buffer::new(&garbage, offset(inputs.len() + o, spec))
        })
        .collect();
    let declared = kernel.scratch_bytes(op, &specs, outputs, setup.pool.threads()) as usize;
    let mut scratch = Buffer::new(&vec![setup.garbage; declared], 0);

    let writes = op.writes();
    let answer = {
        let (mut views, shared) = input_views(&mut sources, &specs, &writes, setup);
        let mut output_views = output_views(&mut results, outputs, setup, shared);
        let mut args = Args {
            inputs: &mut views,
            outputs: &mut output_views,
            scratch: scratch.bytes_mut(),
            pool: setup.pool,
        };
        // SAFETY: the operation took the inputs and inferred the outputs; what is shared or left out
        // is what the kernel declared, and scratch memory is as large as that and aligned.
        catch_unwind(AssertUnwindSafe(|| unsafe { kernel.launch(op, &mut args) }))
    };
    answer.map_err(|payload| Fault::Panic(panic_message(payload.as_ref())))??;

    scratch.check_guards("its scratch memory")?;
    let overwritten =
        |i: usize| writes.contains(&i) || setup.in_place.is_some_and(|(input, _)| input == i);
    for (i, (buffer, given)) in sources.iter().zip(&given).enumerate() {
        buffer.check_guards(&format!("input {i}"))?;
        let reached = overwritten(i).then_some(&specs[i].layout);
        if differs_beside(reached, specs[i].dtype, buffer.bytes(), given) {
            return Err(Fault::Bytes(format!("writes to input {i}")));
        }
    }
    for (o, buffer) in results.iter().enumerate() {
        buffer.check_guards(&format!("output {o}"))?;
    }
    let cells = writes.iter().map(|&i| sources[i].bytes().to_vec());
    let filled = (0..outputs.len()).map(|o| match setup.in_place {
        Some((input, output)) if output == o => sources[input].bytes().to_vec(),
        _ => results[o].bytes().to_vec(),
    });
    Ok(cells.chain(filled).collect())
}

/// Whether bytes differ from those given, other than in the elements that a layout reaches.
fn differs_beside(reached: Option<&Layout>, dtype: DType, bytes: &[u8], given: &[u8]) -> bool {
    if bytes == given {
        return false;
    }
    let width = dtype.element_bytes().unwrap_or(4) as usize;
    let mut reaches = vec![false; given.len() / width];
    for position in reached.into_iter().flat_map(Layout::positions) {
        reaches[position] = true;
    }
    let elements = bytes.chunks(width).zip(given.chunks(width));
    let mut beside = elements.zip(reaches).filter(|&(_, reaches)| !reaches);
    beside.any(|((now, before), _)| now != before)
}

/// Views of the inputs; and the memory of the one that an output lies over, if one does.
fn input_views<'a>(
    sources: &'a mut [Buffer],
    specs: &'a [Spec],
    writes: &[usize],
    setup: Setup<'_>,
) -> (Vec<View<'a>>, Option<&'a mut [u8]>) {
    let mut shared = None;
    let view = |(i, (buffer, spec)): (usize, (&'a mut Buffer, &'a Spec))| match setup.in_place {
        Some((input, o)) if input == i => {
            shared = Some(buffer.bytes_mut());
            View::shared(SharedWith::Output(o), spec)
        }
        _ if writes.contains(&i) => View::write(buffer.bytes_mut(), spec),
        _ => View::read(buffer.bytes(), spec),
    };
    let views = sources
        .iter_mut()
        .zip(specs)
        .enumerate()
        .map(view)
        .collect();
    (views, shared)
}

/// Views of the outputs, one of which may lie over an input and some of which may be left out.
fn output_views<'a>(
    results: &'a mut [Buffer],
    outputs: &'a [Spec],
    setup: Setup<'_>,
    mut shared: Option<&'a mut [u8]>,
) -> Vec<View<'a>> {
    let view = |(o, (buffer, spec)): (usize, (&'a mut Buffer, &'a Spec))| {
        if setup.left_out.contains(&o) {
            return View::left_out(spec);
        }
        let over = setup.in_place.is_some_and(|(_, output)| output == o);
        let shared = shared.take_if(|_| over);
        View::write(shared.unwrap_or_else(|| buffer.bytes_mut()), spec)
    };
    results
        .iter_mut()
        .zip(outputs)
        .enumerate()
        .map(view)
        .collect()
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "for an unknown reason".to_owned())
}
