//! The reserve: what the process takes beside its arenas, and a budget has to leave for it.

use crate::Result;
use crate::engine::Engine;
use crate::engine::choose::Chosen;
use crate::engine::state::State;
use crate::problem::plan_cache::About;
use highwater_memory::{Arena, Reserve};
use std::io;

/// Process memory that the reserve leaves free above what was measured at start, in bytes: for the
/// heap's growth while graphs are built and for buffers of libraries that are touched late.
const HEADROOM_BYTES: u64 = 8 << 20;
/// What of it has to be left when a plan was made: for code that its kernels run for the first time.
const MARGIN_BYTES: u64 = 2 << 20;

/// The share of the program's file that is counted as code: a third when an engine starts, beside the headroom; half of
/// it where that is used up. Steps of small models run less: 10.7 of 28 MB.
const START_PARTS: u64 = 3;
const SETTLED_PARTS: u64 = 2;

/// What the heap takes for each node of a graph, its plan and those remembered, and what of that the
/// headroom has room for, in bytes. A sum of the number of nodes alone: the same program must come to
/// the same floor each time.
const NODE_BYTES: u64 = 6 << 10;
/// The same where values may be moved: decisions are kept at several prices of moving them.
const MOVED_NODE_BYTES: u64 = 12 << 10;
const GRAPH_BYTES: u64 = 4 << 20;

/// What a small program takes by itself, in bytes. Less than this is not measured: the same program
/// must come to the same floor each time, whichever pages of its code it has touched.
const LEAST_BYTES: u64 = 28 << 20;

/// Bytes of the process that an engine leaves to somebody else, until this is dropped.
#[derive(Debug)]
#[must_use = "the bytes are set aside for as long as this is held"]
pub struct SetAside {
    engine: Engine,
    bytes: u64,
}

impl SetAside {
    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        let mut state = self.engine.lock();
        let left = |bytes: &mut u64| *bytes = bytes.saturating_sub(self.bytes);
        left(&mut state.memory.reserved.aside);
        // What is there all the same is noticed when the next step starts.
        left(&mut state.memory.reserved.measured);
        self.engine.apply_reserve(&state);
    }
}

impl Engine {
    /// Leaves bytes of the budget of [`Builder::memory`](crate::Builder::memory) to what the program will
    /// allocate itself, such as batches that are loaded ahead: plans are made without them from the next one on,
    /// so that none has to be made anew when they are taken. Forecasts and refusals count them to the process.
    /// Where the process is not bounded nothing is set aside.
    ///
    /// # Errors
    /// [`Error::Build`](crate::Error::Build) if the budget has not so many beside the process.
    pub fn set_aside(&self, bytes: u64) -> Result<SetAside> {
        let mut state = self.lock();
        let mut reserved = state.memory.reserved;
        reserved.aside = reserved.aside.saturating_add(bytes);
        self.0.limits.check_reserve(reserved.bytes())?;
        state.memory.reserved = reserved;
        self.apply_reserve(&state);
        drop(state);
        Ok(SetAside {
            engine: self.clone(),
            bytes,
        })
    }

    /// What a new engine reserves.
    pub(crate) fn first_reserve(&self) -> u64 {
        let measured = self.measured_above(LEAST_BYTES, START_PARTS);
        measured.unwrap_or(LEAST_BYTES) + HEADROOM_BYTES
    }

    /// Measured bytes of the process outside the arenas, where they are more than `bytes`, also without code that only
    /// its start ran: see [`Reserve::measure_settled`].
    fn measured_above(&self, bytes: u64, parts: u64) -> Option<u64> {
        let above = |measured: u64| Some(measured).filter(|&measured| measured > bytes);
        above(self.measure_reserve(Reserve::measure))?;
        above(self.measure_reserve(|arenas| Reserve::measure_settled(arenas, parts)))
    }

    /// Measured bytes of the process outside the arenas; 0 where the system does not tell.
    fn measure_reserve(&self, measure: impl Fn(&[&Arena]) -> io::Result<Reserve>) -> u64 {
        let reserve = self.0.store.with_arenas(|arenas| match &self.0.tiers.host {
            Some(host) => host.with_arena(|host| measure(&[arenas, &[host]].concat())),
            None => measure(arenas),
        });
        reserve.map_or(0, |reserve| reserve.total())
    }

