//! The methods of `Tensor`, which the crate `highwater` compiles.

use highwater_ops::{Ceil, Floor, Round, Sign};

of_floats! {
    /// Elementwise sign: 1, -1 or 0, as `torch.sign`; its gradient is 0.
    sign, Sign;
    /// Elementwise largest whole number that is not above, as `torch.floor`; its gradient is 0.
    floor, Floor;
    /// Elementwise smallest whole number that is not below, as `torch.ceil`; its gradient is 0.
    ceil, Ceil;
    /// Elementwise nearest whole number, of two the even one, as `torch.round`; its gradient is 0.
    round, Round;
}
