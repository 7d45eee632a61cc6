//! Dropout.

mod cpu;
mod reference;

use crate::kernels::checks::one_float_dtype;
use crate::kernels::pointwise::cost;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients;
use crate::table::{f32_view, f32s, is_arity, is_dtype};
use crate::{Entry, Fill, Reject, Sample};
use highwater_graph::{Backward, Cost, DType, Effect, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// `y = x / (1 - p)` where an element is kept, else 0; each is dropped with probability `p`.
///
/// As `torch.nn.functional.dropout` (Srivastava et al., 2014), with numbers of its own: element `i`,
/// in row-major order of the shape, is dropped if word `i` of the [stream](crate::philox) (`seed`,
/// `offset`) is below `p 2^32`. One float tensor of any layout; the result is row-major. One pass; in
/// place. No mask is kept: backward drops the same elements of the gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Probability that an element is dropped, from 0 to 1.
    pub p: f64,
    /// Which stream of random numbers; may change from step to step.
    pub seed: u64,
    /// Which part of it; may change from step to step.
    pub offset: u64,
}

impl Dropout {
    const NAME: &'static str = "dropout";

    /// Words below this are dropped.
    fn threshold(&self) -> u64 {
        (self.p * 2.0_f64.powi(32)).round() as u64
    }

    /// What kept elements are multiplied by.
    fn scale(&self) -> f64 {
        if self.p < 1.0 {
            1.0 / (1.0 - self.p)
        } else {
            0.0
        }
    }
}

impl Op for Dropout {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.p.to_bits());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        if !(0.0..=1.0).contains(&self.p) {
            return Err(OpError::Attribute {
                op: Self::NAME,
                attribute: "p",
                expected: "from 0 to 1".to_owned(),
                got: self.p.to_string(),
            });
        }
        OpError::check_arity(Self::NAME, inputs, 1)?;
        let dtype = one_float_dtype(Self::NAME, &[&inputs[0]])?;
        let shape = inputs[0].shape().clone();
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 15.0)
    }

    fn effect(&self) -> Effect {
        Effect::Random
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from(backward, *self, &[])
    }
}

const ENTRY: Entry = Entry {
    name: Dropout::NAME,
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::DropoutKernel::<T>(PhantomData); Precise::new(reference::reference)
    },
    reference: reference::reference,
    samples,
    rejects,
};

const SAMPLE: Dropout = Dropout {
    p: 0.1,
    seed: 0x1234_5678_9abc_def0,
    offset: 7,
};

fn samples() -> Vec<Sample> {
    let sample = |p, layout| {
        let spec = f32_view(layout);
        Sample {
            op: Arc::new(Dropout { p, ..SAMPLE }),
            inputs: vec![(spec, Fill::Normal(1.0))],
            tolerance: 1e-6,
        }
    };
    vec![
        sample(0.1, Layout::contiguous([5, 37])),
        sample(0.5, Layout::contiguous([130, 257])),
        sample(0.0, Layout::contiguous([65])),
        sample(1.0, Layout::contiguous([65])),
        sample(0.5, Layout::strided([37, 130], &[1, 37], 0)),
        sample(0.5, Layout::strided([9, 4, 33], &[300, 33, 1], 7)),
        sample(0.3, Layout::strided([4, 33, 9], &[9, 0, 1], 0)),
        sample(0.5, Layout::contiguous([])),
        sample(0.5, Layout::contiguous([0, 5])),
    ]
}

fn rejects() -> Vec<Reject> {
    let reject = |p, inputs, error| Reject::new(Dropout { p, ..SAMPLE }, inputs, error);
    let x = f32s([3]);
    let attribute: fn(&OpError) -> bool =
        |error| matches!(error, OpError::Attribute { attribute: "p", .. });
    vec![
        reject(1.5, vec![x.clone()], attribute),
        reject(-0.1, vec![x.clone()], attribute),
        reject(f64::NAN, vec![x.clone()], attribute),
        reject(0.5, vec![x; 2], is_arity),
        reject(0.5, vec![Spec::contiguous(DType::I64, [3])], is_dtype),
    ]
}
