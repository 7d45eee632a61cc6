//! How long steps were said to take, and how long they took.

use std::collections::VecDeque;

use crate::metrics::Record;

/// Of how many steps the middle one counts.
const RECENT: usize = 64;

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

    /// A line about both, for people; none before the first step.
    pub fn line(&self) -> Option<String> {
        let (first, last) = (self.first_predicted?, self.predicted()?);
        let first = if (first - last).abs() < 5e-4 {
            String::new()
        } else {
            format!(" (at first {first:.3})")
        };
        Some(format!(
            "{:.3} s per step, the middle of the last {}; {last:.3} predicted{first}",
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
    fn the_middle_step_stands_beside_the_last_prediction() {
        let line = |steps: &[_]| pace(steps).line();
        assert_eq!(line(&[]), None);
        assert_eq!(
            line(&[(1.0, 9.0), (1.0, 2.0), (2.1, 2.2)]).unwrap(),
            "2.200 s per step, the middle of the last 3; 2.100 predicted (at first 1.000)"
        );
        let many = pace(&vec![(1.0, 2.0); 1000]);
        assert_eq!(many.recent.len(), RECENT);
        assert_eq!(
            many.line().unwrap(),
            "2.000 s per step, the middle of the last 64; 1.000 predicted"
        );
    }
}
