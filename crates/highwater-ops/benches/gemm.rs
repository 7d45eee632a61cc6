//! Matrix products at GPT-2's shapes: 2048 tokens of width 768, and its loss in chunks of 256.

#![expect(unsafe_code, reason = "kernels trust that their tensors fit together")]

mod rounds;

use half::bf16;
use highwater_graph::{DType, Layout, Op, Spec};
use highwater_ops::{Args, Device, Kernels, Linear, LinearCrossEntropy, MatMul, Pool, View};
use rounds::Rounds;

/// A node with its memory.
struct Job {
    op: Box<dyn Op>,
    inputs: Vec<(Spec, Vec<u64>)>,
    outputs: Vec<(Spec, Vec<u64>)>,
    scratch: Vec<u64>,
}

impl Job {
    fn new(op: impl Op, inputs: Vec<Spec>) -> Self {
        let outputs = op
            .infer(&inputs)
            .expect("an operation that fits its inputs");
        let kernels = Kernels::builtin();
        let kernel = kernels.on_cpu(&op, &inputs, &outputs).expect("a kernel");
        let scratch = kernel.scratch_bytes(&op, &inputs, &outputs, 2) as usize;
        let filled = |spec: Spec| {
            let mut memory = vec![0; (spec.bytes() as usize).div_ceil(8)];
            let number = |i: usize| (i % 1000) as f32 / 1e5 - 0.005;
            match spec.dtype {
                DType::F32 => {
                    let data: &mut [f32] = bytemuck::cast_slice_mut(&mut memory);
                    (data.iter_mut().enumerate()).for_each(|(i, x)| *x = number(i));
                }
                DType::BF16 => {
                    let data: &mut [bf16] = bytemuck::cast_slice_mut(&mut memory);
                    (data.iter_mut().enumerate()).for_each(|(i, x)| *x = bf16::from_f32(number(i)));
                }
                _ => {}
            }
            (spec, memory)
        };
        Self {
            op: Box::new(op),
            inputs: inputs.into_iter().map(filled).collect(),
            outputs: outputs.into_iter().map(filled).collect(),
            scratch: vec![0; scratch.div_ceil(8)],
        }
    }

    fn flops(&self) -> u64 {
        let specs = |list: &[(Spec, _)]| list.iter().map(|(spec, _)| spec.clone()).collect();
        let (inputs, outputs): (Vec<Spec>, Vec<Spec>) = (specs(&self.inputs), specs(&self.outputs));
        self.op.cost(&inputs, &outputs, 1).matmul_flops as u64
    }

    fn run(&mut self, kernels: &Kernels, pool: &Pool) {
        let op = self.op.as_ref();
        let dtypes = |list: &[(Spec, _)]| -> Vec<_> { list.iter().map(|(s, _)| s.dtype).collect() };
        let (inputs, outputs) = (dtypes(&self.inputs), dtypes(&self.outputs));
        let (inputs, outputs) = (inputs.into_iter(), outputs.into_iter());
        let kernel = kernels
            .find(op.name(), Device::Cpu, inputs, outputs)
            .expect("a kernel");
        let kernel = kernels.kernel(kernel);
        let inputs = self.inputs.iter();
        let inputs = inputs.map(|(spec, memory)| View::read(bytemuck::cast_slice(memory), spec));
        let outputs = self.outputs.iter_mut();
        let outputs =
            outputs.map(|(spec, memory)| View::write(bytemuck::cast_slice_mut(memory), spec));
        let mut args = Args {
            inputs: &mut inputs.collect::<Vec<_>>(),
            outputs: &mut outputs.collect::<Vec<_>>(),
            scratch: bytemuck::cast_slice_mut(&mut self.scratch),
            pool,
        };
        // SAFETY: the operation inferred the outputs; scratch memory is as the kernel declared.
        unsafe { kernel.launch(op, &mut args) }.expect("a kernel that takes its inputs");
    }
}

fn jobs(dtype: DType) -> Vec<(String, Job)> {
    let dense = |shape: [usize; 2]| Spec::contiguous(dtype, shape);
    let flipped = |[rows, cols]: [usize; 2]| Spec {
        dtype,
        layout: Layout::strided([rows, cols], &[1, rows], 0),
    };
    let mut jobs = Vec::new();
    for (n, k) in [(2304, 768), (768, 768), (3072, 768), (768, 3072)] {
        let bias = Spec::contiguous(dtype, [n]);
        let forward = vec![dense([2048, k]), flipped([n, k]), bias];
        let linear = Job::new(Linear { bias: true }, forward);
        jobs.push((format!("y 2048x{n}x{k}"), linear));
        let plain = MatMul::default();
        let dx = Job::new(plain, vec![dense([2048, n]), flipped([n, k])]);
        jobs.push((format!("dx 2048x{k}x{n}"), dx));
        let transpose_output = true;
        let dw = vec![flipped([n, 2048]), dense([2048, k])];
        let dw = Job::new(MatMul { transpose_output }, dw);
        jobs.push((format!("dw {n}x{k}x2048"), dw));
    }
    // One token of a decoder that generates.
    for (n, k) in [(2304, 768), (4096, 4096), (50_257, 768)] {
        let one = Job::new(MatMul::default(), vec![dense([1, k]), flipped([k, n])]);
        jobs.push((format!("y 1x{n}x{k}"), one));
    }
    let (classes, width, rows) = (50_257, 768, 256);
    let plain = MatMul::default();
    let logits = Job::new(plain, vec![dense([rows, width]), flipped([width, classes])]);
    jobs.push(("logits 256x50257x768".to_owned(), logits));
    let dx = Job::new(plain, vec![dense([rows, classes]), dense([classes, width])]);
    jobs.push(("dx 256x768x50257".to_owned(), dx));
    let dw = Job::new(plain, vec![flipped([classes, rows]), dense([rows, width])]);
    jobs.push(("dw 50257x768x256".to_owned(), dw));
    let labels = Spec::contiguous(DType::I64, [2 * rows]);
    let loss = LinearCrossEntropy {
        chunk_rows: rows,
        grad_x: true,
        grad_w: true,
        ignore_index: -100,
    };
    let inputs = vec![dense([2 * rows, width]), dense([classes, width]), labels];
    jobs.push((
        "linear_cross_entropy 512".to_owned(),
        Job::new(loss, inputs),
    ));
    jobs
}

fn main() {
    let (rounds, kernels) = (Rounds::asked_for(), Kernels::builtin());
    for dtype in [DType::F32, DType::BF16] {
        for (name, mut job) in jobs(dtype) {
            let flops = (job.flops(), "GFLOP/s");
            for threads in [1, 2] {
                let pool = Pool::new(threads).expect("threads");
                let label = format!("gemm {dtype} {name}, {threads}");
                rounds.time(&label, flops, || job.run(&kernels, &pool));
            }
        }
    }
}
