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
    Backward, CellId, Graph, Layout, NodeId, Op, OpError, Operand, Phase, Shape, Site, Source,
    ValueId, Version,
};
use highwater_ops::{Add, Copy, Full, ScatterViews};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
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

/// What a walk is asked for.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// Where it begins: results, and the gradient of each, in its shape; one everywhere where none is given.
    pub(crate) roots: &'a [(Operand, Option<Operand>)],
    /// The sources whose gradients are wanted, results of nodes among them; all leaves where none are named.
    pub(crate) wanted: Option<&'a BTreeSet<Source>>,
    /// Of the nodes that it emits. With `grad_enabled`, gradients flow back through them in turn.
    pub(crate) site: Site,
}

impl Request<'_> {
    /// Whether a source's gradient is asked for by name.
    fn names(&self, source: Source) -> bool {
        self.wanted.is_some_and(|wanted| wanted.contains(&source))
    }
}

/// The site of nodes that `backward()` emits.
pub(crate) fn backward_site(location: Location) -> Site {
    Site {
        module: "".into(),
        location,
        phase: Phase::Backward,
        checkpoint: None,
        grad_enabled: false,
    }
}

/// Emits the backward nodes of `root`, whose gradient is one everywhere unless it is given. The leaves'
/// gradients come in the leaves' own layouts.
pub(crate) fn backward(
    graph: &mut Graph,
    root: &(Operand, Option<Operand>),
    location: Location,
) -> Result<Gradients, Stop> {
    let request = Request {
        roots: std::slice::from_ref(root),
        wanted: None,
        site: backward_site(location),
    };
    gradients(graph, &request)
}

/// Emits the nodes that make the gradients asked for.
pub(crate) fn gradients(graph: &mut Graph, request: &Request<'_>) -> Result<Gradients, Stop> {
    let reaching = request.wanted.map(|wanted| reaching(graph, wanted));
    let mut walk = Walk {
        values: vec![Vec::new(); graph.values().len()],
        cells: BTreeMap::new(),
        graph,
        request,
        reaching,
        found: Vec::new(),
    };
    let mut count = 0;
    for (root, seed) in request.roots {
        let seed = match seed {
            Some(seed) => seed.clone(),
            None => walk.ones(root)?,
        };
        walk.contribute(root.source, root.spec.layout.clone(), seed);
        let last = walk.graph.producer(root).map(|(node, _)| node);
        count = count.max(last.map_or(0, |last| last.index() + 1));
    }
    for node in NodeId::below(count).rev() {
        walk.visit(node)?;
    }
    walk.leaves()
}

/// Whether something of each node's inputs comes of one of `sources`, by nodes.
fn reaching(graph: &Graph, sources: &BTreeSet<Source>) -> Vec<bool> {
    let mut reaching = vec![false; graph.nodes().len()];
    for (id, node) in graph.numbered() {
        let mut inputs = node.inputs.iter();
        reaching[id.index()] = inputs.any(|input| comes_of(graph, &reaching, sources, input));
    }
    reaching
}

fn comes_of(graph: &Graph, reaching: &[bool], sources: &BTreeSet<Source>, input: &Operand) -> bool {
    sources.contains(&input.source)
        || graph
            .producer(input)
            .is_some_and(|(node, _)| reaching[node.index()])
}

struct Walk<'a> {
    graph: &'a mut Graph,
    request: &'a Request<'a>,
    /// The nodes through which gradients reach what is wanted, where that is named.
    reaching: Option<Vec<bool>>,
    /// Gradients of results that are wanted.
    found: Gradients,
    /// What uses add to the values that were there when the walk began.
    values: Vec<Vec<Contribution>>,
    /// What uses add to versions of cells.
    cells: BTreeMap<(CellId, Version), Vec<Contribution>>,
}

