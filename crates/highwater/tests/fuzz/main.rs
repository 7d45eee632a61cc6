//! Random programs over the whole public API, beside an interpreter that computes each statement at
//! once in `f64` and shares nothing. Each value that a user can read is compared, and with other
//! threads, budgets and tiers the bits are to be the same.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "helpers of tests fail and tell as tests do"
)]

mod array;
mod compare;
mod config;
mod export;
mod functions;
mod generate;
mod optimizers;
mod oracle;
mod program;
mod regressions;
mod run;
#[path = "../share/mod.rs"]
mod share;
mod shrink;
mod special;
mod tape;

use compare::{Failure, check, expected, same};
use config::{Config, PLAIN};
use generate::{Choices, Size};
use program::Program;
use share::some;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The engines that a seed's program runs with beside a plain one.
fn configs(seed: u64, size: Size, most_bytes: u64) -> Vec<Config> {
    let mut choices = Choices::new(seed ^ 0x5eed);
    let threads = 1 + choices.below(3);
    let eager = Config {
        eager: true,
        threads,
        ..PLAIN
    };
    let several = Config {
        threads: 2 + choices.below(2),
        arena: None,
        ..PLAIN
    };
    let twin = Config {
        twin: true,
        eager: choices.once_in(2),
        ..PLAIN
    };
    let tight = most_bytes * (55 + choices.below(50) as u64) / 100;
    let tight = Config {
        arena: Some(tight),
        threads,
        ..PLAIN
    };
    if matches!(size, Size::Small | Size::Medium) {
        let all = [eager.clone(), eager, several, twin, tight];
        return vec![choices.of(&all).clone()];
    }
    let host = Config {
        host: true,
        disk: choices.once_in(2),
        ..tight.clone()
    };
    let disk = Config {
        disk: true,
        ..tight.clone()
    };
    vec![eager, several, tight, host, disk]
}

/// What was tried.
#[derive(Debug, Default)]
struct Counts {
    programs: usize,
    failed: usize,
    runs: usize,
    /// Runs that a budget ended early.
    cut: usize,
    /// Answers by their kind.
    answers: BTreeMap<&'static str, usize>,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.programs += other.programs;
        self.failed += other.failed;
        self.runs += other.runs;
        self.cut += other.cut;
        for (kind, count) in &other.answers {
            *self.answers.entry(kind).or_default() += count;
        }
    }
}

/// Runs a program everywhere.
fn verify(program: &Program, seed: u64, size: Size, counts: &mut Counts) -> Result<(), Failure> {
    let Some(wanted) = expected(program) else {
        return Ok(());
    };
    let (plain, most_bytes) = check(program, &wanted, &PLAIN)?;
    let configs = configs(seed, size, most_bytes);
    counts.runs += 1 + configs.len();
    for answer in &wanted.answers {
        *counts.answers.entry(answer.kind()).or_default() += 1;
    }
    for config in configs {
        let (log, _) = check(program, &wanted, &config)?;
        counts.cut += usize::from(log.len() < plain.len());
        same(&wanted, &config, &log, &plain)?;
    }
    Ok(())
}

/// Of the full run.
const THREADS: usize = 3;

/// The seeds of the full run: those in `SEEDS`, as in `1000000..1020000`, or these.
#[expect(clippy::disallowed_methods, reason = "a run by hand in parts")]
fn seeds() -> (u64, u64) {
    let text = std::env::var("SEEDS").unwrap_or_else(|_| "1000000..1020000".to_owned());
    let (first, end) = text.split_once("..").expect("SEEDS=first..end");
    let number = |text: &str| text.trim().parse().expect("a number in SEEDS");
    (number(first), number(end))
}

/// Runs programs from seeds, and tells of those that fail, made small.
fn fuzz(seeds: impl Iterator<Item = u64>) -> Counts {
    let mut counts = Counts::default();
    for seed in seeds {
        let size = Size::of(seed);
        let program = generate::program(seed);
        counts.programs += 1;
        let Err(failure) = verify(&program, seed, size, &mut counts) else {
            continue;
        };
        counts.failed += 1;
        println!("seed {seed}: {failure}");
        let mut fails = |candidate: &Program| {
            let result = verify(candidate, seed, size, &mut Counts::default());
            result.is_err_and(|other| other.kind() == failure.kind())
        };
        let small = shrink::shrink(&program, &mut fails);
        if let Err(failure) = verify(&small, seed, size, &mut Counts::default()) {
            println!("shrunk: {failure}\n{small}");
        }
    }
    counts
}

#[test]
fn programs_answer_what_an_interpreter_answers() {
    let counts = fuzz(some(0..300));
    println!("{counts:?}");
    assert_eq!(counts.failed, 0);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p highwater --test fuzz -- --ignored thousands --nocapture"]
fn thousands_of_programs_answer_what_an_interpreter_answers() {
    let begin = std::time::Instant::now();
    let total = Mutex::new(Counts::default());
    let (first, end) = seeds();
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let from = next.fetch_add(50, Ordering::Relaxed);
                    if from >= end {
                        return;
                    }
                    let counts = fuzz(from..end.min(from + 50));
                    let mut total = total.lock().expect("no thread panics");
                    total.add(&counts);
                    if total.programs % 1000 == 0 {
                        println!(
                            "{} programs, {} failed, {:?}",
                            total.programs,
                            total.failed,
                            begin.elapsed()
                        );
                    }
                }
            });
        }
    });
    let counts = total.into_inner().expect("no thread panics");
    println!(
        "seeds {first} to {end}, without the last, in {:?}: {counts:?}",
        begin.elapsed()
    );
    assert_eq!(counts.failed, 0);
}
