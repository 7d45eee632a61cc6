//! The recordings of an engine: that of who has the lock is at hand, those of others are parked.
//!
//! Each has a graph of its own, and so a step ends the graph of one recording and no other. Cells are shared: they go
//! with the graph at hand. What a step writes is what the others' pending nodes read when they run.

use crate::Result;
use crate::engine::state::State;
use crate::error::usage_error;
use crate::pending::Pending;
use crate::pending::handle::{Dropped, Handle};
use crate::pending::recording::Recording;
use crate::report::steps::StepPlan;
use crate::store::memory::Storages;
use highwater_graph::{CellId, Location, Operand};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

/// Of random numbers: nodes made in the same order draw the same ones.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Random {
    pub(crate) seed: u64,
    pub(crate) offset: u64,
}

impl Random {
    /// The next stream.
    pub(crate) fn next(&mut self) -> (u64, u64) {
        let offset = self.offset;
        self.offset += 1;
        (self.seed, offset)
    }

    /// What a recording draws that nobody has seeded. It does not depend on what others draw, nor on which of them
    /// came first, and is not what initial weights were drawn from.
    fn of_another(seed: u64) -> Self {
        let seed = seed.rotate_left(32) ^ 0x9E37_79B9_7F4A_7C15;
        Self { seed, offset: 0 }
    }
}

/// A recording, as the engine knows it.
#[derive(Debug)]
struct Scope {
    alive: Weak<u64>,
    random: Random,
    /// The recording whose graph it adds to: its own, until both meet.
    graph: u64,
}

/// What somebody records who has not the lock.
#[derive(Debug, Default)]
struct Parked {
    pending: Pending,
    storages: Storages,
    steps: Vec<StepPlan>,
}

/// All of an engine.
#[derive(Debug, Default)]
pub(crate) struct Recordings {
    /// The one at hand; 0 before the first.
    current: u64,
    /// The one that the engine was built in.
    home: u64,
    /// The engine's seed.
    seed: u64,
    scopes: BTreeMap<u64, Scope>,
    parked: BTreeMap<u64, Parked>,
    /// With how many recordings those are looked for that nobody needs any more.
    crowd: usize,
    generations: u64,
    checkpoints: u32,
}

/// Recordings among which it is not worth looking for those that nobody needs.
const FEW: usize = 8;

impl Recordings {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            crowd: FEW,
            ..Self::default()
        }
    }

    /// A number for a graph that no other had.
    pub(crate) fn next_generation(&mut self) -> u64 {
        self.generations += 1;
        self.generations
    }

    /// A number for a checkpoint that no other had.
    pub(crate) fn next_checkpoint(&mut self) -> u32 {
        self.checkpoints += 1;
        self.checkpoints
    }

    /// Cells that parked graphs need.
    pub(crate) fn used_cells(&self) -> BTreeSet<CellId> {
        let parked = self.parked.values();
        parked
            .flat_map(|parked| parked.pending.used_cells())
            .collect()
    }

    /// Whether no recording can add to a parked graph any more.
    fn is_left_behind(&self, owner: u64) -> bool {
        let mut scopes = self.scopes.values().filter(|scope| scope.graph == owner);
        scopes.all(|scope| scope.alive.strong_count() == 0)
    }

    /// Whether a gradient is pending for a parameter.
    pub(crate) fn has_grad(&self, parameter: CellId) -> bool {
        let mut parked = self.parked.values();
        parked.any(|parked| parked.pending.grads.contains_key(&parameter))
    }

    /// Forgets pending gradients.
    pub(crate) fn drop_grad(&mut self, parameter: CellId) {
        for parked in self.parked.values_mut() {
            parked.pending.grads.remove(&parameter);
        }
    }

    /// Takes a hook away.
    pub(crate) fn remove_hook(&mut self, number: u64) {
        for parked in self.parked.values_mut() {
            parked.pending.hooks.remove(number);
        }
    }

    /// Forgets what parked recordings have in the arena. Answers whether there was anything.
    pub(crate) fn give_up_residents(&mut self) -> bool {
        let mut any = false;
        for parked in self.parked.values_mut() {
            if !parked.pending.progress.residents.is_empty() {
                any |= parked.pending.give_up_residents(&parked.storages);
            }
        }
        any
    }

    /// Where the highest value ends that a parked recording has in the arena.
    pub(crate) fn residents_end(&self) -> u64 {
        let parked = self.parked.values();
        let ends = parked.map(|parked| parked.pending.residents_end());
        ends.max().unwrap_or(0)
    }
}

