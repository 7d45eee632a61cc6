//! Saving and resuming while tensors are on disk, with a fault at each call of either file system: the
//! same bits or a typed error, nothing half-saved, and the last saved state to go on from.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test says what went wrong by stopping there"
)]

#[path = "../../highwater/tests/it/tiers/disks.rs"]
#[expect(dead_code, reason = "what a disk can lose is for other tests")]
mod disks;
#[path = "../../highwater/tests/it/tiers/within.rs"]
mod within;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use disks::{Script, Scripted};
use highwater::{Builder, Engine};
use highwater_cli::args::Settings;
use highwater_cli::config::RunConfig;
use highwater_cli::data::RunData;
use highwater_cli::error::Failure;
use highwater_cli::model::Blueprint;
use highwater_cli::run::saved_state;
use highwater_cli::run::{Metrics, Record};
use highwater_cli::session::Session;
use highwater_cli::settings::resolve::{self, Resolved};
use highwater_memory::files::{Fault, FaultKind, MemoryFiles, ScriptedFiles};
use highwater_memory::saved::latest_complete;
use highwater_memory::{DiskFiles, Files};
use highwater_models::{Gpt2Config, Order};
use within::within;

const STEPS: u64 = 2;
const DISK: u64 = 64 << 20;
const STATES: &str = "/run/checkpoints";
const METRICS: &str = "/run/metrics.jsonl";
/// The code of files that cannot be read or written.
const FILES: u8 = 4;

/// A small run whose tensors do not all fit into memory.
struct Trial {
    config: RunConfig,
    model: Blueprint,
    data: RunData,
    /// About the least arena that does with a disk, also to resume, in bytes.
    budget: u64,
    /// Whose plans others start with.
    like: Option<Engine>,
}

impl Trial {
    fn new() -> Self {
        let args = Settings {
            batch: Some(1),
            seq: Some(16),
            threads: Some(1),
            steps: Some(STEPS),
            dropout: Some(0.1),
            clip: Some(1.0),
            order: Some(Order::Shuffled),
            ..Settings::default()
        };
        let Resolved { config, .. } = resolve::run(&DiskFiles, &args).unwrap();
        let model = Gpt2Config {
            n_layer: 1,
            n_embd: 64,
            n_head: 2,
            ..Gpt2Config::preset("gpt2-nano").unwrap()
        };
        let model = Blueprint::Text(Arc::new(model.with_dropout(config.model.dropout)));
        let files: Arc<dyn Files> = Arc::new(MemoryFiles::new());
        let data = RunData::open(&files, &config, &model, Path::new("none")).unwrap();
        let mut trial = Self {
            config,
            model,
            data,
            budget: 0,
            like: None,
        };
        let engine = loop {
            trial.budget += 128 << 10;
            match trial.undisturbed() {
                Ok((engine, ..)) => break engine,
                Err(failure) => assert!(trial.budget < 64 << 20, "{failure}"),
            }
        };
        assert!(engine.totals().io.bytes_read > 0, "all of it fits");
        trial.like = Some(engine);
        trial
    }

    /// Begins the run, or goes on with it, to its end; saves after each step, and notes in `done` which was
    /// saved last.
    fn live(
        &self,
        files: &dyn Files,
        disk: &Arc<Scripted>,
        done: &mut u64,
    ) -> Result<Engine, Failure> {
        let builder = Engine::builder().arena(self.budget).reserve(0);
        let builder = self.like.iter().fold(builder, Builder::plans_of);
        let builder = builder.disk_on(disk.clone(), DISK);
        let mut session = Session::on(builder, &self.config, &self.model)?;
        let counters = saved_state::load(files, Path::new(STATES), &mut session)?;
        let mut batches = self.data.batches(&self.config)?;
        let mut first = 1;
        if let Some(counters) = counters {
            batches.seek(counters.cursor)?;
            first = counters.step + 1;
        }
        let mut metrics = Metrics::open(files, Path::new(METRICS), first - 1)?;
        for step in first..=STEPS {
            let result = session.step(step, [batches.next_batch()], None)?;
            metrics.write(&Record {
                step,
                loss: result.loss,
                grad_norm: Some(result.grad_norm),
                ..Record::default()
            })?;
            metrics.sync()?;
            let cursor = batches.cursor();
            saved_state::save(files, Path::new(STATES), &session, step, cursor)?;
            *done = step;
        }
        Ok(session.engine)
    }

    /// What a fault must not change: one run that meets it, and goes on without it if it failed. `start` is
    /// what was there before. Answers whether it failed.
    fn try_with(
        &self,
        what: &dyn Debug,
        start: &MemoryFiles,
        fault: Option<Fault>,
        script: Option<Script>,
        expected: &[Vec<u8>],
    ) -> bool {
        let memory = start.copy();
        let files = ScriptedFiles::new(Arc::new(memory.clone()), fault);
        let disk = Arc::new(Scripted::new(DISK, script));
        let mut done = saved(&memory);
        let lived = self.live(&files, &disk, &mut done);
        assert!(saved(&memory) >= done, "{what:?}: step {done} is lost");
        let failed = lived.is_err();
        if let Err(failure) = lived {
            assert_eq!(failure.code(), FILES, "{what:?}: {failure}");
            self.live(&memory, &sound(), &mut done).unwrap();
        }
        assert!(outcome(&memory) == expected, "{what:?}: other bits");
        failed
    }

