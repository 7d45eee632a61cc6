//! Images seen at places of a grid: `grid_sample` and its gradients, `grid_sample_input_backward` and
//! `grid_sample_grid_backward`.

mod cpu;
mod reference;
mod samples;

use crate::Entry;
use crate::kernels::checks::{check_shape, one_float_dtype};
use crate::kernels::pointwise::one_pass;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients::no_slope;
use highwater_graph::{Autocast, Backward, Cost, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[FORWARD, INPUT_BACKWARD, GRID_BACKWARD];

/// How a pixel is made of those around its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GridMode {
    /// Of the four around it, by how near they are.
    Bilinear,
    /// Of the nearest; of two the one at an even place. The grid's gradient is 0.
    Nearest,
}

/// What is beside an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GridPadding {
    /// Zeros.
    Zeros,
    /// The pixels at its border.
    Border,
    /// The image again, reflected.
    Reflection,
}

/// Images `[N, C, H, W]` of a float dtype and any layout, at the places of a grid `[N, HO, WO, 2]` of that dtype, x
/// before y, where -1 and 1 are the image's ends: `[N, C, HO, WO]`, as `torch.nn.functional.grid_sample`.
///
/// Places are computed in `f64`. A place that is not a number shows 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GridSample {
    /// How pixels are made.
    pub mode: GridMode,
    /// What is beside images.
    pub padding: GridPadding,
    /// Whether -1 and 1 are the centres of the outermost pixels rather than their edges.
    pub align_corners: bool,
}

/// The gradient of [`GridSample`] in the images, of inputs `g` and the grid: the sum of what was seen of each pixel, in
/// the order of the grid. Has no gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InputBackward {
    forward: GridSample,
    /// Height and width of the images.
    sides: [usize; 2],
}

/// The gradient of [`GridSample`] in the grid, of inputs `g`, the images and the grid. Has no gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GridBackward(GridSample);

/// A pixel that is seen at a place.
#[derive(Debug, Clone, Copy, Default)]
struct Tap {
    row: usize,
    column: usize,
    /// How much of it.
    weight: f64,
    /// By how much that changes with the grid's x and y.
    slopes: [f64; 2],
}

impl GridSample {
    /// Where along a side of the images the grid's number is, and by how much that changes with the number.
    fn place(self, x: f64, extent: usize) -> (f64, f64) {
        let last = (extent - 1) as f64;
        let (place, slope) = if self.align_corners {
            ((x + 1.0) * last / 2.0, last / 2.0)
        } else {
            let extent = extent as f64;
            (((x + 1.0) * extent - 1.0) / 2.0, extent / 2.0)
        };
        let (place, slope) = match self.padding {
            GridPadding::Zeros => return (place, slope),
            GridPadding::Border => (place, slope),
            GridPadding::Reflection => {
                let (least, span) = if self.align_corners {
                    (0.0, last)
                } else {
                    (-0.5, last + 1.0)
                };
                reflected(place, least, span, slope)
            }
        };
        if place <= 0.0 || place >= last {
            return (place.clamp(0.0, last), 0.0);
        }
        (place, slope)
    }

    /// The pixels that are seen at the grid's x and y.
    fn taps(self, [x, y]: [f64; 2], [rows, columns]: [usize; 2]) -> [Option<Tap>; 4] {
        let (x, dx) = self.place(x, columns);
        let (y, dy) = self.place(y, rows);
        if !x.is_finite() || !y.is_finite() {
            return [None; 4];
        }
        let seen = |row: f64, column: f64| {
            let is_inside = |at: f64, extent: usize| at >= 0.0 && at < extent as f64;
            (is_inside(row, rows) && is_inside(column, columns))
                .then_some((row as usize, column as usize))
        };
        if self.mode == GridMode::Nearest {
            let nearest = seen(y.round_ties_even(), x.round_ties_even());
            let nearest = nearest.map(|(row, column)| Tap {
                row,
                column,
                weight: 1.0,
                slopes: [0.0; 2],
            });
            return [nearest, None, None, None];
        }
        let (left, above) = (x.floor(), y.floor());
        std::array::from_fn(|i| {
            let (right, below) = ((i % 2) as f64, (i / 2) as f64);
            let (row, column) = seen(above + below, left + right)?;
            // The share, and its sign, of the side that the pixel is on.
            let share = |at: f64, first: f64, second: f64| {
                if second > 0.0 {
                    (at - first, 1.0)
                } else {
                    (first + 1.0 - at, -1.0)
                }
            };
            let (across, sign_x) = share(x, left, right);
            let (down, sign_y) = share(y, above, below);
            Some(Tap {
                row,
                column,
                weight: across * down,
                slopes: [sign_x * down * dx, sign_y * across * dy],
            })
        })
    }

    fn hash_to(self, hasher: &mut dyn Hasher) {
        self.hash(&mut &mut *hasher);
    }