impl State {
    /// The next random stream of the recording at hand.
    pub(crate) fn next_random(&mut self) -> (u64, u64) {
        self.random.next()
    }

    /// Seeds the recording at hand; where that is the engine's first, also those that have not begun.
    pub(crate) fn set_random(&mut self, seed: u64, offset: u64) {
        self.random = Random { seed, offset };
        if self.recordings.current == self.recordings.home {
            self.recordings.seed = seed;
        }
    }

    /// Has a recording at hand from now on.
    pub(crate) fn enter(&mut self, recording: &Recording, dropped: &Dropped, location: Location) {
        let (number, before) = (recording.number(), self.recordings.current);
        if number == before {
            return;
        }
        let random = match before {
            0 => self.random,
            _ => Random::of_another(self.recordings.seed),
        };
        let scope = |random| Scope {
            alive: recording.downgrade(),
            random,
            graph: number,
        };
        let scopes = &mut self.recordings.scopes;
        let entered = scopes.entry(number).or_insert_with(|| scope(random));
        let (graph, random) = (entered.graph, entered.random);
        self.recordings.current = number;
        if before == 0 {
            self.recordings.home = number;
            return;
        }
        let mut from = number;
        if let Some(left) = self.recordings.scopes.get_mut(&before) {
            left.random = self.random;
            from = left.graph;
        }
        self.random = random;
        if graph != from {
            self.exchange(from, graph);
            self.end_forsaken_of_crowd(dropped, location);
        }
    }

    /// Parks the graph at hand and takes up another.
    fn exchange(&mut self, from: u64, to: u64) {
        let recordings = &mut self.recordings;
        let mut other = recordings.parked.remove(&to).unwrap_or_else(|| Parked {
            pending: Pending {
                graph: self.pending.graph.beside(),
                generation: recordings.next_generation(),
                ..Pending::default()
            },
            ..Parked::default()
        });
        let cells = self.pending.graph.take_cells();
        other.pending.graph.give_cells(cells);
        self.pending.hooks.pass_on(&mut other.pending.hooks);
        std::mem::swap(&mut self.pending, &mut other.pending);
        std::mem::swap(&mut self.memory.storages, &mut other.storages);
        self.record.steps.exchange(&mut other.steps);
        if !other.pending.is_empty() {
            recordings.parked.insert(from, other);
        }
    }

    /// What the graph at hand calls a tensor; the graph that it is of comes along.
    pub(crate) fn operand(&mut self, handle: &Arc<Handle>) -> Result<Operand> {
        if let Some(generation) = handle.generation()
            && generation != self.pending.generation
        {
            let mut parked = self.recordings.parked.iter();
            let found = parked.find(|(_, parked)| parked.pending.generation == generation);
            if let Some((&owner, _)) = found {
                self.join(owner)?;
            }
        }
        handle.operand(&mut self.pending, &mut self.memory.storages)
    }

    /// Has the graphs come along that have gradients pending for parameters, and those that nobody can enter any more
    /// and nobody waits for: writes that a thread has recorded and left behind.
    pub(crate) fn claim_grads(&mut self, parameters: &[CellId], dropped: &Dropped) -> Result<()> {
        let mut owners = self.recordings.parked.keys();
        if owners.any(|&owner| self.recordings.is_left_behind(owner)) {
            self.end_forsaken(dropped, Location::caller());
        }
        let mut owners: Vec<u64> = self.recordings.parked.keys().copied().collect();
        owners.retain(|&owner| {
            let is_left_behind = self.recordings.is_left_behind(owner);
            let Some(Parked { pending, .. }) = self.recordings.parked.get_mut(&owner) else {
                return false;
            };
            let (grads, mut parameters) = (&pending.grads, parameters.iter());
            let has = !grads.is_empty() && parameters.any(|id| grads.contains_key(id));
            has || is_left_behind && grads.is_empty() && !pending.is_waited_for()
        });
        owners.into_iter().try_for_each(|owner| self.join(owner))
    }

