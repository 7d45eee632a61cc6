//! Dynamic tensor rematerialisation (Kirisame et al., 2021), online under a hard budget: when a run
//! does not fit, the value goes for which (seconds to make it again and its evicted neighbourhood) /
//! (bytes x staleness) is least. Values that no run to come reads go at once, and a run may write over
//! an input that goes with it. The neighbourhood is exact: all evicted ancestors, and of the evicted
//! descendants those that will have to be made again (counting the others too, as the paper may be
//! read, is slower nearly everywhere).

use super::checkpoint::readers;
use highwater_plan::*;

/// Runs per node after which it is given up.
const THRASHING: usize = 40;

struct Dtr<'a> {
    problem: &'a Problem,
    budget: u64,
    producer: Vec<Option<usize>>,
    readers: Vec<Vec<usize>>,
    /// Per value: reads by first runs to come, and 1 if it is wanted.
    left: Vec<usize>,
    /// Per value: whether it is read by a first run to come, or to make again what is missing of those.
    useful: Vec<bool>,
    present: Vec<bool>,
    locks: Vec<usize>,
    access: Vec<f64>,
    ran: Vec<bool>,
    /// Per node: whether a cell that it reads has been written, so that it cannot run again.
    stale: Vec<bool>,
    clock: f64,
    bytes: u64,
    runs: Vec<NodeId>,
}

/// The runs of a step under a budget, if it gets through.
pub(crate) fn runs(problem: &Problem, budget: u64) -> Option<Vec<NodeId>> {
    let values = problem.values.len();
    let mut producer = vec![None; values];
    for (n, node) in problem.nodes.iter().enumerate() {
        node.outputs
            .iter()
            .for_each(|&v| producer[v.index()] = Some(n));
    }
    let readers = readers(problem);
    let left = |(v, r): (&Value, &Vec<usize>)| r.len() + usize::from(v.wanted);
    let mut dtr = Dtr {
        left: problem.values.iter().zip(&readers).map(left).collect(),
        present: problem
            .values
            .iter()
            .map(|v| v.home == Home::External)
            .collect(),
        useful: vec![false; values],
        locks: vec![0; values],
        access: vec![0.0; values],
        ran: vec![false; problem.nodes.len()],
        stale: vec![false; problem.nodes.len()],
        clock: 0.0,
        bytes: 0,
        runs: Vec::new(),
        problem,
        budget,
        producer,
        readers,
    };
    for n in 0..problem.nodes.len() {
        dtr.run(n, None)?;
    }
    for v in (0..values).filter(|&v| problem.values[v].wanted) {
        dtr.lock(v)?;
    }
    Some(dtr.runs)
}

