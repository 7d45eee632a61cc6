//! A guard against values that are not finite.

mod cpu;
mod reference;

use crate::kernels::checks::one_float_dtype;
use crate::kernels::rows::rows_of_floats;
use crate::table::{f32_strided, is_arity, is_dtype};
use crate::{Entry, Fill, Reject, Sample};
use highwater_graph::{Cost, DType, Effect, Op, OpError, Spec};
use smallvec::SmallVec;
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// Stops the step, or skips its updates, before any cell is written, if an element of its inputs is
/// not finite.
///
/// Any number of inputs of one float dtype and any layouts; no outputs. The kernel answers
/// [`KernelError::NonFinite`](crate::KernelError::NonFinite) with `what`, or
/// [`KernelError::Skip`](crate::KernelError::Skip).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finite {
    /// What the input is, for the message; structure does not depend on it.
    pub what: &'static str,
    /// What becomes of the step otherwise; structure does not depend on it either.
    pub otherwise: Otherwise,
    /// Whether a plan may leave the guard out to save memory or time.
    pub soft: bool,
}

/// What a guard does to a step whose value it refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// The step fails, and nothing is written.
    Stop,
    /// The step goes on without its updates, as in `torch.amp.GradScaler.step`.
    Skip,
}

impl Finite {
    /// Name in the registry.
    pub const NAME: &'static str = "finite";

    /// Stops the step where `what` is not finite.
    pub const fn or_stop(what: &'static str) -> Self {
        Self {
            what,
            otherwise: Otherwise::Stop,
            soft: false,
        }
    }

    /// As [`Finite::or_stop`], where it costs nothing to hold what is looked at.
    pub const fn or_stop_where_free(what: &'static str) -> Self {
        Self {
            soft: true,
            ..Self::or_stop(what)
        }
    }

    /// Leaves the updates out of the step where `what` is not finite.
    pub const fn or_skip(what: &'static str) -> Self {
        Self {
            what,
            otherwise: Otherwise::Skip,
            soft: false,
        }
    }
}

impl Op for Finite {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(self.soft.into());
    }

    fn is_soft(&self) -> bool {
        self.soft
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        if inputs.is_empty() {
            OpError::check_arity(Self::NAME, inputs, 1)?;
        }
        let all: SmallVec<[&Spec; 4]> = inputs.iter().collect();
        one_float_dtype(Self::NAME, &all)?;
        Ok(SmallVec::new())
    }

    fn cost(&self, inputs: &[Spec], _outputs: &[Spec], _threads: usize) -> Cost {
        Cost {
            vector_flops: inputs.iter().map(|spec| spec.layout.numel() as f64).sum(),
            read_bytes: inputs.iter().map(Spec::bytes).sum(),
            ..Cost::default()
        }
    }

    fn effect(&self) -> Effect {
        Effect::Guard
    }
}

const ENTRY: Entry = Entry {
    name: Finite::NAME,
    rows: rows_of_floats! { T: [T] -> []; cpu::kernel::<T>; cpu::kernel_f64 },
    reference: reference::reference,
    samples,
    rejects,
};

const OP: Finite = Finite::or_stop("value");

fn samples() -> Vec<Sample> {
    let strided = f32_strided([37, 65], &[1, 40], 3);
    vec![
        Sample::new(OP, &[&[]]),
        Sample::new(OP, &[&[3, 0]]),
        Sample::new(OP, &[&[130, 257]]),
        Sample::new(OP, &[&[5], &[], &[130, 257]]),
        Sample::new(OP, &[&[37, 65]]).input(0, strided, Fill::Normal(1e30)),
    ]
}

fn rejects() -> Vec<Reject> {
    let reject = |inputs, error| Reject::new(OP, inputs, error);
    vec![
        reject(Vec::new(), is_arity),
        reject(vec![Spec::contiguous(DType::I64, [3])], is_dtype),
        reject(
            [DType::F32, DType::BF16]
                .map(|dtype| Spec::contiguous(dtype, [3]))
                .to_vec(),
            is_dtype,
        ),
    ]
}
