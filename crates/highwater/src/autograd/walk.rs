//! The backward walk: emits, for every pending node from which gradients can reach something that
//! requires them, the nodes that its operation's `backward` says.
//!
//! There is no tape of views: a view is a layout, so what a use adds to a gradient is the pair
//! (layout through which the source was read, gradient in that layout's shape). When a source's
//! turn comes,
//! 1. contributions through the wanted layout are used as they are;
//! 2. those through another layout that covers the storage are permuted and reshaped to it, which
//!    is a view, or else a copy;
//! 3. the rest (parts, repeats) go through one `ScatterViews` node, unless they already lie in one
//!    storage exactly as the source's views do;
//! 4. the results are added up in the order in which they came.

use highwater_graph::Location;
use highwater_graph::{
    Backward, CellId, Graph, Layout, NodeId, OpError, Operand, Phase, Shape, Site, Source, ValueId,
    Version,
};
use highwater_ops::{Add, Copy, Full, ScatterViews};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a use of a source adds to its gradient.
type Contribution = (Layout, Operand);

/// Why backward stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A node could not be emitted, for the node of this site.
    Op(OpError, Site),
}

/// The gradient of each leaf (cell, or value without a producer) that backward reached, values
/// first, by their numbers.
pub(crate) type Gradients = Vec<(Source, Operand)>;

/// Emits the backward nodes of `root`, whose gradient is one everywhere. The leaves' gradients come
/// in the leaves' own layouts.
pub(crate) fn backward(
    graph: &mut Graph,
    root: &Operand,
    location: Location,
) -> Result<Gradients, Stop> {
    let site = Site {
        module: "".into(),
        location,
        phase: Phase::Backward,
        checkpoint: None,
        grad_enabled: false,
    };
    let mut walk = Walk {
        values: vec![Vec::new(); graph.values().len()],
        cells: BTreeMap::new(),
        graph,
    };
    let seed = Full {
        value: 1.0,
        dtype: root.spec.dtype,
        shape: root.shape().clone(),
    };
    let seed = walk.emit(Arc::new(seed), &[], &site)?;
    walk.contribute(root.source, root.spec.layout.clone(), seed);
    let last = walk.graph.producer(root).map(|(node, _)| node);
    let count = last.map_or(0, |last| last.index() + 1);
    for node in NodeId::below(count).rev() {
        walk.visit(node, location)?;
    }
    walk.leaves(&site)
}

struct Walk<'a> {
    graph: &'a mut Graph,
    /// What uses add to the values that were there when the walk began.
    values: Vec<Vec<Contribution>>,
    /// What uses add to versions of cells.
    cells: BTreeMap<(CellId, Version), Vec<Contribution>>,
}

