//! Time of attention on the thirds of a packed projection, as a transformer runs it.
//! Operations are counted on queries and keys that see each other.

#![expect(unsafe_code, reason = "kernels trust that their tensors fit together")]

mod rounds;

use half::bf16;
use highwater_graph::{DType, Layout, Op, Spec};
use highwater_ops::{
    Args, Kernels, Packed, Pool, Registered, ScaledDotProductAttention,
    ScaledDotProductAttentionBackward, View,
};
use rounds::Rounds;

/// An operation with its memory.
struct Job {
    op: Box<dyn Op>,
    kernel: Registered,
    inputs: Vec<Spec>,
    outputs: Vec<Spec>,
    input_data: Vec<Vec<u64>>,
    output_data: Vec<Vec<u64>>,
    scratch: Vec<[u64; 8]>,
    pool: Pool,
}

/// A storage for a tensor, with numbers in it.
fn storage(spec: &Spec) -> Vec<u64> {
    let wave = |i: usize| ((i * 7 % 1009) as f32 / 504.0 - 1.0) * 1.5;
    let len = spec.layout.end();
    let bytes = len as u64 * spec.dtype.element_bytes().expect("plain elements");
    let mut memory = vec![0; bytes.div_ceil(8) as usize];
    if spec.dtype == DType::BF16 {
        let data: &mut [bf16] = bytemuck::cast_slice_mut(&mut memory);
        (data.iter_mut().enumerate()).for_each(|(i, x)| *x = bf16::from_f32(wave(i)));
    } else {
        let data: &mut [f32] = bytemuck::cast_slice_mut(&mut memory);
        (data.iter_mut().enumerate()).for_each(|(i, x)| *x = wave(i));
    }
    memory
}

impl Job {
    fn new(op: impl Op, inputs: Vec<Spec>, threads: usize) -> Self {
        let outputs = op.infer(&inputs).expect("inputs that fit").to_vec();
        let kernels = Kernels::builtin();
        let kernel = kernels
            .on_cpu(&op, &inputs, &outputs)
            .expect("a kernel")
            .clone();
        let scratch = kernel.scratch_bytes(&op, &inputs, &outputs, threads) as usize;
        Self {
            input_data: inputs.iter().map(storage).collect(),
            output_data: outputs.iter().map(storage).collect(),
            scratch: vec![[0; 8]; scratch.div_ceil(64)],
            pool: Pool::new(threads).expect("threads"),
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

/// Forward and backward at one shape.
fn time(rounds: &Rounds, [b, h, t, d]: [usize; 4], dtype: DType, threads: usize) {
    let c = h * d;
    let packed = Packed {
        strides: [t * 3 * c, d, 3 * c, 1],
        offsets: [0, c, 2 * c],
    };
    let shape = [b, h, t, d];
    let mut inputs: Vec<Spec> = (0..3)
        .map(|i| Spec {
            dtype,
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
    let name = format!("{dtype} {b}x{h}x{t}x{d} causal, {threads}");
    let mut forward = Job::new(op, inputs.clone(), threads);
    let label = format!("{name} forward");
    rounds.time(&label, (2 * flops, "GFLOP/s"), || forward.run());

    let o = Spec {
        dtype,
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
    let mut backward = Job::new(op, inputs, threads);
    for (to, from) in [(3, 0), (4, 1)] {
        backward.input_data[to].clone_from(&forward.output_data[from]);
    }
    let label = format!("{name} backward");
    rounds.time(&label, (5 * flops, "GFLOP/s"), || backward.run());
}

fn main() {
    let rounds = Rounds::asked_for();
    for (shape, dtype, threads) in [[4, 12, 512, 64], [1, 1, 2048, 128]]
        .into_iter()
        .flat_map(|shape| [DType::F32, DType::BF16].map(|dtype| (shape, dtype)))
        .flat_map(|(shape, dtype)| [1, 2].map(|threads| (shape, dtype, threads)))
    {
        time(&rounds, shape, dtype, threads);
    }
}
