//! The operations as methods of `Tensor`, with PyTorch's names. Each stands in its operation's folder of
//! the crate `highwater-ops`, as `tensor.rs`; that crate's build script lists those that there are.

include!(env!("METHODS"));
