//! The backward walk: emits, for every pending node from which gradients can reach something that
//! requires them, the nodes that its operation's `backward` says. When a source's turn comes, what its
//! uses added becomes one gradient (`sums.rs`), which hooks may see before it is passed on: there the walk
//! stops, for what they do is the user's, and goes on with what they answer.

use super::function::Calling;
use super::sums::rebase;
use crate::pending::function::{Through, results};
use crate::pending::hooks::Hooked;
use highwater_graph::Location;
use highwater_graph::{
    Backward, CellId, Graph, Layout, NodeId, Op, OpError, Operand, Phase, Site, Source, ValueId,
    Version,
};
use highwater_ops::Full;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a use of a source adds to its gradient.
pub(super) type Contribution = (Layout, Operand);

/// Why backward stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A node could not be emitted, for the node of this site.
    Op(OpError, Site),
}

/// The gradient of each leaf (cell, or value without a producer) that backward reached, values
/// first, by their numbers.
pub(crate) type Gradients = Vec<(Source, Operand)>;

/// Where a walk has come to.
#[derive(Debug)]
pub(crate) enum Turn {
    /// To its end.
    Done(Gradients),
    /// To the whole gradient of a source that is hooked: [`Course::advance`] wants it back, or another.
    Hooked(Source, Operand),
    /// To a function whose backward is to be called: [`Course::come_back`] wants what it answers.
    Calls(Calling),
}

/// What a walk is asked for.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// Where it begins: results, and the gradient of each, in its shape; one everywhere where none is given.
    pub(crate) roots: &'a [(Operand, Option<Operand>)],
    /// The sources whose gradients are wanted, results of nodes among them; all leaves where none are named.
    pub(crate) wanted: Option<&'a BTreeSet<Source>>,
    /// Of the nodes that it emits. With `grad_enabled`, gradients flow back through them in turn.
    pub(crate) site: Site,
    /// The sources whose gradients the walk stops at.
    pub(crate) hooked: Hooked,
    /// Whether functions are called; where the walk only looks ahead, their inputs' gradients are zeros.
    pub(crate) calls: bool,
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

/// Emits the backward nodes of `root`, whose gradient is one everywhere unless it is given, without hooks.
pub(crate) fn backward(
    graph: &mut Graph,
    root: &(Operand, Option<Operand>),
    location: Location,
) -> Result<Gradients, Stop> {
    let request = Request {
        roots: std::slice::from_ref(root),
        wanted: None,
        site: backward_site(location),
        hooked: Hooked::default(),
        calls: false,
    };
    let mut course = Course::begin(graph, &request)?;
    let mut seen = None;
    loop {
        match course.advance(graph, &request, seen)? {
            Turn::Done(gradients) => return Ok(gradients),
            Turn::Hooked(_, grad) => seen = Some(grad),
            Turn::Calls(_) => seen = None,
        }
    }
}

impl Course {
    /// Begins to emit the nodes that make the gradients asked for. Those of leaves come in the leaves' own
    /// layouts.
    pub(crate) fn begin(graph: &mut Graph, request: &Request<'_>) -> Result<Self, Stop> {
        let mut course = Self {
            values: vec![Vec::new(); graph.values().len()],
            cells: BTreeMap::new(),
            reaching: request.wanted.map(|wanted| reaching(graph, wanted)),
            found: Vec::new(),
            left: 0,
            open: None,
            leaves: None,
        };
        for (root, seed) in request.roots {
            let mut walk = course.walk(graph, request);
            let seed = match seed {
                Some(seed) => seed.clone(),
                None => walk.ones(root)?,
            };
            walk.contribute(root.source, root.spec.layout.clone(), seed);
            let last = graph.producer(root).map(|(node, _)| node);
            let count = last.map_or(0, |last| last.index() + 1);
            course.left = course.left.max(count);
        }
        Ok(course)
    }

    /// Goes on to the next gradient that is hooked, or to the end. `seen` is the last of those again, or what
    /// came in its place.
    pub(crate) fn advance(
        &mut self,
        graph: &mut Graph,
        request: &Request<'_>,
        seen: Option<Operand>,
    ) -> Result<Turn, Stop> {
        let mut walk = self.walk(graph, request);
        if let Some(seen) = seen {
            walk.see(seen);
        }
        loop {
            if let Some((source, grad)) = walk.next_hooked() {
                return Ok(Turn::Hooked(source, grad));
            }
            if let Some(open) = walk.course.open.take() {
                if let Some(calling) = walk.close(open)? {
                    return Ok(Turn::Calls(calling));
                }
                continue;
            }
            if walk.course.left > 0 {
                walk.course.left -= 1;
                walk.visit(NodeId::new(walk.course.left))?;
            } else if !walk.leaf()? {
                return Ok(Turn::Done(std::mem::take(&mut walk.course.found)));
            }
        }
    }