impl Walk<'_> {
    fn emit(
        &mut self,
        op: Arc<dyn highwater_graph::Op>,
        inputs: &[Operand],
        site: &Site,
    ) -> Result<Operand, Stop> {
        let name = op.name();
        let outputs = self.graph.add(op, inputs, site);
        let one = outputs.and_then(|outputs| {
            outputs.into_iter().next().ok_or(OpError::Arity {
                op: name,
                expected: 1,
                got: 0,
            })
        });
        one.map_err(|error| Stop::Op(error, site.clone()))
    }

    fn contribute(&mut self, source: Source, layout: Layout, grad: Operand) {
        let contributions = match source {
            Source::Value(id) => &mut self.values[id.index()],
            Source::Cell(id, version) => self.cells.entry((id, version)).or_default(),
        };
        contributions.push((layout, grad));
    }

    fn take(&mut self, source: Source) -> Vec<Contribution> {
        match source {
            Source::Value(id) => std::mem::take(&mut self.values[id.index()]),
            Source::Cell(id, version) => self.cells.remove(&(id, version)).unwrap_or_default(),
        }
    }

    fn contributions(&self, source: Source) -> &[Contribution] {
        match source {
            Source::Value(id) => &self.values[id.index()],
            Source::Cell(id, version) => self.cells.get(&(id, version)).map_or(&[], Vec::as_slice),
        }
    }

    fn visit(&mut self, id: NodeId, location: Location) -> Result<(), Stop> {
        let node = self.graph.node(id);
        if !node.inputs.iter().any(|input| input.requires_grad) {
            return Ok(());
        }
        let (op, outputs) = (Arc::clone(&node.op), node.outputs.clone());
        if outputs
            .iter()
            .all(|&output| self.values[output.index()].is_empty())
        {
            return Ok(());
        }
        // Emitted nodes belong to the module of the forward node, and to the user's line there.
        let site = Site {
            phase: Phase::Backward,
            checkpoint: None,
            grad_enabled: false,
            location: if node.site.module.is_empty() {
                location
            } else {
                node.site.location
            },
            ..node.site.clone()
        };
        let mut grads: SmallVec<[Option<Operand>; 2]> = SmallVec::new();
        for output in outputs {
            let layout = self.graph.value(output).spec.layout.clone();
            grads.push(self.finalize(Source::Value(output), &layout, &site)?);
        }
        let existing = self.existing(id);
        let mut turn = Backward::new(self.graph, id, site, &grads, &existing);
        let emitted = op.backward(&mut turn);
        let results = turn.finish();
        emitted.map_err(|error| Stop::Op(error, self.graph.node(id).site.clone()))?;
        for (i, result) in results.into_iter().enumerate() {
            let input = &self.graph.node(id).inputs[i];
            let Some((grad, accumulated)) = result.filter(|_| input.requires_grad) else {
                continue;
            };
            let (source, layout) = (input.source, input.spec.layout.clone());
            if accumulated {
                self.take(source);
            }
            self.contribute(source, layout, grad);
        }
        Ok(())
    }

    /// For each input the dense gradient that its source has so far, where one view tells it.
    fn existing(&self, node: NodeId) -> SmallVec<[Option<Operand>; 4]> {
        let one = |input: &Operand| {
            let [(from, grad)] = self.contributions(input.source) else {
                return None;
            };
            let numel = self.numel(input.source)?;
            let covers = from.covers(numel) && input.spec.layout.covers(numel);
            covers
                .then(|| rebase(grad, from, &input.spec.layout))
                .flatten()
        };
        self.graph.node(node).inputs.iter().map(one).collect()
    }

    fn numel(&self, source: Source) -> Option<usize> {
        Some(match source {
            Source::Value(id) => self.graph.value(id).spec.layout.numel(),
            Source::Cell(id, _) => self.graph.cell(id)?.spec.layout.numel(),
        })
    }

    /// The whole gradient of a source, seen through `to`.
    fn finalize(
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

    fn leaves(mut self, site: &Site) -> Result<Gradients, Stop> {
        let values = self.values.iter().enumerate();
        let values = values.filter(|(_, contributions)| !contributions.is_empty());
        let cells = self
            .cells
            .keys()
            .map(|&(id, version)| Source::Cell(id, version));
        let values = values.map(|(index, _)| Source::Value(ValueId::new(index)));
        let sources: Vec<Source> = values.chain(cells).collect();
        let mut gradients = Gradients::with_capacity(sources.len());
        for source in sources {
            let layout = match source {
                Source::Value(id) => self.graph.value(id).spec.layout.clone(),
                Source::Cell(id, _) => match self.graph.cell(id) {
                    Some(cell) => cell.spec.layout.clone(),
                    None => continue,
                },
            };
            if let Some(grad) = self.finalize(source, &layout, site)? {
                gradients.push((source, grad));
            }
        }
        Ok(gradients)
    }
}

/// `grad`, which belongs to elements in the order of `from`, as a view in the order of `to`. Both
/// cover the same storage. `None` if that takes a copy.
fn rebase(grad: &Operand, from: &Layout, to: &Layout) -> Option<Operand> {
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
