//! The methods of `Tensor`, which the crate `highwater` compiles.

use highwater_ops::{Cos, Erf, Expm1, Log1p, Reciprocal, Rsqrt, Sin};

of_floats! {
    /// Elementwise sine of angles in radians, as `torch.sin`; accurate for large ones, too.
    sin, Sin;
    /// Elementwise cosine of angles in radians, as `torch.cos`; accurate for large ones, too.
    cos, Cos;
    /// Elementwise `exp(x) - 1`, accurate near 0, as `torch.expm1`.
    expm1, Expm1;
    /// Elementwise `log(1 + x)`, accurate near 0, as `torch.log1p`.
    log1p, Log1p;
    /// Elementwise error function, as `torch.erf`.
    erf, Erf;
    /// Elementwise `1 / x`, as `torch.reciprocal`.
    reciprocal, Reciprocal;
    /// Elementwise `1 / sqrt(x)`, as `torch.rsqrt`.
    rsqrt, Rsqrt;
}
