//! The engine as its users see it: the budget law over sample models, reads in the middle of a step,
//! and what PyTorch's users expect of gradients, steps and errors.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    clippy::print_stdout,
    reason = "helpers of tests fail and tell as tests do, and numbers are compared bit for bit"
)]

mod autocast;
mod budget;
mod checkpoints;
mod checkpoints_as_in_pytorch;
#[path = "../../../highwater-plan/tests/common/mod.rs"]
mod common;
mod conventions;
mod custom_gradient;
mod debug;
mod documents;
mod dropped;
mod extremes;
mod files;
mod forecast;
mod fused;
mod grad_scaler;
mod guards;
mod halves;
mod hooks;
mod host;
mod images;
mod in_place_abn;
mod indexing;
mod kernels;
mod masters;
mod memory_for_users;
mod mistakes;
mod mistakes_told;
mod misuse;
mod models;
mod modules;
mod operators;
#[cfg(target_os = "linux")]
mod outgrown;
mod own_optimizer;
mod ownership;
mod places;
mod pointwise;
mod printing;
#[cfg(target_os = "linux")]
#[expect(dead_code, reason = "other tests train its model")]
#[path = "../process/mod.rs"]
mod process;
mod quantized;
mod reads;
mod recordings;
mod reductions;
mod refusals;
mod second;
mod second_as_in_pytorch;
mod semantics;
mod settings;
mod shapes;
#[path = "../share/mod.rs"]
mod share;
mod shared_grads;
mod tampered;
mod threads;
mod tiers;
mod times;
mod train;
mod views;
mod writes;
