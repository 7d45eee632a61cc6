//! The operations, a folder each: deleting the folder and its two lines here deletes the operation.

pub(crate) mod abs;
pub(crate) mod activations;
pub(crate) mod adagrad;
pub(crate) mod adamw;
pub(crate) mod any;
pub(crate) mod bce_with_logits;
pub(crate) mod binary;
pub(crate) mod cast;
pub(crate) mod cat;
pub(crate) mod cell;
pub(crate) mod channel_norm;
pub(crate) mod choose;
pub(crate) mod clamp;
pub(crate) mod classify;
pub(crate) mod clip;
pub(crate) mod compare;
pub(crate) mod conv;
pub(crate) mod copy;
pub(crate) mod cross_entropy;
pub(crate) mod cumsum;
pub(crate) mod dropout;
pub(crate) mod elementary;
pub(crate) mod embedding;
pub(crate) mod extremum;
pub(crate) mod factored;
pub(crate) mod finite;
pub(crate) mod flip;
pub(crate) mod full;
pub(crate) mod fused;
pub(crate) mod gather;
pub(crate) mod gelu;
pub(crate) mod huber;
pub(crate) mod interpolate;
pub(crate) mod layer_norm;
pub(crate) mod linear;
pub(crate) mod linear_cross_entropy;
pub(crate) mod lion;
pub(crate) mod log_softmax;
pub(crate) mod logical;
pub(crate) mod logsumexp;
pub(crate) mod matmul;
pub(crate) mod maximum;
pub(crate) mod nll_loss;
pub(crate) mod norm;
pub(crate) mod one_hot;
pub(crate) mod pad;
pub(crate) mod pooling;
pub(crate) mod pow;
pub(crate) mod prod;
pub(crate) mod quantized_linear;
pub(crate) mod rms_norm;
pub(crate) mod rmsprop;
pub(crate) mod rotary;
pub(crate) mod rounding;
pub(crate) mod scalar;
pub(crate) mod scale;
pub(crate) mod scaled_dot_product_attention;
pub(crate) mod scatter_views;
pub(crate) mod sgd;
pub(crate) mod silu;
pub(crate) mod softmax;
pub(crate) mod sort;
pub(crate) mod square;
pub(crate) mod sum;
pub(crate) mod swiglu;
pub(crate) mod triangle;
pub(crate) mod unary;
pub(crate) mod var;
pub(crate) mod xlogy;

pub use fused::{Fused, Step, Taken};

crate::table::operations! {
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
