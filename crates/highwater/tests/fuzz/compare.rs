//! What was answered beside what was to be answered.

use crate::array::Array;
use crate::config::Config;
use crate::oracle::{Expect, Kind, Oracle};
use crate::program::{Operand, Program, Statement};
use crate::run::{Outcome, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A program was answered wrongly.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) config: Config,
    /// The statement, by its number; those behind the program's end are the last reads.
    pub(crate) at: usize,
    pub(crate) statement: String,
    pub(crate) what: String,
}

impl Failure {
    /// What went wrong, without the numbers.
    pub(crate) fn kind(&self) -> String {
        let letters = self.what.chars().filter(|c| c.is_alphabetic());
        letters.take(12).collect()
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            config,
            at,
            statement,
            what,
        } = self;
        write!(f, "statement {at}, {statement}: {what}\n  with {config:?}")
    }
}

/// The statements of a program with the reads at its end, and what they are to answer.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) statements: Vec<Statement>,
    pub(crate) answers: Vec<Expect>,
}

/// What a program is to answer; `None` if it is not a valid one.
pub(crate) fn expected(program: &Program) -> Option<Expected> {
    let mut oracle = Oracle::new(program);
    let mut answers = Vec::new();
    for statement in &program.statements {
        answers.push(oracle.run(statement).ok()?);
    }
    let audit = oracle.audit();
    for statement in &audit {
        answers.push(oracle.run(statement).ok()?);
    }
    let statements = program.statements.iter().cloned().chain(audit).collect();
    Some(Expected {
        statements,
        answers,
    })
}

/// How far `got` is from what was wanted; `None` if it is that.
fn difference(wanted: &Array, got: &[u32]) -> Option<String> {
    if got.len() != wanted.len() {
        return Some(format!("{} values instead of {}", got.len(), wanted.len()));
    }
    let far = |i: &usize| {
        let off = (f64::from(f32::from_bits(got[*i])) - wanted.value[*i]).abs();
        // A NaN is far from everything.
        off.is_nan() || off > 2.0 * wanted.error[*i] + 1e-37
    };
    let far: Vec<usize> = (0..got.len()).filter(far).collect();
    let &first = far.first()?;
    Some(format!(
        "{} of {} values are off; the first is {first}: {:e} instead of {:e} +- {:.1e}",
        far.len(),
        got.len(),
        f32::from_bits(got[first]),
        wanted.value[first],
        2.0 * wanted.error[first]
    ))
}

/// What is wrong about an answer.
fn wrong(expect: &Expect, got: &Outcome) -> Option<String> {
    match (expect, got) {
        (Expect::Done, Outcome::Done)
        | (Expect::Absent, Outcome::Absent)
        | (Expect::ValuesOrGone(_), Outcome::Error(Kind::Expired | Kind::Stale, _)) => None,
        (Expect::Values(wanted) | Expect::ValuesOrGone(wanted), Outcome::Values(got)) => {
            difference(wanted, got)
        }
        (Expect::Flag(wanted), Outcome::Flag(got)) if wanted == got => None,
        (Expect::Error(wanted), Outcome::Error(got, _)) if wanted == got => None,
        (Expect::Moments(wanted, steps), Outcome::Moments(got, counts)) => {
            if steps != counts || wanted.len() != got.len() {
                return Some(format!(
                    "{} moments of {counts:?} steps, not {} of {steps:?}",
                    got.len(),
                    wanted.len()
                ));
            }
            wanted
                .iter()
                .zip(got)
                .find_map(|(wanted, got)| difference(wanted, got))
        }
        (expect, got) => Some(format!("{} instead of {}", short(got), brief(expect))),
    }
}

fn brief(expect: &Expect) -> String {
    match expect {
        Expect::Values(array) => format!("values of shape {:?}", array.shape),
        Expect::ValuesOrGone(_) => "values, or that they are gone".into(),
        Expect::Moments(..) => "moments".into(),
        other => format!("{other:?}"),
    }
}

pub(crate) fn short(outcome: &Outcome) -> String {
    let text = format!("{outcome:?}");
    text.chars().take(600).collect()
}