impl Walk<'_> {
    fn emit(&mut self, op: Arc<dyn Op>, inputs: &[Operand], site: &Site) -> Result<Operand, Stop> {
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

    /// A gradient that is one everywhere.
    fn ones(&mut self, root: &Operand) -> Result<Operand, Stop> {
        let ones = Full {
            value: 1.0,
            dtype: root.spec.dtype,
            shape: root.shape().clone(),
        };
        let request = self.request;
        self.emit(Arc::new(ones), &[], &request.site)
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

    fn visit(&mut self, id: NodeId) -> Result<(), Stop> {
        let node = self.graph.node(id);
        let sources = node.outputs.iter().map(|&output| Source::Value(output));
        let any_wanted = sources.clone().any(|source| self.request.names(source));
        let passes = node.inputs.iter().any(|input| input.requires_grad)
            && self.reaching.as_ref().is_none_or(|nodes| nodes[id.index()]);
        let is_reached = |source: Source| !self.contributions(source).is_empty();
        if !(passes || any_wanted) || !sources.clone().any(is_reached) {
            return Ok(());
        }
        let (op, outputs) = (Arc::clone(&node.op), node.outputs.clone());
        let site = self.site_of(id);
        let mut grads: SmallVec<[Option<Operand>; 2]> = SmallVec::new();
        for output in outputs {
            let source = Source::Value(output);
            let layout = self.graph.value(output).spec.layout.clone();
            let grad = self.finalize(source, &layout, &site)?;
            if let Some(grad) = grad.as_ref().filter(|_| self.request.names(source)) {
                self.found.push((source, grad.clone()));
            }
            grads.push(grad);
        }
        if passes {
            self.pass_on(id, &*op, &site, &grads)?;
        }
        Ok(())
    }

    /// Emitted nodes belong to the module of the forward node, and to the user's line there.
    fn site_of(&self, id: NodeId) -> Site {
        let (asked, forward) = (&self.request.site, &self.graph.node(id).site);
        Site {
            phase: asked.phase,
            checkpoint: None,
            grad_enabled: asked.grad_enabled,
            location: if forward.module.is_empty() {
                asked.location
            } else {
                forward.location
            },
            ..forward.clone()
        }
    }

    /// Has the operation say what its inputs get, given the gradients of its outputs.
    fn pass_on(
        &mut self,
        id: NodeId,
        op: &dyn Op,
        site: &Site,
        grads: &[Option<Operand>],
    ) -> Result<(), Stop> {
        let existing = self.existing(id);
        let needed = self.needed(id);
        let mut turn = Backward::new(self.graph, id, site.clone(), grads, &existing).only(&needed);
        let emitted = op.backward(&mut turn);
        let results = turn.finish();
        emitted.map_err(|error| Stop::Op(error, self.graph.node(id).site.clone()))?;
        for (i, result) in results.into_iter().enumerate() {
            let input = &self.graph.node(id).inputs[i];
            let Some((grad, accumulated)) = result.filter(|_| needed[i]) else {
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

    /// Which inputs of a node a gradient is to reach.
    fn needed(&self, node: NodeId) -> SmallVec<[bool; 4]> {
        let reaches = |input: &Operand| match (&self.reaching, self.request.wanted) {
            (Some(nodes), Some(wanted)) => {
                // Nodes that the walk emits are behind those that it knows, and are nobody's inputs here.
                comes_of(self.graph, nodes, wanted, input)
            }
            _ => true,
        };
        let inputs = self.graph.node(node).inputs.iter();
        inputs
            .map(|input| input.requires_grad && reaches(input))
            .collect()
    }

    /// For each input the dense gradient that its source has so far, where one view tells it.
    fn existing(&self, node: NodeId) -> SmallVec<[Option<Operand>; 4]> {
        let one = |input: &Operand| {
            // A sum that is made in one go with a product has no gradient of its own.
            if self.request.site.grad_enabled {
                return None;
            }
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

    fn leaves(mut self) -> Result<Gradients, Stop> {
        let request = self.request;
        let values = self.values.iter().enumerate();
        let values = values.filter(|(_, contributions)| !contributions.is_empty());
        let cells = self
            .cells
            .keys()
            .map(|&(id, version)| Source::Cell(id, version));
        let values = values.map(|(index, _)| Source::Value(ValueId::new(index)));
        let wanted = |source: &Source| request.wanted.is_none_or(|wanted| wanted.contains(source));
        let sources: Vec<Source> = values.chain(cells).filter(wanted).collect();
        let mut gradients = std::mem::take(&mut self.found);
        for source in sources {
            let layout = match source {
                Source::Value(id) => self.graph.value(id).spec.layout.clone(),
                Source::Cell(id, _) => match self.graph.cell(id) {
                    Some(cell) => cell.spec.layout.clone(),
                    None => continue,
                },
            };
            if let Some(grad) = self.finalize(source, &layout, &request.site)? {
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
