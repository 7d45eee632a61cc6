//! The engine: what owns arenas, threads, plans and random numbers. A value, not a global.

use crate::cells::Cells;
use crate::clock::Clock;
use crate::disk::{DiskPlace, DiskRates, DiskSettings, DiskTier};
use crate::host::HostTier;
use crate::limits::{Limits, Stated};
use crate::optim::PIECE_BYTES;
use crate::plan_cache::PlanCache;
use crate::report::{StepReport, Totals};
use crate::state::State;
use crate::store::Store;
use crate::tensor::Tensor;
use crate::tiers::{Below, TierUse, TierUses, Tiers};
use crate::{Error, Rates, Result};
use highwater_graph::{Category, CellId, Graph, Op, Operand, Phase, Shape, Site, Source};
use highwater_memory::{Arena, Reserve};
use highwater_ops::{Device, Kernels, Pool};
use highwater_plan::{self as plan, Policy};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A training engine. Clones are the same engine. Tensors carry theirs; engines do not share
/// anything.
#[derive(Debug, Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) pool: Pool,
    pub(crate) kernels: Kernels,
    pub(crate) store: Arc<Store>,
    pub(crate) policy: Policy,
    pub(crate) eager: bool,
    pub(crate) verify: bool,
    pub(crate) on_plan: Option<OnPlan>,
    pub(crate) dry: bool,
    /// Where cells may be below memory.
    pub(crate) tiers: Tiers,
    /// About how many points the curve of a forecast has for each plan.
    pub(crate) prices: usize,
    /// Bytes of a moment in one piece at most.
    pub(crate) piece_bytes: u64,
    limits: Limits,
    state: Mutex<State>,
    /// Cells whose last handle was dropped; taken up at the next lock, when no graph reads them.
    dropped_cells: Mutex<Vec<CellId>>,
}

/// Looks at a plan, and at the problem that it solves.
pub type OnPlan = fn(&plan::Problem, &plan::Plan);

/// How an engine is made. Every setting has a default.
#[derive(Debug)]
#[must_use = "a builder does nothing until build() is called"]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Builder {
    limits: Limits,
    reserve: Option<u64>,
    host_rates: Option<(f64, f64)>,
    threads: Option<usize>,
    policy: Policy,
    rates: Rates,
    correct_times: bool,
    prices: usize,
    piece_bytes: u64,
    cache: PlanCache,
    kernels: Kernels,
    eager: bool,
    verify: bool,
    on_plan: Option<OnPlan>,
    dry: bool,
    disk: Option<DiskSettings>,
    disk_rates: DiskRates,
    disk_writes: bool,
    seed: u64,
}

/// Process memory that the reserve leaves free above what was measured at start, in bytes: for the
/// heap's growth while graphs are built and for buffers of libraries that are touched late.
const RESERVE_HEADROOM_BYTES: u64 = 8 << 20;

/// What the heap takes for each node of a graph, its plan and those remembered, and what of that the
/// headroom has room for, in bytes. A sum of the number of nodes alone: the same program must come to
/// the same floor each time.
const RESERVE_NODE_BYTES: u64 = 6 << 10;
/// The same where values may be moved: decisions are kept at several prices of moving them.
const RESERVE_MOVED_NODE_BYTES: u64 = 12 << 10;
const RESERVE_GRAPH_BYTES: u64 = 4 << 20;

/// What a small program takes by itself, in bytes. Less than this is not measured: the same program
/// must come to the same floor each time, whichever pages of its code it has touched.
const RESERVE_LEAST_BYTES: u64 = 16 << 20;

/// Address space of an arena at most. A process has 128 TiB of it, and may have several engines, of two
/// arenas each.
const CAPACITY_BYTES: u64 = 1 << 41;

