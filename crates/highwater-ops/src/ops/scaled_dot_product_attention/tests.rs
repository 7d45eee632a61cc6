//! What the laws do not ask of every operation.

use super::*;
use crate::kernels::vector::Version;
use crate::table::f32s;
use crate::{Args, Array, Fill, KernelError, Pool, Sample, View};
use highwater_graph::{Category, DType, Graph, Phase, Site};
use std::sync::Arc;

/// Numbers that look random, normal enough.
fn normal(state: &mut u64) -> f64 {
    let mut sum = -6.0;
    for _ in 0..12 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        sum += (*state >> 40) as f64 / (1_u64 << 24) as f64;
    }
    sum
}

/// A storage for each input of a sample.
fn fill(sample: &Sample) -> Vec<Vec<f32>> {
    let mut state = 7;
    let mut number = |fill| match fill {
        Fill::Normal(scale) => normal(&mut state) * scale,
        Fill::Uniform(low, high) => low + (high - low) * (normal(&mut state) / 12.0 + 0.5),
        // As bits: lengths of documents.
        Fill::Indices(below) => {
            let length = (normal(&mut state).abs() * 1e3) as u32 % below as u32;
            f64::from(f32::from_bits(length))
        }
        other => panic!("no sample here uses {other:?}"),
    };
    let storage = |(spec, fill): &(Spec, Fill)| {
        (0..spec.layout.end())
            .map(|_| number(*fill) as f32)
            .collect()
    };
    sample.inputs.iter().map(storage).collect()
}

fn seen(spec: &Spec, storage: &[f32]) -> Vec<f64> {
    let number = |x: f32| match spec.dtype {
        DType::U32 => f64::from(x.to_bits()),
        _ => f64::from(x),
    };
    let positions = spec.layout.positions();
    positions.map(|i| number(storage[i])).collect()
}

const FORWARD: KernelFn = |op, args| forward::run::<f32>(op, args, Version::Best);

