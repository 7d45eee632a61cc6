//! Padding: `pad`, and the gradient of what repeats elements, `pad_backward`.

mod cpu;
mod reference;
mod samples;

use crate::Entry;
use crate::kernels::checks::{check_shape, one_float_dtype};
use crate::kernels::pointwise::cost;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients;
use highwater_graph::{Backward, Cost, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY, BACKWARD];

/// What stands in the padding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PadMode {
    /// A number.
    Constant(f64),
    /// What lies inside, mirrored at the first and last element.
    Reflect,
    /// The first and the last element.
    Replicate,
    /// What lies at the other end.
    Circular,
}

/// Elements before and behind each dimension, of the first dimension first; a constant may be padded by
/// less than nothing, which cuts elements off. As `torch.nn.functional.pad`, whose list starts with the last
/// dimension.
///
/// One float tensor of any layout; the result is row-major. One pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Pad {
    /// How many elements, for each dimension.
    pub pads: Vec<[isize; 2]>,
    /// Which.
    pub mode: PadMode,
}

/// The gradient of [`Pad`]'s input: each element's is the sum of those of all elements made of it, in their
/// order, in `f32`.
#[derive(Debug, Clone, PartialEq)]
pub struct PadBackward {
    /// The padding.
    pub pad: Pad,
    /// The shape of the input.
    pub shape: Shape,
}

const ENTRY: Entry = Entry {
    name: "pad",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::pad::<T>; Precise::new(reference::pad)
    },
    reference: reference::pad,
    samples: samples::pad,
    rejects: samples::pad_rejects,
};

const BACKWARD: Entry = Entry {
    name: "pad_backward",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::BackwardKernel::<T>(PhantomData); Precise::new(reference::backward)
    },
    reference: reference::backward,
    samples: samples::backward,
    rejects: samples::backward_rejects,
};

impl PadMode {
    /// Where an element comes from that lies `at` elements behind the first of `extent`.
    fn source(self, at: isize, extent: usize) -> Option<usize> {
        let last = extent as isize - 1;
        let inside = (0..=last).contains(&at);
        let at = match self {
            _ if inside => at,
            Self::Constant(_) => return None,
            Self::Reflect if at < 0 => -at,
            Self::Reflect => 2 * last - at,
            Self::Replicate => at.clamp(0, last),
            Self::Circular => at.rem_euclid(last + 1),
        };
        Some(at as usize)
    }

    /// The most that a dimension can be padded by.
    fn most(self, extent: usize) -> usize {
        match self {
            Self::Reflect => extent.saturating_sub(1),
            Self::Replicate if extent == 0 => 0,
            Self::Constant(_) | Self::Replicate => usize::MAX,
            Self::Circular => extent,
        }
    }
}

impl Pad {
    fn hash_to(&self, hasher: &mut dyn Hasher) {
        self.pads.hash(&mut &mut *hasher);
        let (mode, value) = match self.mode {
            PadMode::Constant(value) => (0, value),
            PadMode::Reflect => (1, 0.0),
            PadMode::Replicate => (2, 0.0),
            PadMode::Circular => (3, 0.0),
        };
        hasher.write_u8(mode);
        hasher.write_u64(value.to_bits());
    }

    /// The shape of the result.
    fn padded(&self, op: &'static str, shape: &Shape) -> Result<Shape, OpError> {
        if self.pads.len() != shape.rank() {
            let expected = format!("a tensor of {} dimensions", self.pads.len());
            return Err(OpError::shape(op, expected, shape.to_string()));
        }
        let refused = |extent: usize, pads: &[isize; 2]| OpError::Attribute {
            op,
            attribute: "pads",
            expected: format!("what {:?} allows for {extent} elements", self.mode),
            got: format!("{pads:?}"),
        };
        let is_constant = matches!(self.mode, PadMode::Constant(_));
        let pads = shape.iter().zip(&self.pads);
        pads.map(|(&extent, pads)| {
            let most = self.mode.most(extent);
            let fits = |&pad: &isize| match usize::try_from(pad) {
                Ok(pad) => pad <= most,
                Err(_) => is_constant,
            };
            let padded = extent.checked_add_signed(pads[0]);
            let padded = padded.and_then(|padded| padded.checked_add_signed(pads[1]));
            padded
                .filter(|_| pads.iter().all(fits))
                .ok_or_else(|| refused(extent, pads))
        })
        .collect()
    }

    /// Where an element of a dimension of `extent` comes from.
    fn source(&self, dim: usize, at: usize, extent: usize) -> Option<usize> {
        self.mode.source(at as isize - self.pads[dim][0], extent)
    }
}

impl Op for Pad {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.hash_to(hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0]])?;
        let shape = self.padded(self.name(), inputs[0].shape())?;
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 0.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if let PadMode::Constant(_) = self.mode {
            let pads = self.pads.iter().map(|pads| pads.map(|pad| -pad)).collect();
            let mode = PadMode::Constant(0.0);
            return gradients::from(backward, Self { pads, mode }, &[]);
        }
        let shape = backward.input(0).shape().clone();
        let pad = self.clone();
        gradients::from(backward, PadBackward { pad, shape }, &[])
    }
}

impl Op for PadBackward {
    fn name(&self) -> &'static str {
        BACKWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.pad.hash_to(hasher);
        self.shape.hash(&mut &mut *hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        OpError::check_arity(op, inputs, 1)?;
        let dtype = one_float_dtype(op, &[&inputs[0]])?;
        check_shape(op, &inputs[0], &self.pad.padded(op, &self.shape)?)?;
        Ok(smallvec![Spec::contiguous(dtype, self.shape.clone())])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 1.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let pad = match self.pad.mode {
            PadMode::Constant(_) => Pad {
                mode: PadMode::Constant(0.0),
                ..self.pad.clone()
            },
            _ => self.pad.clone(),
        };
        gradients::from(backward, pad, &[])
    }
}
