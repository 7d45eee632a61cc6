//! Dimensions as arguments: counted from the first or, if negative, from behind the last.

use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::{Error, Result};
use highwater_graph::Location;
use smallvec::SmallVec;
use std::fmt::Debug;

/// A dimension of a tensor, as PyTorch's `dim`: a whole number, of which `-1` is the last dimension.
///
/// For `usize`, `isize` and `i32`, the type of bare literals: `x.transpose(1, 2)`, `x.narrow(-1, 0, n)`.
pub trait Dim: Copy + Debug + sealed::Sealed {
    /// The position in a shape of `rank` dimensions, if it is there.
    #[doc(hidden)]
    fn position(self, rank: usize) -> Option<usize>;
}

mod sealed {
    /// Which numbers are dimensions is known here.
    pub trait Sealed {}
}

impl sealed::Sealed for usize {}
impl Dim for usize {
    fn position(self, rank: usize) -> Option<usize> {
        (self < rank).then_some(self)
    }
}

impl sealed::Sealed for isize {}
impl Dim for isize {
    fn position(self, rank: usize) -> Option<usize> {
        let from_first = if self < 0 {
            rank.checked_sub(self.unsigned_abs())
        } else {
            Some(self.unsigned_abs())
        };
        from_first.filter(|&dim| dim < rank)
    }
}

impl sealed::Sealed for i32 {}
impl Dim for i32 {
    fn position(self, rank: usize) -> Option<usize> {
        (self as isize).position(rank)
    }
}

/// Dimensions of one tensor.
pub(crate) type Dims = SmallVec<[usize; 8]>;

impl Tensor {
    /// Which dimension is meant. A scalar has one, of extent 1, as far as it may be named.
    #[track_caller]
    pub(crate) fn dim(&self, what: &str, dim: impl Dim) -> Result<usize> {
        match dim.position(self.shape().rank().max(1)) {
            Some(found) => Ok(found),
            None => Err(self.no_dim(what, dim)),
        }
    }

    /// As [`Tensor::dim`], of a tensor whose layout must have it.
    #[track_caller]
    pub(crate) fn own_dim(&self, what: &str, dim: impl Dim) -> Result<usize> {
        match dim.position(self.shape().rank()) {
            Some(found) => Ok(found),
            None => Err(self.no_dim(what, dim)),
        }
    }

    /// Which dimensions are meant; each may be named once.
    #[track_caller]
    pub(crate) fn dims_of(&self, what: &str, dims: &[impl Dim]) -> Result<Dims> {
        let mut found = Dims::new();
        for &dim in dims {
            let dim = self.dim(what, dim)?;
            if found.contains(&dim) {
                let message = format!("{what}: dimension {dim} is named twice in {dims:?}");
                return Err(usage_error(message, Location::caller()));
            }
            found.push(dim);
        }
        Ok(found)
    }

    #[track_caller]
    fn no_dim(&self, what: &str, dim: impl Dim) -> Error {
        let (shape, rank) = (self.shape(), self.shape().rank());
        let message =
            format!("{what}: there is no dimension {dim:?} in shape {shape}, of rank {rank}");
        usage_error(message, Location::caller())
    }
}

#[cfg(test)]
mod tests {
    use super::Dim;

    #[test]
    fn negative_dimensions_count_from_behind() {
        assert_eq!(
            (0.position(3), 2.position(3), 3.position(3)),
            (Some(0), Some(2), None)
        );
        assert_eq!(((-1).position(3), (-3).position(3)), (Some(2), Some(0)));
        assert_eq!(((-4).position(3), (-1).position(0)), (None, None));
        assert_eq!((1_usize.position(2), 2_usize.position(2)), (Some(1), None));
        assert_eq!(
            (isize::MIN.position(3), isize::MAX.position(3)),
            (None, None)
        );
    }
}
