//! That the laws have teeth: toys, each wrong in one way, break the law that they should.

#![expect(unsafe_code, reason = "some toys write where they must not")]

use super::{Law, Laws};
use crate::device::in_place;
use crate::ops::ACCUMULATE;
use crate::{
    Args, Array, DTypes, Entry, Fill, Kernel, KernelError, Pairs, Reject, Row, Sample, op_as,
};
use half::bf16;
use highwater_graph::{Backward, Cost, DType, Effect, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::sync::Arc;

/// The product of two tensors of one shape, right but for `WRONG`.
#[derive(Debug, Clone, Copy, Default)]
struct Toy<const WRONG: u8> {
    /// Whether the output is a column, of two dimensions.
    column: bool,
    /// Whether it was emitted by backward.
    backward: bool,
}

const RIGHT: u8 = 0;
const NO_SAMPLES: u8 = 1;
const UNDECLARED_WRITE: u8 = 2;
const NOT_REFUSED: u8 = 3;
const VAGUE_ERROR: u8 = 4;
const VALUE: u8 = 5;
const READS_GAPS: u8 = 6;
const WRITES_BEHIND_OUTPUT: u8 = 7;
const WRITES_INPUT: u8 = 8;
const WRITES_BEHIND_SCRATCH: u8 = 9;
const SCRATCH_TOO_SMALL: u8 = 10;
const SUM_BY_THREADS: u8 = 11;
const BY_ALIGNMENT: u8 = 12;
const READS_GARBAGE: u8 = 13;
const IN_PLACE_HAZARD: u8 = 14;
const GRADIENT: u8 = 15;
const NO_GRADIENT: u8 = 16;
const UNWANTED_GRADIENT: u8 = 17;
const LOSES_EXISTING: u8 = 18;
const BACKWARD_KERNEL: u8 = 19;
const COST: u8 = 20;
const HASH: u8 = 21;
const TAKES_FOR_DENSE: u8 = 22;
const FORGETS_IN_PLACE: u8 = 23;
const NO_ROW: u8 = 24;

impl<const WRONG: u8> Op for Toy<WRONG> {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(u8::from(self.column && WRONG != HASH));
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let name = if WRONG == VAGUE_ERROR { "?" } else { "toy" };
        OpError::check_arity(name, inputs, 2)?;
        if inputs[0].shape() != inputs[1].shape() && WRONG != NOT_REFUSED {
            return Err(OpError::shape(name, "equal shapes", "others"));
        }
        let mut dims = inputs[0].shape().dims().to_vec();
        dims.extend(self.column.then_some(1));
        Ok(smallvec![Spec::contiguous(DType::F32, dims)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let mut cost = Cost::elementwise(inputs, outputs, 1.0);
        cost.written_bytes -= u64::from(WRONG == COST && cost.written_bytes > 0);
        cost
    }

    fn effect(&self) -> Effect {
        if WRONG == UNDECLARED_WRITE {
            Effect::WritesCell
        } else {
            Effect::Pure
        }
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(mut grad) = backward.grad(0) else {
            return Ok(());
        };
        grad.spec.layout = Layout::contiguous(backward.input(0).shape().clone());
        let toy = Self {
            backward: true,
            column: false,
        };
        for i in 0..2 {
            if WRONG == NO_GRADIENT || !(backward.needs(i) || WRONG == UNWANTED_GRADIENT) {
                continue;
            }
            let other = backward.input(if WRONG == GRADIENT { i } else { 1 - i });
            let product = backward.emit_one(toy, &[grad.clone(), other])?;
            if WRONG == LOSES_EXISTING && backward.existing(i).is_some() {
                backward.set_accumulated(i, product);
            } else {
                backward.set(i, product);
            }
        }
        Ok(())
    }
}

struct ToyKernel<const WRONG: u8>;

impl<const WRONG: u8> ToyKernel<WRONG> {
    const ROWS: &'static [Row] = if WRONG == NO_ROW {
        &[]
    } else {
        &[Row::f32(|| Arc::new(Self))]
    };
}

impl<const WRONG: u8> Kernel for ToyKernel<WRONG> {
    fn scratch_bytes(&self, _: &dyn Op, _: &[Spec], outputs: &[Spec], _threads: usize) -> u64 {
        outputs[0].bytes()
    }

    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(&inputs[..1], outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        run::<WRONG>(op_as(op)?, args)
    }
}

fn run<const WRONG: u8>(op: &Toy<WRONG>, args: &mut Args<'_>) -> Result<(), KernelError> {
    let threads = args.pool.threads();
    let [a, b] = args.inputs else {
        return Err(KernelError::WrongOp { op: "toy" });
    };
    let [out] = args.outputs else {
        return Err(KernelError::WrongOp { op: "toy" });
    };
    let len = out.numel();
    let extra = usize::from(WRONG == SCRATCH_TOO_SMALL);
    let scratch: &mut [f32] = bytemuck::cast_slice_mut(&mut args.scratch[..4 * (len + extra)]);
    if WRONG == IN_PLACE_HAZARD {
        out.slice_mut::<f32>()?.fill(0.0);
    }
    let own: Vec<f32>;
    let of_a = if a.is_overwritten() && WRONG != FORGETS_IN_PLACE {
        own = out.slice::<f32>()?.to_vec();
        &own
    } else {
        a.storage::<f32>()?
    };
    let dense = Layout::contiguous(a.layout().shape().clone());
    let is_dense = WRONG == TAKES_FOR_DENSE;
    let layout_a = if is_dense { &dense } else { a.layout() };
    let places = layout_a.positions().zip(b.layout().positions());
    for (to, (at_a, at_b)) in scratch.iter_mut().zip(places) {
        let (x, y) = (of_a[at_a], b.storage::<f32>()?[at_b]);
        *to = match WRONG {
            VALUE => x * y + 1e-3,
            READS_GAPS => x * y + 0.0 * b.storage::<f32>()?.iter().sum::<f32>(),
            SUM_BY_THREADS => (0..threads).map(|_| x * y / threads as f32).sum(),
            BACKWARD_KERNEL if op.backward => x * y + 1e-2,
            _ => x * y,
        };
    }
    let out = out.slice_mut::<f32>()?;
    let kept = usize::from(WRONG == READS_GARBAGE && len > 0);
    out[kept..].copy_from_slice(&scratch[kept..len]);
    if WRONG == BY_ALIGNMENT {
        let head = out.as_ptr().align_offset(64).min(len);
        out[..head].iter_mut().for_each(|x| *x *= 1.000_000_1);
    }
    let astray = match WRONG {
        // Slices of nothing are nowhere.
        _ if len == 0 => None,
        WRITES_BEHIND_OUTPUT => Some(out.as_mut_ptr().wrapping_add(len)),
        WRITES_BEHIND_SCRATCH => Some(scratch.as_mut_ptr().wrapping_add(len)),
        WRITES_INPUT => Some(b.storage::<f32>()?.as_ptr().cast_mut()),
        _ => None,
    };
    if let Some(address) = astray {
        // SAFETY: none but the laws call this, whose buffers have room on either side.
        unsafe { address.write_volatile(7.5) };
    }
    Ok(())
}

fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let spec = |array: &Array| Spec::contiguous(array.dtype, array.shape.clone());
    let specs: Vec<Spec> = inputs.iter().map(spec).collect();
    let outputs = op.infer(&specs).expect("a sample's inputs");
    let products = inputs[0]
        .data
        .iter()
        .zip(&inputs[1].data)
        .map(|(x, y)| x * y);
    let shape = outputs[0].shape().clone();
    vec![Array::new(DType::F32, shape, products.collect())]
}

