//! Images of other sizes: `interpolate` and `interpolate_backward`.

mod cpu;
mod reference;
mod samples;

use crate::Entry;
use crate::kernels::checks::{check_shape, one_float_dtype};
use crate::kernels::pointwise::one_pass;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients;
use highwater_graph::{Backward, Cost, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY, BACKWARD];

/// How pixels of another size are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// Of the pixel at or before it.
    Nearest,
    /// Of the four around it, by how near they are.
    Bilinear {
        /// Whether the centres of the corners, and not the corners themselves, lie on each other.
        align_corners: bool,
    },
}

/// Images `[N, C, H, W]` of a float dtype and any layout, made as large as `size`: as
/// `torch.nn.functional.interpolate`. Places are computed in `f64`, but those of the nearest in `f32`, as in
/// PyTorch; pixels in `f32`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interpolate {
    /// Height and width of the result; at least 1.
    pub size: [usize; 2],
    /// How much larger it is, where that is given and not what the sizes say.
    pub scale: Option<[f64; 2]>,
    /// How pixels are made.
    pub mode: Interpolation,
}

/// The gradient of [`Interpolate`]'s images.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InterpolateBackward {
    /// What was made of them.
    pub forward: Interpolate,
    /// Their height and width.
    pub sides: [usize; 2],
}

/// What a row or column is made of: `1 - share` of one and `share` of another.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Between {
    first: usize,
    second: usize,
    share: f64,
}

impl Interpolate {
    fn hash_to(&self, hasher: &mut dyn Hasher) {
        use std::hash::Hash;
        self.size.hash(&mut &mut *hasher);
        let scale = self.scale.map(|scale| scale.map(f64::to_bits));
        scale.hash(&mut &mut *hasher);
        self.mode.hash(&mut &mut *hasher);
    }

    fn check(&self, op: &'static str, images: &Spec) -> Result<[usize; 4], OpError> {
        let refused = |attribute, expected: &str, got: String| OpError::Attribute {
            op,
            attribute,
            expected: expected.to_owned(),
            got,
        };
        if self.size.contains(&0) {
            return Err(refused("size", "at least 1", format!("{:?}", self.size)));
        }
        let is_scale = |scale: &f64| *scale > 0.0 && scale.is_finite();
        if let Some(scale) = self.scale.filter(|scale| !scale.iter().all(is_scale)) {
            return Err(refused("scale", "above 0 and finite", format!("{scale:?}")));
        }
        match *images.shape().dims() {
            [n, c, h, w] if h > 0 && w > 0 => Ok([n, c, self.size[0], self.size[1]]),
            _ => {
                let got = images.shape().to_string();
                Err(OpError::shape(op, "images [N, C, H, W], not empty", got))
            }
        }
    }

    /// What a row or column of the result is made of, of `extent` of them.
    fn between(&self, i: usize, at: usize, extent: usize) -> Between {
        let (size, last) = (self.size[i], extent - 1);
        match self.mode {
            Interpolation::Nearest => {
                let ratio = match self.scale {
                    Some(scale) => (1.0 / scale[i]) as f32,
                    None => extent as f32 / size as f32,
                };
                let nearest = if size == extent {
                    at
                } else if size == 2 * extent {
                    at / 2
                } else {
                    (at as f32 * ratio) as usize
                };
                let nearest = nearest.min(last);
                Between {
                    first: nearest,
                    second: nearest,
                    share: 0.0,
                }
            }
            Interpolation::Bilinear { align_corners } => {
                let source = if align_corners {
                    at as f64 * last as f64 / (size - 1).max(1) as f64
                } else {
                    let ratio = match self.scale {
                        Some(scale) => 1.0 / scale[i],
                        None => extent as f64 / size as f64,
                    };
                    ((at as f64 + 0.5) * ratio - 0.5).max(0.0)
                };
                let first = (source as usize).min(last);
                Between {
                    first,
                    second: (first + 1).min(last),
                    share: (source - first as f64).clamp(0.0, 1.0),
                }
            }
        }
    }
}

const ENTRY: Entry = Entry {
    name: "interpolate",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::ForwardKernel::<T>(PhantomData); Precise::new(reference::forward)
    },
    reference: reference::forward,
    samples: samples::forward,
    rejects: samples::forward_rejects,
};

const BACKWARD: Entry = Entry {
    name: "interpolate_backward",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::BackwardKernel::<T>(PhantomData); Precise::new(reference::backward)
    },
    reference: reference::backward,
    samples: samples::backward,
    rejects: samples::backward_rejects,
};

/// One pass, with eight operations for each pixel of the larger image.
fn cost(inputs: &[Spec], outputs: &[Spec], pixels: usize) -> Cost {
    one_pass(inputs, outputs, 8.0 * pixels as f64)
}

/// Height and width.
fn sides(shape: &[usize]) -> [usize; 2] {
    [shape[shape.len() - 2], shape[shape.len() - 1]]
}

impl Op for Interpolate {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.hash_to(hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        OpError::check_arity(op, inputs, 1)?;
        let dtype = one_float_dtype(op, &[&inputs[0]])?;
        let shape = self.check(op, &inputs[0])?;
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, outputs[0].layout.numel())
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let op = InterpolateBackward {
            forward: *self,
            sides: sides(backward.input(0).shape()),
        };
        gradients::from(backward, op, &[])
    }
}

impl Op for InterpolateBackward {
    fn name(&self) -> &'static str {
        BACKWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.forward.hash_to(hasher);
        hasher.write_usize(self.sides[0]);
        hasher.write_usize(self.sides[1]);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        OpError::check_arity(op, inputs, 1)?;
        let dtype = one_float_dtype(op, &[&inputs[0]])?;
        let &[n, c, _, _] = inputs[0].shape().dims() else {
            let got = inputs[0].shape().to_string();
            return Err(OpError::shape(op, "gradients [N, C, HO, WO]", got));
        };
        let images = Spec::contiguous(dtype, [n, c, self.sides[0], self.sides[1]]);
        check_shape(op, &inputs[0], &self.forward.check(op, &images)?)?;
        Ok(smallvec![images])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, inputs[0].layout.numel())
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from(backward, self.forward, &[])
    }
}
