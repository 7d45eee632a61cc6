//! A disk that does not hold what was written to it: noticed and named, never trained on.

use super::disks::{Loss, Script, Scripted};
use super::each::each;
use super::faults::on;
use super::within::within;
use super::{DISK, floor, make, sound};
use crate::models::Random;
use crate::share::{one_of, some};
use crate::train::{PLAIN, assert_same_bits, train};
use highwater::memory::spill::SpillError;
use highwater::{Engine, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn flipped_bits_are_named_and_poison_nothing_that_is_whole() {
    let disk = sound();
    let builder = Engine::builder()
        .arena(floor(PLAIN))
        .disk_on(disk.clone(), DISK);
    let engine = builder.seed(11).build().unwrap();
    let model = make(&engine).unwrap();
    train(&*model, &engine, PLAIN).unwrap();
    disk.flip_everywhere();
    let mut named = 0;
    for parameter in &model.sets()[0] {
        match parameter.with_bytes(|_| ()) {
            Ok(()) => {}
            Err(error @ Error::Disk { .. }) => {
                assert!(error.to_string().contains(&parameter.name()), "{error}");
                named += 1;
                // All of it can be replaced.
                let zeros = vec![0.0; parameter.shape().numel()];
                parameter.copy_from_slice(&zeros).unwrap();
                assert_eq!(parameter.to_vec::<f32>().unwrap(), zeros);
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(named > 0);
}

/// Losses at random calls of a training run: so many flipped bits, and a tenth as many of each other kind.
fn never_trained_on(flips: u64) {
    let budget = floor(PLAIN);
    let disk = sound();
    let (planned, expected) = on(&disk, budget, None).unwrap();
    let calls = disk.calls();
    for loss in Loss::ALL {
        let trials = if loss == Loss::Flip {
            flips
        } else {
            flips / 10
        };
        let found = AtomicU64::new(0);
        each(some(0..trials), |seed| {
            let at = Random(seed).below(calls);
            let script = Script::Loss { at, loss, seed };
            let disk = Arc::new(Scripted::new(DISK, Some(script)));
            match on(&disk, budget, Some(&planned)) {
                // It was written anew, or never read again.
                Ok((_, trace)) => assert_same_bits(&format!("{script:?}"), &trace, &expected),
                Err(error @ Error::Disk { .. }) => {
                    assert_named(script, &error);
                    found.fetch_add(1, Ordering::Relaxed);
                }
                Err(other) => panic!("{script:?}: {other}"),
            }
        });
        let (found, trials) = (found.into_inner(), trials.div_ceil(one_of() as u64));
        println!("{loss:?}: {trials} times, {found} mattered and were named");
        assert!(found >= trials / 10, "{loss:?}: {found} of {trials}");
    }
}

/// That an error says whose bytes are not what they were.
fn assert_named(script: Script, error: &Error) {
    let Error::Disk { what, source } = error else {
        panic!("{script:?}: {error}")
    };
    assert!(!what.is_empty(), "{script:?}: {error}");
    let at_the_end = matches!(source, SpillError::Transfer { source, .. }
        if source.kind() == std::io::ErrorKind::UnexpectedEof);
    let cut = matches!(script, Script::Loss { loss, .. } if loss == Loss::Cut);
    let damaged = matches!(source, SpillError::Damaged { .. });
    assert!(damaged || cut && at_the_end, "{script:?}: {error}");
}

#[test]
fn what_a_disk_lost_is_never_trained_on() {
    within(5 * one_of() as u64, || never_trained_on(50));
}

#[test]
#[ignore = "in full: minutes"]
fn in_full_what_a_disk_lost_is_never_trained_on() {
    within(240, || never_trained_on(10_000));
}