fn samples<const WRONG: u8>() -> Vec<Sample> {
    if WRONG == NO_SAMPLES {
        return Vec::new();
    }
    let gaps = Spec {
        dtype: DType::F32,
        layout: Layout::strided([7], &[3], 2),
    };
    let toy = Toy::<WRONG>::default();
    let column = Toy::<WRONG> {
        column: true,
        ..toy
    };
    vec![
        Sample::new(toy, &[&[37], &[37]]),
        Sample::new(column, &[&[37], &[37]]),
        Sample::new(toy, &[&[7], &[7]]).input(1, gaps, Fill::Uniform(1.0, 2.0)),
        Sample::new(toy, &[&[0], &[0]]),
    ]
}

fn rejects<const WRONG: u8>() -> Vec<Reject> {
    vec![Reject {
        op: Arc::new(Toy::<WRONG>::default()),
        inputs: vec![
            Spec::contiguous(DType::F32, [3]),
            Spec::contiguous(DType::F32, [4]),
        ],
        error: |error| matches!(error, OpError::Shape { .. }),
    }]
}

/// The laws that a toy breaks.
fn broken<const WRONG: u8>() -> Vec<Law> {
    let entry = Entry {
        name: "toy",
        rows: ToyKernel::<WRONG>::ROWS,
        reference,
        samples: samples::<WRONG>,
        rejects: rejects::<WRONG>,
    };
    let mut laws: Vec<Law> = (Laws::new(&[entry]).check(&entry).iter())
        .map(|broken| broken.law)
        .collect();
    laws.sort_unstable();
    laws.dedup();
    laws
}

#[test]
fn a_right_operation_breaks_no_law() {
    assert_eq!(broken::<RIGHT>(), []);
}