    /// Adds a parked graph to that at hand: from now on both recordings add to it, until it ends.
    fn join(&mut self, owner: u64) -> Result<()> {
        let recordings = &mut self.recordings;
        let Some(mut parked) = recordings.parked.remove(&owner) else {
            return Ok(());
        };
        if parked.pending.hooks.are_running() {
            recordings.parked.insert(owner, parked);
            let message = "the tensor is of a graph whose backward() is calling a hook on another thread: use it \
                           when that has ended";
            return Err(usage_error(message, Location::caller()));
        }
        let current = recordings.scopes.get(&recordings.current);
        let graph = current.map_or(recordings.current, |scope| scope.graph);
        let scopes = recordings.scopes.values_mut();
        for scope in scopes.filter(|scope| scope.graph == owner) {
            scope.graph = graph;
        }
        parked.pending.give_up_residents(&parked.storages);
        let storages = &mut self.memory.storages;
        self.pending.join(storages, parked.pending, parked.storages)
    }

    /// The graph at hand has ended: recordings that met in it are apart again.
    pub(crate) fn part(&mut self) {
        let recordings = &mut self.recordings;
        let current = recordings.scopes.get(&recordings.current);
        let Some(graph) = current.map(|scope| scope.graph) else {
            return;
        };
        for (&number, scope) in &mut recordings.scopes {
            if scope.graph == graph {
                scope.graph = number;
            }
        }
    }

    fn end_forsaken_of_crowd(&mut self, dropped: &Dropped, location: Location) {
        let count = |recordings: &Recordings| recordings.scopes.len() + recordings.parked.len();
        if count(&self.recordings) > self.recordings.crowd {
            self.end_forsaken(dropped, location);
            self.recordings.crowd = FEW + 2 * count(&self.recordings);
        }
    }

    /// Ends parked graphs that nobody can want any more, and forgets recordings that nobody can enter.
    /// Answers whether a graph ended.
    pub(crate) fn end_forsaken(&mut self, dropped: &Dropped, location: Location) -> bool {
        let dropped = dropped.all();
        let mut with_grads = self.memory.grads.keys();
        let are_grads_there = with_grads.any(|id| !dropped.contains(id));
        let recordings = &mut self.recordings;
        let before = recordings.parked.len();
        let mut ended = Vec::new();
        let owners = recordings.parked.keys().copied();
        let left: BTreeSet<u64> = owners
            .filter(|&owner| recordings.is_left_behind(owner))
            .collect();
        recordings.parked.retain(|&owner, parked| {
            // What nobody can enter guards no step, and what cannot run any more is nothing to wait for.
            let is_left = left.contains(&owner);
            let pending = &mut parked.pending;
            if is_left {
                pending.give_up_residents(&parked.storages);
            }
            let forsaken = pending.is_forsaken(are_grads_there && !is_left, &dropped)
                || is_left && !pending.is_waited_for() && pending.is_stale();
            if forsaken {
                // Nobody waits for it: no later graph is mistaken for it.
                let generation = parked.pending.generation;
                parked
                    .pending
                    .end(&mut parked.storages, location, generation);
                ended.push(owner);
            }
            !forsaken
        });
        for (&number, scope) in &mut recordings.scopes {
            if ended.contains(&scope.graph) {
                scope.graph = number;
            }
        }
        let at_hand = recordings.scopes.get(&recordings.current);
        let mut needed: BTreeSet<u64> = recordings.parked.keys().copied().collect();
        needed.extend(at_hand.map(|scope| scope.graph));
        needed.extend([recordings.current, recordings.home]);
        recordings
            .scopes
            .retain(|number, scope| needed.contains(number) || scope.alive.strong_count() > 0);
        recordings.parked.len() < before
    }
}
