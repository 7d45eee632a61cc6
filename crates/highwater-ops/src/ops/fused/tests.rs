//! Where pieces wait, what a fused operation says of itself, and its kernel beside a plain reference.

use super::{Fused, FusedKernel, Step, Taken};
use crate::{Args, Kernel, Mul, Piece, Pool, SharedWith, View};
use highwater_graph::{DType, Layout, Op, Spec};
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

const EXTENTS: [usize; 2] = [130, 300];

/// `a - b`.
fn difference(
    _: &dyn Op,
    x: &[&[u8]],
    y: &mut [u8],
    _: &mut [[f32; crate::kernels::blocks::BLOCK]; 4],
) {
    let [a, b]: [&[f32]; 2] = [0, 1].map(|i: usize| bytemuck::cast_slice(x[i]));
    let y: &mut [f32] = bytemuck::cast_slice_mut(y);
    assert!(a.len() == y.len() && b.len() == y.len());
    for (y, (a, b)) in y.iter_mut().zip(a.iter().zip(b)) {
        *y = a - b;
    }
}

/// Whether `a` is above 0.
fn is_above(
    _: &dyn Op,
    x: &[&[u8]],
    y: &mut [u8],
    _: &mut [[f32; crate::kernels::blocks::BLOCK]; 4],
) {
    let a: &[f32] = bytemuck::cast_slice(x[0]);
    assert!(a.len() == y.len());
    for (y, &a) in y.iter_mut().zip(a) {
        *y = (a > 0.0).into();
    }
}

/// `a` if so, else `b`.
fn choice(
    _: &dyn Op,
    x: &[&[u8]],
    y: &mut [u8],
    _: &mut [[f32; crate::kernels::blocks::BLOCK]; 4],
) {
    let [a, b]: [&[f32]; 2] = [1, 2].map(|i: usize| bytemuck::cast_slice(x[i]));
    let y: &mut [f32] = bytemuck::cast_slice_mut(y);
    assert!(x[0].len() == y.len() && a.len() == y.len() && b.len() == y.len());
    for (i, y) in y.iter_mut().enumerate() {
        *y = if x[0][i] == 1 { a[i] } else { b[i] };
    }
}

/// Of a whole tensor `a`, a row `b` and a transposed tensor `c`.
fn chain() -> Fused {
    let (input, made) = (Taken::Input, Taken::Step);
    let step = |piece: Piece, reads: &[Taken], dtype| Step {
        op: Arc::new(Mul),
        piece,
        reads: reads.iter().copied().collect(),
        output: Spec::contiguous(dtype, EXTENTS),
    };
    let steps = vec![
        step(difference, &[input(0), input(1)], DType::F32),
        step(is_above, &[made(0)], DType::Bool),
        step(difference, &[input(2), made(0)], DType::F32),
        step(choice, &[made(1), made(2), input(0)], DType::F32),
    ];
    Fused::new(steps, 3).unwrap()
}

/// The same, one element after the other.
fn plainly(a: f32, b: f32, c: f32) -> f32 {
    let first = a - b;
    if first > 0.0 { c - first } else { a }
}

#[test]
fn steps_have_the_bits_of_elements_one_by_one() {
    let [rows, columns] = EXTENTS;
    let number = |i: usize| ((i * 7919 + 31) % 10_007) as f32 / 97.0 - 50.0;
    let numbers = |from: usize, len: usize| (from..from + len).map(number).collect::<Vec<f32>>();
    let whole = numbers(0, rows * columns);
    let (row, turned) = (numbers(5, columns), numbers(11, rows * columns));
    let turned_spec = Spec {
        dtype: DType::F32,
        layout: Layout::strided([rows, columns], &[1, rows], 0),
    };
    let specs = [
        Spec::contiguous(DType::F32, EXTENTS),
        Spec::contiguous(DType::F32, [columns]),
        turned_spec,
    ];
    for (threads, in_place) in [(1, false), (3, false), (1, true), (3, true)] {
        let mut out = if in_place {
            whole.clone()
        } else {
            vec![f32::NAN; whole.len()]
        };
        let a = if in_place {
            View::shared(SharedWith::Output(0), &specs[0])
        } else {
            View::read(bytemuck::cast_slice(&whole), &specs[0])
        };
        let mut inputs = [
            a,
            View::read(bytemuck::cast_slice(&row), &specs[1]),
            View::read(bytemuck::cast_slice(&turned), &specs[2]),
        ];
        let outputs = &mut [View::write(bytemuck::cast_slice_mut(&mut out), &specs[0])];
        let mut args = Args {
            inputs: &mut inputs,
            outputs,
            scratch: &mut [],
            pool: &Pool::new(threads).unwrap(),
        };
        FusedKernel.launch(&chain(), &mut args).unwrap();
        for (at, got) in out.iter().enumerate() {
            let (i, j) = (at / columns, at % columns);
            let want = plainly(whole[at], row[j], turned[j * rows + i]);
            assert_eq!(
                got.to_bits(),
                want.to_bits(),
                "{threads} {in_place} {i} {j}"
            );
        }
    }
}
