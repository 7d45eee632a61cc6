//! A system that refuses memory or threads, at each call in turn: a typed error or the same numbers, and
//! weights that are those of before or after the step.

use crate::models::{Layers, Model};
use crate::tiers::disks::Scripted;
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Builder, Engine, Error, Parameter, Result};
use highwater_memory::ScriptedSystem;
use std::sync::Arc;

const STEPS: u64 = 3;

/// The bits of all weights.
type Bits = Vec<Vec<u32>>;

fn bits(parameters: &[Parameter]) -> Result<Bits> {
    let weights = parameters.iter().map(|p| p.to_vec::<f32>());
    let bits = weights.map(|w| Ok(w?.into_iter().map(f32::to_bits).collect()));
    bits.collect()
}

/// Trains; answers the weights after each step, and what stopped it.
fn train(builder: Builder) -> (Vec<Bits>, Result<()>) {
    match builder.seed(3).build() {
        Ok(engine) => train_on(&engine),
        Err(error) => (Vec::new(), Err(error)),
    }
}

fn train_on(engine: &Engine) -> (Vec<Bits>, Result<()>) {
    let mut after = Vec::new();
    let mut all = || {
        let model = Layers::new(engine, &[160; 5])?;
        let parameters = model.sets().concat();
        let mut adamw = AdamW::new(parameters.clone(), AdamWOptions::default())?;
        after.push(bits(&parameters)?);
        for step in 0..STEPS {
            let stepped = model.loss(step, 3).and_then(|loss| {
                loss.backward()?;
                adamw.step().map(drop)
            });
            if stepped.is_err() && engine.check_poison().is_err() {
                return stepped;
            }
            after.push(bits(&parameters)?);
            stepped?;
        }
        Ok(())
    };
    let ended = all();
    (after, ended)
}

fn is_typed(error: &Error) -> bool {
    matches!(
        error,
        Error::Arena(_)
            | Error::Build(_)
            | Error::State { .. }
            | Error::HostFull { .. }
            | Error::Disk { .. }
            | Error::OverBudget { .. }
    )
}

/// Refuses each call in turn; answers how many there were.
fn rehearse(builder: &dyn Fn() -> Builder) -> u64 {
    let counting = ScriptedSystem::counting();
    let first = builder().system(Arc::new(counting.clone())).seed(3);
    let first = first.build().unwrap();
    let (expected, ended) = train_on(&first);
    ended.unwrap();
    let calls = counting.calls();
    for call in 0..calls {
        for persistent in [false, true] {
            let system = ScriptedSystem::refusing(call, persistent);
            // The plans are the same, so that they need not be made again.
            let builder = builder().plans_of(&first).system(Arc::new(system));
            let (after, ended) = train(builder);
            let what = format!("call {call} of {calls}, {persistent}: {ended:?}");
            match &ended {
                Ok(()) => assert_eq!(after, expected, "{what}"),
                Err(error) => {
                    assert!(is_typed(error), "{what}");
                    for (step, bits) in after.iter().enumerate() {
                        // The last are those of the step that was stopped, which changed nothing.
                        let before = step.checked_sub(1).map(|before| &expected[before]);
                        let last = step + 1 == after.len();
                        let sound = bits == &expected[step] || last && before == Some(bits);
                        assert!(sound, "{what}, step {step}");
                    }
                }
            }
        }
    }
    calls
}

#[test]
fn every_call_may_be_refused() {
    let calls = rehearse(&|| Engine::builder().threads(2));
    assert!(calls > 10, "{calls}");
}

#[test]
fn every_call_may_be_refused_with_a_disk() {
    let disk = || Arc::new(Scripted::new(64 << 20, None));
    let budget = 600 << 10;
    let calls = rehearse(&|| {
        let builder = Engine::builder().threads(1).arena(budget);
        builder.disk_on(disk(), 64 << 20)
    });
    assert!(calls > 20, "{calls}");
}

#[test]
fn every_call_may_be_refused_with_host_memory() {
    let calls = rehearse(&|| {
        let builder = Engine::builder().threads(1).device_memory(600 << 10);
        builder.host_memory(8 << 20)
    });
    assert!(calls > 20, "{calls}");
}

/// With `ulimit -v` less is reserved, or the engine is refused and says so; nothing aborts.
#[cfg(target_os = "linux")]
#[test]
fn address_space_may_be_short() {
    let mut ends = Vec::new();
    for mib in [160, 200, 256, 320, 448, 700, 1400, 6000] {
        let script = format!("ulimit -v {} && exec \"$0\" \"$@\"", mib << 10);
        let child = std::process::Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "refusals::in_short_address_space"])
            .args(["--ignored", "--nocapture", "--test-threads=1"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout).into_owned();
        let failed = String::from_utf8_lossy(&child.stderr).into_owned();
        assert!(child.status.success(), "{mib} MiB: {said}{failed}");
        let refused = said.matches("refused").count();
        assert_eq!(refused + said.matches("trained").count(), 3, "{said}");
        ends.push(refused);
    }
    assert!(ends[0] > 0, "{ends:?}");
    assert!(ends.is_sorted_by(|a, b| a >= b), "{ends:?}");
    assert_eq!(ends.last(), Some(&0), "{ends:?}");
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "a process of its own, started by the test above"]
fn in_short_address_space() {
    let folder = tempfile::tempdir().unwrap();
    let memory = 64 << 20;
    let plain = || Engine::builder().threads(1);
    for builder in [
        plain(),
        plain().memory(memory),
        plain()
            .memory(memory)
            .host_memory(8 << 20)
            .disk(folder.path(), 16 << 20),
    ] {
        match train(builder).1 {
            Ok(()) => println!("trained"),
            Err(error @ Error::Build(_)) if error.to_string().contains("ulimit -v") => {
                println!("refused: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
