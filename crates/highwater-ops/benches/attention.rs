//! Time of attention on the thirds of a packed projection, as a transformer runs it.

#![expect(unsafe_code, reason = "kernels trust that their tensors fit together")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use highwater_graph::{DType, Layout, Op, Spec};
use highwater_ops::{
    Args, Kernels, Packed, Pool, Registered, ScaledDotProductAttention,
    ScaledDotProductAttentionBackward, View,
};

const THREADS: usize = 2;

/// An operation with its memory.
struct Bench {
    op: Box<dyn Op>,
    kernel: Registered,
    inputs: Vec<Spec>,
    outputs: Vec<Spec>,
    input_data: Vec<Vec<f32>>,
    output_data: Vec<Vec<f32>>,
    scratch: Vec<[u64; 8]>,
    pool: Pool,
}

impl Bench {
    fn new(op: impl Op, inputs: Vec<Spec>) -> Self {
        let outputs = op.infer(&inputs).expect("inputs that fit").to_vec();
        let kernels = Kernels::builtin();
        let kernel = kernels
            .on_cpu(&op, &inputs, &outputs)
            .expect("a kernel")
            .clone();
        let scratch = kernel.scratch_bytes(&op, &inputs, &outputs, THREADS) as usize;
        let data = |spec: &Spec| {
            let wave = |i: usize| ((i * 7 % 1009) as f32 / 504.0 - 1.0) * 1.5;
            (0..spec.layout.end()).map(wave).collect::<Vec<_>>()
        };
        Self {
            input_data: inputs.iter().map(data).collect(),
            output_data: outputs.iter().map(data).collect(),
            scratch: vec![[0; 8]; scratch.div_ceil(64)],
            pool: Pool::new(THREADS).expect("threads"),
            op: Box::new(op),
            kernel,
            inputs,
            outputs,
        }
    }

    fn run(&mut self) {
        let inputs = self.inputs.iter().zip(&self.input_data);
        let inputs = inputs.map(|(spec, data)| View::read(bytemuck::cast_slice(data), spec));
        let outputs = self.outputs.iter().zip(&mut self.output_data);
        let outputs = outputs.map(|(spec, data)| View::write(bytemuck::cast_slice_mut(data), spec));
        let mut args = Args {
            inputs: &mut inputs.collect::<Vec<_>>(),
            outputs: &mut outputs.collect::<Vec<_>>(),
            scratch: bytemuck::cast_slice_mut(&mut self.scratch),
            pool: &self.pool,
        };
        // SAFETY: the operation inferred the outputs; scratch memory is as the kernel declared.
        unsafe { self.kernel.launch(self.op.as_ref(), &mut args) }.expect("a run");
    }
}

fn attention(criterion: &mut Criterion) {
    for (b, h, t, d) in [(4, 12, 512, 64), (1, 1, 2048, 128)] {
        let c = h * d;
        let packed = Packed {
            strides: [t * 3 * c, d, 3 * c, 1],
            offsets: [0, c, 2 * c],
        };
        let shape = [b, h, t, d];
        let mut inputs: Vec<Spec> = (0..3)
            .map(|i| Spec {
                dtype: DType::F32,
                layout: packed.layout(i, &shape.into()),
            })
            .collect();
        let scale = 1.0 / (d as f64).sqrt();
        let op = ScaledDotProductAttention {
            causal: true,
            window: None,
            documents: false,
            scale,
        };
        let flops = (b * h * d * t * (t + 1)) as u64;
        let mut group = criterion.benchmark_group(format!("attention_{b}x{h}x{t}x{d}_causal"));
        group.throughput(Throughput::Elements(2 * flops));
        let mut forward = Bench::new(op, inputs.clone());
        group.bench_function("forward", |bencher| bencher.iter(|| forward.run()));

        let o = Spec {
            dtype: DType::F32,
            layout: Layout::strided(shape, &[t * c, d, c, 1], 0),
        };
        inputs.extend([o.clone(), Spec::contiguous(DType::F32, [b, h, t]), o]);
        let op = ScaledDotProductAttentionBackward {
            causal: true,
            window: None,
            documents: false,
            scale,
            output_grad: true,
            lse_grad: false,
            packed: Some(packed),
        };
        let mut backward = Bench::new(op, inputs);
        for (to, from) in [(3, 0), (4, 1)] {
            backward.input_data[to].clone_from(&forward.output_data[from]);
        }
        group.throughput(Throughput::Elements(5 * flops));
        group.bench_function("backward", |bencher| bencher.iter(|| backward.run()));
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = attention
}
criterion_main!(benches);
