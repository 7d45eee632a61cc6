//! The learning rate of each step.

use std::f64::consts::PI;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What a cosine schedule ends at, as a share of the peak.
pub(super) const COSINE_FLOOR: f64 = 0.1;
/// Which share of the steps behind the warm-up [`Schedule::Wsd`] comes down in.
const WSD_DECAY: f64 = 0.2;

/// How the learning rate goes on after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Half a cosine, down to 10% of the peak.
    Cosine,
    /// Linear, down to zero after the last step.
    Linear,
    /// Constant.
    Constant,
    /// Constant for 80% of the run, then down to zero as 1 - sqrt (warmup-stable-decay, Hägele et al. 2024).
    Wsd,
}

/// The learning rate as a function of the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRate {
    /// The highest rate.
    pub peak: f64,
    /// So many steps lead up to it in a straight line.
    pub warmup: u64,
    /// How many steps the run has.
    pub steps: u64,
    /// How it goes on.
    pub schedule: Schedule,
}

impl LearningRate {
    /// The rate of a step, counted from 0. Behind the last step it stays as it was there.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * (step + 1) as f64 / self.warmup as f64;
        }
        let length = self.steps.saturating_sub(self.warmup).max(1);
        let done = (step - self.warmup).min(length) as f64 / length as f64;
        match self.schedule {
            Schedule::Cosine => {
                let share = f64::midpoint(1.0, (PI * done).cos());
                self.peak * (COSINE_FLOOR + (1.0 - COSINE_FLOOR) * share)
            }
            Schedule::Linear => self.peak * (1.0 - done),
            Schedule::Constant => self.peak,
            Schedule::Wsd => {
                let down = (done - (1.0 - WSD_DECAY)).max(0.0) / WSD_DECAY;
                self.peak * (1.0 - down.sqrt())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(warmup: u64, schedule: Schedule, steps: &[u64]) -> Vec<f64> {
        let rate = LearningRate {
            peak: 1.0,
            warmup,
            steps: 110,
            schedule,
        };
        let rounded = |step: &u64| (rate.at(*step) * 1e6).round() / 1e6;
        steps.iter().map(rounded).collect()
    }

    #[test]
    fn warms_up_and_comes_down() {
        use Schedule::{Constant, Cosine, Linear};
        let steps = [0, 4, 9, 10, 60, 110, 1000];
        let start = [0.1, 0.5, 1.0, 1.0];
        assert_eq!(
            rates(10, Constant, &steps),
            [&start[..], &[1.0; 3]].concat()
        );
        assert_eq!(
            rates(10, Linear, &steps),
            [&start[..], &[0.5, 0.0, 0.0]].concat()
        );
        assert_eq!(
            rates(10, Cosine, &steps),
            [&start[..], &[0.55, 0.1, 0.1]].concat()
        );
        // Of 100 steps behind the warm-up the last 20; a quarter of these is half of the way.
        assert_eq!(
            rates(10, Schedule::Wsd, &[9, 89, 90, 95, 110, 1000]),
            [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]
        );
    }

    #[test]
    fn without_warm_up_it_starts_at_the_peak() {
        let all = [
            Schedule::Cosine,
            Schedule::Linear,
            Schedule::Constant,
            Schedule::Wsd,
        ];
        for schedule in all {
            assert_eq!(rates(0, schedule, &[0]), [1.0]);
            assert!(rates(0, schedule, &[109])[0] > 0.0);
        }
    }

    #[test]
    fn warm_up_can_be_all_there_is() {
        assert_eq!(rates(110, Schedule::Cosine, &[109, 110]), [1.0, 1.0]);
        assert!(rates(500, Schedule::Linear, &[109])[0] > 0.0);
    }
}
