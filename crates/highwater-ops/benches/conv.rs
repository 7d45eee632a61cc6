//! Convolutions of ResNet-50 at a batch of 16, and its norm and pool, on two threads:
//! `cargo bench -p highwater-ops --bench conv`. Beside PyTorch: `benches/pytorch/conv.py`.

#![expect(unsafe_code, reason = "kernels trust that their tensors fit together")]

mod rounds;

use highwater_graph::{DType, Op, Spec};
use highwater_ops::{
    Args, BatchNorm, Conv2d, Conv2dWeight, ConvSettings, ConvTranspose2d, Kernels, MaxPool2d, Pool,
    PoolSettings, View, Windows, philox,
};
use rounds::Rounds;

const BATCH: usize = 16;

/// Channels in and out, the side of the images, the side of the kernel, the stride, and groups.
const LAYERS: [[usize; 6]; 14] = [
    [3, 64, 224, 7, 2, 1],
    [64, 64, 56, 1, 1, 1],
    [64, 64, 56, 3, 1, 1],
    [64, 256, 56, 1, 1, 1],
    [256, 64, 56, 1, 1, 1],
    [256, 512, 56, 1, 2, 1],
    [128, 128, 56, 3, 2, 1],
    [128, 128, 28, 3, 1, 1],
    [512, 128, 28, 1, 1, 1],
    [256, 256, 14, 3, 1, 1],
    [1024, 256, 14, 1, 1, 1],
    [512, 512, 7, 3, 1, 1],
    [512, 2048, 7, 1, 1, 1],
    [96, 96, 56, 3, 1, 96],
];

/// Storages that 64-byte aligned views can be made of.
fn storages(specs: &[Spec]) -> Vec<Vec<[f32; 16]>> {
    let storage = |spec: &Spec| {
        let mut storage = vec![[0.0; 16]; spec.bytes().div_ceil(64) as usize];
        philox::fill_normal(1, 0, storage.as_flattened_mut());
        storage
    };
    specs.iter().map(storage).collect()
}

/// Views of storages, made by `view`.
fn views<'a>(
    storages: &'a mut [Vec<[f32; 16]>],
    specs: &'a [Spec],
    view: impl Fn(&'a mut [u8], &'a Spec) -> View<'a>,
) -> Vec<View<'a>> {
    let pairs = storages.iter_mut().zip(specs);
    pairs
        .map(|(storage, spec)| {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(storage);
            view(&mut bytes[..spec.bytes() as usize], spec)
        })
        .collect()
}

/// Times one kernel.
fn time(rounds: &Rounds, pool: &Pool, label: &str, op: &dyn Op, inputs: &[Spec]) {
    let outputs = op.infer(inputs).expect("fitting inputs");
    let kernels = Kernels::builtin();
    let kernel = kernels.on_cpu(op, inputs, &outputs).expect("a kernel");
    let cost = op.cost(inputs, &outputs, pool.threads());
    let (mut read, mut written) = (storages(inputs), storages(&outputs));
    let scratch_bytes = kernel.scratch_bytes(op, inputs, &outputs, pool.threads());
    let mut scratch = vec![[0.0_f32; 16]; scratch_bytes.div_ceil(64) as usize];
    let work = match cost.matmul_flops as u64 {
        0 => (cost.read_bytes + cost.written_bytes, "GB/s"),
        flops => (flops, "GFLOP/s"),
    };
    rounds.time(label, work, || {
        let scratch: &mut [u8] = bytemuck::cast_slice_mut(&mut scratch);
        let mut args = Args {
            inputs: &mut views(&mut read, inputs, |bytes, spec| View::read(bytes, spec)),
            outputs: &mut views(&mut written, &outputs, View::write),
            scratch: &mut scratch[..scratch_bytes as usize],
            pool,
        };
        // SAFETY: the operation inferred the outputs; scratch memory is as the kernel declared.
        unsafe { kernel.launch(op, &mut args) }.expect("the kernel runs");
    });
}

fn main() {
    let rounds = &Rounds::asked_for();
    let pool = Pool::new(2).expect("threads");
    let f32s = |shape: [usize; 4]| Spec::contiguous(DType::F32, shape);
    for [inputs, outputs, side, kernel, stride, groups] in LAYERS {
        let padding = kernel / 2;
        let settings = ConvSettings {
            stride: [stride; 2],
            padding: [padding; 2],
            dilation: [1; 2],
            groups,
        };
        let conv = Conv2d {
            settings,
            bias: false,
        };
        let to_x = ConvTranspose2d {
            settings,
            output_padding: [(side + 2 * padding - kernel) % stride; 2],
            bias: false,
        };
        let to_weight = Conv2dWeight {
            settings,
            kernel: [kernel; 2],
        };
        let made = (side + 2 * padding - kernel) / stride + 1;
        let x = f32s([BATCH, inputs, side, side]);
        let w = f32s([outputs, inputs / groups, kernel, kernel]);
        let y = f32s([BATCH, outputs, made, made]);
        let label = |what| format!("{inputs}-{outputs} {side} {kernel} {stride} {groups} {what}");
        time(rounds, &pool, &label("y"), &conv, &[x.clone(), w.clone()]);
        time(rounds, &pool, &label("dx"), &to_x, &[y.clone(), w]);
        time(rounds, &pool, &label("dw"), &to_weight, &[x, y]);
    }
    let x = f32s([BATCH, 64, 112, 112]);
    let norm = BatchNorm {
        eps: 1e-5,
        affine: false,
    };
    time(rounds, &pool, "batch norm", &norm, std::slice::from_ref(&x));
    let windows = Windows::Fixed(PoolSettings {
        stride: [2; 2],
        padding: [1; 2],
        ..PoolSettings::new([3; 2])
    });
    time(rounds, &pool, "max pool", &MaxPool2d { windows }, &[x]);
}
