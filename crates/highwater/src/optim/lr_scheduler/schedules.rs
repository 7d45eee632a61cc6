//! Schedules that are functions of the epoch.

use super::Schedule;
use crate::Result;
use crate::error::usage_error;
use highwater_graph::Location;
use std::f64::consts::PI;

/// The rate times `gamma` every `step_size` epochs, as `torch.optim.lr_scheduler.StepLR`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepLr {
    /// Epochs of one rate.
    pub step_size: u64,
    /// What it is multiplied by then. In PyTorch 0.1 by default.
    pub gamma: f64,
}

impl Schedule for StepLr {
    fn lr(&self, base: f64, epoch: u64) -> f64 {
        base * self.gamma.powf((epoch / self.step_size.max(1)) as f64)
    }

    fn conflict(&self) -> Option<String> {
        (self.step_size == 0).then(|| "StepLr: step_size must be above 0".to_owned())
    }
}

/// The rate times `gamma` at each milestone, as `torch.optim.lr_scheduler.MultiStepLR`.
#[derive(Debug, Clone, PartialEq)]
pub struct MultiStepLr {
    /// Epochs from which on the rate is multiplied once more, in any order.
    pub milestones: Vec<u64>,
    /// What it is multiplied by. In PyTorch 0.1 by default.
    pub gamma: f64,
}

impl Schedule for MultiStepLr {
    fn lr(&self, base: f64, epoch: u64) -> f64 {
        let passed = self.milestones.iter().filter(|&&at| at <= epoch).count();
        base * self.gamma.powf(passed as f64)
    }
}

/// The rate times `gamma` with each epoch, as `torch.optim.lr_scheduler.ExponentialLR`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExponentialLr {
    /// What it is multiplied by.
    pub gamma: f64,
}

impl Schedule for ExponentialLr {
    fn lr(&self, base: f64, epoch: u64) -> f64 {
        base * self.gamma.powf(epoch as f64)
    }
}

/// Half a cosine from the rate to `eta_min` in `t_max` epochs, and back in as many, as
/// `torch.optim.lr_scheduler.CosineAnnealingLR`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CosineAnnealingLr {
    /// Epochs of half a wave.
    pub t_max: u64,
    /// The lowest rate. In PyTorch 0 by default.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealingLr {
    fn lr(&self, base: f64, epoch: u64) -> f64 {
        let share = epoch as f64 / self.t_max.max(1) as f64;
        self.eta_min + (base - self.eta_min) * (1.0 + (PI * share).cos()) / 2.0
    }

    fn conflict(&self) -> Option<String> {
        (self.t_max == 0).then(|| "CosineAnnealingLr: t_max must be above 0".to_owned())
    }
}

/// Half cosines one after the other, each `t_mult` times as long as the one before, as
/// `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CosineAnnealingWarmRestarts {
    /// Epochs of the first.
    pub t_0: u64,
    /// How much longer each is. In PyTorch 1 by default.
    pub t_mult: u64,
    /// The lowest rate. In PyTorch 0 by default.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealingWarmRestarts {
    fn lr(&self, base: f64, epoch: u64) -> f64 {
        let (mut at, mut length) = (epoch, self.t_0.max(1));
        if self.t_mult <= 1 {
            at %= length;
        }
        while at >= length {
            at -= length;
            length = length.saturating_mul(self.t_mult);
        }
        let share = at as f64 / length as f64;
        self.eta_min + (base - self.eta_min) * (1.0 + (PI * share).cos()) / 2.0
    }

    fn conflict(&self) -> Option<String> {
        let wrong = self.t_0 == 0 || self.t_mult == 0;
        wrong.then(|| "CosineAnnealingWarmRestarts: t_0 and t_mult must be above 0".to_owned())
    }
}

/// The rate times a factor for `total_iters` epochs, as `torch.optim.lr_scheduler.ConstantLR`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConstantLr {
    /// The factor. In PyTorch a third by default.
    pub factor: f64,
    /// Epochs until it is 1. In PyTorch 5 by default.
    pub total_iters: u64,
}

