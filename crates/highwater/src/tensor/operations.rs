//! The operations as methods of `Tensor`, with PyTorch's names. Each stands in its operation's folder of
//! the crate `highwater-ops`, as `tensor.rs`; that crate's build script lists those that there are.

/// Methods of one float tensor, each of an operation without settings.
macro_rules! of_floats {
    ($($(#[$doc:meta])* $name:ident, $op:expr;)*) => {
        impl crate::Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`crate::Error::Op`] for a dtype that is no float type.
            #[track_caller]
            pub fn $name(&self) -> crate::Result<Self> {
                Self::apply_one($op, &[self])
            }
        )*}
    };
}

include!(env!("METHODS"));
