//! The methods of `Tensor`, which the crate `highwater` compiles.

use highwater_ops::{IsFinite, IsInf, IsNan};

of_floats! {
    /// Whether elements are NaN, of `Bool`, as `torch.isnan`.
    isnan, IsNan;
    /// Whether elements are infinite, of `Bool`, as `torch.isinf`.
    isinf, IsInf;
    /// Whether elements are neither NaN nor infinite, of `Bool`, as `torch.isfinite`.
    isfinite, IsFinite;
}
