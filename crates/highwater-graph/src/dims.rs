//! A short list of numbers, one per dimension.

use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// How many stand in place.
const FEW: usize = Count::ALL.len() - 1;

/// One number per dimension. Graphs copy layouts all the time: a list of the usual length is copied
/// whole, without a look at how many numbers count.
#[derive(Clone)]
pub(crate) enum Dims {
    /// The first so many count.
    Few { count: Count, dims: [usize; FEW] },
    /// More than fit in place.
    Many(Box<[usize]>),
}

/// How many of those in place count. A whole word, so that lists are copied word by word: processors wait
/// where a word is read of which a part was just written.
#[derive(Debug, Clone, Copy)]
#[repr(usize)]
pub(crate) enum Count {
    Zero,
    One,
    Two,
    Three,
    Four,
    Five,
}

impl Count {
    const ALL: [Self; 6] = {
        use Count::{Five, Four, One, Three, Two, Zero};
        [Zero, One, Two, Three, Four, Five]
    };
}

impl From<&[usize]> for Dims {
    fn from(all: &[usize]) -> Self {
        let mut dims = [0; FEW];
        match Count::ALL.get(all.len()) {
            Some(&count) => {
                dims[..all.len()].copy_from_slice(all);
                Self::Few { count, dims }
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
            Self::Few { count, dims } => &dims[..*count as usize],
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_any_length_are_what_they_were_made_of() {
        assert_eq!(size_of::<Dims>(), (1 + FEW) * size_of::<usize>());
        let all: Vec<usize> = (7..27).collect();
        for length in 0..all.len() {
            let dims = Dims::from(&all[..length]);
            assert_eq!(*dims, all[..length]);
            assert_eq!(*dims.clone(), all[..length]);
            assert!(matches!(dims, Dims::Few { .. }) == (length <= FEW));
        }
    }
}
