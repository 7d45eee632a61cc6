//! Memory-bound kernels on two threads, beside a copy of the same size:
//! `cargo bench -p highwater-ops --bench elementwise`.

#![expect(unsafe_code, reason = "kernels trust that their tensors fit together")]

mod rounds;
mod timed;

use highwater_graph::{DType, Layout, Spec};
use highwater_ops::{
    AdamW, Add, Cast, CrossEntropy, Draws, Dropout, Embedding, Exp, Formats, Gelu, GeluApproximate,
    LayerNorm, Master, Moments, Mul, Pool, Reduction, Relu, RmsNorm, Rotary, Softmax, Sum, Swiglu,
    Tanh,
};
use rounds::Rounds;
use timed::{ROWS, Timed, WIDTH, backward, both, copy, time};

fn main() {
    let rounds = &Rounds::asked_for();
    let pool = Pool::new(2).expect("threads");
    let f32s = |shape: &[usize]| Spec::contiguous(DType::F32, shape);
    let (x, row) = (f32s(&[ROWS, WIDTH]), f32s(&[WIDTH]));
    let scores = f32s(&[ROWS * WIDTH / 1024, 1024]);
    copy(rounds, &pool);
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
    time(rounds, &pool, "relu", &Relu, one);
    time(rounds, &pool, "exp", &Exp, one);
    time(rounds, &pool, "tanh", &Tanh, one);
    time(rounds, &pool, "gelu_tanh", &gelu, one);
    time(rounds, &pool, "gelu_erf", &Gelu::default(), one);
    let (op, inputs) = backward(&gelu, one);
    time(rounds, &pool, "gelu_tanh backward", &*op, &inputs);
    time(rounds, &pool, "add", &Add, &[x.clone(), x.clone()]);
    time(rounds, &pool, "add bias", &Add, &[x.clone(), row.clone()]);
    time(
        rounds,
        &pool,
        "mul transposed",
        &Mul,
        &[x.clone(), transposed],
    );
    time(rounds, &pool, "layer_norm", &norm, &norm_inputs);
    let (op, inputs) = backward(&norm, &norm_inputs);
    time(rounds, &pool, "layer_norm backward", &*op, &inputs);
    time(
        rounds,
        &pool,
        "softmax",
        &Softmax { dim: 1 },
        std::slice::from_ref(&scores),
    );
    let (op, inputs) = backward(&Softmax { dim: 1 }, &[scores]);
    time(rounds, &pool, "softmax backward", &*op, &inputs);
    time(rounds, &pool, "dropout", &dropout, one);
    time(rounds, &pool, "sum rows", &sum(1), one);
    time(rounds, &pool, "sum columns", &sum(0), one);
    time(rounds, &pool, "cast to bf16", &bf16, one);
    language_model(rounds, &pool, &x);
    updates(rounds, &pool, &x);
}

/// What language models run besides products, with the gradients.
fn language_model(rounds: &Rounds, pool: &Pool, x: &Spec) {
    let both = |label: &str, op: &dyn Timed, inputs: &[Spec]| both(rounds, pool, label, op, inputs);
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

/// AdamW with parameters and moments in all formats.
fn updates(rounds: &Rounds, pool: &Pool, x: &Spec) {
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
            time(rounds, pool, &label, &op, &inputs);
        }
    }
}
