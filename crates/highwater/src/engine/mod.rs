//! The engine: what owns arenas, threads, plans and random numbers. A value, not a global.

pub(crate) mod backward;
mod budget;
pub(crate) mod builder;
pub(crate) mod choose;
mod ending;
pub(crate) mod evaluate;
mod forecast;
mod functions;
mod gradients;
mod homes;
pub(crate) mod hooks;
pub(crate) mod lent;
pub(crate) mod lock;
pub(crate) mod mem_cache;
mod memory_stats;
mod new_cell;
mod overwrite;
mod posing;
pub(crate) mod recordings;
mod refusal;
mod request;
pub(crate) mod reserve;
mod room;
pub(crate) mod state;

use crate::engine::builder::Builder;
use crate::engine::state::State;
use crate::error::located;
use crate::pending::handle::Dropped;
use crate::problem::profile::OperationProfile;
use crate::report::{StepReport, Totals};
use crate::store::Store;
use crate::store::limits::{Limits, Stated};
use crate::store::tiers::{Below, TierUse, TierUses, Tiers};
use crate::{Error, Result};
use highwater_graph::{Category, CellId, DType, Graph, Op, Operand, Phase, Site, Source};
use highwater_memory::{Arena, System};
use highwater_ops::{Cast, Kernels, Pool};
use highwater_plan::{self as plan, Policy};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex};

/// A training engine. Clones are the same engine. Tensors carry theirs; engines do not share
/// anything.
///
/// Engines and tensors may be used from any thread, those of a thread pool included. Each thread records a graph of
/// its own, so that a step ends what its thread has recorded and nothing else: see
/// [`Recording`](crate::Recording). Evaluations take turns, and a thread that waits for an engine sleeps. The code of an operation or of a kernel must not use an engine: it runs while its engine
/// waits for it. On the threads that the engine runs it on, that is a panic.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) pool: Pool,
    pub(crate) system: Arc<dyn System>,
    pub(crate) kernels: Arc<Kernels>,
    pub(crate) store: Arc<Store>,
    pub(crate) policy: Policy,
    pub(crate) eager: bool,
    pub(crate) on_plan: Option<OnPlan>,
    pub(crate) dry: bool,
    /// Where cells may be below memory.
    pub(crate) tiers: Tiers,
    /// About how many points the curve of a forecast has for each plan.
    pub(crate) prices: usize,
    /// Bytes of a moment in one piece at most.
    pub(crate) piece_bytes: u64,
    /// Updates wait for all gradients to be finite where that is free.
    pub(crate) guard_gradients: bool,
    pub(crate) limits: Limits,
    pub(crate) state: Mutex<State>,
    /// Says that the bytes of a cell were given back.
    pub(crate) given_back: Condvar,
    /// Cells whose last handle was dropped; taken up at the next lock, when no graph reads them.
    pub(crate) dropped_cells: Dropped,
}

/// Looks at a plan, and at the problem that it solves.
pub type OnPlan = fn(&plan::Problem, &plan::Plan);

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("threads", &self.threads())
            .field("policy", &self.0.policy)
            .field("limits", &self.0.limits)
            .field(
                "state",
                &format_args!("{}", highwater_memory::Bytes(self.state_bytes())),
            )
            .finish_non_exhaustive()
    }
}

