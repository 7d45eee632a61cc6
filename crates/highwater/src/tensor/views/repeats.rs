//! Copies of tensors side by side, and elements moved around: views that `cat` and `contiguous` make
//! dense.

use crate::Result;
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::tensor::dim::Dim;
use highwater_graph::{Location, RANK_MAX, Shape};
use smallvec::SmallVec;

impl Tensor {
    /// Copies side by side, `repeats[i]` of them along dimension `i`; missing leading dimensions are
    /// added. As `tensor.repeat`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for fewer repeats than dimensions, or too large a result.
    #[track_caller]
    pub fn repeat(&self, repeats: &[usize]) -> Result<Self> {
        let (rank, location) = (self.shape().rank(), Location::caller());
        let Some(lead) = repeats
            .len()
            .checked_sub(rank)
            .filter(|_| repeats.len() <= RANK_MAX)
        else {
            let shape = self.shape();
            let message =
                format!("repeat: {repeats:?} are not for the dimensions of shape {shape}");
            return Err(usage_error(message, location));
        };
        let lengths = std::iter::repeat_n(1, lead).chain(self.dims().iter().copied());
        let shape: Shape = lengths
            .clone()
            .zip(repeats)
            .map(|(extent, n)| extent.saturating_mul(*n))
            .collect();
        let shape = super::checked(&shape, "repeat")?;
        location.at(|| {
            let mut x = self.reshape(lengths.clone().collect::<Shape>())?;
            // Each copy is one more dimension of a view, as far as there is room for them.
            let (mut once, mut wide) =
                (SmallVec::<[usize; 8]>::new(), SmallVec::<[usize; 8]>::new());
            let mut room = RANK_MAX - repeats.len();
            for (dim, (extent, &n)) in lengths.zip(repeats).enumerate() {
                if n == 1 || extent == 1 {
                    once.push(extent);
                    wide.push(extent * n);
                } else if room > 0 {
                    room -= 1;
                    once.extend([1, extent]);
                    wide.extend([n, extent]);
                } else if n == 0 {
                    x = x.narrow(dim, 0, 0)?;
                    once.push(0);
                    wide.push(0);
                } else {
                    x = Self::cat(&vec![&x; n], dim)?;
                    once.push(extent * n);
                    wide.push(extent * n);
                }
            }
            x.reshape(&once[..])?.expand(&wide[..])?.reshape(shape)
        })
    }

    /// As [`Tensor::repeat`], but missing leading repeats are 1, as `torch.tile`.
    ///
    /// # Errors
    /// As [`Tensor::repeat`].
    #[track_caller]
    pub fn tile(&self, repeats: &[usize]) -> Result<Self> {
        let missing = self.shape().rank().saturating_sub(repeats.len());
        let ones = std::iter::repeat_n(1, missing);
        let repeats: SmallVec<[usize; 8]> = ones.chain(repeats.iter().copied()).collect();
        self.repeat(&repeats)
    }

    /// Moves elements `shifts[i]` places along dimension `dims[i]`; what leaves at the end comes in at the
    /// start. Without dimensions, the one shift is along the flattened elements. As `torch.roll`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if a dimension is not there, or for other than one shift for each.
    #[track_caller]
    pub fn roll<D: Dim>(&self, shifts: &[isize], dims: &[D]) -> Result<Self> {
        let location = Location::caller();
        if dims.is_empty() && shifts.len() == 1 {
            let flat = self.reshape([self.shape().numel()])?;
            return location.at(|| flat.roll(shifts, &[0])?.reshape(self.shape().clone()));
        }
        if dims.len() != shifts.len() {
            let message = format!("roll: {shifts:?} are not one shift for each of {dims:?}");
            return Err(usage_error(message, location));
        }
        let mut rolled = self.clone();
        for (&shift, &dim) in shifts.iter().zip(dims) {
            let dim = rolled.own_dim("roll", dim)?;
            let extent = rolled.dims()[dim];
            let moved = shift.rem_euclid(extent.max(1) as isize) as usize;
            if moved == 0 {
                continue;
            }
            let kept = extent - moved;
            let end = rolled.narrow(dim, kept, moved)?;
            rolled = Self::cat(&[end, rolled.narrow(dim, 0, kept)?], dim)?;
        }
        Ok(rolled)
    }
}
