//! How long steps were said to take, and how long they took.

use std::collections::VecDeque;

use super::metrics::Record;
use crate::terminal::figures::duration;

/// Of how many steps the middle one counts.
const RECENT: usize = 64;
/// A prediction is wrong that is off by more than this factor.
const TOLERANCE: f64 = 1.15;
/// Who waits for less than so many seconds need not be told.
const WORTH_TELLING: f64 = 30.0;

/// Predictions beside measurements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pace {
    /// Seconds predicted for the first step.
    first_predicted: Option<f64>,
    /// Predicted and measured seconds of the last steps.
    recent: VecDeque<(f64, f64)>,
}

impl Pace {
    /// Takes in a step that is done.
    pub fn step(&mut self, record: &Record) {
        self.first_predicted.get_or_insert(record.predicted_seconds);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent
            .push_back((record.predicted_seconds, record.seconds));
    }

    /// Seconds predicted for the first step.
    pub fn first_predicted(&self) -> Option<f64> {
        self.first_predicted
    }

    /// Seconds predicted for the last step.
    pub fn predicted(&self) -> Option<f64> {
        self.recent.back().map(|&(predicted, _)| predicted)
    }

    /// Seconds that a step took: the middle of the last ones.
    pub fn measured(&self) -> Option<f64> {
        let mut seconds: Vec<f64> = self.recent.iter().map(|&(_, seconds)| seconds).collect();
        seconds.sort_by(f64::total_cmp);
        seconds.get(seconds.len() / 2).copied()
    }

    /// By how much the last steps differ from what was predicted for the first, of one another's time, where that is
    /// more than a prediction may be off by.
    pub fn off(&self) -> Option<f64> {
        let (first, measured) = (self.first_predicted?, self.measured()?);
        let factor = (measured / first).max(first / measured);
        (factor > TOLERANCE).then_some(factor)
    }

    /// What people should know after some steps, of which so many are left: that a prediction was wrong.
    pub fn note(&self, left: u64) -> Option<String> {
        let (first, measured) = (self.first_predicted?, self.measured()?);
        self.off()?;
        let rest = left as f64 * measured;
        (rest > WORTH_TELLING).then(|| {
            format!(
                "note: a step takes {measured:.3} s instead of the predicted {first:.3} s; {} left. The machine is \
                busy, or was when it was measured. It will be measured again",
                duration(rest)
            )
        })
    }

    /// A line about both, for people; none before the first step.
    pub fn line(&self) -> Option<String> {
        let (first, last) = (self.first_predicted?, self.predicted()?);
        let first = if (first - last).abs() < 5e-4 {
            String::new()
        } else {
            format!(" (at first {first:.3} s)")
        };
        Some(format!(
            "{:.3} s per step (median of the last {}); predicted {last:.3} s{first}",
            self.measured()?,
            self.recent.len(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(steps: &[(f64, f64)]) -> Pace {
        let mut pace = Pace::default();
        for &(predicted_seconds, seconds) in steps {
            pace.step(&Record {
                seconds,
                predicted_seconds,
                ..Record::default()
            });
        }
        pace
    }

    #[test]
    fn predictions_that_are_wrong_are_told() {
        let pace_of = |predicted, seconds| pace(&[(predicted, seconds); 5]);
        for (predicted, seconds, off) in [
            (1.0, 1.1, None),
            (1.1, 1.0, None),
            (1.0, 2.0, Some(2.0)),
            (4.0, 1.0, Some(4.0)),
        ] {
            let pace = pace_of(predicted, seconds);
            assert_eq!(pace.off(), off);
            assert_eq!(pace.note(100).is_some(), off.is_some());
            assert_eq!(pace.note(3), None);
        }
        assert_eq!(
            pace_of(37.9, 9.4).note(10).unwrap(),
            "note: a step takes 9.400 s instead of the predicted 37.900 s; 1 min 34 s left. The machine is busy, or \
            was when it was measured. It will be measured again"
        );
        assert_eq!(Pace::default().note(1000), None);
    }

    #[test]
    fn the_middle_step_stands_beside_the_last_prediction() {
        let line = |steps: &[_]| pace(steps).line();
        assert_eq!(line(&[]), None);
        assert_eq!(
            line(&[(1.0, 9.0), (1.0, 2.0), (2.1, 2.2)]).unwrap(),
            "2.200 s per step (median of the last 3); predicted 2.100 s (at first 1.000 s)"
        );
        let many = pace(&vec![(1.0, 2.0); 1000]);
        assert_eq!(many.recent.len(), RECENT);
        assert_eq!(
            many.line().unwrap(),
            "2.000 s per step (median of the last 64); predicted 1.000 s"
        );
    }
}