impl Schedule for ConstantLr {
    fn lr(&self, base: f64, epoch: u64) -> f64 {
        if epoch < self.total_iters {
            base * self.factor
        } else {
            base
        }
    }
}

/// The rate times a factor that goes in a straight line, as `torch.optim.lr_scheduler.LinearLR`: a warm-up, or
/// the way down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearLr {
    /// The first factor. In PyTorch a third by default.
    pub start_factor: f64,
    /// The last one. In PyTorch 1 by default.
    pub end_factor: f64,
    /// Epochs between them. In PyTorch 5 by default.
    pub total_iters: u64,
}

impl Schedule for LinearLr {
    fn lr(&self, base: f64, epoch: u64) -> f64 {
        if epoch >= self.total_iters {
            return base * self.end_factor;
        }
        let share = epoch as f64 / self.total_iters as f64;
        base * (self.start_factor + (self.end_factor - self.start_factor) * share)
    }

    fn conflict(&self) -> Option<String> {
        let sound = |factor: f64| (0.0..=1.0).contains(&factor);
        let wrong =
            !sound(self.start_factor) || self.start_factor == 0.0 || !sound(self.end_factor);
        wrong.then(|| {
            "LinearLr: start_factor must be above 0, and both factors at most 1".to_owned()
        })
    }
}

/// The rate times a power of what is left of `total_iters` epochs, as
/// `torch.optim.lr_scheduler.PolynomialLR`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolynomialLr {
    /// Epochs until the rate is 0. In PyTorch 5 by default.
    pub total_iters: u64,
    /// The power. In PyTorch 1 by default.
    pub power: f64,
}

impl Schedule for PolynomialLr {
    fn lr(&self, base: f64, epoch: u64) -> f64 {
        let left = self.total_iters.saturating_sub(epoch) as f64;
        base * (left / self.total_iters.max(1) as f64).powf(self.power)
    }
}

/// The rate times what a function says of the epoch, as `torch.optim.lr_scheduler.LambdaLR`.
#[derive(Clone, Copy)]
pub struct LambdaLr<F>(pub F);

impl<F> std::fmt::Debug for LambdaLr<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LambdaLr(..)")
    }
}

impl<F: Fn(u64) -> f64 + Send> Schedule for LambdaLr<F> {
    fn lr(&self, base: f64, epoch: u64) -> f64 {
        base * (self.0)(epoch)
    }
}

/// Schedules one after the other, each of which counts from its milestone on, as
/// `torch.optim.lr_scheduler.SequentialLR`.
#[derive(Debug)]
pub struct SequentialLr {
    schedules: Vec<Box<dyn Schedule>>,
    milestones: Vec<u64>,
}

impl SequentialLr {
    /// Schedules, and the epochs at which all but the first begin.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] unless there is one milestone less than schedules, and they rise; for what is
    /// wrong with a schedule.
    #[track_caller]
    pub fn new(schedules: Vec<Box<dyn Schedule>>, milestones: Vec<u64>) -> Result<Self> {
        let location = Location::caller();
        if schedules.len() != milestones.len() + 1 {
            let message = format!(
                "SequentialLr: {} schedules take one milestone less, not {}",
                schedules.len(),
                milestones.len()
            );
            return Err(usage_error(message, location));
        }
        if !milestones.is_sorted() {
            let message = format!("SequentialLr: the milestones {milestones:?} do not rise");
            return Err(usage_error(message, location));
        }
        if let Some(message) = schedules.iter().find_map(Schedule::conflict) {
            return Err(usage_error(message, location));
        }
        Ok(Self {
            schedules,
            milestones,
        })
    }

    /// The schedule of an epoch, and what it counts then.
    fn at(&self, epoch: u64) -> (&dyn Schedule, u64) {
        let passed = self.milestones.partition_point(|&at| at <= epoch);
        let begins = passed.checked_sub(1).map_or(0, |i| self.milestones[i]);
        (&*self.schedules[passed], epoch - begins)
    }
}

