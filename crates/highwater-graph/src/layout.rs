//! Layouts: how a tensor's elements lie in its storage. Views are layouts, not copies.

use crate::Shape;
use crate::dims::Dims;
use smallvec::SmallVec;

/// Shape, strides and offset, in elements, of a tensor inside its storage.
///
/// No arithmetic on layouts wraps: what cannot be counted is `usize::MAX`, which lies behind the end
/// of every storage.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    strides: Dims,
    offset: usize,
}

impl Layout {
    /// Row-major, dense, from the start of the storage.
    pub fn contiguous(shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        let strides = row_major(&shape);
        Self {
            shape,
            strides,
            offset: 0,
        }
    }

    /// A layout from its parts.
    ///
    /// # Panics
    /// If `strides` and `shape` differ in length.
    pub fn strided(shape: impl Into<Shape>, strides: &[usize], offset: usize) -> Self {
        let shape = shape.into();
        assert_eq!(shape.rank(), strides.len(), "one stride per dimension");
        Self {
            shape,
            strides: strides.into(),
            offset,
        }
    }

    /// Extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Elements between neighbours in each dimension; 0 where one element is repeated.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Elements of the storage before the first element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of elements seen through the layout.
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    /// Whether the elements lie dense and row-major (at any offset).
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1_usize;
        self.numel() == 0
            || self
                .shape
                .iter()
                .zip(self.strides())
                .rev()
                .all(|(&extent, &stride)| {
                    let fits = extent == 1 || stride == expected;
                    expected = expected.saturating_mul(extent);
                    fits
                })
    }

    /// One past the last element of the storage that the layout reaches; 0 if it has no element.
    pub fn end(&self) -> usize {
        if self.numel() == 0 {
            return 0;
        }
        let dims = self.shape.iter().zip(self.strides());
        let last = dims.fold(self.offset, |at, (&n, &s)| {
            at.saturating_add((n - 1).saturating_mul(s))
        });
        last.saturating_add(1)
    }

    /// Whether different indices always reach different elements, as far as strides alone tell.
    pub fn is_injective(&self) -> bool {
        if self.numel() == 0 {
            return true;
        }
        let mut dims = self.dims_by_stride();
        dims.reverse();
        let mut reach = 0_usize;
        dims.iter().all(|&(extent, stride)| {
            let apart = stride > reach;
            reach = reach.saturating_add((extent - 1).saturating_mul(stride));
            apart
        })
    }

    /// Whether the layout reaches each of the `numel` elements of a storage exactly once.
    pub fn covers(&self, numel: usize) -> bool {
        if self.numel() != numel {
            return false;
        }
        let dense = self.offset == 0 && self.is_contiguous();
        dense || self.end() <= numel && self.is_injective()
    }

    /// Swaps two dimensions. `None` if one does not exist.
    pub fn transpose(&self, a: usize, b: usize) -> Option<Self> {
        if a.max(b) >= self.shape.rank() {
            return None;
        }
        let mut order: SmallVec<[usize; 5]> = (0..self.shape.rank()).collect();
        order.swap(a, b);
        self.permute(&order)
    }

    /// Puts dimension `order[i]` at position `i`. `None` unless `order` is a permutation.
    pub fn permute(&self, order: &[usize]) -> Option<Self> {
        let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, self.shape.rank());
        if order.len() != seen.len() {
            return None;
        }
        for &dim in order {
            if std::mem::replace(seen.get_mut(dim)?, true) {
                return None;
            }
        }
        Some(Self {
            shape: order.iter().map(|&i| self.shape[i]).collect(),
            strides: order.iter().map(|&i| self.strides[i]).collect(),
            offset: self.offset,
        })
    }

    /// Keeps `length` elements of `dim` from `start`. `None` if they are not all there.
    pub fn narrow(&self, dim: usize, start: usize, length: usize) -> Option<Self> {
        let extent = *self.shape.get(dim)?;
        if start.checked_add(length)? > extent {
            return None;
        }
        let mut dims: SmallVec<[usize; 5]> = SmallVec::from_slice(&self.shape);
        dims[dim] = length;
        let before = start.saturating_mul(self.strides[dim]);
        let offset = self.offset.saturating_add(before);
        Some(Self {
            shape: dims.into_iter().collect(),
            strides: self.strides.clone(),
            offset,
        })
    }

    /// Repeats extents of 1 (and new leading dimensions) by stride 0, as PyTorch's `expand`.
    /// `None` if the shapes do not broadcast to exactly `shape`.
    pub fn expand(&self, shape: &Shape) -> Option<Self> {
        let lead = shape.rank().checked_sub(self.shape.rank())?;
        let mut strides: SmallVec<[usize; 5]> = SmallVec::from_elem(0, lead);
        for (i, (&extent, &stride)) in self.shape.iter().zip(self.strides()).enumerate() {
            match shape[lead + i] {
                wanted if wanted == extent => strides.push(stride),
                _ if extent == 1 => strides.push(0),
                _ => return None,
            }
        }
        Some(Self {
            shape: shape.clone(),
            strides: strides[..].into(),
            offset: self.offset,
        })
    }

    /// The same elements in the same logical order under another shape, without moving any.
    /// `None` if the counts differ or no strides can express it (a copy would be needed).
    pub fn reshape(&self, shape: &Shape) -> Option<Self> {
        if shape.numel() != self.numel() {
            return None;
        }
        if self.numel() == 0 || self.is_contiguous() {
            let mut layout = Self::contiguous(shape.clone());
            layout.offset = self.offset;
            return Some(layout);
        }
        let mut strides: SmallVec<[usize; 5]> = SmallVec::from_elem(0, shape.rank());
        // Walk both shapes from the inside; a group of old dimensions that is one regular run
        // (`stride = inner stride * inner extent`) may be cut anywhere.
        let mut old = self.runs().into_iter().rev();
        let mut run = old.next();
        for i in (0..shape.rank()).rev() {
            if shape[i] == 1 {
                strides[i] = 1;
                continue;
            }
            while matches!(run, Some((1, _))) {
                run = old.next();
            }
            let (left, stride) = run?;
            if left % shape[i] != 0 {
                return None;
            }
            strides[i] = stride;
            run = Some((left / shape[i], stride.saturating_mul(shape[i])));
        }
        Some(Self {
            shape: shape.clone(),
            strides: strides[..].into(),
            offset: self.offset,
        })
    }

    /// Drops extents of 1 and merges neighbouring dimensions that form one regular run:
    /// (extent, stride) pairs, outermost first. A scalar has none.
    pub fn runs(&self) -> SmallVec<[(usize, usize); 5]> {
        let mut runs: SmallVec<[(usize, usize); 5]> = SmallVec::new();
        for (&extent, &stride) in self.shape.iter().zip(self.strides()) {
            if extent == 1 {
                continue;
            }
            match runs.last_mut() {
                Some(outer) if stride.checked_mul(extent) == Some(outer.1) => {
                    *outer = (outer.0.saturating_mul(extent), stride);
                }
                _ => runs.push((extent, stride)),
            }
        }
        runs
    }

    /// (extent, stride) of the dimensions longer than 1, largest stride first.
    fn dims_by_stride(&self) -> SmallVec<[(usize, usize); 5]> {
        let mut dims: SmallVec<[(usize, usize); 5]> = self
            .shape
            .iter()
            .zip(self.strides())
            .filter(|&(&extent, _)| extent > 1)
            .map(|(&extent, &stride)| (extent, stride))
            .collect();
        dims.sort_by_key(|&(_, stride)| std::cmp::Reverse(stride));
        dims
    }

    /// Given that `self` covers a dense storage, the order of its dimensions in which they are
    /// row-major there: `self.permute(order)` is contiguous.
    pub fn storage_order(&self) -> SmallVec<[usize; 5]> {
        let mut order: SmallVec<[usize; 5]> = (0..self.shape.rank()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse((self.strides[i], self.shape[i])));
        order
    }

    /// Storage position (in elements) of every element, in row-major order of the shape. For
    /// tests and reference kernels: it walks one index at a time.
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        let numel = self.numel();
        (0..numel).map(move |mut flat| {
            let mut position = self.offset;
            for (&extent, &stride) in self.shape.iter().zip(self.strides()).rev() {
                position = position.saturating_add((flat % extent).saturating_mul(stride));
                flat /= extent;
            }
            position
        })
    }
}