impl Builder {
    /// The most bytes that the whole process may occupy: arenas plus the reserve measured at start.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.limits.memory = Some(bytes);
        self
    }

    /// The bytes that [`Builder::memory`] leaves for everything but arenas, instead of what is
    /// measured when the engine is built: what another engine of the same process measured, before
    /// it planned. Large graphs take more: 6 KiB for each node above about 680.
    pub fn reserve(mut self, bytes: u64) -> Self {
        self.reserve = Some(bytes);
        self
    }

    /// The most bytes that the arenas may occupy (state and plans together), whatever the rest of
    /// the process takes.
    pub fn arena(mut self, bytes: u64) -> Self {
        self.limits.arena = Some(bytes);
        self
    }

    /// The most bytes of the memory that kernels work in: state and plans. With [`Builder::host_memory`]
    /// that is apart from the rest of the machine's memory, though on a machine without a device both are
    /// memory of the process; [`Builder::memory`] bounds both together, with the reserve.
    pub fn device_memory(mut self, bytes: u64) -> Self {
        self.limits.device = Some(bytes);
        self
    }

    /// Lets parameters, moments, gradients and values of a step wait in host memory, at most so many bytes
    /// of it, as on the disk of [`Builder::disk`]; with both, the disk comes after it. What is computed
    /// stays the same, bit for bit. Kernels have what [`Builder::device_memory`] says, or what
    /// [`Builder::memory`] leaves.
    pub fn host_memory(mut self, bytes: u64) -> Self {
        self.limits.host = Some(bytes);
        self
    }

    /// What copies to and from host memory move, for predictions and choices between plans: bytes per
    /// second with nothing under way the other way, and with something. By default constants, so that
    /// plans are the same on every machine.
    pub fn host_rates(mut self, alone: f64, both_ways: f64) -> Self {
        self.host_rates = Some((alone, both_ways));
        self
    }

    /// Number of threads; by default as many as there are processors. Never changes a bit of the
    /// results.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Whether the planner may recompute.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The machine's rates, for predictions and choices between plans; by default constants, so that
    /// plans are the same on every machine. [`Rates::measure`] makes those of this machine.
    pub fn rates(mut self, rates: Rates) -> Self {
        self.rates = rates;
        self
    }

    /// Whether predicted times give way to measured ones, by default no: then plans depend on the
    /// graph, the rates and the budget alone. Where an evaluation keeps taking more than 15% more or
    /// less than predicted, it is planned again, at most a few times in a run and ever more seldom,
    /// with the times that its nodes were seen to take. What is computed stays the same, bit for bit,
    /// and a budget that fitted still fits.
    pub fn correct_times(mut self, correct: bool) -> Self {
        self.correct_times = correct;
        self
    }

    /// About how many points [`Forecast::curve`](crate::Forecast::curve) has for each plan of a step, by
    /// default 24; with 0 it is empty. Each takes packing a plan.
    pub fn prices(mut self, count: usize) -> Self {
        self.prices = count;
        self
    }

    /// The most bytes of an optimizer's moment in one piece, by default 32 MiB. A parameter of more
    /// than twice as many is updated some rows at a time, and the moments of those rows are tensors of
    /// their own, so that no update needs all of a large moment at once. No bit of the results depends
    /// on it, but the names of the moments do: a run goes on with what it was saved with.
    pub fn piece_bytes(mut self, bytes: u64) -> Self {
        self.piece_bytes = bytes;
        self
    }

    /// Starts with the decisions that another engine made for its plans: they do not depend on its
    /// budget. Saves the time of finding them for the same steps again.
    pub fn plans_of(mut self, engine: &Engine) -> Self {
        self.cache = engine.lock().cache.decided();
        self
    }

    /// Registers the kernel of an operation, of this crate or of another.
    pub fn kernel(mut self, op: &'static str, kernel: highwater_ops::KernelFn) -> Self {
        self.kernels.register(op, Device::Cpu, kernel);
        self
    }

    /// Seed of dropout and of weight initialisation.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether each plan is verified before it first runs (by default yes).
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Calls a function with each plan before it first runs: to print it, draw it, or check it.
    pub fn on_plan(mut self, look: OnPlan) -> Self {
        self.on_plan = Some(look);
        self
    }

    /// Plans and runs nothing: parameters and inputs take address space, no memory, their values
    /// are not filled in, and a step ends once it is planned. [`Engine::forecast`] tells the plan.
    pub fn dry_run(mut self) -> Self {
        self.dry = true;
        self
    }

    /// Lets parameters, moments, gradients and values of a step wait on disk where memory is short: in a
    /// file without a name in this folder, for which `bytes` are reserved when the engine is built. What
    /// is computed stays the same, bit for bit. The more memory there is, the less is moved.
    pub fn disk(mut self, folder: impl Into<PathBuf>, bytes: u64) -> Self {
        let place = DiskPlace::Folder(folder.into());
        self.disk = Some(DiskSettings { place, bytes });
        self
    }

    /// What the disk moves, for predictions and choices between plans; by default constants, so that
    /// plans are the same on every machine.
    pub fn disk_rates(mut self, rates: DiskRates) -> Self {
        self.disk_rates = rates;
        self
    }

    /// Keeps plans from writing to disk. Cells are still written there when they are made, loaded or
    /// moved out of memory, and read by every step that needs them.
    pub fn forbid_disk_writes(mut self) -> Self {
        self.disk_writes = false;
        self
    }

    /// As [`Builder::disk`], on a disk that tests script.
    #[doc(hidden)]
    pub fn disk_on(mut self, disk: Arc<dyn highwater_memory::spill::Disk>, bytes: u64) -> Self {
        let place = DiskPlace::Given(disk);
        self.disk = Some(DiskSettings { place, bytes });
        self
    }

    /// Builds the engine: starts its threads and measures what the process takes without arenas.
    ///
    /// # Errors
    /// [`Error::Build`] if threads or address space are refused, if the budget is below what the
    /// process takes already, or if the disk's folder cannot hold what was asked for.
    pub fn build(self) -> Result<Engine> {
        self.limits.check()?;
        let rates = self.host_rates.unwrap_or((1.0, 1.0));
        if ![rates.0, rates.1].iter().all(|&r| r.is_finite() && r > 0.0) {
            let message = "Builder::host_rates() takes bytes per second: numbers above 0";
            return Err(Error::Build(message.to_owned()));
        }
        highwater_memory::heap::map_large_blocks();
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads.unwrap_or_else(available);
        let pool = Pool::new(threads).map_err(|error| Error::Build(error.to_string()))?;
        pool.run(|| highwater_ops::warm_up(&pool));
        let capacity = self.limits.capacity().clamp(1 << 20, CAPACITY_BYTES);
        // A dry run takes address space only, and says itself what does not fit.
        let capacity = if self.dry { CAPACITY_BYTES } else { capacity };
        // Transfers keep a processor busy that a kernel may want.
        let share = if available() > threads {
            0.0
        } else {
            1.0 / threads as f64
        };
        let disk = (self.disk_rates, share);
        let open = |settings| DiskTier::open(settings, disk, self.disk_writes, self.dry);
        let host = |bytes| HostTier::new(bytes, (self.host_rates, share));
        let tiers = Tiers {
            host: self.limits.host.map(host).transpose()?.map(Arc::new),
            disk: self.disk.map(open).transpose()?.map(Arc::new),
        };
        let budget = self.limits.budget(0);
        let store = Arc::new(Store::new(capacity, budget, tiers.any(), self.dry)?);
        let engine = Engine(Arc::new(Inner {
            pool,
            kernels: self.kernels,
            store,
            policy: self.policy,
            eager: self.eager,
            verify: self.verify,
            on_plan: self.on_plan,
            dry: self.dry,
            tiers: tiers.clone(),
            prices: self.prices,
            piece_bytes: self.piece_bytes,
            limits: self.limits,
            state: Mutex::new(State {
                seed: self.seed,
                clock: Clock::new(self.rates, self.correct_times),
                cache: self.cache,
                cells: Cells::new(tiers, self.dry),
                ..State::default()
            }),
            dropped_cells: Mutex::new(Vec::new()),
        }));
        let measured =
            || engine.measure_reserve().max(RESERVE_LEAST_BYTES) + RESERVE_HEADROOM_BYTES;
        let reserve = self.reserve.unwrap_or_else(measured);
        engine.set_reserve(&mut engine.lock(), reserve);
        // A dry run says itself what would fit.
        if !self.dry {
            self.limits.check_reserve(reserve)?;
        }
        Ok(engine)
    }
}