    pub(super) fn walk<'a>(
        &'a mut self,
        graph: &'a mut Graph,
        request: &'a Request<'a>,
    ) -> Walk<'a> {
        Walk {
            graph,
            request,
            course: self,
        }
    }
}

/// Whether something of each node's inputs comes of one of `sources`, by nodes.
fn reaching(graph: &Graph, sources: &BTreeSet<Source>) -> Vec<bool> {
    let mut reaching = vec![false; graph.nodes().len()];
    for (id, node) in graph.numbered() {
        let comes = |input: &Operand| comes_of(graph, &reaching, sources, input);
        reaching[id.index()] = match Through::of(graph, id) {
            Some(through) => through
                .function
                .differentiable()
                .any(|(_, input)| comes(&input)),
            None => node.inputs.iter().any(comes),
        };
    }
    reaching
}

fn comes_of(graph: &Graph, reaching: &[bool], sources: &BTreeSet<Source>, input: &Operand) -> bool {
    sources.contains(&input.source)
        || graph
            .producer(input)
            .is_some_and(|(node, _)| reaching[node.index()])
}

/// How far a walk is: it may stop at each gradient, and go on when others have added to the graph.
#[derive(Debug)]
pub(crate) struct Course {
    /// The nodes through which gradients reach what is wanted, where that is named.
    reaching: Option<Vec<bool>>,
    /// Gradients of results that are wanted.
    found: Gradients,
    /// What uses add to the values that were there when the walk began.
    values: Vec<Vec<Contribution>>,
    /// What uses add to versions of cells.
    cells: BTreeMap<(CellId, Version), Vec<Contribution>>,
    /// How many nodes are before the one that was visited last.
    left: usize,
    /// Whose gradients are being looked at.
    open: Option<Open>,
    /// The leaves that are left, the last first, when all nodes were visited.
    leaves: Option<Vec<Source>>,
}

/// The whole gradients of a node's outputs, or of a leaf.
#[derive(Debug)]
struct Open {
    /// The node that they are passed on by.
    node: Option<NodeId>,
    grads: SmallVec<[(Source, Option<Operand>); 2]>,
    /// How many of them have been looked at.
    seen: usize,
    /// Whether they are asked for, whoever asks.
    wanted: bool,
}

pub(super) struct Walk<'a> {
    pub(super) graph: &'a mut Graph,
    pub(super) request: &'a Request<'a>,
    course: &'a mut Course,
}

