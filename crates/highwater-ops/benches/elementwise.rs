//! Memory-bound kernels on two threads, beside a copy of the same size:
//! `cargo bench -p highwater-ops --bench elementwise`.

#![expect(unsafe_code, reason = "kernels trust that their tensors fit together")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use highwater_graph::{DType, Layout, Op, Spec};
use highwater_ops::{
    AdamW, Add, Args, Cast, CrossEntropy, Draws, Dropout, Embedding, Exp, Formats, Gelu,
    GeluApproximate, Kernels, LayerNorm, Master, Moments, Mul, Pool, Reduction, Relu, RmsNorm,
    Rotary, Softmax, Sum, Swiglu, Tanh, View, philox,
};
use std::hint::black_box;
use std::time::Duration;

/// 100 MB in `F32`: more than caches hold.
const ROWS: usize = 32768;
const WIDTH: usize = 768;
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
fn time(c: &mut Criterion, pool: &Pool, label: &str, op: &dyn Op, inputs: &[Spec]) {
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
    let mut group = c.benchmark_group("elementwise");
    group.throughput(Throughput::Bytes(cost.read_bytes + cost.written_bytes));
    group.bench_function(label, |b| {
        b.iter(|| {
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
    });
    group.finish();
}

/// The operation that backward emits, with its inputs' specs.
fn backward(op: &(impl Op + Clone), inputs: &[Spec]) -> (std::sync::Arc<dyn Op>, Vec<Spec>) {
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

fn kernels(c: &mut Criterion) {
    let pool = Pool::new(2).expect("threads");
    let f32s = |shape: &[usize]| Spec::contiguous(DType::F32, shape);
    let (x, row) = (f32s(&[ROWS, WIDTH]), f32s(&[WIDTH]));
    let scores = f32s(&[ROWS * WIDTH / 1024, 1024]);
    copy(c, &pool);
    let gelu = Gelu {
        approximate: GeluApproximate::Tanh,
    };
    let norm = LayerNorm {
        eps: 1e-5,
        affine: true,
    };
    let norm_inputs = [x.clone(), row.clone(), row.clone()];
    let bf16 = Cast { dtype: DType::BF16 };
    let dropout = Dropout {
        p: 0.1,
        seed: 1,
        offset: 2,
    };
    let transposed = Spec {
        dtype: DType::F32,
        layout: Layout::strided([ROWS, WIDTH], &[1, ROWS], 0),
    };
    let sum = |dim| Sum {
        dims: vec![dim],
        keepdim: false,
    };
    let one = std::slice::from_ref(&x);
    time(c, &pool, "relu", &Relu, one);
    time(c, &pool, "exp", &Exp, one);
    time(c, &pool, "tanh", &Tanh, one);
    time(c, &pool, "gelu_tanh", &gelu, one);
    time(c, &pool, "gelu_erf", &Gelu::default(), one);
    let (op, inputs) = backward(&gelu, one);
    time(c, &pool, "gelu_tanh backward", &*op, &inputs);
    time(c, &pool, "add", &Add, &[x.clone(), x.clone()]);
    time(c, &pool, "add bias", &Add, &[x.clone(), row.clone()]);
    time(c, &pool, "mul transposed", &Mul, &[x.clone(), transposed]);
    time(c, &pool, "layer_norm", &norm, &norm_inputs);
    let (op, inputs) = backward(&norm, &norm_inputs);
    time(c, &pool, "layer_norm backward", &*op, &inputs);
    time(
        c,
        &pool,
        "softmax",
        &Softmax { dim: 1 },
        std::slice::from_ref(&scores),
    );
    let (op, inputs) = backward(&Softmax { dim: 1 }, &[scores]);
    time(c, &pool, "softmax backward", &*op, &inputs);
    time(c, &pool, "dropout", &dropout, one);
    time(c, &pool, "sum rows", &sum(1), one);
    time(c, &pool, "sum columns", &sum(0), one);
    time(c, &pool, "cast to bf16", &bf16, one);
    language_model(c, &pool, &x);
    updates(c, &pool, &x);
}

/// What language models run besides products, with the gradients.
fn language_model(c: &mut Criterion, pool: &Pool, x: &Spec) {
    let mut both = |label: &str, op: &dyn Timed, inputs: &[Spec]| {
        time(c, pool, label, op.op(), inputs);
        let (op, inputs) = op.backward(inputs);
        time(c, pool, &format!("{label} backward"), &*op, &inputs);
    };
    let f32s = |shape: &[usize]| Spec::contiguous(DType::F32, shape);
    both(
        "rms_norm",
        &RmsNorm { eps: 1e-5 },
        &[x.clone(), f32s(&[WIDTH])],
    );
    both("swiglu", &Swiglu, &[x.clone(), x.clone()]);
    // 12 heads of 64 at 1024 positions.
    let heads = f32s(&[ROWS / 1024, 12, 1024, WIDTH / 12]);
    let table = f32s(&[1024, WIDTH / 24]);
    let rotary = Rotary {
        interleaved: false,
        inverse: false,
    };
    both("rotary", &rotary, &[heads, table.clone(), table]);
    let classes = 8192;
    let rows = ROWS * WIDTH / classes;
    let loss = CrossEntropy {
        reduction: Reduction::Mean,
        ignore_index: -100,
    };
    let labels = Spec::contiguous(DType::I64, [rows]);
    both("cross_entropy", &loss, &[f32s(&[rows, classes]), labels]);
    let indices = Spec::contiguous(DType::I64, [ROWS]);
    both("embedding", &Embedding, &[f32s(&[50257, WIDTH]), indices]);
}

/// An operation whose gradients are timed too.
trait Timed {
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

/// AdamW with parameters and moments in all formats.
fn updates(c: &mut Criterion, pool: &Pool, x: &Spec) {
    let stochastic = Master::Stochastic(Draws::default());
    for (label, dtype, master) in [
        ("f32", DType::F32, Master::None),
        ("f16, f32 master", DType::F16, Master::F32),
        ("bf16, f32 master", DType::BF16, Master::F32),
        ("bf16, split master", DType::BF16, Master::Split),
        ("bf16, stochastic", DType::BF16, stochastic),
    ] {
        for (moments, label) in [
            (Moments::Float, format!("adamw {label}")),
            (Moments::Int8, format!("adamw {label}, int8")),
        ] {
            let formats = Formats {
                master,
                moments,
                step: 7,
            };
            let op = AdamW {
                lr: 1e-4,
                beta1: 0.9,
                beta2: 0.999,
                eps: 1e-8,
                weight_decay: 0.01,
                decoupled: true,
                amsgrad: false,
                maximize: false,
                step: 8,
                formats,
            };
            let own = Spec::contiguous(dtype, x.shape().clone());
            let mut inputs = vec![own.clone()];
            let cells = formats.cells(dtype, x.shape(), &["exp_avg", "exp_avg_sq"]);
            inputs.extend(
                cells
                    .into_iter()
                    .map(|cell| Spec::contiguous(cell.dtype, cell.shape)),
            );
            inputs.push(own);
            time(c, pool, &label, &op, &inputs);
        }
    }
}

fn copy(c: &mut Criterion, pool: &Pool) {
    let (x, mut y) = (
        storage((ROWS * WIDTH * 4) as u64),
        storage((ROWS * WIDTH * 4) as u64),
    );
    let mut group = c.benchmark_group("elementwise");
    group.throughput(Throughput::Bytes((ROWS * WIDTH * 8) as u64));
    group.bench_function("copy", |b| {
        b.iter(|| {
            pool.for_each_chunk(&mut y, 2048, |i, y| {
                y.copy_from_slice(&black_box(&x)[i * 2048..][..y.len()]);
            });
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    targets = kernels
}
criterion_main!(benches);
