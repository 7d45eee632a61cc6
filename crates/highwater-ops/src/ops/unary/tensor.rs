//! The methods of `Tensor`, which the crate `highwater` compiles.

use highwater_ops::{Exp, Log, Neg, Relu, Sigmoid, Sqrt, Tanh};

of_floats! {
    /// Elementwise `max(x, 0)`.
    relu, Relu;
    /// Elementwise hyperbolic tangent.
    tanh, Tanh;
    /// Elementwise `1 / (1 + exp(-x))`.
    sigmoid, Sigmoid;
    /// Elementwise exponential.
    exp, Exp;
    /// Elementwise natural logarithm.
    log, Log;
    /// Elementwise square root.
    sqrt, Sqrt;
    /// Elementwise negation.
    neg, Neg;
}