thread_local! {
    static DEFAULT: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

impl Engine {
    /// An engine to be configured.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// An engine to be configured that evaluates every operation at once, for debugging: the same
    /// bits, and every value is kept, so it takes more memory.
    pub fn eager() -> Builder {
        let mut builder = Builder::new();
        builder.eager = true;
        builder
    }

    /// Makes this the engine that [`Engine::current`] answers on this thread.
    pub fn set_default(&self) {
        DEFAULT.set(Some(self.clone()));
    }

    /// The thread's default engine; one without a budget is made if there is none.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn current() -> Result<Self> {
        if let Some(engine) = DEFAULT.with_borrow(Clone::clone) {
            return Ok(engine);
        }
        let engine = Self::builder().build()?;
        engine.set_default();
        Ok(engine)
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.0.pool.threads()
    }

    /// Fixes the random numbers that this thread draws from now on: dropout masks and initial weights. On the thread
    /// that built the engine, also those of threads that have not begun; each of these draws the same numbers until it
    /// is seeded itself.
    pub fn manual_seed(&self, seed: u64) {
        self.lock().set_random(seed, 0);
    }

    /// Seed and counter of this thread's random numbers, to be saved.
    pub fn rng_state(&self) -> (u64, u64) {
        let random = self.lock().random;
        (random.seed, random.offset)
    }

    /// Puts seed and counter back.
    pub fn set_rng_state(&self, seed: u64, offset: u64) {
        self.lock().set_random(seed, offset);
    }

    /// What the last evaluation planned and what it took.
    pub fn last_step(&self) -> StepReport {
        self.lock().record.last.clone()
    }

    /// What all evaluations took so far.
    pub fn totals(&self) -> Totals {
        self.lock().record.totals
    }

    /// What each operation did since the engine was built, and took: those that took longest first.
    pub fn profile(&self) -> Vec<OperationProfile> {
        self.lock().planning.clock.profile()
    }

    /// The most bytes that the process was to take since this was last asked: arenas and reserve. In a
    /// dry run, what it would have.
    pub fn take_peak_bytes(&self) -> u64 {
        let state = self.lock();
        let bytes = state.memory.reserved.bytes() + self.0.store.take_peak();
        self.stated(&state).with_tables(bytes)
    }

    /// Whether the engine only plans.
    pub fn is_dry_run(&self) -> bool {
        self.0.dry
    }

    /// Bytes that the process takes beside its arenas, with headroom: the printed reserve.
    pub fn reserve_bytes(&self) -> u64 {
        self.lock().memory.reserved.bytes()
    }

    /// Bytes mapped for state now.
    pub fn state_bytes(&self) -> u64 {
        self.0.store.state_bytes()
    }

    /// Bytes of the disk's file that belong to parameters, moments and gradients now.
    pub fn disk_bytes(&self) -> u64 {
        let disk = self.0.tiers.disk.as_ref();
        disk.map_or(0, |disk| disk.usage().bytes)
    }

    /// Bytes that each tier holds, and held at most.
    pub fn tiers(&self) -> TierUses {
        let (store, tiers) = (&self.0.store, &self.0.tiers);
        TierUses {
            device: TierUse {
                bytes: store.mapped_bytes(),
                most_bytes: store.most_bytes(),
                room_bytes: store.budget(),
            },
            host: tiers.host.as_ref().map(|host| host.usage()),
            disk: tiers.spill().map(|disk| disk.usage()),
        }
    }

    /// Bytes of memory that the arenas of kernels and state, and those of host memory, occupy now, as the
    /// system counts. For tests: takes milliseconds.
    ///
    /// # Errors
    /// Where the system does not tell.
    #[doc(hidden)]
    pub fn resident_bytes(&self) -> std::io::Result<(u64, u64)> {
        let sum = |arenas: &[&Arena]| arenas.iter().map(|arena| arena.resident_bytes()).sum();
        let device: std::io::Result<u64> = self.0.store.with_arenas(sum);
        let host = self.0.tiers.host.as_ref();
        let host = host.map_or(Ok(0), |host| host.with_arena(Arena::resident_bytes));
        Ok((device?, host?))
    }

    /// Declares the engine whole again after state was loaded into every cell.
    pub fn clear_poison(&self) {
        self.lock().poisoned = None;
    }

    /// Fails if an earlier step stopped halfway.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn check_poison(&self) -> Result<()> {
        match &self.lock().poisoned {
            Some(why) => Err(Error::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn drop_cell(&self, id: CellId) {
        self.0.dropped_cells.push(id);
    }

    /// An operand in a dtype: itself if it has that, else a node's result.
    pub(crate) fn in_dtype(
        &self,
        state: &mut State,
        operand: Operand,
        dtype: DType,
        site: &Site,
    ) -> Result<Operand> {
        if operand.spec.dtype == dtype {
            return Ok(operand);
        }
        let cast = Arc::new(Cast { dtype });
        Ok(self.apply(state, cast, &[operand], site)?[0].clone())
    }

    /// Adds a node to the pending graph; in eager mode runs it.
    pub(crate) fn apply(
        &self,
        state: &mut State,
        op: Arc<dyn Op>,
        inputs: &[Operand],
        site: &Site,
    ) -> Result<SmallVec<[Operand; 2]>> {
        if let Some(why) = &state.poisoned {
            return Err(Error::Poisoned(why.clone()));
        }
        let inputs = self.with_own_grads(state, op.as_ref(), inputs, site)?;
        let site = named_by_cell(&state.pending.graph, &inputs, site);
        let located = |source| located(source, &site);
        let graph = &mut state.pending.graph;
        let outputs = graph.add(op, &inputs, &site).map_err(located)?;
        let made = graph.nodes().last();
        let is_repeatable = made.is_some_and(|node| node.traits.effect.is_repeatable());
        if self.0.eager && is_repeatable && site.phase == Phase::Forward {
            let mut made = outputs.iter().filter_map(Operand::value);
            if made.any(|id| state.awaits_writes(id)) {
                self.evaluate_effects(state, None, site.location)?;
            }
            self.evaluate_now(state, site.location)?;
        }
        Ok(outputs)
    }

    /// The budget that forecasts talk of: the process's if that is bounded, else that of arenas.
    pub(crate) fn stated(&self, state: &State) -> Stated {
        self.0.limits.stated(state.memory.reserved.bytes())
    }

    /// The budget that a refusal talks of, and what it is of.
    pub(crate) fn refusing(&self, state: &State) -> (Stated, &'static str) {
        self.0.limits.refusing(state.memory.reserved.bytes())
    }
}

/// A node made outside any `scope` that reads a named cell is reported under the cell's module.
fn named_by_cell<'a>(graph: &Graph, inputs: &[Operand], site: &'a Site) -> Cow<'a, Site> {
    if !site.module.is_empty() {
        return Cow::Borrowed(site);
    }
    let mut names = inputs.iter().filter_map(|input| match input.source {
        Source::Cell(id, _) => graph.cell(id)?.name.rsplit_once('.'),
        Source::Value(_) => None,
    });
    match names.next() {
        Some((module, _)) => Cow::Owned(Site {
            module: module.into(),
            ..site.clone()
        }),
        None => Cow::Borrowed(site),
    }
}

pub(crate) fn what(category: Category) -> &'static str {
    match category {
        Category::Parameter => "a parameter",
        Category::Gradient => "a gradient",
        Category::OptimizerState => "optimizer state",
        Category::Input => "an input",
        Category::Activation => "a kept value",
        Category::Workspace => "a workspace",
        Category::Buffer => "a buffer",
    }
}
