//! Settings of optimizers, each with its default next to it.

/// A struct of settings, and its [`Default`]. `master` adds what is said of parameters in half precision, `moments` how
/// moments are held.
macro_rules! options {
    ($(#[$about:meta])* $name:ident { $($fields:tt)* } master, moments) => {
        $crate::optim::options::options! {
            $(#[$about])*
            $name {
                $($fields)*
                /// How moments are held. Settled when the optimizer is made.
                moments: $crate::optim::Moments = $crate::optim::Moments::F32,
            } master
        }
    };
    ($(#[$about:meta])* $name:ident { $($fields:tt)* } master) => {
        $crate::optim::options::options! {
            $(#[$about])*
            $name {
                $($fields)*
                /// What updates of parameters in half precision are added to; `None` is
                /// [`Master::Split`](crate::optim::Master::Split) for `BF16` and
                /// [`Master::F32`](crate::optim::Master::F32) for `F16`. Settled when the optimizer is made; for
                /// parameters in `F32` it is nothing.
                master: Option<$crate::optim::Master> = None,
            }
        }
    };
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty = $default:expr,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $default,)*
                }
            }
        }
    };
}
pub(super) use options;
