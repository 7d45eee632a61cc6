//! What the uses of a source add to its gradient, as one.
//!
//! There is no tape of views: a view is a layout, so what a use adds to a gradient is the pair
//! (layout through which the source was read, gradient in that layout's shape). Of these,
//! 1. contributions through the wanted layout are used as they are;
//! 2. those through another layout that covers the storage are permuted and reshaped to it, which
//!    is a view, or else a copy;
//! 3. the rest (parts, repeats) go through one `ScatterViews` node, unless they already lie in one
//!    storage exactly as the source's views do;
//! 4. the results are added up in the order in which they came.

use super::walk::{Contribution, Stop, Walk};
use highwater_graph::{Layout, OpError, Operand, Shape, Site, Source};
use highwater_ops::{Add, Copy, ScatterViews};
use smallvec::SmallVec;
use std::sync::Arc;

impl Walk<'_> {
    /// The whole gradient of a source, seen through `to`.
    pub(super) fn finalize(
        &mut self,
        source: Source,
        to: &Layout,
        site: &Site,
    ) -> Result<Option<Operand>, Stop> {
        let mut contributions = self.take(source);
        if contributions.len() == 1
            && let Some((_, grad)) = contributions.pop_if(|(from, _)| from == to)
        {
            return Ok(Some(grad));
        }
        let numel = to.numel();
        let mut dense: SmallVec<[Operand; 2]> = SmallVec::new();
        let mut parts: SmallVec<[Contribution; 3]> = SmallVec::new();
        for (from, grad) in contributions {
            if from == *to {
                dense.push(grad);
            } else if from.covers(numel) && to.covers(numel) {
                dense.push(self.rebase_or_copy(&grad, &from, to, site)?);
            } else {
                parts.push((from, grad));
            }
        }
        if !parts.is_empty() {
            dense.push(self.assemble(parts, to, site)?);
        }
        let mut dense = dense.into_iter();
        let Some(mut sum) = dense.next() else {
            return Ok(None);
        };
        for grad in dense {
            sum = self.emit(Arc::new(Add), &[sum, grad], site)?;
        }
        Ok(Some(sum))
    }

    fn rebase_or_copy(
        &mut self,
        grad: &Operand,
        from: &Layout,
        to: &Layout,
        site: &Site,
    ) -> Result<Operand, Stop> {
        if let Some(view) = rebase(grad, from, to) {
            return Ok(view);
        }
        let internal = || {
            Stop::Op(
                OpError::shape("backward", "a view", "no view"),
                site.clone(),
            )
        };
        let ordered = grad
            .spec
            .layout
            .permute(&from.storage_order())
            .ok_or_else(internal)?;
        let dense = self.emit(Arc::new(Copy), &[grad.with_layout(ordered)], site)?;
        let ordered = Layout::contiguous(dense.shape().clone());
        rebase(&dense, &ordered, to).ok_or_else(internal)
    }

    /// The gradient of a source of which only parts were read.
    fn assemble(
        &mut self,
        parts: SmallVec<[Contribution; 3]>,
        to: &Layout,
        site: &Site,
    ) -> Result<Operand, Stop> {
        let numel = to.numel();
        let first = &parts[0].1;
        let in_place = parts.iter().all(|(from, grad)| {
            grad.source == first.source && grad.spec.layout == *from && from.is_injective()
        });
        let whole = in_place
            && self.numel(first.source) == Some(numel)
            && parts.iter().map(|(from, _)| from.numel()).sum::<usize>() == numel
            && disjoint(&parts);
        if whole {
            return Ok(first.with_layout(to.clone()));
        }
        let layouts = parts.iter().map(|(from, _)| from.clone()).collect();
        let grads: SmallVec<[Operand; 3]> = parts.into_iter().map(|(_, grad)| grad).collect();
        let flat = self.emit(Arc::new(ScatterViews { layouts, numel }), &grads, site)?;
        Ok(flat.with_layout(to.clone()))
    }
}

/// `grad`, which belongs to elements in the order of `from`, as a view in the order of `to`. Both
/// cover the same storage. `None` if that takes a copy.
pub(super) fn rebase(grad: &Operand, from: &Layout, to: &Layout) -> Option<Operand> {
    if from == to {
        return Some(grad.clone());
    }
    let order = to.storage_order();
    let stored: Shape = order.iter().map(|&i| to.shape()[i]).collect();
    let flat = grad
        .spec
        .layout
        .permute(&from.storage_order())?
        .reshape(&stored)?;
    let mut inverse: SmallVec<[usize; 5]> = SmallVec::from_elem(0, order.len());
    for (i, &dim) in order.iter().enumerate() {
        inverse[dim] = i;
    }
    Some(grad.with_layout(flat.permute(&inverse)?))
}

/// Whether injective layouts of equal strides, shifted against each other, never meet. Decided for
/// slices of one tensor along one dimension (what `narrow`, `chunk` and `split` make); anything else
/// is answered by no, which only costs a copy.
fn disjoint(parts: &[Contribution]) -> bool {
    let mut offsets: SmallVec<[usize; 4]> = parts.iter().map(|(l, _)| l.offset()).collect();
    offsets.sort_unstable();
    let first = &parts[0].0;
    let same = parts
        .iter()
        .all(|(l, _)| l.strides() == first.strides() && l.shape() == first.shape());
    // The span of the dimensions that lie inside one step of the slices.
    let step = offsets
        .windows(2)
        .map(|w| w[1] - w[0])
        .min()
        .unwrap_or(usize::MAX);
    let dims = first
        .shape()
        .iter()
        .zip(first.strides())
        .filter(|&(&n, _)| n > 1);
    let inner: usize = dims
        .clone()
        .filter(|&(_, &s)| s < step)
        .map(|(&n, &s)| (n - 1) * s)
        .sum::<usize>();
    let outer = dims
        .filter(|&(_, &s)| s >= step)
        .map(|(_, &s)| s)
        .min()
        .unwrap_or(usize::MAX);
    let spread = offsets[offsets.len() - 1] - offsets[0];
    same && inner < step && spread.saturating_add(inner) < outer
}
