//! One run of a kernel: addresses become views.

#![expect(unsafe_code, reason = "kernels are handed buffers by address")]

use crate::error::describe;
use crate::run::machine::Machine;
use crate::{Error, Result};
use highwater_graph::{Node, Spec};
use highwater_ops::{Args, SharedWith, View};
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A tensor for the length of one run.
pub(super) struct Buffer {
    pub(super) memory: Memory,
    pub(super) spec: Spec,
}

/// Where a tensor is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Memory {
    /// So many bytes at an address, and whether the kernel writes them.
    At {
        address: *mut u8,
        bytes: usize,
        written: bool,
    },
    /// In the memory of another.
    Shared(SharedWith),
    /// Nowhere: the run leaves it out.
    LeftOut,
}

impl Memory {
    /// Whether both have bytes in common.
    fn overlaps(self, other: Self) -> bool {
        let range = |memory| match memory {
            Self::At { address, bytes, .. } => address.addr()..address.addr() + bytes,
            Self::Shared(_) | Self::LeftOut => 0..0,
        };
        let (a, b) = (range(self), range(other));
        a.start.max(b.start) < a.end.min(b.end)
    }

    fn is_same(self, other: Self) -> bool {
        let place = |memory| match memory {
            Self::At { address, bytes, .. } => Some((address, bytes)),
            Self::Shared(_) | Self::LeftOut => None,
        };
        place(self) == place(other)
    }

    fn is_written(self) -> bool {
        matches!(self, Self::At { written: true, .. })
    }
}

impl Buffer {
    /// # Safety
    /// The bytes must be initialised and stay mapped for as long as the view lives; until then
    /// nobody else writes them and, if they are written, nobody else reads them.
    unsafe fn view(&self) -> View<'_> {
        let spec = &self.spec;
        match self.memory {
            Memory::At {
                address,
                bytes,
                written: true,
            } => {
                // SAFETY: the caller's.
                View::write(
                    unsafe { std::slice::from_raw_parts_mut(address, bytes) },
                    spec,
                )
            }
            Memory::At { address, bytes, .. } => {
                // SAFETY: the caller's.
                View::read(unsafe { std::slice::from_raw_parts(address, bytes) }, spec)
            }
            Memory::Shared(with) => View::shared(with, spec),
            Memory::LeftOut => View::left_out(spec),
        }
    }
}

/// Inputs that an output lies over have no memory of their own; anything else that is written lies
/// apart from all others. Plans see to that: this finds out if one does not.
fn share(op: &'static str, inputs: &mut [Buffer], outputs: &[Buffer]) -> Result<()> {
    let refused =
        |what: String| Error::Internal(format!("{what} of {op} lies over another of its tensors"));
    for (o, output) in outputs.iter().enumerate() {
        let others = &outputs[..o];
        if others
            .iter()
            .any(|other| other.memory.overlaps(output.memory))
        {
            return Err(refused(format!("output {o}")));
        }
        for (i, input) in inputs.iter_mut().enumerate() {
            if input.memory.overlaps(output.memory) {
                if input.memory.is_written() || !input.memory.is_same(output.memory) {
                    return Err(refused(format!("input {i}")));
                }
                input.memory = Memory::Shared(SharedWith::Output(o));
            }
        }
    }
    let written = |i: &usize| inputs[*i].memory.is_written();
    let written: SmallVec<[usize; 4]> = (0..inputs.len()).filter(written).collect();
    for (i, input) in inputs.iter().enumerate() {
        let over = |&w: &usize| w != i && inputs[w].memory.overlaps(input.memory);
        if written.iter().any(over) {
            return Err(refused(format!("input {i}")));
        }
    }
    Ok(())
}