fn row_major(shape: &Shape) -> Dims {
    let mut strides: SmallVec<[usize; 5]> = SmallVec::from_elem(1, shape.rank());
    for i in (1..shape.rank()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    strides[..].into()
}

impl std::fmt::Debug for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.shape)?;
        if !self.is_contiguous() {
            write!(f, " strides {:?}", self.strides())?;
        }
        if self.offset != 0 {
            write!(f, " offset {}", self.offset)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(layout: &Layout) -> Vec<usize> {
        layout.positions().collect()
    }

    #[test]
    fn views_reach_the_elements_they_should() {
        let base = Layout::contiguous([2, 3, 4]);
        let t = base.transpose(1, 2).unwrap();
        assert_eq!(t.shape().dims(), [2, 4, 3]);
        assert_eq!(&positions(&t)[..4], [0, 4, 8, 1]);
        let n = base.narrow(2, 1, 2).unwrap();
        assert_eq!(positions(&n), [1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22]);
        assert!(!n.is_contiguous() && n.is_injective() && !n.covers(24));
        assert!(t.covers(24));
        let e = Layout::contiguous([3, 1])
            .expand(&Shape::from([2, 3, 2]))
            .unwrap();
        assert_eq!(positions(&e), [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]);
        assert!(!e.is_injective());
        assert!(base.narrow(1, 2, 2).is_none() && base.permute(&[0, 0, 1]).is_none());
    }

    #[test]
    fn reshape_is_a_view_exactly_when_the_order_of_elements_is_regular() {
        // Heads of a packed projection: [B, T, 3C] -> [B, T, C] -> [B, T, H, D] -> [B, H, T, D].
        let q = Layout::contiguous([2, 5, 18]).narrow(2, 6, 6).unwrap();
        let heads = q.reshape(&Shape::from([2, 5, 3, 2])).unwrap();
        assert_eq!(positions(&heads), positions(&q));
        let split = heads.transpose(1, 2).unwrap();
        assert!(split.reshape(&Shape::from([2, 15, 2])).is_none());
        let back = split
            .transpose(1, 2)
            .unwrap()
            .reshape(&Shape::from([10, 6]))
            .unwrap();
        assert_eq!(positions(&back), positions(&q));
    }

    #[test]
    fn every_reshape_that_succeeds_keeps_the_elements_in_order() {
        let bases = [
            Layout::contiguous([4, 6]),
            Layout::contiguous([4, 6]).transpose(0, 1).unwrap(),
            Layout::contiguous([2, 2, 6]).permute(&[1, 0, 2]).unwrap(),
            Layout::contiguous([8, 6]).narrow(0, 2, 4).unwrap(),
            Layout::contiguous([4, 12]).narrow(1, 3, 6).unwrap(),
            Layout::contiguous([4, 1])
                .expand(&Shape::from([4, 6]))
                .unwrap(),
        ];
        let shapes: [&[usize]; 6] = [
            &[24],
            &[2, 12],
            &[2, 2, 6],
            &[4, 2, 3],
            &[1, 4, 1, 6],
            &[8, 3],
        ];
        for base in &bases {
            for dims in shapes {
                if let Some(view) = base.reshape(&Shape::from(dims)) {
                    assert_eq!(positions(&view), positions(base), "{base:?} -> {dims:?}");
                }
            }
        }
    }

    #[test]
    fn arithmetic_that_would_wrap_ends_behind_every_storage() {
        let half = usize::MAX / 2 + 1;
        for (dims, strides, offset) in [
            (&[3][..], &[half][..], 0),
            (&[2, 2], &[half, half], 0),
            (&[2], &[1], usize::MAX),
            (&[5, 1 << 40], &[usize::MAX, usize::MAX], 7),
            (&[1 << 33, 1 << 33], &[1 << 33, 1], 0),
        ] {
            let layout = Layout::strided(dims, strides, offset);
            assert_eq!(layout.end(), usize::MAX, "{layout:?}");
            assert!(!layout.covers(layout.numel().min(1 << 40)), "{layout:?}");
            assert!(layout.runs().len() <= dims.len());
            let moved = layout.narrow(0, 1, 1).unwrap();
            assert!(moved.end() > 1 << 32, "{moved:?}");
            let last = layout.positions().take(4).last();
            assert!(last >= Some(offset), "{layout:?}");
        }
        let absurd = Layout::contiguous([1 << 40, 1 << 40, 1 << 40]);
        assert_eq!((absurd.end(), absurd.numel()), (usize::MAX, usize::MAX));
        assert!(!absurd.covers(0) && absurd.expand(&Shape::from([2])).is_none());
        // What is left of it may be small again.
        let row = Layout::strided([2, 3], &[usize::MAX, 1], 4);
        assert_eq!(row.narrow(0, 0, 1).unwrap().end(), 7);
    }

    #[test]
    fn storage_order_makes_a_covering_layout_contiguous() {
        let l = Layout::contiguous([2, 3, 1, 4])
            .permute(&[3, 2, 0, 1])
            .unwrap();
        assert!(l.permute(&l.storage_order()).unwrap().is_contiguous());
    }
}