impl Walk<'_> {
    pub(super) fn emit(
        &mut self,
        op: Arc<dyn Op>,
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

    pub(super) fn contribute(&mut self, source: Source, layout: Layout, grad: Operand) {
        let contributions = match source {
            Source::Value(id) => &mut self.course.values[id.index()],
            Source::Cell(id, version) => self.course.cells.entry((id, version)).or_default(),
        };
        contributions.push((layout, grad));
    }

    pub(super) fn take(&mut self, source: Source) -> Vec<Contribution> {
        match source {
            Source::Value(id) => std::mem::take(&mut self.course.values[id.index()]),
            Source::Cell(id, version) => {
                self.course.cells.remove(&(id, version)).unwrap_or_default()
            }
        }
    }

    fn contributions(&self, source: Source) -> &[Contribution] {
        match source {
            Source::Value(id) => &self.course.values[id.index()],
            Source::Cell(id, version) => self
                .course
                .cells
                .get(&(id, version))
                .map_or(&[], Vec::as_slice),
        }
    }

    fn visit(&mut self, id: NodeId) -> Result<(), Stop> {
        let node = self.graph.node(id);
        let sources = node.outputs.iter().map(|&output| Source::Value(output));
        let any_wanted = sources.clone().any(|source| self.request.names(source));
        let passes = node.inputs.iter().any(|input| input.requires_grad)
            && self
                .course
                .reaching
                .as_ref()
                .is_none_or(|nodes| nodes[id.index()]);
        let is_reached = |source: Source| !self.contributions(source).is_empty();
        if !(passes || any_wanted) || !sources.clone().any(is_reached) {
            return Ok(());
        }
        // Those of a function are complete together.
        let outputs = results(self.graph, id).unwrap_or_else(|| node.outputs.clone());
        let site = self.site_of(id);
        let mut grads = SmallVec::new();
        for output in outputs {
            let source = Source::Value(output);
            let layout = self.graph.value(output).spec.layout.clone();
            grads.push((source, self.finalize(source, &layout, &site)?));
        }
        self.course.open = Some(Open {
            node: passes.then_some(id),
            grads,
            seen: 0,
            wanted: false,
        });
        Ok(())
    }

    /// The next of the open gradients that is hooked.
    fn next_hooked(&mut self) -> Option<(Source, Operand)> {
        let open = self.course.open.as_mut()?;
        while let Some((source, grad)) = open.grads.get(open.seen) {
            open.seen += 1;
            if let Some(grad) = grad.as_ref().filter(|_| self.request.hooked.has(*source)) {
                return Some((*source, grad.clone()));
            }
        }
        None
    }

    /// Takes what came of the gradient that was looked at last.
    fn see(&mut self, grad: Operand) {
        if let Some(open) = &mut self.course.open
            && let Some((_, place)) = open.seen.checked_sub(1).map(|i| &mut open.grads[i])
        {
            *place = Some(grad);
        }
    }

    /// Notes gradients that are asked for, and passes those of a node on, by a call if they are a function's.
    fn close(&mut self, open: Open) -> Result<Option<Calling>, Stop> {
        for (source, grad) in &open.grads {
            let is_wanted = open.wanted || self.request.names(*source);
            if let Some(grad) = grad.as_ref().filter(|_| is_wanted) {
                self.course.found.push((*source, grad.clone()));
            }
        }
        let Some(id) = open.node else {
            return Ok(None);
        };
        if Through::of(self.graph, id).is_some() {
            let site = self.site_of(id);
            return self.leave(id, &open.grads, &site);
        }
        let op = Arc::clone(&self.graph.node(id).op);
        let grads = open.grads.into_iter().map(|(_, grad)| grad);
        let grads: SmallVec<[Option<Operand>; 2]> = grads.collect();
        self.pass_on(id, &*op, &self.site_of(id), &grads)?;
        Ok(None)
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
        let inputs = self.graph.node(node).inputs.iter();
        inputs.map(|input| self.wants(input)).collect()
    }

    /// Whether a gradient is to reach an input of a node.
    pub(super) fn wants(&self, input: &Operand) -> bool {
        let reaches = match (&self.course.reaching, self.request.wanted) {
            (Some(nodes), Some(wanted)) => {
                // Nodes that the walk emits are behind those that it knows, and are nobody's inputs here.
                comes_of(self.graph, nodes, wanted, input)
            }
            _ => true,
        };
        input.requires_grad && reaches
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

    pub(super) fn numel(&self, source: Source) -> Option<usize> {
        Some(match source {
            Source::Value(id) => self.graph.value(id).spec.layout.numel(),
            Source::Cell(id, _) => self.graph.cell(id)?.spec.layout.numel(),
        })
    }

    /// Opens the gradient of the next leaf, if one is left.
    fn leaf(&mut self) -> Result<bool, Stop> {
        let left = self.course.leaves.take();
        let mut sources = left.unwrap_or_else(|| self.leaves());
        let next = sources.pop();
        self.course.leaves = Some(sources);
        let Some(source) = next else {
            return Ok(false);
        };
        let layout = match source {
            Source::Value(id) => Some(self.graph.value(id).spec.layout.clone()),
            Source::Cell(id, _) => self.graph.cell(id).map(|cell| cell.spec.layout.clone()),
        };
        if let Some(layout) = layout {
            let request = self.request;
            let grad = self.finalize(source, &layout, &request.site)?;
            self.course.open = Some(Open {
                node: None,
                grads: SmallVec::from_iter([(source, grad)]),
                seen: 0,
                wanted: true,
            });
        }
        Ok(true)
    }

    /// What gradients have reached and no node made, the last first.
    fn leaves(&self) -> Vec<Source> {
        let request = self.request;
        let values = self.course.values.iter().enumerate();
        let values = values.filter(|(_, contributions)| !contributions.is_empty());
        let cells = self
            .course
            .cells
            .keys()
            .map(|&(id, version)| Source::Cell(id, version));
        let values = values.map(|(index, _)| Source::Value(ValueId::new(index)));
        let wanted = |source: &Source| request.wanted.is_none_or(|wanted| wanted.contains(source));
        let mut sources: Vec<Source> = values.chain(cells).filter(wanted).collect();
        sources.reverse();
        sources
    }
}