#[test]
fn wrong_declarations_are_found() {
    assert_eq!(broken::<NO_SAMPLES>(), [Law::Row]);
    assert_eq!(broken::<NO_ROW>(), [Law::Row]);
    assert_eq!(broken::<UNDECLARED_WRITE>(), [Law::Row]);
    assert_eq!(broken::<NOT_REFUSED>(), [Law::Rejects]);
    assert_eq!(broken::<VAGUE_ERROR>(), [Law::Rejects]);
    assert_eq!(broken::<COST>(), [Law::Cost]);
    assert_eq!(broken::<HASH>(), [Law::Attributes]);
}

#[test]
fn wrong_results_are_found() {
    assert_eq!(broken::<VALUE>(), [Law::Forward, Law::BackwardKernels]);
    assert_eq!(broken::<READS_GAPS>(), [Law::Forward, Law::BackwardKernels]);
    assert_eq!(broken::<TAKES_FOR_DENSE>(), [Law::Forward, Law::Bytes]);
    let found = broken::<READS_GARBAGE>();
    assert!(found.contains(&Law::Forward) && found.contains(&Law::Determinism));
}

#[test]
fn stray_writes_are_found() {
    let both = [Law::Bytes, Law::BackwardKernels];
    assert_eq!(broken::<WRITES_BEHIND_OUTPUT>(), both);
    assert_eq!(broken::<WRITES_BEHIND_SCRATCH>(), both);
    assert_eq!(broken::<SCRATCH_TOO_SMALL>(), both);
    assert_eq!(broken::<WRITES_INPUT>(), both);
}

#[test]
fn writes_beside_the_given_rows_of_a_cell_are_found() {
    fn astray(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        // SAFETY: the arguments are as the laws, which call this, were told they must be.
        unsafe { ACCUMULATE.rows[0].registered().launch(op, args)? };
        let cell = &mut args.inputs[0];
        if cell.layout().offset() > 0 {
            cell.storage_mut::<f32>()?[0] = 7.5;
        }
        Ok(())
    }
    const ROWS: &[Row] = &[Row::f32(|| Arc::new(astray))];
    let entry = Entry {
        rows: ROWS,
        ..ACCUMULATE
    };
    let broken = Laws::new(&[]).check(&entry);
    assert!(!broken.is_empty() && broken.iter().all(|broken| broken.law == Law::Bytes));
}

#[test]
fn wrong_kernels_of_other_dtypes_are_found() {
    /// Rounds towards zero.
    fn truncates(_op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let [cell, value] = args.inputs else {
            return Err(KernelError::WrongOp { op: "accumulate" });
        };
        let from = value.storage::<bf16>()?;
        let positions = value.layout().positions();
        for (to, at) in cell.slice_mut::<bf16>()?.iter_mut().zip(positions) {
            let sum = to.to_f32() + from[at].to_f32();
            *to = bf16::from_bits((sum.to_bits() >> 16) as u16);
        }
        Ok(())
    }
    const HALVES: DTypes = DTypes::new(&[DType::BF16], &[]);
    const ROWS: &[Row] = &[ACCUMULATE.rows[0], Row::cpu(HALVES, || Arc::new(truncates))];
    let entry = Entry {
        rows: ROWS,
        ..ACCUMULATE
    };
    let broken = Laws::new(&[]).check(&entry);
    assert!(!broken.is_empty() && broken.iter().all(|broken| broken.law == Law::Forward));
    assert!(broken.iter().all(|broken| broken.place.contains("BF16")));
}

#[test]
fn a_kernel_that_no_sample_tries_is_found() {
    const LABELS: DTypes = DTypes::new(&[DType::F32, DType::U8], &[]);
    const ROWS: &[Row] = &[
        ACCUMULATE.rows[0],
        Row::cpu(LABELS, || Arc::new(ToyKernel::<RIGHT>)),
    ];
    let entry = Entry {
        rows: ROWS,
        ..ACCUMULATE
    };
    let broken = Laws::new(&[]).check(&entry);
    assert!(matches!(&broken[..], [broken] if broken.law == Law::Row));
}

#[test]
fn results_that_depend_on_the_machine_are_found() {
    assert_eq!(broken::<SUM_BY_THREADS>(), [Law::Determinism]);
    assert_eq!(broken::<BY_ALIGNMENT>(), [Law::Determinism]);
    assert_eq!(broken::<IN_PLACE_HAZARD>(), [Law::InPlace]);
    assert_eq!(broken::<FORGETS_IN_PLACE>(), [Law::InPlace]);
}

#[test]
fn wrong_gradients_are_found() {
    assert_eq!(broken::<GRADIENT>(), [Law::Gradient]);
    assert_eq!(broken::<NO_GRADIENT>(), [Law::Gradient]);
    assert_eq!(broken::<UNWANTED_GRADIENT>(), [Law::Gradient]);
    assert_eq!(broken::<LOSES_EXISTING>(), [Law::Gradient]);
    assert_eq!(broken::<BACKWARD_KERNEL>(), [Law::BackwardKernels]);
}