    /// A run that is stopped after its first step and goes on: its engine, its files when it was stopped,
    /// and what it comes to, which is what it had come to before.
    fn undisturbed(&self) -> Result<(Engine, MemoryFiles, Vec<Vec<u8>>), Failure> {
        let files = folder();
        self.live(&files, &sound(), &mut 0)?;
        let expected = outcome(&files);
        let newest = Path::new(STATES).join(format!("step-{STEPS:06}"));
        files.remove_dir_all(&newest)?;
        let stopped = files.copy();
        let engine = self.live(&files, &sound(), &mut 0)?;
        assert!(outcome(&files) == expected, "stopped and resumed");
        Ok((engine, stopped, expected))
    }
}

/// Files with the folder of a run in them.
fn folder() -> MemoryFiles {
    let files = MemoryFiles::new();
    files.create_dir_all(Path::new("/run")).unwrap();
    files
}

fn sound() -> Arc<Scripted> {
    Arc::new(Scripted::new(DISK, None))
}

/// The newest saved state; all that is called one is whole.
fn saved(files: &MemoryFiles) -> u64 {
    if files.metadata(Path::new(STATES)).unwrap().is_none() {
        return 0;
    }
    let found = latest_complete(files, Path::new(STATES)).unwrap();
    assert!(found.skipped.is_empty(), "{:?}", found.skipped);
    found.saved.map_or(0, |saved| saved.number())
}

/// The files of the last state, and the metrics.
fn outcome(files: &MemoryFiles) -> Vec<Vec<u8>> {
    let state = format!("{STATES}/step-{STEPS:06}");
    let entries = files.list_dir(Path::new(&state)).unwrap().into_iter();
    let paths = entries.map(|entry| format!("{state}/{}", entry.name));
    let read = |path: String| {
        let mut file = files.open(Path::new(&path)).unwrap();
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_exact_at(0, &mut bytes).unwrap();
        bytes
    };
    paths.chain([METRICS.to_owned()]).map(read).collect()
}

/// Faults at each call of the run's files: while it saves for the first time, and while it resumes and saves.
fn files_fail() {
    let trial = Trial::new();
    let (_, stopped, expected) = trial.undisturbed().unwrap();
    let kinds = [
        FaultKind::InputOutput,
        FaultKind::DiskFull,
        FaultKind::Interruption,
        FaultKind::NotNow,
        FaultKind::Short,
    ];
    for start in [folder(), stopped] {
        let files = ScriptedFiles::new(Arc::new(start.copy()), None);
        trial.live(&files, &sound(), &mut 0).unwrap();
        let calls = files.calls().len();
        let (mut trials, mut failures) = (0, 0);
        for at in 0..calls {
            for (kind, persistent) in kinds.iter().flat_map(|&k| [(k, false), (k, true)]) {
                let at = at as u64;
                let fault = Fault {
                    at,
                    persistent,
                    kind,
                };
                let failed = trial.try_with(&fault, &start, Some(fault), None, &expected);
                assert!(!failed || kind != FaultKind::Short, "{fault:?}");
                let passes = kind == FaultKind::Interruption && !persistent;
                assert!(!failed || !passes, "{fault:?}");
                (trials, failures) = (trials + 1, failures + usize::from(failed));
            }
        }
        println!("files: {trials} trials at {calls} calls, {failures} failed");
        assert!(failures > trials / 4);
    }
}

/// The same with faults of the disk that tensors are on, while a run resumes and saves.
fn the_disk_fails() {
    let trial = Trial::new();
    let (_, stopped, expected) = trial.undisturbed().unwrap();
    let disk = sound();
    trial.live(&stopped.copy(), &disk, &mut 0).unwrap();
    let calls = disk.calls();
    let (mut trials, mut failures) = (0, 0);
    for at in 0..calls {
        for fault in disks::Fault::ALL {
            for for_good in [false, true] {
                let script = Script::Fault {
                    at,
                    fault,
                    for_good,
                };
                let failed = trial.try_with(&script, &stopped, None, Some(script), &expected);
                assert!(!failed || for_good || fault.is_final(), "{script:?}");
                (trials, failures) = (trials + 1, failures + usize::from(failed));
            }
        }
    }
    println!("disk: {trials} trials at {calls} calls, {failures} failed");
    assert!(failures > trials / 4);
}

#[test]
fn a_fault_while_saving_or_resuming_loses_nothing() {
    within(15, files_fail);
}

#[test]
fn a_fault_of_the_disk_while_saving_or_resuming_loses_nothing() {
    within(15, the_disk_fails);
}
