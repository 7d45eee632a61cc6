//! How long nodes take: by rates at first, by what was measured in the run where that differs.
//!
//! Nodes of one kind (operation, attributes, shapes, layouts) share their time. What the planner was
//! told stays the same from step to step, so that its plans are found again; it changes, for the kinds
//! of one evaluation, when that as a whole is found to take another time than predicted.

use crate::Rates;
use crate::rates::Timing;
use highwater_graph::{Cost, Op, Spec};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

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
pub(crate) type Kind = u64;

/// The kind of a node.
pub(crate) fn kind(op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Kind {
    let mut hasher = DefaultHasher::new();
    op.name().hash(&mut hasher);
    op.hash_attributes(&mut hasher);
    (inputs, outputs).hash(&mut hasher);
    hasher.finish()
}

/// What nodes take.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    rates: Rates,
    /// Whether what the planner is told may change.
    corrects: bool,
    kinds: BTreeMap<Kind, Times>,
}

/// What one kind takes.
#[derive(Debug)]
struct Times {
    op: &'static str,
    cost: Cost,
    /// What the planner is told, once that is corrected.
    told: Option<f64>,
    corrections: u32,
    /// Evaluations since the last correction.
    seen: u32,
    /// Mean seconds of a run in each of the last evaluations, `seen` of them.
    recent: [f64; RECENT],
    least: f64,
}

impl Times {
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

/// A node that ran.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) kind: Kind,
    pub(crate) op: &'static str,
    pub(crate) cost: Cost,
    pub(crate) seconds: f64,
}

impl Clock {
    pub(crate) fn new(rates: Rates, corrects: bool) -> Self {
        Self {
            rates,
            corrects,
            kinds: BTreeMap::new(),
        }
    }

    /// Predicted seconds of one run.
    pub(crate) fn seconds(&self, kind: Kind, op: &str, cost: &Cost) -> f64 {
        let told = self.kinds.get(&kind).and_then(|times| times.told);
        told.unwrap_or_else(|| self.rates.seconds(op, cost))
    }

    /// Takes in what the nodes of an evaluation took. If it is clear by now that the evaluation takes
    /// another time than predicted, predictions change.
    pub(crate) fn note(&mut self, runs: impl IntoIterator<Item = Run>) {
        let mut sums = BTreeMap::<Kind, (f64, u32)>::new();
        for run in runs {
            let sum = sums.entry(run.kind).or_default();
            *sum = (sum.0 + run.seconds, sum.1 + 1);
            self.kinds.entry(run.kind).or_insert(Times {
                op: run.op,
                cost: run.cost,
                told: None,
                corrections: 0,
                seen: 0,
                recent: [0.0; RECENT],
                least: f64::INFINITY,
            });
        }
        for (kind, &(seconds, count)) in &sums {
            if let Some(times) = self.kinds.get_mut(kind) {
                times.note(seconds / f64::from(count));
            }
        }
        if self.corrects {
            self.correct(&sums);
        }
    }

    fn correct(&mut self, ran: &BTreeMap<Kind, (f64, u32)>) {
        let (mut told, mut typical) = (0.0, 0.0);
        for (kind, &(_, count)) in ran {
            let Some(times) = self.kinds.get(kind).filter(|times| times.is_ready()) else {
                return;
            };
            let predicted = self.seconds(*kind, times.op, &times.cost);
            told += f64::from(count) * predicted;
            typical += f64::from(count) * times.typical().unwrap_or(predicted);
        }
        if near(told, typical) {
            return;
        }
        for kind in ran.keys() {
            let Some(times) = self.kinds.get_mut(kind).filter(|times| !times.is_final()) else {
                continue;
            };
            let Some(typical) = times.typical() else {
                continue;
            };
            if times.told.is_none_or(|told| !near(told, typical)) {
                times.told = Some(typical);
            }
            times.corrections += 1;
            times.seen = 0;
        }
    }

    /// Goes back to the rates, for good. Answers whether anything had been corrected.
    pub(crate) fn forget(&mut self) -> bool {
        self.corrects = false;
        let told = self
            .kinds
            .values_mut()
            .filter_map(|times| times.told.take());
        told.count() > 0
    }

    /// What each kind took.
    pub(crate) fn timings(&self) -> Vec<Timing> {
        let timing = |times: &Times| Timing {
            op: times.op,
            cost: times.cost,
            least_seconds: times.least,
        };
        self.kinds.values().map(timing).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [&str; 2] = ["linear", "gelu"];

    fn cost(op: usize) -> Cost {
        Cost {
            vector_flops: 4e10 * (1 + op) as f64,
            ..Cost::default()
        }
    }

    /// Two runs of one kind and one of another.
    fn runs(seconds: [f64; 2]) -> impl Iterator<Item = Run> {
        [0, 1, 0].into_iter().map(move |op| Run {
            kind: op as Kind,
            op: OPS[op],
            cost: cost(op),
            seconds: seconds[op],
        })
    }

    fn told(clock: &Clock) -> [f64; 2] {
        [0, 1].map(|op| clock.seconds(op as Kind, OPS[op], &cost(op)))
    }

    fn clock() -> Clock {
        Clock::new(Rates::default(), true)
    }

    #[test]
    fn predictions_that_are_right_as_a_whole_stay() {
        let mut clock = clock();
        let before = told(&clock);
        for _ in 0..1000 {
            clock.note(runs([before[0] * 1.4, before[1] * 0.7]));
        }
        assert_eq!(told(&clock).map(f64::to_bits), before.map(f64::to_bits));
    }

    #[test]
    fn wrong_ones_become_what_was_measured_and_stay_so() {
        let mut clock = clock();
        let before = told(&clock);
        clock.note(runs([3.0, 5.0]));
        // One step that the machine spent elsewhere.
        clock.note(runs([30.0, 50.0]));
        assert_eq!(told(&clock).map(f64::to_bits), before.map(f64::to_bits));
        clock.note(runs([3.1, 5.1]));
        let corrected = told(&clock);
        assert!((corrected[0] - 3.1).abs() < 1e-9 && (corrected[1] - 5.1).abs() < 1e-9);
        for i in 0..200 {
            let noise = 1.0 + 0.1 * f64::from(i % 3 - 1);
            clock.note(runs([3.1 * noise, 5.1 * noise]));
            assert_eq!(told(&clock).map(f64::to_bits), corrected.map(f64::to_bits));
        }
    }

    #[test]
    fn a_machine_that_keeps_changing_changes_predictions_ever_more_seldom() {
        let mut clock = clock();
        let (mut last, mut changes) = (told(&clock), Vec::new());
        let mut speed = 1.0;
        for step in 0..100_000 {
            clock.note(runs([3.0 * speed, 5.0 * speed]));
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
    fn nothing_is_corrected_unasked_and_all_can_be_forgotten() {
        let mut unasked = Clock::new(Rates::default(), false);
        let before = told(&unasked);
        let mut clock = clock();
        for _ in 0..9 {
            unasked.note(runs([3.0, 5.0]));
            clock.note(runs([3.0, 5.0]));
        }
        assert_eq!(told(&unasked).map(f64::to_bits), before.map(f64::to_bits));
        assert!(clock.forget() && !clock.forget());
        for _ in 0..9 {
            clock.note(runs([3.0, 5.0]));
        }
        assert_eq!(told(&clock).map(f64::to_bits), before.map(f64::to_bits));
        assert_eq!(clock.timings().len(), 2);
        assert!(clock.timings().iter().all(|t| t.least_seconds < 6.0));
    }
}
