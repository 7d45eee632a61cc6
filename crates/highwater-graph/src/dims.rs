//! A short list of numbers, one per dimension.

use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// How many stand in place.
const FEW: usize = 5;

/// One number per dimension. Graphs copy layouts all the time: a list of the usual length is copied
/// whole, without a look at how many numbers count.
#[derive(Clone)]
pub(crate) enum Dims {
    /// The first `len` count.
    Few { len: u8, dims: [usize; FEW] },
    /// More than fit in place.
    Many(Box<[usize]>),
}

impl From<&[usize]> for Dims {
    fn from(all: &[usize]) -> Self {
        let mut dims = [0; FEW];
        match dims.get_mut(..all.len()) {
            Some(few) => {
                few.copy_from_slice(all);
                Self::Few {
                    len: all.len() as u8,
                    dims,
                }
            }
            None => Self::Many(all.into()),
        }
    }
}

impl FromIterator<usize> for Dims {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        let all: SmallVec<[usize; FEW]> = iter.into_iter().collect();
        Self::from(&*all)
    }
}

impl Deref for Dims {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        match self {
            Self::Few { len, dims } => &dims[..usize::from(*len)],
            Self::Many(dims) => dims,
        }
    }
}

impl Default for Dims {
    fn default() -> Self {
        Self::from(&[][..])
    }
}

impl PartialEq for Dims {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Dims {}

impl Hash for Dims {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (**self).hash(hasher);
    }
}