impl Dtr<'_> {
    /// Brings `useful` up to date.
    fn mark(&mut self) {
        for v in 0..self.left.len() {
            self.useful[v] = self.left[v] > 0;
        }
        for n in (0..self.problem.nodes.len()).rev().filter(|&n| self.ran[n]) {
            let node = &self.problem.nodes[n];
            let missing = |&v: &ValueId| !self.present[v.index()] && self.useful[v.index()];
            if node.outputs.iter().any(missing) {
                node.inputs
                    .iter()
                    .for_each(|&v| self.useful[v.index()] = true);
            }
        }
    }

    /// Makes a value if it is not there, and locks it.
    fn lock(&mut self, v: usize) -> Option<()> {
        if !self.present[v] {
            let producer = self.producer[v]?;
            self.run(producer, Some(v))?;
        }
        self.locks[v] += 1;
        Some(())
    }

    /// Runs a node: for the first time, or for one of its values.
    fn run(&mut self, n: usize, target: Option<usize>) -> Option<()> {
        let node = &self.problem.nodes[n];
        let mut inputs: Vec<usize> = node.inputs.iter().map(|&v| v.index()).collect();
        inputs.sort_by_key(|&v| (self.producer[v], v));
        for &v in &inputs {
            self.lock(v)?;
            self.left[v] -= usize::from(target.is_none());
        }
        let fresh = self.execute(n)?;
        for &v in inputs.iter().chain(&fresh) {
            self.access[v] = self.clock;
        }
        for &v in &inputs {
            self.locks[v] -= 1;
        }
        for &v in fresh.iter().chain(&inputs) {
            let goes = self.left[v] == 0 && self.locks[v] == 0 && target != Some(v);
            if goes && (target.is_none() || fresh.contains(&v)) {
                self.evict(v);
            }
        }
        Some(())
    }

    /// Runs a node whose inputs are there and locked; returns the values that it made.
    fn execute(&mut self, n: usize) -> Option<Vec<usize>> {
        let node = &self.problem.nodes[n];
        if self.stale[n] {
            return None;
        }
        let outputs = node.outputs.iter().map(|&v| v.index());
        let fresh: Vec<usize> = outputs.filter(|&v| !self.present[v]).collect();
        let taken = self.taken(n, &fresh);
        let new = fresh.iter().filter(|&&v| taken.iter().all(|t| t.1 != v));
        let bytes: u64 = new.map(|&v| self.size(v)).sum();
        self.make_room(bytes + footprint(node.scratch_bytes))?;
        self.runs.push(NodeId::new(n));
        if self.runs.len() > THRASHING * self.problem.nodes.len() {
            return None;
        }
        self.bytes += bytes;
        self.ran[n] = true;
        for (m, other) in self.problem.nodes.iter().enumerate() {
            self.stale[m] |= other.reads.iter().any(|read| node.writes.contains(read));
        }
        self.clock += node.seconds;
        for (input, output) in taken {
            (self.present[input], self.present[output]) = (false, true);
        }
        for &v in &fresh {
            self.present[v] = true;
        }
        Some(fresh)
    }

    fn size(&self, v: usize) -> u64 {
        match self.problem.values[v].home {
            Home::External => 0,
            _ => footprint(self.problem.values[v].bytes),
        }
    }

    fn arena(&self, v: usize) -> bool {
        self.problem.values[v].home != Home::External
    }

    fn evict(&mut self, v: usize) {
        if self.arena(v) && std::mem::take(&mut self.present[v]) {
            self.bytes -= self.size(v);
        }
    }

    /// Pairs of an input that goes with this run and an output that takes its buffer over.
    fn taken(&self, n: usize, fresh: &[usize]) -> Vec<(usize, usize)> {
        let node = &self.problem.nodes[n];
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for &(i, o) in &node.in_place {
            let (i, o) = (
                node.inputs[i as usize].index(),
                node.outputs[o as usize].index(),
            );
            let alike = self.problem.values[i].bytes == self.problem.values[o].bytes;
            let goes = self.left[i] == 0 && self.locks[i] == 1 && self.arena(i) && self.arena(o);
            let free = taken.iter().all(|t| t.0 != i && t.1 != o);
            if alike && goes && free && fresh.contains(&o) {
                taken.push((i, o));
            }
        }
        taken
    }

    fn make_room(&mut self, bytes: u64) -> Option<()> {
        while self.bytes + bytes > self.budget {
            self.mark();
            let movable = |&v: &usize| {
                self.present[v] && self.arena(v) && self.locks[v] == 0 && self.size(v) > 0
            };
            let all = (0..self.left.len()).filter(movable);
            let scored = all.filter_map(|v| Some((self.score(v)?, v)));
            let (_, v) = scored.min_by(|a, b| a.0.total_cmp(&b.0))?;
            self.evict(v);
        }
        Some(())
    }

    /// Seconds of what makes a value, of its evicted ancestors and of its evicted descendants, by its
    /// bytes and staleness; none if it cannot be made again.
    fn score(&self, v: usize) -> Option<f64> {
        let own = self.producer[v]?;
        let again =
            |&n: &usize| self.problem.nodes[n].effect == Effect::Repeatable && !self.stale[n];
        let up = reach(own, |n| self.above(n));
        let down = reach(own, |n| self.below(n));
        let seconds = |n: &usize| self.problem.nodes[*n].seconds;
        let sum: f64 = up.iter().chain(&down[1..]).map(seconds).sum();
        let staleness = self.clock - self.access[v];
        up.iter()
            .all(again)
            .then(|| sum / (self.size(v) as f64 * staleness))
    }

    /// The nodes that ran, and made what a node reads and is no longer there.
    fn above(&self, n: usize) -> Vec<usize> {
        let inputs = self.problem.nodes[n].inputs.iter().map(|&v| v.index());
        let gone = inputs.filter(|&v| !self.present[v]);
        gone.filter_map(|v| self.producer[v]).collect()
    }

    /// The nodes that read what a node makes, and whose outputs have to be made again.
    fn below(&self, n: usize) -> Vec<usize> {
        let outputs = self.problem.nodes[n].outputs.iter();
        let readers = outputs.flat_map(|&v| &self.readers[v.index()]).copied();
        let missing = |v: usize| !self.present[v] && self.useful[v];
        let again = |&r: &usize| {
            let outputs = &self.problem.nodes[r].outputs;
            self.ran[r] && outputs.iter().any(|&v| missing(v.index()))
        };
        readers.filter(again).collect()
    }
}

/// All nodes that are reached from one, itself first.
fn reach(from: usize, next: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let mut seen = vec![from];
    let mut at = 0;
    while at < seen.len() {
        for n in next(seen[at]) {
            if !seen.contains(&n) {
                seen.push(n);
            }
        }
        at += 1;
    }
    seen
}