    /// Checks images and a grid; the shape of what is seen.
    fn check(op: &'static str, images: &Spec, grid: &Spec) -> Result<[usize; 4], OpError> {
        let &[n, c, h, w] = images.shape().dims() else {
            let got = images.shape().to_string();
            return Err(OpError::shape(op, "images [N, C, H, W]", got));
        };
        if h == 0 || w == 0 {
            let got = images.shape().to_string();
            return Err(OpError::shape(op, "images that are not empty", got));
        }
        match *grid.shape().dims() {
            [batch, rows, columns, 2] if batch == n => Ok([n, c, rows, columns]),
            _ => {
                let expected = format!("a grid [{n}, HO, WO, 2]");
                Err(OpError::shape(op, expected, grid.shape().to_string()))
            }
        }
    }
}

/// A place reflected between two ends, `span` apart, and its slope.
fn reflected(place: f64, least: f64, span: f64, slope: f64) -> (f64, f64) {
    if span == 0.0 {
        return (0.0, 0.0);
    }
    let slope = if place < least { -slope } else { slope };
    let from = (place - least).abs();
    let (turns, rest) = ((from / span).floor(), from % span);
    if turns % 2.0 == 0.0 {
        (rest + least, slope)
    } else {
        (span - rest + least, -slope)
    }
}

const FORWARD: Entry = Entry {
    name: "grid_sample",
    rows: rows_of_floats! {
        T: [T, T] -> [T]; cpu::forward::<T>; Precise::new(reference::forward)
    },
    reference: reference::forward,
    samples: samples::forward,
    rejects: samples::forward_rejects,
};

const INPUT_BACKWARD: Entry = Entry {
    name: "grid_sample_input_backward",
    rows: rows_of_floats! {
        T: [T, T] -> [T];
        cpu::InputKernel::<T>(PhantomData);
        Precise::new(reference::input_backward)
    },
    reference: reference::input_backward,
    samples: samples::input_backward,
    rejects: samples::input_backward_rejects,
};

const GRID_BACKWARD: Entry = Entry {
    name: "grid_sample_grid_backward",
    rows: rows_of_floats! {
        T: [T, T, T] -> [T]; cpu::grid_backward::<T>; Precise::new(reference::grid_backward)
    },
    reference: reference::grid_backward,
    samples: samples::grid_backward,
    rejects: samples::grid_backward_rejects,
};

/// Sixteen operations for each pixel that is seen.
fn cost(inputs: &[Spec], outputs: &[Spec], seen: &Spec) -> Cost {
    one_pass(inputs, outputs, 16.0 * seen.layout.numel() as f64)
}

impl Op for GridSample {
    fn name(&self) -> &'static str {
        FORWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.hash_to(hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 2)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0], &inputs[1]])?;
        let shape = Self::check(self.name(), &inputs[0], &inputs[1])?;
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, &outputs[0])
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        let (images, grid) = (backward.input(0), backward.input(1));
        if backward.needs(0) {
            let &[_, _, h, w] = images.shape().dims() else {
                return Ok(());
            };
            let op = InputBackward {
                forward: *self,
                sides: [h, w],
            };
            let of_images = backward.emit_one(op, &[grad.clone(), grid.clone()])?;
            backward.set(0, of_images);
        }
        if self.mode == GridMode::Nearest {
            return no_slope(backward, 1);
        }
        if backward.needs(1) {
            let of_grid = backward.emit_one(GridBackward(*self), &[grad, images, grid])?;
            backward.set(1, of_grid);
        }
        Ok(())
    }
}

impl Op for InputBackward {
    fn name(&self) -> &'static str {
        INPUT_BACKWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.forward.hash_to(hasher);
        hasher.write_usize(self.sides[0]);
        hasher.write_usize(self.sides[1]);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        OpError::check_arity(op, inputs, 2)?;
        let dtype = one_float_dtype(op, &[&inputs[0], &inputs[1]])?;
        let &[n, c, _, _] = inputs[0].shape().dims() else {
            let got = inputs[0].shape().to_string();
            return Err(OpError::shape(op, "gradients [N, C, HO, WO]", got));
        };
        let images = Spec::contiguous(dtype, [n, c, self.sides[0], self.sides[1]]);
        check_shape(op, &inputs[0], &GridSample::check(op, &images, &inputs[1])?)?;
        Ok(smallvec![images])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, &inputs[0])
    }
}

impl Op for GridBackward {
    fn name(&self) -> &'static str {
        GRID_BACKWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.0.hash_to(hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        OpError::check_arity(op, inputs, 3)?;
        let dtype = one_float_dtype(op, &[&inputs[0], &inputs[1], &inputs[2]])?;
        check_shape(
            op,
            &inputs[0],
            &GridSample::check(op, &inputs[1], &inputs[2])?,
        )?;
        let shape = inputs[2].shape().clone();
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, &inputs[0])
    }
}
