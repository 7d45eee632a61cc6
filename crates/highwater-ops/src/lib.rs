//! The operations: one folder each, declared once.
//!
//! A folder holds `mod.rs` (attributes, shapes, cost, effect, backward, samples, rows),
//! `reference.rs` (the plain reference in `f64`), `cpu.rs` (the fast kernel), `tensor.rs` (the
//! method of `Tensor`, which the crate `highwater` compiles) and what PyTorch computes for it
//! (`fixtures.py` makes `fixtures.safetensors`; `fixtures.rs`, where it has settings, is for the test
//! `fixtures`). [`OPS`] lists them; the laws in `laws` hold for every row, those of other crates
//! included.

#![cfg_attr(
    test,
    expect(dead_code, reason = "the table of unit tests is a short one")
)]

mod abs;
mod activations;
mod adagrad;
mod adamw;
mod any;
mod bce_with_logits;
mod binary;
mod blocks;
mod cast;
mod cat;
mod cell;
mod channel_norm;
mod choose;
mod clamp;
mod classify;
mod clip;
mod compare;
mod conv;
mod copy;
pub mod cpu;
mod cross_entropy;
mod cumsum;
mod dropout;
mod elementary;
mod elements;
mod embedding;
pub mod evaluate;
mod extremum;
mod factored;
mod finite;
mod flip;
mod float;
mod fold;
mod formats;
mod full;
mod fused;
mod gather;
mod gelu;
mod gemm;
mod huber;
mod indices;
mod interpolate;
mod kernel;
pub mod laws;
mod layer_norm;
mod limits;
mod linear;
mod linear_cross_entropy;
mod lines;
mod lion;
mod log_softmax;
mod logical;
mod logsumexp;
mod math;
mod matmul;
mod maximum;
mod nll_loss;
mod norm;
mod one_hot;
mod pad;
pub mod philox;
mod pointwise;
mod pool;
mod pooling;
mod pow;
mod predicate;
mod prod;
mod quantized_linear;
mod reference_math;
mod registry;
mod rms_norm;
mod rmsprop;
mod rotary;
mod rounding;
mod scalar;
mod scale;
mod scaled_dot_product_attention;
mod scatter_views;
mod sgd;
mod silu;
mod simd;
mod softmax;
mod sort;
mod square;
mod strided;
mod sum;
mod swiglu;
mod table;
mod triangle;
mod unary;
mod var;
mod vector;
mod view;
mod warm_up;
mod whole;
mod wide_math;
mod xlogy;

pub use float::{numbers_to, round_to};
pub use formats::{Draws, Formats, Master, Moments, StateCell};
pub use fused::{Fused, Step, Taken};
pub use kernel::{Args, Kernel, KernelError, Pairs, Piece, op_as};
pub use limits::Limits;
pub use pool::{Disjoint, Engaged, Pool, PoolError, Spawn};
pub use registry::{DTypes, Device, Kernels, Registered, Row};
pub use table::{Array, Entry, Fill, ReferenceFn, Reject, Sample};
pub use view::{Element, SharedWith, View};
pub use warm_up::{packing_bytes, warm_up};

table::operations! {
    abs,
    activations,
    adagrad,
    adamw,
    any,
    bce_with_logits,
    binary,
    cast,
    cat,
    cell,
    channel_norm,
    choose,
    clamp,
    classify,
    clip,
    compare,
    conv,
    copy,
    cross_entropy,
    cumsum,
    dropout,
    elementary,
    embedding,
    extremum,
    factored,
    finite,
    flip,
    full,
    gather,
    gelu,
    huber,
    interpolate,
    layer_norm,
    linear,
    linear_cross_entropy,
    lion,
    log_softmax,
    logical,
    logsumexp,
    matmul,
    maximum,
    nll_loss,
    norm,
    one_hot,
    pad,
    pooling,
    pow,
    prod,
    quantized_linear,
    rms_norm,
    rmsprop,
    rotary,
    rounding,
    scalar,
    scale,
    scaled_dot_product_attention,
    scatter_views,
    sgd,
    silu,
    softmax,
    sort,
    square,
    sum,
    swiglu,
    triangle,
    unary,
    var,
    xlogy,
}
