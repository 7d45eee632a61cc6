//! The operations, a folder each: deleting the folder and its two lines here deletes the operation. What most of
//! their gradients emit is in `gradients`.

mod abs;
mod activations;
mod adagrad;
mod adamw;
mod any;
mod bce_with_logits;
mod binary;
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
mod cross_entropy;
mod ctc_loss;
mod cum_extremum;
mod cumprod;
mod cumsum;
mod dropout;
mod elementary;
mod embedding;
mod extremum;
mod factored;
mod finite;
mod flip;
mod full;
mod fused;
mod gather;
mod gelu;
mod gradients;
mod grid_sample;
mod huber;
mod interpolate;
mod layer_norm;
mod linear;
mod linear_cross_entropy;
mod lion;
mod log_softmax;
mod logical;
mod logsumexp;
mod matmul;
mod maximum;
mod nll_loss;
mod norm;
mod one_hot;
mod pad;
mod pooling;
mod pow;
mod prod;
mod quantized_linear;
mod rms_norm;
mod rmsprop;
mod rotary;
mod rounding;
mod scalar;
mod scale;
mod scaled_dot_product_attention;
mod scatter;
mod scatter_views;
mod sgd;
mod silu;
mod softmax;
mod sort;
mod square;
mod sum;
mod swiglu;
mod triangle;
mod unary;
mod var;
mod xlogy;

pub use fused::{Fused, Step, Taken};

use crate::table::{count, joined, rows};
use crate::{Entry, Kernels, Row};
use fused::FusedKernel;

impl Kernels {
    /// The kernels of this crate's table.
    pub fn builtin() -> Self {
        let mut kernels = Self::default();
        for &(name, rows) in ROWS {
            kernels.add_rows(name, rows);
        }
        kernels.add_fused(FusedKernel);
        kernels
    }
}

/// Every operation of this crate. A static: of a constant, every crate that names it would compile all kernels again.
#[cfg(feature = "laws")]
pub static OPS: &[Entry] = &joined::<_, { count(FOLDERS) }>(FOLDERS);

/// Their kernels, by name. A table of its own, so that programs do not contain what laws try.
static ROWS: &[(&str, &[Row])] =
    &rows::<{ count(FOLDERS) }>(&joined::<_, { count(FOLDERS) }>(FOLDERS));

// The unit tests need no others; kernels that nobody names are not compiled for them.
#[cfg(test)]
const FOLDERS: &[&[Entry]] = &[
    binary::ENTRIES,
    cell::ENTRIES,
    full::ENTRIES,
    linear_cross_entropy::ENTRIES,
];

/// Makes the operations of these folders public, and the table of them.
macro_rules! operations {
    ($($folder:ident,)*) => {
        $(pub use $folder::*;)*

        #[cfg(not(test))]
        const FOLDERS: &[&[Entry]] = &[$($folder::ENTRIES),*];
    };
}

operations! {
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
    ctc_loss,
    cum_extremum,
    cumprod,
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
    grid_sample,
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
    scatter,
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
