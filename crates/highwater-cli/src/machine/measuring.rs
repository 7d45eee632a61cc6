//! Measuring this machine, until two measurements agree, and telling whether it was busy meanwhile.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use highwater::Rates;
use highwater::op::cpu;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Failure;

/// Measurements agree that differ by less than this factor.
const AGREE: f64 = 1.1;
/// So often it is measured at most.
const TRIES: usize = 4;
/// Nor is it measured again when that has taken so long: the machine is busy.
const LONGEST: Duration = Duration::from_secs(20);
/// A machine is busy that does this share of its time something else.
const BUSY: f64 = 0.15;

/// What was measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The least of all measurements.
    pub rates: Rates,
    /// Whether the machine did something else meanwhile, or measurements did not agree.
    pub busy: bool,
}

impl Measured {
    /// Measures, in a process of its own: what that takes of memory is all given back. Nothing where that is not
    /// possible.
    pub(super) fn measure_in_child(threads: usize, bytes: u64) -> Option<Self> {
        let measured: Self = measure_in_child(&[], threads, bytes)?;
        is_sound(&measured.rates).then_some(measured)
    }

    /// Measures, in this process.
    ///
    /// # Errors
    /// [`Failure`] of the engine.
    pub(crate) fn measure(threads: usize, bytes: u64) -> Result<Self, Failure> {
        settled(|| Ok(Rates::measure(threads, bytes)?))
    }
}

/// What `highwater measure` prints, in a process of its own.
pub(super) fn measure_in_child<T: DeserializeOwned>(
    flags: &[&str],
    threads: usize,
    bytes: u64,
) -> Option<T> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new(program)
        .arg("measure")
        .args(flags)
        .args(["--threads", &threads.to_string()])
        .args(["--bytes", &bytes.to_string(), "--cpu", cpu::level().name()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let json = output.status.success().then_some(&output.stdout)?;
    serde_json::from_slice(json).ok()
}

/// Measures until two measurements agree, so often at most.
fn settled(mut measure: impl FnMut() -> Result<Rates, Failure>) -> Result<Measured, Failure> {
    let (started, before) = (Instant::now(), Work::read());
    let mut last = measure()?;
    let mut rates = last.clone();
    let mut agree = false;
    for _ in 1..TRIES {
        if started.elapsed() > LONGEST {
            break;
        }
        let next = measure()?;
        rates = rates.least(&next);
        agree = last.apart(&next) <= AGREE;
        if agree {
            break;
        }
        last = next;
    }
    let elapsed = started.elapsed().as_secs_f64();
    let others = before.and_then(|before| Some(before.others_until(&Work::read()?, elapsed)));
    Ok(Measured {
        rates,
        busy: !agree || others.is_some_and(|share| share > BUSY),
    })
}

/// Seconds of processors so far.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Those of all processes.
    all: f64,
    /// Those of this one.
    own: f64,
    /// How many processors there are.
    processors: f64,
}

impl Work {
    /// None where the system does not tell.
    fn read() -> Option<Self> {
        /// Of `/proc/stat` and `/proc/self/stat`: hundredths of seconds wherever Linux runs.
        const TICK: f64 = 0.01;
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let own = std::fs::read_to_string("/proc/self/stat").ok()?;
        let numbers = |text: &str| -> Vec<f64> {
            let words = text.split_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let all = numbers(stat.lines().next()?.strip_prefix("cpu ")?);
        // user, nice, system, then idle and waiting, then interrupts and what other guests took.
        let busy = [0, 1, 2, 5, 6, 7].map(|field| all.get(field).copied().unwrap_or(0.0));
        // Behind the name, which may have spaces: the twelfth and thirteenth field.
        let own: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
        let own = [11, 12].map(|field| own.get(field)?.parse::<f64>().ok());
        let processors = stat
            .lines()
            .skip(1)
            .filter(|line| line.starts_with("cpu"))
            .count();
        Some(Self {
            all: TICK * busy.iter().sum::<f64>(),
            own: TICK * (own[0]? + own[1]?),
            processors: processors.max(1) as f64,
        })
    }

    /// The share of all processors that others had since then.
    fn others_until(&self, later: &Self, seconds: f64) -> f64 {
        let others = (later.all - self.all) - (later.own - self.own);
        (others / (seconds * self.processors)).max(0.0)
    }
}

/// What measuring may take of a budget, for tensors.
const MEASURE_SHARE: u64 = 4;

/// Whether rates are what this program would measure.
pub(crate) fn is_sound(rates: &Rates) -> bool {
    let constants = Rates {
        operations: std::collections::BTreeMap::new(),
        bf16: std::collections::BTreeMap::new(),
        others: highwater::Curve::default(),
        node_seconds: 0.0,
        ..rates.clone()
    };
    let beside = (0.0..1.0).contains(&rates.node_seconds);
    rates.is_measured() && beside && constants == Rates::default()
}

/// What measuring may take for tensors of so many bytes of memory.
pub(super) fn share(memory_bytes: u64) -> u64 {
    (memory_bytes / MEASURE_SHARE).min(Rates::MEASURE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater::{Curve, Point};

    fn rates(seconds: [f64; 2]) -> Rates {
        let points = [1.0, 2.0].map(|roofline_seconds| Point {
            roofline_seconds,
            seconds: seconds[roofline_seconds as usize - 1],
        });
        Rates {
            operations: [("linear".to_owned(), Curve::through(points.to_vec()))].into(),
            ..Rates::default()
        }
    }

    fn measured(all: &[[f64; 2]]) -> (Measured, usize) {
        let mut tries = 0;
        let measured = settled(|| {
            tries += 1;
            Ok(rates(all[tries - 1]))
        });
        (measured.unwrap(), tries)
    }

    #[test]
    fn it_is_measured_until_two_agree_and_the_least_counts() {
        let (found, tries) = measured(&[[1.0, 2.0], [1.01, 1.98]]);
        assert_eq!((found.rates, tries), (rates([1.0, 1.98]), 2));
        let (found, tries) = measured(&[[4.0, 8.0], [1.0, 2.0], [1.02, 2.0]]);
        assert_eq!((found.rates, tries), (rates([1.0, 2.0]), 3));
        let (found, tries) = measured(&[[4.0, 8.0], [1.0, 2.0], [3.0, 9.0], [1.0, 4.0]]);
        assert_eq!((found.rates, tries), (rates([1.0, 2.0]), TRIES));
        assert!(found.busy);
    }

    #[test]
    fn others_are_what_is_not_ones_own() {
        let at = |all, own| Work {
            all,
            own,
            processors: 4.0,
        };
        assert!((at(10.0, 1.0).others_until(&at(16.0, 5.0), 1.0) - 0.5).abs() < 1e-12);
        assert!(at(10.0, 1.0).others_until(&at(10.5, 2.0), 1.0) < 1e-12);
        if cfg!(target_os = "linux") {
            let now = Work::read().unwrap();
            assert!(now.processors >= 1.0 && now.all >= now.own);
        }
    }
}
