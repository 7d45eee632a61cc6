//! What kernels are made of, and what operations of a kind share.
//!
//! - Loops: element by element (`blocks`, `elements`), of any strides (`strided`), reductions (`reduction`),
//!   along a dimension (`lines`), products (`gemm`).
//! - Instruction sets: `simd` has a body compiled for each, `vector` has vectors; `limits` measures them.
//! - Elements: floats (`float`), whole numbers (`whole`), forms that optimizers hold (`formats`), indices
//!   (`indices`, `places`); functions of them (`math`, `wide_math`, `philox`).
//! - Operations of a kind: `pointwise`, `predicate`, `fold`, those that write cells (`cells`); what all of them
//!   check (`checks`), and the rows that most of them have (`rows`).

pub(crate) mod blocks;
pub(crate) mod cells;
pub(crate) mod checks;
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
pub(crate) mod places;
pub(crate) mod pointwise;
pub(crate) mod predicate;
pub(crate) mod reduction;
pub(crate) mod reference_math;
pub(crate) mod rows;
pub(crate) mod simd;
pub(crate) mod strided;
pub(crate) mod vector;
pub(crate) mod whole;
pub(crate) mod wide_math;

pub use float::{numbers_to, round_to};
pub use formats::{Draws, Formats, Master, Moments, StateCell};
pub use limits::Limits;
