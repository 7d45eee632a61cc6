//! What planning leaves on the heap counts against the budget before a plan runs.

use crate::process::high_water;
use highwater::nn::{Linear, Module};
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{DType, Engine, Tensor};
use std::process::Command;

const BUDGET: u64 = 128 << 20;

/// After steps of large graphs, each of another structure, so that the planner remembers plans for all of them,
/// comes a step of a small graph, for which little heap is reserved. Its activations are larger than the budget,
/// so that its plan uses all that it may.
#[test]
fn what_the_planner_remembers_is_inside_the_budget() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "outgrown::a_small_graph_after_large_ones"])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let failed = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(child.status.success(), "{said}{failed}");
}

#[test]
#[ignore = "a process of its own, started by the test above"]
fn a_small_graph_after_large_ones() {
    let engine = Engine::builder().threads(1).memory(BUDGET).build().unwrap();
    let layer = Linear::new(&engine, 256, 256, true).unwrap();
    let mut sgd = Sgd::new(layer.parameters(), SgdOptions::default()).unwrap();
    let mut step = |layers: usize, each: usize| {
        let mut x = Tensor::full(&engine, [2048, 256], 0.5, DType::F32).unwrap();
        for _ in 0..layers {
            x = layer.forward(&x).unwrap().gelu().unwrap();
            let mut small = x.mean_dims(&[0], true).unwrap();
            for _ in 0..each {
                small = small.mul_scalar(0.9).unwrap().sigmoid().unwrap();
            }
            x = x.mul(&small).unwrap();
        }
        x.mean().unwrap().backward().unwrap();
        sgd.step().unwrap();
        sgd.zero_grad();
        let (reserve, most) = (engine.reserve_bytes(), high_water());
        println!(
            "{} of {} KiB, reserve {}",
            most >> 10,
            BUDGET >> 10,
            reserve >> 10
        );
        assert!(most <= BUDGET, "{most} of {BUDGET} bytes");
    };
    for more in 0..4 {
        step(32, 42 + more);
    }
    step(64, 0);
}
