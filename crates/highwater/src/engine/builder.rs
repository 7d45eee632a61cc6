//! How an engine is made.

use crate::engine::recordings::{Random, Recordings};
use crate::engine::state::Planning;
use crate::engine::state::State;
use crate::engine::{Engine, Inner, OnPlan};
use crate::pending::Pending;
use crate::pending::function;
use crate::pending::handle::Dropped;
use crate::problem::clock::Clock;
use crate::problem::plan_cache::PlanCache;
use crate::report::told::Told;
use crate::store::Store;
use crate::store::addresses::Addresses;
use crate::store::cells::CellStore;
use crate::store::disk::{DiskRates, DiskSettings, DiskTier, SpillTarget};
use crate::store::host::HostTier;
use crate::store::limits::Limits;
use crate::store::memory::Memory;
use crate::store::tiers::Tiers;
use crate::{Error, Rates, Result};
use highwater_graph::Graph;
use highwater_memory::{Bytes, HostSystem, System};
use highwater_ops::{DTypes, Device, Entry, Kernel, Kernels, Pool, PoolError};
use highwater_plan::Policy;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

/// Bytes of a piece of a moment at most, unless one row takes more.
pub(crate) const PIECE_BYTES: u64 = 32 << 20;

/// How an engine is made. Every setting has a default.
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
    correct_plans: bool,
    prices: usize,
    piece_bytes: u64,
    guard_gradients: bool,
    cache: PlanCache<Told>,
    kernels: Arc<Kernels>,
    fuses: bool,
    pub(crate) eager: bool,
    on_plan: Option<OnPlan>,
    dry: bool,
    disk: Option<DiskSettings>,
    disk_rates: DiskRates,
    disk_writes: bool,
    files: bool,
    seed: u64,
    system: Arc<dyn System>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("threads", &self.threads)
            .field("policy", &self.policy)
            .field("limits", &self.limits)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Threads of an engine at most: more have never helped, and each takes memory.
