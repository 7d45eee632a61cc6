//! The reserve: what the process takes beside its arenas, and a budget has to leave for it.

use crate::Result;
use crate::engine::Engine;
use crate::engine::state::State;
use highwater_memory::{Arena, Reserve};

/// Process memory that the reserve leaves free above what was measured at start, in bytes: for the
/// heap's growth while graphs are built and for buffers of libraries that are touched late.
const HEADROOM_BYTES: u64 = 8 << 20;

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
        let left = state.memory.reserve_bytes.saturating_sub(self.bytes);
        // What is there all the same is noticed when the next step starts.
        let left = left.max(state.memory.reserve_graph_bytes);
        self.engine.set_reserve(&mut state, left);
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
        let reserve = state.memory.reserve_bytes.saturating_add(bytes);
        self.0.limits.check_reserve(reserve)?;
        self.set_reserve(&mut state, reserve);
        drop(state);
        Ok(SetAside {
            engine: self.clone(),
            bytes,
        })
    }

    /// What a new engine reserves.
    pub(crate) fn first_reserve(&self) -> u64 {
        self.measure_reserve().max(LEAST_BYTES) + HEADROOM_BYTES
    }

    /// Measured bytes of the process outside the arenas; 0 where the system does not tell.
    pub(crate) fn measure_reserve(&self) -> u64 {
        let measure = |arenas: &[&Arena]| Reserve::measure(arenas);
        let reserve = self.0.store.with_arenas(|arenas| match &self.0.tiers.host {
            Some(host) => host.with_arena(|host| measure(&[arenas, &[host]].concat())),
            None => measure(arenas),
        });
        reserve.map_or(0, |reserve| reserve.total())
    }

    /// Sets the reserve, and with it what the arenas may take.
    pub(crate) fn set_reserve(&self, state: &mut State, bytes: u64) {
        state.memory.reserve_bytes = bytes;
        if self.is_process_bounded() {
            self.0.store.set_budget(self.0.limits.budget(bytes));
        }
    }

    /// Sets the reserve to what a graph of so many nodes takes.
    pub(crate) fn reserve_for(&self, state: &mut State, nodes: usize) {
        let moves = self.0.tiers.disk.is_some() || self.0.tiers.host.is_some();
        let node = if moves { MOVED_NODE_BYTES } else { NODE_BYTES };
        let graph = (nodes as u64).saturating_mul(node);
        let graph = graph.saturating_sub(GRAPH_BYTES);
        if graph != state.memory.reserve_graph_bytes {
            let without = state.memory.reserve_bytes - state.memory.reserve_graph_bytes;
            state.memory.reserve_graph_bytes = graph;
            self.set_reserve(state, without.saturating_add(graph));
        }
    }

    /// Raises the reserve if the process outgrew it, so that the next plan's arena shrinks.
    pub(crate) fn check_reserve(&self, state: &mut State) {
        // A dry run plans for another process than this one.
        if !self.is_process_bounded() || self.0.dry {
            return;
        }
        let Ok(usage) = highwater_memory::Usage::read() else {
            return;
        };
        // Cheap first: only if all pages of the arenas are touched can this be exact.
        let host = self.0.tiers.host.as_ref();
        let host = host.map_or(0, |host| host.mapped_bytes());
        if usage.resident > state.memory.reserve_bytes + self.0.store.mapped_bytes() + host {
            // What the heap only keeps is nothing that a plan has to make room for.
            highwater_memory::heap::release_unused();
            let measured = self.measure_reserve();
            if measured > state.memory.reserve_bytes {
                self.set_reserve(state, measured + (HEADROOM_BYTES >> 2));
            }
        }
    }

    fn is_process_bounded(&self) -> bool {
        self.0.limits.memory.is_some()
    }
}