impl Schedule for SequentialLr {
    fn lr(&self, base: f64, epoch: u64) -> f64 {
        let (schedule, epoch) = self.at(epoch);
        schedule.lr(base, epoch)
    }

    fn momentum(&self, epoch: u64) -> Option<f64> {
        let (schedule, epoch) = self.at(epoch);
        schedule.momentum(epoch)
    }
}

/// How [`OneCycleLr`] goes from one rate to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Anneal {
    /// By half a cosine.
    #[default]
    Cos,
    /// In a straight line.
    Linear,
}

impl Anneal {
    fn between(self, start: f64, end: f64, share: f64) -> f64 {
        match self {
            Self::Cos => end + (start - end) / 2.0 * (1.0 + (PI * share).cos()),
            Self::Linear => start + (end - start) * share,
        }
    }
}

/// One rise to `max_lr` and one way down, as `torch.optim.lr_scheduler.OneCycleLR`: counted in steps, of all
/// groups alike, whatever their own rates are. Behind the last step it stays as it was there, where PyTorch
/// fails. With `cycle_momentum`, momentum goes the other way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OneCycleLr {
    /// The highest rate.
    pub max_lr: f64,
    /// Steps of the cycle.
    pub total_steps: u64,
    /// The share of the rise.
    pub pct_start: f64,
    /// How it goes between rates.
    pub anneal_strategy: Anneal,
    /// Whether momentum goes the other way.
    pub cycle_momentum: bool,
    /// The lowest momentum.
    pub base_momentum: f64,
    /// The highest momentum.
    pub max_momentum: f64,
    /// The highest rate over the first.
    pub div_factor: f64,
    /// The first rate over the last.
    pub final_div_factor: f64,
    /// Whether it goes back to the first rate in as many steps as it rose, and from there to the last.
    pub three_phase: bool,
}

impl OneCycleLr {
    /// A cycle with PyTorch's defaults.
    pub fn new(max_lr: f64, total_steps: u64) -> Self {
        Self {
            max_lr,
            total_steps,
            pct_start: 0.3,
            anneal_strategy: Anneal::Cos,
            cycle_momentum: true,
            base_momentum: 0.85,
            max_momentum: 0.95,
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
        }
    }

    /// A number that is one of `values` at the ends of the phases.
    fn at(&self, step: u64, values: [f64; 4]) -> f64 {
        let steps = self.total_steps as f64;
        let rise = self.pct_start * steps - 1.0;
        let ends = if self.three_phase {
            vec![0.0, rise, 2.0 * self.pct_start * steps - 2.0, steps - 1.0]
        } else {
            vec![0.0, rise, steps - 1.0]
        };
        let step = (step as f64).min(steps - 1.0);
        let phases = ends.len() - 1;
        let phase = (1..phases).find(|&i| step <= ends[i]).unwrap_or(phases);
        let (start, end) = (ends[phase - 1], ends[phase]);
        // A phase without steps is over at once.
        let share = if end > start {
            (step - start) / (end - start)
        } else {
            1.0
        };
        (self.anneal_strategy).between(values[phase - 1], values[phase], share)
    }
}

impl Schedule for OneCycleLr {
    fn lr(&self, _base: f64, step: u64) -> f64 {
        let first = self.max_lr / self.div_factor;
        let last = first / self.final_div_factor;
        if self.three_phase {
            self.at(step, [first, self.max_lr, first, last])
        } else {
            self.at(step, [first, self.max_lr, last, last])
        }
    }

    fn momentum(&self, step: u64) -> Option<f64> {
        let (low, high) = (self.base_momentum, self.max_momentum);
        let values = [high, low, high, high];
        self.cycle_momentum.then(|| self.at(step, values))
    }

    fn conflict(&self) -> Option<String> {
        if self.total_steps == 0 {
            return Some("OneCycleLr: total_steps must be above 0".to_owned());
        }
        let sound = (0.0..=1.0).contains(&self.pct_start);
        (!sound).then(|| "OneCycleLr: pct_start must be a number from 0 to 1".to_owned())
    }
}
