//! How long nodes take: by rates at first, by what was measured in the run where that differs.
//!
//! Nodes of one kind (operation, attributes, shapes, layouts) share their time. What the planner was
//! told stays the same from step to step, so that its plans are found again; it changes, for the kinds
//! of one evaluation, when that as a whole is found to take another time than predicted.

use crate::Rates;
use crate::problem::profile::{OperationProfile, Profile};
use crate::problem::rates::Timing;
use highwater_graph::{Cost, DType, Mixer, Op, Spec};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// A prediction is corrected if it is off by more than this factor.
const TOLERANCE: f64 = 1.15;
/// Evaluations that are looked at before the first correction; four times as many before each
/// further one.
const PATIENCE: u32 = 3;
/// How often the time of a kind may be corrected.
const CORRECTIONS: u32 = 4;
/// Of how many evaluations the middle one counts.
const RECENT: usize = 5;

/// Identity of nodes that take the same time. Two kinds that collide cost accuracy, nothing else.
type Kind = u64;

/// What a node does, as far as its time depends on that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    kind: Kind,
    op: &'static str,
    dtype: DType,
    pub(crate) cost: Cost,
}

impl Work {
    /// The work of an operation between tensors of these shapes and layouts.
    pub(crate) fn new(op: &dyn Op, inputs: &[Spec], outputs: &[Spec], threads: usize) -> Self {
        let mut hasher = Mixer::default();
        op.name().hash(&mut hasher);
        op.hash_attributes(&mut hasher);
        (inputs, outputs).hash(&mut hasher);
        Self {
            kind: hasher.finish(),
            op: op.name(),
            dtype: inputs
                .first()
                .or(outputs.first())
                .map_or(DType::F32, |spec| spec.dtype),
            cost: op.cost(inputs, outputs, threads),
        }
    }

    /// The work without filling an output.
    pub(crate) fn without(&self, output: usize, saved: Cost) -> Self {
        let mut hasher = Mixer::default();
        (self.kind, output).hash(&mut hasher);
        Self {
            kind: hasher.finish(),
            cost: self.cost - saved,
            ..*self
        }
    }
}

/// What nodes take.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    rates: Rates,
    /// Whether predictions may change.
    corrects: bool,
    /// Whether the planner is not told of that any more.
    plans_by_rates: bool,
    kinds: BTreeMap<Kind, Times>,
    profile: Profile,
}

/// What the nodes of one kind took in an evaluation.
struct Sum<'a> {
    work: &'a Work,
    seconds: f64,
    count: f64,
}

/// What one kind takes.
#[derive(Debug)]
struct Times {
    work: Work,
    /// What is predicted, once that is corrected.
    corrected: Option<f64>,
    corrections: u32,
    /// Evaluations since the last correction.
    seen: u32,
    /// Mean seconds of a run in each of the last evaluations, `seen` of them.
    recent: [f64; RECENT],
    least: f64,
}

impl Times {
    fn new(work: Work) -> Self {
        Self {
            work,
            corrected: None,
            corrections: 0,
            seen: 0,
            recent: [0.0; RECENT],
            least: f64::INFINITY,
        }
    }

    fn note(&mut self, seconds: f64) {
        self.recent[self.seen as usize % RECENT] = seconds;
        self.seen = self.seen.saturating_add(1);
        self.least = self.least.min(seconds);
    }

    /// The middle of the last evaluations.
    fn typical(&self) -> Option<f64> {
        let count = RECENT.min(self.seen as usize);
        let mut recent = self.recent;
        recent[..count].sort_by(f64::total_cmp);
        recent[..count].get(count / 2).copied()
    }

    fn is_final(&self) -> bool {
        self.corrections >= CORRECTIONS
    }

    fn is_ready(&self) -> bool {
        self.is_final() || self.seen >= PATIENCE << (2 * self.corrections)
    }
}

/// Whether one is about the other.
fn near(a: f64, b: f64) -> bool {
    a <= b * TOLERANCE && b <= a * TOLERANCE
}