/// The log of a run, up to where the engine said that it has no room.
pub(crate) type Log = Vec<Outcome>;

/// Runs a program and compares each answer.
pub(crate) fn check(
    program: &Program,
    wanted: &Expected,
    config: &Config,
) -> Result<(Log, u64), Failure> {
    let at = std::cell::Cell::new(0);
    let run = || check_all(program, wanted, config, &at);
    let panicked = |cause: Box<dyn std::any::Any + Send>| {
        let text = cause.downcast_ref::<String>().cloned();
        let text = text.or_else(|| cause.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Err(failure(
            wanted,
            config,
            at.get(),
            format!("panicked: {}", text.unwrap_or_default()),
        ))
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked)
}

fn failure(wanted: &Expected, config: &Config, at: usize, what: String) -> Failure {
    let statement = wanted
        .statements
        .get(at)
        .map_or_else(String::new, |s| format!("{s:?}"));
    Failure {
        config: config.clone(),
        at,
        statement,
        what,
    }
}

fn check_all(
    program: &Program,
    wanted: &Expected,
    config: &Config,
    at: &std::cell::Cell<usize>,
) -> Result<(Log, u64), Failure> {
    let mut runners = Vec::new();
    for _ in 0..=usize::from(config.twin) {
        match Runner::new(program, config) {
            Ok(runner) => runners.push(runner),
            Err(error) => match Outcome::from(error) {
                Outcome::Refused(_) if config.may_refuse() => return Ok((Log::new(), 0)),
                other => return Err(failure(wanted, config, 0, short(&other))),
            },
        }
    }
    let mut logs = vec![Log::new(); runners.len()];
    while logs[0].len() < wanted.statements.len() {
        at.set(logs[0].len());
        for (runner, log) in runners.iter_mut().zip(&mut logs) {
            for outcome in runner.run(&wanted.statements[log.len()..]) {
                let at = log.len();
                if matches!(outcome, Outcome::Refused(_)) && config.may_refuse() {
                    refused(program, wanted, config, runner, at)?;
                    return Ok((std::mem::take(log), 0));
                }
                if let Some(what) = wrong(&wanted.answers[at], &outcome) {
                    return Err(failure(wanted, config, at, what));
                }
                log.push(outcome);
            }
        }
    }
    if let [one, other] = &runners[..]
        && !one.refuses(other)
    {
        let what = "tensors of two engines met in one operation".to_owned();
        return Err(failure(wanted, config, at.get(), what));
    }
    Ok((
        logs.swap_remove(0),
        runners[0].engine().tiers().device.most_bytes,
    ))
}

/// After a statement for which there was no room, parameters are as they were before it.
fn refused(
    program: &Program,
    wanted: &Expected,
    config: &Config,
    runner: &mut Runner,
    at: usize,
) -> Result<(), Failure> {
    let mut oracle = Oracle::new(program);
    for statement in &wanted.statements[..at] {
        // It was run before.
        let _ = oracle.run(statement);
    }
    for number in 0..program.parameters.len() {
        let read = Statement::Read(Operand::P(number));
        let Ok(expect) = oracle.run(&read) else {
            continue;
        };
        let outcome = runner.run(std::slice::from_ref(&read)).swap_remove(0);
        if let Some(what) =
            wrong(&expect, &outcome).filter(|_| !matches!(outcome, Outcome::Refused(_)))
        {
            let what = format!("parameter {number} after what did not fit: {what}");
            return Err(failure(wanted, config, at, what));
        }
    }
    Ok(())
}

/// That two runs answered the same bits, as far as both went.
pub(crate) fn same(
    wanted: &Expected,
    config: &Config,
    log: &Log,
    plain: &Log,
) -> Result<(), Failure> {
    for (at, (one, other)) in log.iter().zip(plain).enumerate() {
        let strict = !matches!(wanted.answers[at], Expect::ValuesOrGone(_));
        let typed = matches!((one, other), (Outcome::Error(a, _), Outcome::Error(b, _)) if a == b);
        if strict && !typed && one != other {
            let what = "not the bits that a plain engine answers".to_owned();
            return Err(failure(wanted, config, at, what));
        }
    }
    Ok(())
}
