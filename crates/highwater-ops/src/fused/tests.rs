//! Where pieces wait, and what a fused operation says of itself.

use super::{Fused, Step, Taken};
use crate::Mul;
use highwater_graph::{DType, Op, Spec};
use std::sync::Arc;

fn step(reads: [Taken; 2]) -> Step {
    Step {
        op: Arc::new(Mul),
        piece: |_, _, _, _| {},
        reads: reads.into_iter().collect(),
        output: Spec::contiguous(DType::F32, [100, 30]),
    }
}

#[test]
fn pieces_wait_until_they_were_read_for_the_last_time() {
    let of = Taken::Step;
    let input = Taken::Input(0);
    let steps = [
        step([input, input]),
        step([of(0), input]),
        step([of(1), of(0)]),
        step([of(2), input]),
        step([of(3), of(2)]),
    ];
    let slots = |steps: &[Step], inputs| Fused::new(steps.to_vec(), inputs).map(|f| f.slots);
    // The place of a step's result is not that of what it reads.
    assert_eq!(slots(&steps, 1).unwrap().to_vec(), [1, 2, 3, 2]);
    assert_eq!(slots(&steps, 5).unwrap().to_vec(), [5, 6, 7, 6]);
    assert!(slots(&steps, 6).is_none() && slots(&[], 1).is_none());
    assert_eq!(slots(&steps[..1], 8).unwrap().to_vec(), [0; 0]);
    assert!(slots(&steps[..1], 9).is_none());
}

#[test]
fn a_cost_is_what_goes_in_and_comes_out() {
    let [row, all] = [&[30][..], &[100, 30]].map(|shape| Spec::contiguous(DType::F32, shape));
    let input = Taken::Input;
    let steps = vec![step([input(0), input(1)]), step([Taken::Step(0), input(1)])];
    let fused = Fused::new(steps, 2).unwrap();
    assert_eq!(fused.name(), "fused(mul,mul)");
    let inputs = [all.clone(), row];
    let cost = fused.cost(&inputs, &[all], 1);
    assert_eq!((cost.read_bytes, cost.written_bytes), (12_120, 12_000));
    assert!((cost.vector_flops - 6000.0).abs() < 1e-9);
    assert_eq!(fused.infer(&inputs).unwrap()[0].bytes(), 12_000);
}
