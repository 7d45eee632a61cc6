//! What kernels, and operations of a kind, are made of.

pub(crate) mod blocks;
pub(crate) mod elements;
pub(crate) mod float;
pub(crate) mod fold;
pub(crate) mod formats;
pub(crate) mod gemm;
pub(crate) mod indices;
pub(crate) mod limits;
pub(crate) mod lines;
pub(crate) mod math;
pub mod philox;
pub(crate) mod pointwise;
pub(crate) mod predicate;
pub(crate) mod reference_math;
pub(crate) mod simd;
pub(crate) mod strided;
pub(crate) mod vector;
pub(crate) mod whole;
pub(crate) mod wide_math;

pub use float::{numbers_to, round_to};
pub use formats::{Draws, Formats, Master, Moments, StateCell};
pub use limits::Limits;