type KernelFn = fn(&dyn Op, &mut Args<'_>) -> Result<(), KernelError>;

/// Runs a kernel of an operation; answers the storages of its outputs.
fn run(
    entry: Entry,
    kernel: KernelFn,
    op: &dyn Op,
    specs: &[Spec],
    data: &[Vec<f32>],
    threads: usize,
) -> Vec<Vec<f32>> {
    let outputs = op.infer(specs).unwrap();
    let declared = entry.kernel(specs, &outputs).expect("a kernel for F32");
    let bytes = declared.scratch_bytes(op, specs, &outputs, threads) as usize;
    assert_eq!(bytes % 64, 0);
    let mut scratch = vec![f32::NAN; bytes / 4 + 16];
    let start = scratch.as_ptr().align_offset(64);
    let mut results: Vec<Vec<f32>> = outputs
        .iter()
        .map(|o| vec![f32::NAN; o.layout.numel()])
        .collect();
    let mut inputs: Vec<_> = (specs.iter().zip(data))
        .map(|(spec, data)| View::read(bytemuck::cast_slice(data), spec))
        .collect();
    let mut outs: Vec<_> = (outputs.iter().zip(&mut results))
        .map(|(spec, data)| View::write(bytemuck::cast_slice_mut(data), spec))
        .collect();
    let pool = Pool::new(threads).unwrap();
    let mut args = Args {
        inputs: &mut inputs,
        outputs: &mut outs,
        scratch: bytemuck::cast_slice_mut(&mut scratch[start..start + bytes / 4]),
        pool: &pool,
    };
    kernel(op, &mut args).unwrap();
    results
}

fn specs_of(sample: &Sample) -> Vec<Spec> {
    sample.inputs.iter().map(|(spec, _)| spec.clone()).collect()
}

/// Compares a kernel with the reference; answers the largest error.
fn compare(entry: Entry, kernel: KernelFn, sample: &Sample) -> f64 {
    let (specs, data) = (specs_of(sample), fill(sample));
    let op = sample.op.as_ref();
    let arrays: Vec<Array> = specs
        .iter()
        .zip(&data)
        .map(|(spec, data)| Array::new(spec.dtype, spec.shape().clone(), seen(spec, data)))
        .collect();
    let reference = (entry.reference)(op, &arrays);
    let results = run(entry, kernel, op, &specs, &data, 1);
    let bits = |all: &[Vec<f32>]| {
        all.iter()
            .flatten()
            .map(|x| x.to_bits())
            .collect::<Vec<u32>>()
    };
    for threads in [2, 3, 4] {
        let again = run(entry, kernel, op, &specs, &data, threads);
        assert_eq!(bits(&again), bits(&results), "{op:?} on {threads} threads");
    }
    let mut worst: f64 = 0.0;
    for ((spec, result), reference) in op
        .infer(&specs)
        .unwrap()
        .iter()
        .zip(&results)
        .zip(&reference)
    {
        assert_eq!(spec.shape(), &reference.shape);
        for (x, r) in seen(spec, result).into_iter().zip(&reference.data) {
            let error = (x - r).abs() / (1.0 + r.abs());
            assert!(
                error <= sample.tolerance,
                "{op:?} of {specs:?}: {x} for {r}"
            );
            worst = worst.max(error);
        }
    }
    worst
}

#[test]
fn every_version_agrees_with_the_reference_on_any_number_of_threads() {
    let forward: [KernelFn; 3] = [
        FORWARD,
        |op, args| forward::run::<f32>(op, args, Version::Avx2),
        |op, args| forward::run::<f32>(op, args, Version::Portable),
    ];
    let backward: [KernelFn; 3] = [
        |op, args| backward::run::<f32>(op, args, Version::Best),
        |op, args| backward::run::<f32>(op, args, Version::Avx2),
        |op, args| backward::run::<f32>(op, args, Version::Portable),
    ];
    for (entry, kernels) in [(ENTRY, forward), (ENTRY_BACKWARD, backward)] {
        // Lengths that are longer than an `f32` are left to the laws.
        let fits = |sample: &Sample| {
            sample
                .inputs
                .iter()
                .all(|(spec, _)| spec.dtype != DType::I64)
        };
        for sample in (entry.samples)().into_iter().filter(fits) {
            let worst = kernels.map(|kernel| compare(entry, kernel, &sample));
            println!("{} {:?}: {worst:.9?}", entry.name, sample.inputs[0].0);
        }
        for reject in (entry.rejects)() {
            let error = reject.op.infer(&reject.inputs).unwrap_err();
            assert!((reject.error)(&error), "{error}");
        }
    }
}

#[test]
fn queries_without_keys_see_nothing() {
    let op = ScaledDotProductAttention {
        causal: false,
        window: None,
        documents: false,
        scale: 1.0,
    };
    let specs: Vec<Spec> = [3, 0, 0].map(|t| f32s([1, 2, t, 16])).into();
    let data = vec![vec![1.0; 96], vec![], vec![]];
    let results = run(ENTRY, FORWARD, &op, &specs, &data, 2);
    assert!(results[0].iter().all(|&x| x == 0.0));
    assert!(results[1].iter().all(|&x| x == f32::NEG_INFINITY));
}

#[test]
fn large_scores_and_those_that_are_not_numbers() {
    let op = ScaledDotProductAttention {
        causal: true,
        window: None,
        documents: false,
        scale: 1.0,
    };
    let specs = vec![f32s([1, 1, 3, 1]); 3];
    let data = [
        vec![1e4, -1e4, 1.0],
        vec![1e4, -1e4, f32::NAN],
        vec![1.0, 2.0, 3.0],
    ];
    let results = run(ENTRY, FORWARD, &op, &specs, &data, 1);
    assert_eq!(results[0][..2], [1.0, 2.0]);
    assert!(results[0][2].is_nan());
}

fn site() -> Site {
    Site {
        module: "".into(),
        location: highwater_graph::Location::caller(),
        phase: Phase::Forward,
        checkpoint: None,
        grad_enabled: true,
    }
}

#[test]
fn gradients_of_a_packed_projection_come_as_views_of_one_tensor() {
    let mut graph = Graph::default();
    let whole = f32s([2, 5, 3 * 32]);
    let mut source = graph.add_input(whole.clone(), Category::Input);
    source.requires_grad = true;
    let third = |i: usize| {
        let third = whole.layout.narrow(2, 32 * i, 32).unwrap();
        let heads = third.reshape(&Shape::from([2, 5, 2, 16])).unwrap();
        source.with_layout(heads.transpose(1, 2).unwrap())
    };
    let op = ScaledDotProductAttention {
        causal: true,
        window: None,
        documents: false,
        scale: 0.25,
    };
    for (order, packed) in [([0, 1, 2], true), ([2, 0, 1], true), ([0, 1, 1], false)] {
        let inputs = order.map(third);
        let outputs = graph.add(Arc::new(op), &inputs, &site()).unwrap();
        let merged = outputs[0].spec.layout.transpose(1, 2).unwrap();
        assert!(
            merged
                .reshape(&Shape::from([2, 5, 32]))
                .unwrap()
                .is_contiguous()
        );
        let node = graph.producer(&outputs[0]).unwrap().0;
        let grads = [Some(outputs[0].clone()), None];
        let mut backward = Backward::new(&mut graph, node, site(), &grads, &[None, None, None]);
        op.backward(&mut backward).unwrap();
        let results = backward.finish();
        let source = |i: usize| results[i].as_ref().unwrap().0.source;
        assert_eq!(source(0) == source(1), packed);
        for (result, input) in results.iter().zip(&inputs) {
            let (grad, accumulated) = result.as_ref().unwrap();
            assert!(!accumulated);
            assert_eq!(grad.shape(), input.shape());
            assert_eq!(grad.spec.layout == input.spec.layout, packed);
        }
    }
}
