//! What benches of memory-bound kernels share: a kernel or a copy, timed on large tensors.

use crate::rounds::Rounds;
use highwater_graph::{DType, Op, Spec};
use highwater_ops::{Args, Kernels, Pool, View, philox};
use std::hint::black_box;

/// 100 MB in `F32`: more than caches hold.
pub(crate) const ROWS: usize = 32768;
pub(crate) const WIDTH: usize = 768;
/// Rows of the smallest table that indices point into.
const SMALLEST_TABLE: i64 = 1024;

/// Storages that 64-byte aligned views can be made of.
fn storage(bytes: u64) -> Vec<[f32; 16]> {
    let mut storage = vec![[0.0; 16]; bytes.div_ceil(64).max(1) as usize];
    philox::fill_normal(1, 0, storage.as_flattened_mut());
    storage
}

/// Views of storages, made by `view`.
fn views<'a>(
    storages: &'a mut [Vec<[f32; 16]>],
    specs: &'a [Spec],
    view: impl Fn(&'a mut [u8], &'a Spec) -> View<'a>,
) -> Vec<View<'a>> {
    let views = storages.iter_mut().zip(specs);
    let bytes = |storage: &'a mut Vec<[f32; 16]>| bytemuck::cast_slice_mut(storage);
    views
        .map(|(storage, spec)| view(bytes(storage), spec))
        .collect()
}

/// Times one kernel.
pub(crate) fn time(rounds: &Rounds, pool: &Pool, label: &str, op: &dyn Op, inputs: &[Spec]) {
    let outputs = op.infer(inputs).expect("fitting inputs");
    let kernels = Kernels::builtin();
    let kernel = kernels.on_cpu(op, inputs, &outputs).expect("a kernel");
    let cost = op.cost(inputs, &outputs, pool.threads());
    let sizes = |specs: &[Spec]| -> Vec<Vec<[f32; 16]>> {
        let bytes = |spec: &Spec| {
            let element = spec.dtype.element_bytes().expect("plain elements");
            storage(spec.layout.end() as u64 * element)
        };
        specs.iter().map(bytes).collect()
    };
    let (mut read, mut written) = (sizes(inputs), sizes(&outputs));
    // Cells come first, and start as zeros.
    let (cells, values) = inputs.split_at(op.writes().len());
    let (changed, read) = read.split_at_mut(cells.len());
    for cell in changed.iter_mut() {
        cell.fill([0.0; 16]);
    }
    for (value, spec) in read.iter_mut().zip(values) {
        match spec.dtype {
            DType::F32 => {}
            DType::Bool => value.fill([f32::from_ne_bytes([1, 0, 0, 1]); 16]),
            // Row numbers and labels, spread over a small table's rows.
            DType::I64 => {
                let indices: &mut [i64] = bytemuck::cast_slice_mut(value);
                for (i, index) in (0..).zip(indices) {
                    *index = i * 7919 % SMALLEST_TABLE;
                }
            }
            // Bytes of any numbers are none in half precision.
            _ => value.fill([f32::from_ne_bytes([0x3c; 4]); 16]),
        }
    }
    let scratch_bytes = kernel.scratch_bytes(op, inputs, &outputs, pool.threads());
    let mut scratch = storage(scratch_bytes);
    let moved = (cost.read_bytes + cost.written_bytes, "GB/s");
    rounds.time(label, moved, || {
        let mut all = views(changed, cells, View::write);
        all.extend(views(read, values, |bytes, spec| View::read(bytes, spec)));
        let mut args = Args {
            inputs: &mut all,
            outputs: &mut views(&mut written, &outputs, View::write),
            scratch: &mut bytemuck::cast_slice_mut(&mut scratch)[..scratch_bytes as usize],
            pool,
        };
        // SAFETY: the operation inferred the outputs; scratch memory is as the kernel declared.
        unsafe { kernel.launch(op, &mut args) }.expect("the kernel runs");
    });
}

/// The operation that backward emits, with its inputs' specs.
pub(crate) fn backward(
    op: &(impl Op + Clone),
    inputs: &[Spec],
) -> (std::sync::Arc<dyn Op>, Vec<Spec>) {
    use highwater_graph::{Backward, Category, Graph, NodeId, Phase, Site};
    let mut graph = Graph::default();
    let site = |phase| Site {
        module: "".into(),
        location: highwater_graph::Location::caller(),
        phase,
        checkpoint: None,
        grad_enabled: true,
    };
    let give = |graph: &mut Graph, spec: &Spec| graph.add_input(spec.clone(), Category::Input);
    let mut operands: Vec<_> = inputs.iter().map(|spec| give(&mut graph, spec)).collect();
    for operand in &mut operands {
        operand.requires_grad = operand.spec.dtype.is_float();
    }
    let forward = site(Phase::Forward);
    let outputs = graph.add(std::sync::Arc::new(op.clone()), &operands, &forward);
    let outputs = outputs.expect("fitting inputs");
    let mut grads = vec![None; outputs.len()];
    grads[0] = Some(give(&mut graph, &outputs[0].spec));
    let existing = vec![None; operands.len()];
    let site = site(Phase::Backward);
    op.backward(&mut Backward::new(
        &mut graph,
        NodeId::new(0),
        site,
        &grads,
        &existing,
    ))
    .expect("gradients");
    let node = graph.nodes().last().expect("a node");
    let specs = node
        .inputs
        .iter()
        .map(|operand| operand.spec.clone())
        .collect();
    (node.op.clone(), specs)
}

/// An operation whose gradients are timed too.
pub(crate) trait Timed {
    fn op(&self) -> &dyn Op;
    fn backward(&self, inputs: &[Spec]) -> (std::sync::Arc<dyn Op>, Vec<Spec>);
}

impl<T: Op + Clone> Timed for T {
    fn op(&self) -> &dyn Op {
        self
    }

    fn backward(&self, inputs: &[Spec]) -> (std::sync::Arc<dyn Op>, Vec<Spec>) {
        backward(self, inputs)
    }
}

/// Times an operation and the last that its backward emits.
pub(crate) fn both(rounds: &Rounds, pool: &Pool, label: &str, op: &dyn Timed, inputs: &[Spec]) {
    time(rounds, pool, label, op.op(), inputs);
    let (op, inputs) = op.backward(inputs);
    time(rounds, pool, &format!("{label} backward"), &*op, &inputs);
}

/// A copy of as much, to compare with.
pub(crate) fn copy(rounds: &Rounds, pool: &Pool) {
    let (x, mut y) = (
        storage((ROWS * WIDTH * 4) as u64),
        storage((ROWS * WIDTH * 4) as u64),
    );
    let moved = ((ROWS * WIDTH * 8) as u64, "GB/s");
    rounds.time("copy", moved, || {
        pool.for_each_chunk(&mut y, 2048, |i, y| {
            y.copy_from_slice(&black_box(&x)[i * 2048..][..y.len()]);
        });
    });
}