/// Runs the kernel of a node.
pub(super) fn call(
    machine: &Machine<'_>,
    node: &Node,
    inputs: &mut [Buffer],
    outputs: &[Buffer],
    (scratch, scratch_bytes): (*mut u8, usize),
) -> Result<()> {
    let op = node.op.as_ref();
    share(op.name(), inputs, outputs)?;
    let untaken = || Error::Internal(format!("{} was made for no kernel", describe(node)));
    let kernel = machine.kernels.kernel(node.kernel.ok_or_else(untaken)?);
    // SAFETY: the addresses lie in an arena below its height, or in a storage that the machine
    // holds, and their pages are zeros or earlier results. `share` found that what is written lies
    // apart from everything else here; that nothing else which is alive lies there is what the
    // verified plan says, and plans run under the engine's lock, one instruction at a time.
    let views = |buffers| unsafe { views(buffers) };
    let (mut input_views, mut output_views) = (views(inputs), views(outputs));
    // SAFETY: `scratch` is a range of the arena that the verified plan gives to this instruction
    // alone, or empty.
    let scratch = unsafe { std::slice::from_raw_parts_mut(scratch, scratch_bytes) };
    let mut args = Args {
        inputs: &mut input_views,
        outputs: &mut output_views,
        scratch,
        pool: machine.pool,
    };
    // SAFETY: the graph had the operation infer the outputs from these inputs, and took the node for
    // this kernel; outputs lie over inputs, are left out, and scratch memory is as it declared.
    let run = || unsafe { kernel.launch(op, &mut args) };
    let location = node.site.location;
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) if machine.check_finite => check_finite(node, args.outputs),
        Ok(Ok(())) => Ok(()),
        Ok(Err(source)) => Err(Error::Kernel {
            op: op.name(),
            source,
            module: node.site.module.to_string(),
            location,
        }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let message = text
                .or(panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(Error::Panic {
                op: op.name(),
                message: message.to_owned(),
                location,
            })
        }
    }
}

/// # Safety
/// As [`Buffer::view`], for each of them.
unsafe fn views(buffers: &[Buffer]) -> Vec<View<'_>> {
    // SAFETY: the caller's.
    buffers
        .iter()
        .map(|buffer| unsafe { buffer.view() })
        .collect()
}

fn check_finite(node: &Node, outputs: &[View<'_>]) -> Result<()> {
    for output in outputs.iter().filter(|output| !output.is_left_out()) {
        let all_finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
        if output
            .storage::<f32>()
            .is_ok_and(|values| !all_finite(values))
        {
            return Err(Error::NonFinite {
                what: "a result",
                node: describe(node),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_graph::DType;

    fn buffer(at: usize, bytes: usize, written: bool) -> Buffer {
        let address = std::ptr::without_provenance_mut(0x1000 + at);
        Buffer {
            memory: Memory::At {
                address,
                bytes,
                written,
            },
            spec: Spec::contiguous(DType::U8, [bytes]),
        }
    }

    fn shared(inputs: &mut [Buffer], outputs: &[Buffer]) -> Option<Vec<Option<SharedWith>>> {
        share("toy", inputs, outputs).ok()?;
        let with = |input: &Buffer| match input.memory {
            Memory::Shared(with) => Some(with),
            _ => None,
        };
        Some(inputs.iter().map(with).collect())
    }

    #[test]
    fn what_is_written_lies_apart_or_over_a_whole_input() {
        let read = |at, bytes| buffer(at, bytes, false);
        let written = |at, bytes| buffer(at, bytes, true);
        let over = Some(SharedWith::Output(1));
        let inputs = &mut [read(0, 8), read(8, 8), read(0, 8)];
        let answer = shared(inputs, &[written(16, 8), written(0, 8)]);
        assert_eq!(answer, Some(vec![over, None, over]));
        // Next to each other, empty, and read twice.
        let inputs = &mut [read(0, 8), read(4, 4), read(20, 0), written(24, 8)];
        assert_eq!(shared(inputs, &[written(16, 8)]), Some(vec![None; 4]));
        for (mut inputs, outputs) in [
            (vec![read(0, 8)], vec![written(4, 8)]),
            (vec![read(0, 8)], vec![written(0, 4)]),
            (vec![written(0, 8)], vec![written(0, 8)]),
            (vec![], vec![written(0, 8), written(7, 8)]),
            (vec![written(0, 8), read(0, 8)], vec![]),
            (vec![written(0, 8), written(4, 8)], vec![]),
        ] {
            assert_eq!(shared(&mut inputs, &outputs), None);
        }
    }
}
