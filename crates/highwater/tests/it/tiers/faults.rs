//! Calls of the disk that fail, each of them: the same bits, or a typed error from which saved state heals.

use super::disks::{Fault, Script, Scripted};
use super::each::each;
use super::within::within;
use super::{DISK, WIDTHS, floor, make, sound};
use crate::models::Layers;
use crate::models::Model;
use crate::share::{one_of, some};
use crate::train::{PLAIN, Trace, assert_same_bits, train};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Builder, Engine, Error, Parameter, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An engine that takes little time to start: many of them are needed.
fn builder(disk: &Arc<Scripted>, budget: u64, like: Option<&Engine>) -> Builder {
    let builder = Engine::builder().arena(budget).reserve(0).threads(1);
    let builder = like.into_iter().fold(builder, Builder::plans_of);
    builder.disk_on(disk.clone(), DISK).seed(11)
}

/// Trains on a disk, with the plans of another engine.
pub(super) fn on(
    disk: &Arc<Scripted>,
    budget: u64,
    like: Option<&Engine>,
) -> Result<(Engine, Trace)> {
    let engine = builder(disk, budget, like).build()?;
    let trace = train(&*make(&engine)?, &engine, PLAIN)?;
    Ok((engine, trace))
}

/// The ways in which a call may fail: each fault, once and for good.
const WAYS: usize = 2 * Fault::ALL.len();

/// Every call fails in so many ways, which take turns from call to call.
fn scripts(calls: std::ops::Range<usize>, ways: usize) -> impl Iterator<Item = Script> {
    let script = |at: usize, way: usize| Script::Fault {
        at,
        fault: Fault::ALL[way / 2],
        for_good: way % 2 == 1,
    };
    calls.flat_map(move |at| (at..at + ways).map(move |way| script(at, way % WAYS)))
}

fn no_number_is_wrong(ways: usize) {
    let budget = floor(PLAIN);
    let disk = sound();
    let (planned, expected) = on(&disk, budget, None).unwrap();
    let calls = disk.calls();
    let trials = AtomicUsize::new(0);
    each(some(scripts(0..calls, ways)), |script| {
        let what = format!("{script:?} of {calls}");
        let disk = Arc::new(Scripted::new(DISK, Some(script)));
        let Script::Fault {
            fault, for_good, ..
        } = script
        else {
            unreachable!("faults alone")
        };
        match on(&disk, budget, Some(&planned)) {
            Ok((_, trace)) => {
                assert_same_bits(&what, &trace, &expected);
                assert!(!fault.is_final(), "{what}");
            }
            Err(Error::Disk { .. }) => assert!(fault.is_final() || for_good, "{what}"),
            Err(other) => panic!("{what}: {other}"),
        }
        trials.fetch_add(1, Ordering::Relaxed);
    });
    println!("{trials:?} trials, {calls} calls");
}

#[test]
fn whatever_the_disk_does_no_number_is_wrong() {
    within(5 * one_of() as u64, || no_number_is_wrong(1));
}

#[test]
#[ignore = "in full: minutes"]
fn in_full_whatever_the_disk_does_no_number_is_wrong() {
    within(240, || no_number_is_wrong(WAYS));
}

/// A run of two steps.
struct Run {
    engine: Engine,
    model: Layers,
    adamw: AdamW,
}

impl Run {
    fn new(disk: &Arc<Scripted>, budget: u64, like: Option<&Engine>) -> Self {
        let engine = builder(disk, budget, like).build().unwrap();
        let model = Layers::new(&engine, &WIDTHS).unwrap();
        let adamw = AdamW::new(model.sets().remove(0), AdamWOptions::default()).unwrap();
        Self {
            engine,
            model,
            adamw,
        }
    }

    fn step(&mut self, index: u64) -> Result<()> {
        let loss = self.model.loss(index, 2);
        loss.and_then(|loss| loss.backward())?;
        self.adamw.step().map(drop)
    }

    fn cells(&self) -> Vec<Parameter> {
        let moments = self.adamw.state_dict().into_iter();
        let parameters = self.model.sets().remove(0).into_iter();
        parameters
            .chain(moments.map(|(_, moment)| moment))
            .collect()
    }

    fn save(&self) -> Result<Vec<Vec<u8>>> {
        let cells = self.cells();
        let bytes = |cell: &Parameter| cell.with_bytes(<[u8]>::to_vec);
        cells.iter().map(bytes).collect()
    }

    /// As after one step.
    fn load(&mut self, saved: &[Vec<u8>]) {
        for (cell, bytes) in self.cells().iter().zip(saved) {
            cell.with_bytes_mut(|own| own.copy_from_slice(bytes))
                .unwrap();
        }
        self.engine.clear_poison();
        self.adamw.set_steps(1).unwrap();
    }
}

/// Two steps; what fails in the second is loaded from what was saved after the first and taken again, on
/// another disk if that one fails for good. Answers the state, and whether something failed.
fn healed(script: Script, budget: u64, like: &Engine) -> (Vec<Vec<u8>>, bool) {
    let disk = Arc::new(Scripted::new(DISK, Some(script)));
    let mut run = Run::new(&disk, budget, Some(like));
    run.step(0).unwrap();
    let saved = run.save().unwrap();
    match run.step(1).and_then(|()| run.save()) {
        Ok(state) => return (state, false),
        Err(Error::Disk { .. }) => {}
        Err(other) => panic!("{script:?}: {other}"),
    }
    if matches!(script, Script::Fault { for_good: true, .. }) {
        run = Run::new(&sound(), budget, Some(like));
    }
    run.load(&saved);
    run.step(1).unwrap();
    (run.save().unwrap(), true)
}

fn saved_state_heals() {
    let budget = floor(PLAIN);
    let disk = sound();
    let mut run = Run::new(&disk, budget, None);
    run.step(0).unwrap();
    run.save().unwrap();
    let first = disk.calls();
    run.step(1).unwrap();
    let expected = run.save().unwrap();
    let calls = first..disk.calls();
    let failures = AtomicUsize::new(0);
    each(some(scripts(calls.clone(), WAYS)), |script| {
        let (state, failed) = healed(script, budget, &run.engine);
        assert!(state == expected, "{script:?} of {calls:?}");
        failures.fetch_add(usize::from(failed), Ordering::Relaxed);
    });
    let failures = failures.into_inner();
    assert!(failures > 0);
    println!("{failures} failures that healed, calls {calls:?}");
}

#[test]
fn saved_state_heals_what_a_disk_lost() {
    within(15 * one_of() as u64, saved_state_heals);
}
