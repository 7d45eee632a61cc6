//! The memory-bound rest of the table on two threads, beside a copy of the same size:
//! `cargo bench -p highwater-ops --bench others`.

#![expect(unsafe_code, reason = "kernels trust that their tensors fit together")]

mod rounds;
mod timed;

use highwater_graph::{DType, Layout, Spec};
use highwater_ops::{
    Abs, Cat, Clamp, CumSum, Div, Elu, Extremum, ExtremumAt, Flip, Gather, Greater, Huber, Log,
    LogSoftmax, LogSumExp, Maximum, Norm, Pool, PowScalar, Prod, Rsqrt, ScatterAdd, Sigmoid, Sin,
    Softplus, Sort, Sqrt, Square, TopK, Triangle, Var, Where,
};
use rounds::Rounds;
use timed::{ROWS, Timed, WIDTH, both, copy, time};

fn main() {
    let rounds = &Rounds::asked_for();
    let pool = Pool::new(2).expect("threads");
    let x = Spec::contiguous(DType::F32, [ROWS, WIDTH]);
    copy(rounds, &pool);
    elements(rounds, &pool, &x);
    lines(rounds, &pool, &x);
    moves(rounds, &pool, &x);
}

fn elements(rounds: &Rounds, pool: &Pool, x: &Spec) {
    let one = std::slice::from_ref(x);
    let two = [x.clone(), x.clone()];
    let clamp = Clamp {
        min: Some(-1.0),
        max: Some(1.0),
    };
    let (elu, softplus) = (
        Elu { alpha: 1.0 },
        Softplus {
            beta: 1.0,
            threshold: 20.0,
        },
    );
    for (label, op) in [
        ("abs", &Abs as &dyn Timed),
        ("square", &Square),
        ("sqrt", &Sqrt),
        ("rsqrt", &Rsqrt),
        ("log", &Log),
        ("sin", &Sin),
        ("sigmoid", &Sigmoid),
        ("softplus", &softplus),
        ("elu", &elu),
        ("clamp", &clamp),
        ("huber", &Huber { delta: 1.0 }),
        ("pow 1.5", &PowScalar { exponent: 1.5 }),
    ] {
        both(rounds, pool, label, op, one);
    }
    both(rounds, pool, "div", &Div, &two);
    both(rounds, pool, "maximum", &Maximum, &two);
    time(rounds, pool, "greater", &Greater, &two);
    let mask = Spec::contiguous(DType::Bool, x.shape().clone());
    both(rounds, pool, "where", &Where, &[mask, x.clone(), x.clone()]);
}

/// What is computed along lines: along rows, and across them.
fn lines(rounds: &Rounds, pool: &Pool, x: &Spec) {
    let one = std::slice::from_ref(x);
    for (dim, along) in [(1, "of rows"), (0, "of columns")] {
        let (dims, keepdim) = (vec![dim], false);
        let var = Var {
            root: false,
            correction: 1.0,
            dims: dims.clone(),
            keepdim,
        };
        let norm = Norm {
            p: 2.0,
            dims: dims.clone(),
            keepdim,
        };
        let largest = Extremum {
            largest: true,
            dims: dims.clone(),
            keepdim,
        };
        let logsumexp = LogSumExp {
            dims: dims.clone(),
            keepdim,
        };
        let both = |label: &str, op: &dyn Timed| {
            both(rounds, pool, &format!("{label} {along}"), op, one);
        };
        both("var", &var);
        both("norm", &norm);
        both("amax", &largest);
        both("logsumexp", &logsumexp);
        both("log_softmax", &LogSoftmax { dim });
        both(
            "cumsum",
            &CumSum {
                dim,
                reverse: false,
            },
        );
        let at = ExtremumAt {
            largest: true,
            dims: dims.clone(),
            keepdim,
        };
        time(rounds, pool, &format!("argmax {along}"), &at, one);
        let prod = Prod { dims, keepdim };
        time(rounds, pool, &format!("prod {along}"), &prod, one);
    }
    let (dim, descending) = (1, false);
    time(rounds, pool, "sort of rows", &Sort { dim, descending }, one);
    let (k, largest) = (8, true);
    time(
        rounds,
        pool,
        "topk 8 of rows",
        &TopK { k, dim, largest },
        one,
    );
}

/// What moves elements about.
fn moves(rounds: &Rounds, pool: &Pool, x: &Spec) {
    let one = std::slice::from_ref(x);
    let transposed = Spec {
        dtype: DType::F32,
        layout: Layout::strided([ROWS, WIDTH], &[1, ROWS], 0),
    };
    time(
        rounds,
        pool,
        "copy of a transposed tensor",
        &highwater_ops::Copy,
        &[transposed],
    );
    time(
        rounds,
        pool,
        "cat of rows",
        &Cat { dim: 1 },
        &[x.clone(), x.clone()],
    );
    time(rounds, pool, "flip", &Flip { dims: vec![1] }, one);
    let triangle = Triangle {
        upper: false,
        diagonal: 0,
    };
    time(rounds, pool, "tril", &triangle, one);
    // Rows of 1024, as indices are below that.
    let rows = ROWS * WIDTH / 1024;
    let (x, at) = (
        Spec::contiguous(DType::F32, [rows, 1024]),
        Spec::contiguous(DType::I64, [rows, 1024]),
    );
    let inputs = [x, at];
    time(rounds, pool, "gather in rows", &Gather { dim: 1 }, &inputs);
    let scatter = ScatterAdd {
        dim: 1,
        extent: 1024,
        accumulate: false,
    };
    time(rounds, pool, "scatter_add in rows", &scatter, &inputs);
}
