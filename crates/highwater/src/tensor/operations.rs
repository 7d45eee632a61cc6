//! The operations as methods of `Tensor`, with PyTorch's names. Each stands in its operation's folder of
//! the crate `highwater-ops`, as `tensor.rs`; the build script lists those that there are.

include!(concat!(env!("OUT_DIR"), "/operations.rs"));