impl Clock {
    pub(crate) fn new(rates: Rates, corrects: bool) -> Self {
        Self {
            rates,
            corrects,
            ..Self::default()
        }
    }

    /// Whether predictions give way to what is measured.
    pub(crate) fn corrects(&self) -> bool {
        self.corrects
    }

    /// Predicted seconds of one run.
    pub(crate) fn predicted(&self, work: &Work) -> f64 {
        let corrected = self.kinds.get(&work.kind).and_then(|times| times.corrected);
        corrected.map_or_else(
            || self.by_rates(work),
            |seconds| seconds + self.rates.node_seconds,
        )
    }

    fn by_rates(&self, work: &Work) -> f64 {
        self.rates.seconds(work.op, work.dtype, &work.cost) + self.rates.node_seconds
    }

    /// Seconds of one run that the planner is told.
    pub(crate) fn told(&self, work: &Work) -> f64 {
        if self.plans_by_rates {
            self.by_rates(work)
        } else {
            self.predicted(work)
        }
    }

    /// Tells the planner what the rates say, as at first, from now on. Answers whether that is new.
    pub(crate) fn plan_by_rates(&mut self) -> bool {
        let corrected = self.kinds.values().any(|times| times.corrected.is_some());
        !std::mem::replace(&mut self.plans_by_rates, true) && corrected
    }

