//! What an adapter adds to the rows of a weight.

use std::num::NonZeroUsize;
use std::thread;

use super::files::Part;
use crate::files::weights::{WeightsError, WeightsReader};

/// Products that are worth a thread, about.
const WORTH_A_THREAD: usize = 1 << 18;

/// What the rows of a weight are of the product `B A`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Its rows: the weight is `[out, in]`.
    Outputs,
    /// Its columns: the weight is `[in, out]`, as GPT-2's and those of embeddings.
    Inputs,
}

impl Side {
    /// The outputs and inputs of a weight of this shape.
    pub(super) fn extents(self, [rows, width]: [usize; 2]) -> [usize; 2] {
        match self {
            Self::Outputs => [rows, width],
            Self::Inputs => [width, rows],
        }
    }
}

/// An adapter, as the product of a matrix for each row of the weight and one for all of them.
#[derive(Debug)]
pub(super) struct LowRank {
    rank: usize,
    /// `[rows, rank]`.
    left: Vec<f32>,
    /// `[rank, width]`.
    right: Vec<f32>,
    scaling: f32,
    /// DoRA's lengths, of each output.
    magnitude: Option<Vec<f32>>,
    side: Side,
    /// For [`Side::Inputs`], the sums of squares of the outputs.
    squares: Vec<f64>,
}

impl LowRank {
    /// Reads the matrices of a layer, which are known to have these extents.
    pub(super) fn read(
        reader: &mut WeightsReader,
        part: &Part,
        (side, scaling): (Side, f64),
        ([outputs, inputs], rank): ([usize; 2], usize),
    ) -> Result<Self, WeightsError> {
        let mut matrix = |name: Option<&String>, shape: &[usize]| {
            let mut values = vec![0.0; shape.iter().product()];
            if let Some(name) = name {
                reader.read_f32(name, shape, &mut values)?;
            }
            Ok::<_, WeightsError>(values)
        };
        let a = matrix(part.low[0].as_ref(), &[rank, inputs])?;
        let b = matrix(part.low[1].as_ref(), &[outputs, rank])?;
        let magnitude = part.magnitude.as_ref();
        let magnitude = magnitude.map(|name| matrix(Some(name), &[outputs]));
        let (left, right) = match side {
            Side::Outputs => (b, a),
            Side::Inputs => (turned(&a, inputs), turned(&b, rank)),
        };
        Ok(Self {
            rank,
            left,
            right,
            scaling: scaling as f32,
            magnitude: magnitude.transpose()?,
            side,
            squares: Vec::new(),
        })
    }

    /// Whether all rows have to be looked at before the first is merged.
    pub(super) fn needs_squares(&self) -> bool {
        self.side == Side::Inputs && self.magnitude.is_some()
    }

    /// Counts rows to the lengths of outputs, from the `first` on.
    pub(super) fn count(&mut self, first: usize, rows: &mut [f32], width: usize) {
        self.add(first, rows, width);
        self.squares.resize(width, 0.0);
        for row in rows.chunks(width) {
            for (sum, value) in self.squares.iter_mut().zip(row) {
                *sum += f64::from(*value).powi(2);
            }
        }
    }

    /// Adds the adapter to rows of the weight, from the `first` on. Each row is computed by itself: how many threads
    /// there are changes nothing.
    pub(super) fn merge(&self, first: usize, rows: &mut [f32], width: usize) {
        self.add(first, rows, width);
        let Some(magnitude) = &self.magnitude else {
            return;
        };
        // A row of zeros has no direction, and stays one of zeros.
        let over = |length: f32, squares: f64| match squares.sqrt() as f32 {
            0.0 => 0.0,
            norm => length / norm,
        };
        for (i, row) in rows.chunks_mut(width).enumerate() {
            match self.side {
                Side::Outputs => {
                    let squares = row.iter().map(|&x| f64::from(x).powi(2)).sum();
                    let factor = over(magnitude[first + i], squares);
                    for x in row.iter_mut() {
                        *x *= factor;
                    }
                }
                Side::Inputs => {
                    let outputs = magnitude.iter().zip(&self.squares);
                    for (x, (length, squares)) in row.iter_mut().zip(outputs) {
                        *x *= over(*length, *squares);
                    }
                }
            }
        }
    }

    /// Adds the scaled product to rows.
    fn add(&self, first: usize, rows: &mut [f32], width: usize) {
        let rank = self.rank;
        let count = rows.len() / width.max(1);
        let left = &self.left[first * rank..][..count * rank];
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = threads.min(rows.len() * rank / WORTH_A_THREAD).max(1);
        let each = count.div_ceil(threads).max(1);
        thread::scope(|scope| {
            let parts = rows.chunks_mut(each * width).zip(left.chunks(each * rank));
            for (rows, left) in parts {
                let mut work = move || self.add_each(rows, left, width);
                if threads == 1 {
                    work();
                } else {
                    scope.spawn(work);
                }
            }
        });
    }

    fn add_each(&self, rows: &mut [f32], left: &[f32], width: usize) {
        let mut sum = vec![0.0_f32; width];
        for (row, factors) in rows.chunks_mut(width).zip(left.chunks(self.rank)) {
            sum.fill(0.0);
            for (factor, line) in factors.iter().zip(self.right.chunks(width)) {
                for (sum, value) in sum.iter_mut().zip(line) {
                    *sum += factor * value;
                }
            }
            for (x, sum) in row.iter_mut().zip(&sum) {
                *x += self.scaling * sum;
            }
        }
    }
}

/// A matrix with rows of `width`, turned.
fn turned(matrix: &[f32], width: usize) -> Vec<f32> {
    let column = |at: usize| matrix.iter().skip(at).step_by(width).copied();
    (0..width).flat_map(column).collect()
}