const MOST_THREADS: usize = 1024;

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            limits: Limits::default(),
            reserve: None,
            host_rates: None,
            threads: None,
            policy: Policy::Auto,
            rates: Rates::default(),
            correct_times: false,
            correct_plans: true,
            prices: 24,
            piece_bytes: PIECE_BYTES,
            guard_gradients: true,
            cache: PlanCache::default(),
            kernels: Arc::new(kernels()),
            fuses: true,
            eager: false,
            on_plan: None,
            dry: false,
            disk: None,
            disk_rates: DiskRates::default(),
            disk_writes: true,
            files: false,
            seed: 0,
            system: Arc::new(HostSystem),
        }
    }

    /// The most bytes that the whole process may occupy: arenas, the reserve measured at start, and what the
    /// system takes for their tables of pages (one byte in 512 where a page is 4 KiB), which counts in a
    /// cgroup.
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
    /// and a budget that fitted still fits: for steps of several plans see [`Builder::correct_plans`].
    pub fn correct_times(mut self, correct: bool) -> Self {
        self.correct_times = correct;
        self
    }

    /// Whether plans follow corrected times, by default yes; otherwise predictions alone do. Where a step is
    /// of several plans (gradients that accumulate, values read early) and cells may wait below memory, each
    /// plan goes on where the one before left the cells: other plans may need more than those that a dry run
    /// tried. Close to the floor of such steps, say no.
    pub fn correct_plans(mut self, correct: bool) -> Self {
        self.correct_plans = correct;
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
    /// on it unless moments are held in bytes, whose blocks begin with each piece; the names of the moments
    /// do: a run goes on with what it was saved with.
    pub fn piece_bytes(mut self, bytes: u64) -> Self {
        self.piece_bytes = bytes;
        self
    }

    /// Whether, by default, updates wait until all gradients are known to be finite, where that costs no
    /// recomputation and no transfer: a step with one that is not stops before anything is written.
    /// Where it would, and without this, each update comes as soon as its gradient is there; gradients
    /// then need not be held beside each other, and one that is not finite may leave a step half done
    /// ([`Error::Poisoned`]).
    pub fn guard_gradients(mut self, guard: bool) -> Self {
        self.guard_gradients = guard;
        self
    }

    /// Starts with the plans of another engine, and the decisions behind them, which do not depend on its
    /// budget. Saves the time of finding them for the same steps again.
    pub fn plans_of(mut self, engine: &Engine) -> Self {
        self.cache = engine.lock().planning.cache.inherited();
        self
    }

    /// Starts with the searches of another engine for plans, if that one makes a [dry
    /// run](Builder::dry_run): the plans are those of an engine that starts with nothing, in less time.
    pub fn searches_of(mut self, engine: &Engine) -> Self {
        self.cache = engine.lock().planning.cache.searches();
        self
    }

    /// Registers a kernel of an operation, of this crate or of another, for tensors of certain
    /// dtypes; in place of the one there was for those. Nodes that no kernel takes are refused when
    /// they are made.
    pub fn kernel(
        mut self,
        op: &'static str,
        dtypes: DTypes,
        kernel: impl Kernel + 'static,
    ) -> Self {
        Arc::make_mut(&mut self.kernels).register(op, Device::Cpu, dtypes, kernel);
        self
    }

    /// Registers all kernels of an operation's row in a table.
    pub fn operation(mut self, entry: &Entry) -> Self {
        Arc::make_mut(&mut self.kernels).add(entry);
        self
    }

    /// Whether pointwise operations one after the other run as one, by default yes, where that takes no more
    /// memory: what they hand on takes none then. Never changes a bit of the results, nor what fits: where a
    /// step does not, they run one by one from then on.
    pub fn fuse(mut self, fuse: bool) -> Self {
        self.fuses = fuse;
        self
    }

    /// Seed of dropout and of weight initialisation.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
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
        let place = SpillTarget::Folder(folder.into());
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

    /// Lets parameters that are parts of files ([`Parameter::read_from`](crate::Parameter::read_from)) be dropped
    /// where memory is short, and read again when they are needed: weights of a frozen model, from its own files,
    /// which are never written. Needs no [`Builder::disk`], and takes nothing of one. Not beside
    /// [`Builder::host_memory`] alone, where such parameters are held like others.
    pub fn files(mut self) -> Self {
        self.files = true;
        self
    }

    /// As [`Builder::disk`], on a disk that tests script.
    #[doc(hidden)]
    pub fn disk_on(mut self, disk: Arc<dyn highwater_memory::spill::Disk>, bytes: u64) -> Self {
        let place = SpillTarget::Given(disk);
        self.disk = Some(DiskSettings { place, bytes });
        self
    }

    /// The system that memory and threads are asked of; for tests, which have it refuse.
    #[doc(hidden)]
    pub fn system(mut self, system: Arc<dyn System>) -> Self {
        self.system = system;
        self
    }

    /// Starts the threads, with all that they need.
    fn start_threads(&self, threads: usize) -> Result<Pool> {
        let build = |text: String| Error::Build(text);
        if threads > MOST_THREADS {
            return Err(build(format!(
                "Builder::threads() takes at most {MOST_THREADS}, not {threads}"
            )));
        }
        let packing = highwater_ops::packing_bytes(threads);
        // A dry run asks what the least is, with any budget.
        let memory = self.limits.memory.filter(|_| !self.dry);
        if let Some(memory) = memory.filter(|&memory| packing >= memory) {
            return Err(build(format!(
                "the budget of {1} is too small: packing buffers of {threads} threads alone need {0}\n  hint: ask for \
                 fewer threads",
                Bytes(packing),
                Bytes(memory)
            )));
        }
        let refused = |error: PoolError| build(format!("{error}\n  hint: ask for fewer threads"));
        let pool = Pool::start(threads, &|thread, work| {
            self.system.admit_thread()?;
            thread.spawn(work)
        });
        let pool = pool.map_err(refused)?;
        highwater_ops::warm_up(&pool).map_err(refused)?;
        Ok(pool)
    }

    /// The most bytes that [`Builder::memory`] can be here: less than [`u64::MAX`] where the system bounds the addresses
    /// of the process (`ulimit -v`), and 0 where that leaves no room for any engine.
    pub fn most_memory(&self) -> u64 {
        let limits = Limits {
            host: self.limits.host,
            ..Limits::default()
        };
        let addresses = Addresses::of(&*self.system, &limits, self.has_files_and_tiers().1, true);
        addresses.map_or(0, |addresses| addresses.most_budget)
    }

    /// Whether cells may wait in files of weights, and whether there is host memory, a disk or such files.
    fn has_files_and_tiers(&self) -> (bool, bool) {
        let files = self.files && (self.disk.is_some() || self.limits.host.is_none());
        let tiers = self.limits.host.is_some() || self.disk.is_some() || files;
        (files, tiers)
    }

    fn check_rates(&self) -> Result<()> {
        let rates = self.host_rates.unwrap_or((1.0, 1.0));
        if ![rates.0, rates.1].iter().all(|&r| r.is_finite() && r > 0.0) {
            let message = "Builder::host_rates() takes bytes per second: numbers above 0";
            return Err(Error::Build(message.to_owned()));
        }
        if !self.disk_rates.are_sound() {
            let message = "Builder::disk_rates() takes bytes per second above 0, and processor seconds of at \
                           least 0";
            return Err(Error::Build(message.to_owned()));
        }
        Ok(())
    }

    /// The tiers below memory. `share` is what kernels lose of each second of a processor.
    fn tiers(&self, addresses: &Addresses, share: f64, files: bool) -> Result<Tiers> {
        let host = |bytes| {
            let rates = (self.host_rates, share);
            HostTier::new((&*self.system, addresses.host), bytes, rates)
        };
        let disk = (self.disk_rates, share);
        let open = |settings: &DiskSettings| {
            DiskTier::open(settings.clone(), disk, self.disk_writes, self.dry)
        };
        let opened = self.disk.as_ref().map(open).transpose()?;
        let of_files = || files.then(|| DiskTier::of_files(disk));
        Ok(Tiers {
            host: self.limits.host.map(host).transpose()?.map(Arc::new),
            disk: opened.or_else(of_files).map(Arc::new),
            files,
        })
    }

    /// Builds the engine: starts its threads and measures what the process takes without arenas.
    ///
    /// On Linux with glibc this changes two settings of `malloc` for the whole process, whoever else uses it
    /// (`mallopt(3)`): blocks of a mebibyte or more are mapped by themselves (`M_MMAP_THRESHOLD`), and all threads share
    /// one heap (`M_ARENA_MAX`). Freed memory goes back to the system then, where the budget counts on it. Many threads
    /// that allocate at once wait for each other.
    ///
    /// # Errors
    /// [`Error::Build`] if threads or address space are refused, if the budget is below what the
    /// process takes already, or if the disk's folder cannot hold what was asked for.
    pub fn build(self) -> Result<Engine> {
        self.limits.check()?;
        self.check_rates()?;
        highwater_memory::heap::keep_small();
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads.unwrap_or_else(available);
        let pool = self.start_threads(threads)?;
        // Transfers keep a processor busy that a kernel may want.
        let share = if available() > threads {
            0.0
        } else {
            1.0 / threads as f64
        };
        let system = &*self.system;
        let (files, tiers) = self.has_files_and_tiers();
        // A dry run takes address space only, and says itself what does not fit.
        let addresses = Addresses::of(system, &self.limits, tiers, self.dry)?;
        let tiers = self.tiers(&addresses, share, files)?;
        let budget = self.limits.budget(0);
        let mut planning = Planning {
            clock: Clock::new(self.rates, self.correct_times),
            cache: self.cache.keeping_searches(self.dry),
            fuses: self.fuses,
            ..Planning::default()
        };
        if !self.correct_plans {
            planning.keep_to_rates();
        }
        let store = Arc::new(Store::new(system, addresses, budget, self.dry)?);
        let engine = Engine(Arc::new(Inner {
            pool,
            system: Arc::clone(&self.system),
            kernels: Arc::clone(&self.kernels),
            store,
            policy: self.policy,
            eager: self.eager,
            on_plan: self.on_plan,
            dry: self.dry,
            tiers: tiers.clone(),
            prices: self.prices,
            piece_bytes: self.piece_bytes,
            guard_gradients: self.guard_gradients,
            limits: self.limits,
            state: Mutex::new(State {
                pending: Pending {
                    graph: Graph::on(self.kernels),
                    ..Pending::default()
                },
                random: Random {
                    seed: self.seed,
                    offset: 0,
                },
                recordings: Recordings::new(self.seed),
                memory: Memory {
                    cells: CellStore::new(tiers, self.dry),
                    ..Memory::default()
                },
                planning,
                ..State::default()
            }),
            given_back: Condvar::new(),
            dropped_cells: Dropped::default(),
        }));
        let reserve = self.reserve.unwrap_or_else(|| engine.first_reserve());
        let mut state = engine.lock();
        state.memory.reserved.at_first = reserve;
        engine.apply_reserve(&state);
        drop(state);
        // A dry run says itself what would fit.
        if !self.dry {
            self.limits.check_reserve(reserve)?;
        }
        Ok(engine)
    }
}

/// The operations of `highwater-ops`, and what functions of users pass through.
fn kernels() -> Kernels {
    let mut kernels = Kernels::builtin();
    function::register(&mut kernels);
    kernels
}