    /// Gives the arenas what the reserve leaves.
    pub(crate) fn apply_reserve(&self, state: &State) {
        if self.0.limits.memory.is_some() {
            let reserve = state.memory.reserved.bytes();
            self.0.store.set_budget(self.0.limits.budget(reserve));
        }
    }

    /// Reserves what a graph of so many nodes takes.
    pub(crate) fn reserve_for(&self, state: &mut State, nodes: usize) {
        let moves = self.0.tiers.disk.is_some() || self.0.tiers.host.is_some();
        let node = if moves { MOVED_NODE_BYTES } else { NODE_BYTES };
        let graph = (nodes as u64).saturating_mul(node);
        state.memory.reserved.for_graph = graph.saturating_sub(GRAPH_BYTES);
        self.apply_reserve(state);
    }

    /// Whether the reserve follows what the process uses: a dry run plans for another process than this one.
    fn is_measured(&self) -> bool {
        self.0.limits.memory.is_some() && !self.0.dry
    }

    /// Raises the reserve if the process outgrew it, so that the next plan's arena shrinks. First goes what the heap
    /// and the planner only keep: a step that fits must not be refused for that.
    pub(crate) fn check_reserve(&self, state: &mut State) {
        if !self.is_measured() {
            return;
        }
        let Ok(usage) = highwater_memory::Usage::read() else {
            return;
        };
        // Cheap first: only if all pages of the arenas are touched can this be exact.
        let host = self.0.tiers.host.as_ref();
        let host = host.map_or(0, |host| host.mapped_bytes());
        let reserved = state.memory.reserved.bytes();
        if usage.resident <= reserved + self.0.store.mapped_bytes() + host
            || self.outgrown(state, 0).is_none()
        {
            return;
        }
        state.planning.cache.forget_families(0);
        if let Some(needed) = self.outgrown(state, 0) {
            self.set_measured(state, needed + MARGIN_BYTES);
        }
    }

    /// What the process uses next to its arenas, with `margin` bytes, where that is more than the reserve. No plan has
    /// to make room for what the heap only keeps: that goes first.
    fn outgrown(&self, state: &State, margin: u64) -> Option<u64> {
        highwater_memory::heap::release_unused();
        let reserved = state.memory.reserved.bytes();
        let measured = self.measured_above(reserved.saturating_sub(margin), SETTLED_PARTS)?;
        Some(measured + margin)
    }

    fn set_measured(&self, state: &mut State, bytes: u64) {
        state.memory.reserved.measured = bytes;
        self.apply_reserve(state);
    }

    /// A plan for which the process has memory left. One that was just made leaves plans and holes on the heap.
    /// Where the process outgrew its reserve by that, older families of plans are forgotten; where that is not
    /// enough, the reserve is raised and `choose` takes a plan with less memory. If there is none, all families
    /// go: a search can be made again, and what fitted must not be refused for what the planner remembers.
    pub(crate) fn settled(
        &self,
        state: &mut State,
        chosen: Chosen,
        choose: impl Fn(&Self, &mut State) -> Result<Chosen>,
    ) -> Result<Chosen> {
        if !self.is_measured() || matches!(chosen.about, About::Told(_)) {
            return Ok(chosen);
        }
        if self.outgrown(state, MARGIN_BYTES).is_none() {
            return Ok(chosen);
        }
        state.planning.cache.forget_families(1);
        let Some(needed) = self.outgrown(state, MARGIN_BYTES) else {
            return Ok(chosen);
        };
        let before = state.memory.reserved.measured;
        self.set_measured(state, needed);
        drop(chosen);
        choose(self, state).or_else(|_| {
            state.planning.cache.forget_families(0);
            self.set_measured(state, before);
            if let Some(needed) = self.outgrown(state, 0) {
                self.set_measured(state, needed);
            }
            let chosen = choose(self, state);
            state.planning.cache.forget_families(0);
            chosen
        })
    }
}