    /// Takes in what the nodes of an evaluation took, in seconds. If it is clear by now that the
    /// evaluation takes another time than predicted, predictions change.
    pub(crate) fn note<'a>(&mut self, runs: impl IntoIterator<Item = (&'a Work, f64)>) {
        let mut sums = BTreeMap::<Kind, Sum<'_>>::new();
        for (work, seconds) in runs {
            let sum = sums.entry(work.kind).or_insert(Sum {
                work,
                seconds: 0.0,
                count: 0.0,
            });
            sum.seconds += seconds;
            sum.count += 1.0;
        }
        for (kind, sum) in &sums {
            let times = self.kinds.entry(*kind).or_insert(Times::new(*sum.work));
            times.note(sum.seconds / sum.count);
            let Work {
                op, dtype, cost, ..
            } = sum.work;
            let took = (sum.count as u64, sum.seconds);
            self.profile.add((*op, *dtype), cost, took);
        }
        if self.corrects {
            self.correct(&sums);
        }
    }

    fn correct(&mut self, ran: &BTreeMap<Kind, Sum<'_>>) {
        let (mut predicted, mut typical) = (0.0, 0.0);
        for (kind, sum) in ran {
            let Some(times) = self.kinds.get(kind).filter(|times| times.is_ready()) else {
                return;
            };
            let one = self.predicted(sum.work);
            predicted += sum.count * one;
            let seen = times
                .typical()
                .map(|seconds| seconds + self.rates.node_seconds);
            typical += sum.count * seen.unwrap_or(one);
        }
        if near(predicted, typical) {
            return;
        }
        for kind in ran.keys() {
            let Some(times) = self.kinds.get_mut(kind).filter(|times| !times.is_final()) else {
                continue;
            };
            let Some(typical) = times.typical() else {
                continue;
            };
            if times
                .corrected
                .is_none_or(|seconds| !near(seconds, typical))
            {
                times.corrected = Some(typical);
            }
            times.corrections += 1;
            times.seen = 0;
        }
    }

    /// What operations did so far, and took.
    pub(crate) fn profile(&self) -> Vec<OperationProfile> {
        self.profile.rows()
    }

    /// What each kind took.
    pub(crate) fn timings(&self) -> Vec<Timing> {
        let timing = |times: &Times| Timing {
            op: times.work.op,
            dtype: times.work.dtype,
            cost: times.work.cost,
            least_seconds: times.least,
        };
        self.kinds.values().map(timing).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(kind: usize) -> Work {
        let cost = Cost {
            vector_flops: 4e10 * (1 + kind) as f64,
            ..Cost::default()
        };
        Work {
            kind: kind as Kind,
            op: ["linear", "gelu"][kind],
            dtype: DType::F32,
            cost,
        }
    }

    /// Notes two runs of one kind and one of another.
    fn note(clock: &mut Clock, seconds: [f64; 2]) {
        let works = [work(0), work(1)];
        clock.note([0, 1, 0].map(|kind| (&works[kind], seconds[kind])));
    }

    fn told(clock: &Clock) -> [f64; 2] {
        [0, 1].map(|kind| clock.told(&work(kind)))
    }

    fn clock() -> Clock {
        Clock::new(Rates::default(), true)
    }

    #[test]
    fn predictions_that_are_right_as_a_whole_stay() {
        let mut clock = clock();
        let before = told(&clock);
        for _ in 0..1000 {
            note(&mut clock, [before[0] * 1.4, before[1] * 0.7]);
        }
        assert_eq!(told(&clock).map(f64::to_bits), before.map(f64::to_bits));
    }

    #[test]
    fn wrong_ones_become_what_was_measured_and_stay_so() {
        let mut clock = clock();
        let before = told(&clock);
        note(&mut clock, [3.0, 5.0]);
        // One step that the machine spent elsewhere.
        note(&mut clock, [30.0, 50.0]);
        assert_eq!(told(&clock).map(f64::to_bits), before.map(f64::to_bits));
        note(&mut clock, [3.1, 5.1]);
        let corrected = told(&clock);
        assert!((corrected[0] - 3.1).abs() < 1e-9 && (corrected[1] - 5.1).abs() < 1e-9);
        for i in 0..200 {
            let noise = 1.0 + 0.1 * f64::from(i % 3 - 1);
            note(&mut clock, [3.1 * noise, 5.1 * noise]);
            assert_eq!(told(&clock).map(f64::to_bits), corrected.map(f64::to_bits));
        }
    }

    #[test]
    fn a_machine_that_keeps_changing_changes_predictions_ever_more_seldom() {
        let mut clock = clock();
        let (mut last, mut changes) = (told(&clock), Vec::new());
        let mut speed = 1.0;
        for step in 0..100_000 {
            note(&mut clock, [3.0 * speed, 5.0 * speed]);
            let now = told(&clock);
            if now.map(f64::to_bits) != last.map(f64::to_bits) {
                (last, speed) = (now, 100.0 - speed);
                changes.push(step);
            }
        }
        assert_eq!(changes.len(), CORRECTIONS as usize, "{changes:?}");
        assert!(changes.windows(3).all(|w| w[2] - w[1] > 2 * (w[1] - w[0])));
    }

    #[test]
    fn nothing_is_corrected_unasked() {
        let mut clock = Clock::new(Rates::default(), false);
        let before = told(&clock);
        for _ in 0..9 {
            note(&mut clock, [3.0, 5.0]);
        }
        assert_eq!(told(&clock).map(f64::to_bits), before.map(f64::to_bits));
        assert!(!clock.plan_by_rates());
        let timings = clock.timings();
        assert_eq!(timings.len(), 2);
        // What took longest comes first.
        let [linear, gelu] = &clock.profile()[..] else {
            panic!("two operations ran");
        };
        assert_eq!((gelu.op, gelu.runs), ("gelu", 9));
        assert_eq!((linear.op, linear.runs), ("linear", 18));
        assert!((linear.seconds - 54.0).abs() < 1e-9 && (linear.flops - 18.0 * 4e10).abs() < 1.0);
        assert!(
            timings
                .iter()
                .all(|t| (2.9..5.1).contains(&t.least_seconds))
        );
    }

    #[test]
    fn the_planner_can_be_told_the_rates_again() {
        let mut clock = clock();
        let before = told(&clock);
        for seconds in [3.0, 300.0] {
            for _ in 0..12 {
                note(&mut clock, [seconds, seconds]);
            }
            let predicted = clock.predicted(&work(0));
            assert!((predicted - seconds).abs() < 1e-9, "{predicted}");
            clock.plan_by_rates();
            assert_eq!(told(&clock).map(f64::to_bits), before.map(f64::to_bits));
        }
        assert!(!clock.plan_by_rates());
    }
}