thread_local! {
    static DEFAULT: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

impl Engine {
    /// An engine to be configured.
    pub fn builder() -> Builder {
        Builder {
            limits: Limits::default(),
            reserve: None,
            host_rates: None,
            threads: None,
            policy: Policy::Auto,
            rates: Rates::default(),
            correct_times: false,
            prices: 24,
            piece_bytes: PIECE_BYTES,
            cache: PlanCache::default(),
            kernels: Kernels::builtin(),
            eager: false,
            verify: true,
            on_plan: None,
            dry: false,
            disk: None,
            disk_rates: DiskRates::default(),
            disk_writes: true,
            seed: 0,
        }
    }

    /// An engine to be configured that evaluates every operation at once, for debugging: the same
    /// bits, and every value is kept, so it takes more memory.
    pub fn eager() -> Builder {
        Builder {
            eager: true,
            ..Self::builder()
        }
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

    /// Fixes the random numbers of what follows: dropout masks and initial weights.
    pub fn manual_seed(&self, seed: u64) {
        let mut state = self.lock();
        (state.seed, state.random_offset) = (seed, 0);
    }

    /// Seed and counter of the random numbers, to be saved.
    pub fn rng_state(&self) -> (u64, u64) {
        let state = self.lock();
        (state.seed, state.random_offset)
    }

    /// Puts seed and counter back.
    pub fn set_rng_state(&self, seed: u64, offset: u64) {
        let mut state = self.lock();
        (state.seed, state.random_offset) = (seed, offset);
    }

    /// What the last evaluation planned and what it took.
    pub fn last_step(&self) -> StepReport {
        self.lock().last.clone()
    }

    /// What all evaluations took so far.
    pub fn totals(&self) -> Totals {
        self.lock().totals
    }

    /// The most bytes that the process was to take since this was last asked: arenas and reserve. In a
    /// dry run, what it would have.
    pub fn take_peak_bytes(&self) -> u64 {
        let reserve = self.lock().reserve_bytes;
        reserve + self.0.store.take_peak()
    }

    /// Whether the engine only plans.
    pub fn is_dry_run(&self) -> bool {
        self.0.dry
    }

    /// Bytes that the process takes beside its arenas, with headroom: the printed reserve.
    pub fn reserve_bytes(&self) -> u64 {
        self.lock().reserve_bytes
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
            disk: tiers.disk.as_ref().map(|disk| disk.usage()),
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

    /// The stream of what happens to memory, and its statistics.
    pub fn memory_events(&self) -> &highwater_memory::Events {
        &self.0.store.events
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

    /// A tensor of `f32`s, copied. Category: input.
    ///
    /// # Errors
    /// If the count is not the shape's; [`Error::State`] if there is no room.
    #[track_caller]
    pub fn tensor(&self, data: &[f32], shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_slice(self, data, shape)
    }

    /// A tensor of token ids, labels or other indices, copied. Category: input.
    ///
    /// # Errors
    /// As [`Engine::tensor`].
    #[track_caller]
    pub fn indices(&self, data: &[u32], shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_slice(self, data, shape)
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Locks the state. A thread that panicked while it held the lock was in the middle of building
    /// a graph, or poisoned the engine itself; either way the state can be looked at.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.graph.nodes().is_empty() {
            state.forget(&self.take_dropped());
        }
        state
    }

    fn take_dropped(&self) -> Vec<CellId> {
        let mut dropped = self
            .0
            .dropped_cells
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *dropped)
    }

    pub(crate) fn drop_cell(&self, id: CellId) {
        self.0
            .dropped_cells
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(id);
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
        let site = named_by_cell(&state.graph, inputs, site);
        let located = |source| located(source, &site);
        self.0
            .kernels
            .get(op.name(), Device::Cpu)
            .map_err(located)?;
        let effect = op.effect().is_repeatable();
        let outputs = state.graph.add(op, inputs, &site).map_err(located)?;
        if self.0.eager && effect && site.phase == Phase::Forward {
            self.evaluate_now(state)?;
        }
        Ok(outputs)
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
        state.reserve_bytes = bytes;
        if self.is_process_bounded() {
            self.0.store.set_budget(self.0.limits.budget(bytes));
        }
    }

    /// Sets the reserve to what a graph of so many nodes takes.
    pub(crate) fn reserve_for(&self, state: &mut State, nodes: usize) {
        let moves = self.0.tiers.disk.is_some() || self.0.tiers.host.is_some();
        let node = if moves {
            RESERVE_MOVED_NODE_BYTES
        } else {
            RESERVE_NODE_BYTES
        };
        let graph = (nodes as u64).saturating_mul(node);
        let graph = graph.saturating_sub(RESERVE_GRAPH_BYTES);
        if graph != state.reserve_graph_bytes {
            let without = state.reserve_bytes - state.reserve_graph_bytes;
            state.reserve_graph_bytes = graph;
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
        if usage.resident > state.reserve_bytes + self.0.store.mapped_bytes() + host {
            let measured = self.measure_reserve();
            if measured > state.reserve_bytes {
                self.set_reserve(state, measured + (RESERVE_HEADROOM_BYTES >> 2));
            }
        }
    }

    fn is_process_bounded(&self) -> bool {
        self.0.limits.memory.is_some()
    }

    /// The budget that forecasts talk of: the process's if that is bounded, else that of arenas.
    pub(crate) fn stated(&self, state: &State) -> Stated {
        self.0.limits.stated(state.reserve_bytes)
    }

    /// The budget that a refusal talks of, and what it is of.
    pub(crate) fn refusing(&self, state: &State) -> (Stated, &'static str) {
        self.0.limits.refusing(state.reserve_bytes)
    }
}

/// A node made outside any `scope` that reads a named cell is reported under the cell's module.
fn named_by_cell(graph: &Graph, inputs: &[Operand], site: &Site) -> Site {
    let mut site = site.clone();
    if site.module.is_empty() {
        let name = inputs.iter().find_map(|input| match input.source {
            Source::Cell(id, _) => graph
                .cell(id)?
                .name
                .rsplit_once('.')
                .map(|(module, _)| module),
            Source::Value(_) => None,
        });
        if let Some(name) = name {
            site.module = name.into();
        }
    }
    site
}

pub(crate) fn located(source: highwater_graph::OpError, site: &Site) -> Error {
    Error::Op {
        source: Box::new(source),
        module: site.module.to_string(),
        location: site.location.to_string(),
    }
}

pub(crate) fn usage_error(message: impl Into<String>, location: &Location<'_>) -> Error {
    Error::Usage {
        message: message.into(),
        location: location.to_string(),
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
