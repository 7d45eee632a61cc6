//! Static shapes.

use crate::dims::Dims;
use std::ops::Deref;

/// The most dimensions that a tensor may have.
pub const RANK_MAX: usize = 8;

/// Extents of a tensor, outermost first. Rank 0 is a scalar, of one element.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Dims);

impl Shape {
    /// The shape of a scalar.
    pub fn scalar() -> Self {
        Self::default()
    }

    /// A shape from extents, checked: at most [`RANK_MAX`] dimensions, and an element count whose
    /// bytes fit an `isize` for every dtype. `None` otherwise.
    pub fn checked(dims: &[usize]) -> Option<Self> {
        let numel = dims
            .iter()
            .try_fold(1_usize, |product, &dim| product.checked_mul(dim.max(1)))?;
        let fits = numel <= isize::MAX as usize / 16 && dims.len() <= RANK_MAX;
        fits.then(|| Self(dims.into()))
    }

    /// Number of elements; `usize::MAX` if there are more, as in a shape that is not
    /// [checked](Shape::checked).
    pub fn numel(&self) -> usize {
        self.0.iter().fold(1, |n, &extent| n.saturating_mul(extent))
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The extents as a slice.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// The shape that both broadcast to by PyTorch's rule (right-aligned, extents equal or 1).
    pub fn broadcast(&self, other: &Self) -> Option<Self> {
        let rank = self.rank().max(other.rank());
        let extent = |shape: &Self, i: usize| match (i + shape.rank()).checked_sub(rank) {
            Some(k) => shape[k],
            None => 1,
        };
        let dims: Option<Dims> = (0..rank)
            .map(|i| match (extent(self, i), extent(other, i)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect();
        dims.map(Self)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self(dims[..].into())
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self(dims.into())
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(dims: &[usize; N]) -> Self {
        Self(dims[..].into())
    }
}

impl From<&Self> for Shape {
    fn from(shape: &Self) -> Self {
        shape.clone()
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(dims[..].into())
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_pytorch() {
        let b = |a: &[usize], b: &[usize]| Shape::from(a).broadcast(&Shape::from(b));
        assert_eq!(b(&[2, 3, 4], &[4]), Some(Shape::from([2, 3, 4])));
        assert_eq!(b(&[2, 1, 4], &[3, 1]), Some(Shape::from([2, 3, 4])));
        assert_eq!(b(&[], &[2, 2]), Some(Shape::from([2, 2])));
        assert_eq!(b(&[0, 3], &[1, 3]), Some(Shape::from([0, 3])));
        assert_eq!(b(&[2, 3], &[2]), None);
    }

    #[test]
    fn absurd_shapes_are_refused() {
        assert!(Shape::checked(&[1 << 40, 1 << 40]).is_none());
        assert!(Shape::checked(&[1; RANK_MAX + 1]).is_none());
        assert!(Shape::checked(&[0, usize::MAX / 8]).is_none());
        assert_eq!(Shape::checked(&[2, 0]).map(|s| s.numel()), Some(0));
        assert_eq!(Shape::from([1 << 40, 1 << 40]).numel(), usize::MAX);
        assert_eq!(Shape::from([1 << 40, 1 << 40, 0]).numel(), 0);
    }
}
