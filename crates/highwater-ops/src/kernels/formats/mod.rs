//! How an optimizer holds a parameter and its moments, and updates that work on all of these forms.
//!
//! An update is written once, on slices of `f32`: [`update`] hands it a block of each tensor at a time,
//! decoded, and puts back what it wrote. So no whole tensor is ever there in another form than its own.
//!
//! | | bytes per parameter of `BF16` |
//! |---|---|
//! | [`Master::F32`] | 6: the parameter, and all of it in `f32` |
//! | [`Master::Split`] | 4: the parameter, and what `f32` has beyond it |
//! | [`Master::Stochastic`] | 2 |
//! | moments of [`Moments::Float`], [`Moments::Int8`] | 4 each, 1.016 each |

mod check;
mod codes;
mod held;
mod master;
mod operation;
mod plain;
pub(crate) mod reference;
mod rows;
mod samples;

pub(crate) use codes::BLOCK;
pub(crate) use held::{Each, update};
pub(crate) use operation::{Update, update_op};
pub(crate) use plain::update_any;
pub(crate) use rows::rows;
pub(crate) use samples::{plain_samples, rejects, samples};

use highwater_graph::{DType, Shape};

/// What the updates of a parameter in half precision are added to. An update is often smaller than half
/// of the last digit of what it is added to, and would be lost by rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Master {
    /// The parameter itself.
    None,
    /// A cell of the same numbers in `F32`, of which the parameter is what they round to: for `F16` the
    /// nearest, of two the even one; for `BF16` the nearest, of two the one further from 0, so that the
    /// parameter has the bits that [`Master::Split`] gives it. Where a parameter is not what its master
    /// rounds to, something else has written it since (it was loaded, or is new), and the update starts
    /// from what it is.
    F32,
    /// The parameter, in `BF16`, is the master rounded to the nearest, of two the one further from 0. A
    /// cell of `I16` holds the difference between the master's bits and the parameter's, shifted up by
    /// 16: both together are the master, bit for bit. What something else writes to the parameter is
    /// changed by what the cell still holds: by less than half of its last digit.
    Split,
    /// The parameter itself, in `BF16`: an update is rounded up or down at random, up the more likely the
    /// nearer that is, so that it is kept on average.
    Stochastic(Draws),
}

/// Where the random bits of an update come from: word `start + i` of a stream of [`crate::philox`] for
/// element `i`. Not part of a plan's structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Draws {
    /// The generator's key.
    pub seed: u64,
    /// Which of its streams.
    pub offset: u64,
    /// Elements of the parameter before the first that is updated.
    pub start: u64,
}

/// How moments are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moments {
    /// In `F32`; without a master in the parameter's dtype.
    Float,
    /// In blocks of 256 elements: a byte for each, and the largest magnitude of the block in `F32`. With
    /// `x` the share of the largest, the byte of a moment that has a sign holds `x^(1/4)` in steps of
    /// 1/127, that of one that has none `x^(1/8)` in steps of 1/255. Of two steps it is one by chance, so
    /// that a moment is held on average, and what decays by less than a step does decay; the chance is a
    /// function of the numbers and of [`Formats::step`]. A first moment of less than a step is 0, a second
    /// one that is not 0 never is.
    ///
    /// Dettmers et al. ("8-bit Optimizers via Block-wise Quantization", 2022) have a table of numbers, of
    /// which they take the nearest. Its smallest beside 0 are too large for second moments, and 0 is divided
    /// by.
    Int8,
}

/// Forms of a parameter and of its moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formats {
    /// What updates are added to.
    pub master: Master,
    /// How moments are held.
    pub moments: Moments,
    /// Updates before this one, by which chance differs. Not part of a plan's structure.
    pub step: u64,
}

/// A cell beside the parameter that an update keeps: what it is called after, its dtype and shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateCell {
    /// `master`, a moment's name, or that with `_scale`.
    pub kind: String,
    /// Its dtype.
    pub dtype: DType,
    /// Its shape: the parameter's, or the number of blocks.
    pub shape: Shape,
}

impl Formats {
    /// Everything in the parameter's dtype.
    pub const PLAIN: Self = Self {
        master: Master::None,
        moments: Moments::Float,
        step: 0,
    };

    /// The cells beside a parameter of this dtype and shape, in the order in which an update takes them.
    pub fn cells(&self, dtype: DType, shape: &Shape, moments: &[&str]) -> Vec<StateCell> {
        let cell = |kind: String, dtype, shape: &Shape| StateCell {
            kind,
            dtype,
            shape: shape.clone(),
        };
        let mut cells = Vec::new();
        match self.master {
            Master::F32 => cells.push(cell("master".to_owned(), DType::F32, shape)),
            Master::Split => cells.push(cell("master".to_owned(), DType::I16, shape)),
            Master::None | Master::Stochastic(_) => {}
        }
        for &kind in moments {
            match self.moments {
                Moments::Float => {
                    cells.push(cell(kind.to_owned(), self.moment_dtype(dtype), shape));
                }
                Moments::Int8 => {
                    let blocks = Shape::from([shape.numel().div_ceil(BLOCK)]);
                    cells.push(cell(kind.to_owned(), DType::U8, shape));
                    cells.push(cell(format!("{kind}_scale"), DType::F32, &blocks));
                }
            }
        }
        cells
    }

    /// Whether everything is of the parameter's dtype.
    pub(crate) fn is_plain(&self) -> bool {
        (self.master, self.moments) == (Master::None, Moments::Float)
    }

    /// How many inputs an update of so many moments writes.
    pub(crate) fn written(&self, moments: usize) -> usize {
        let master = matches!(self.master, Master::F32 | Master::Split);
        let each = if self.moments == Moments::Int8 { 2 } else { 1 };
        1 + usize::from(master) + moments * each
    }

    /// What tells forms apart in a plan's structure.
    pub(crate) fn tag(&self) -> u8 {
        let master = match self.master {
            Master::None => 0,
            Master::F32 => 1,
            Master::Split => 2,
            Master::Stochastic(_) => 3,
        };
        master + 4 * u8::from(self.moments == Moments::Int8)
    }

    fn moment_dtype(&self, parameter: DType) -> DType {
        match self.master {
            Master::None => parameter,
            _ => DType::F32,
        }
    }
}
