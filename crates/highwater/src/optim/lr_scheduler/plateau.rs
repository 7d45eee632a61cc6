//! Rates that fall when a metric does not get better.

use crate::Result;
use crate::error::usage_error;
use crate::optim::Optimizer;
use highwater_graph::Location;

/// Which way a metric gets better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Down, as losses do.
    #[default]
    Min,
    /// Up, as accuracies do.
    Max,
}

/// What a threshold is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThresholdMode {
    /// The best metric so far.
    #[default]
    Rel,
    /// 1.
    Abs,
}

/// Settings of [`ReduceLrOnPlateau`], with PyTorch's defaults and names.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReduceLrOnPlateauOptions {
    /// Which way the metric gets better.
    pub mode: Mode,
    /// What rates are multiplied by.
    pub factor: f64,
    /// So many epochs may be no better; the next one lowers the rates.
    pub patience: u64,
    /// By how much a metric has to be better.
    pub threshold: f64,
    /// What that is a part of.
    pub threshold_mode: ThresholdMode,
    /// For so many epochs after a fall none is counted.
    pub cooldown: u64,
    /// The lowest rate.
    pub min_lr: f64,
    /// A fall by less than that is left out.
    pub eps: f64,
}

impl Default for ReduceLrOnPlateauOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Min,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            threshold_mode: ThresholdMode::Rel,
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
        }
    }
}

/// Lowers rates when a metric has not got better for a while, as
/// `torch.optim.lr_scheduler.ReduceLROnPlateau`. What is public is its state, to be saved and loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct ReduceLrOnPlateau {
    options: ReduceLrOnPlateauOptions,
    /// The best metric so far.
    pub best: f64,
    /// Epochs in a row that were no better.
    pub num_bad_epochs: u64,
    /// Epochs for which none is counted.
    pub cooldown_counter: u64,
}

impl ReduceLrOnPlateau {
    /// A schedule that has seen nothing.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] unless the factor is from 0 up and below 1.
    #[track_caller]
    pub fn new(options: ReduceLrOnPlateauOptions) -> Result<Self> {
        if !(0.0..1.0).contains(&options.factor) {
            let message = format!(
                "ReduceLrOnPlateau: the factor must be a number from 0 up and below 1, not {}",
                options.factor
            );
            return Err(usage_error(message, Location::caller()));
        }
        Ok(Self {
            best: match options.mode {
                Mode::Min => f64::INFINITY,
                Mode::Max => f64::NEG_INFINITY,
            },
            options,
            num_bad_epochs: 0,
            cooldown_counter: 0,
        })
    }

    /// Notes the metric of an epoch, and lowers the rates of all groups if it is time. Answers whether it was.
    /// A metric that is NaN is no better than any.
    ///
    /// # Errors
    /// Those of [`Optimizer::set_lrs`].
    #[track_caller]
    pub fn step(&mut self, metric: f64, optimizer: &mut dyn Optimizer) -> Result<bool> {
        if self.is_better(metric) {
            self.best = metric;
            self.num_bad_epochs = 0;
        } else {
            self.num_bad_epochs += 1;
        }
        if self.cooldown_counter > 0 {
            self.cooldown_counter -= 1;
            self.num_bad_epochs = 0;
        }
        if self.num_bad_epochs <= self.options.patience {
            return Ok(false);
        }
        let lower = |old: f64| {
            let new = (old * self.options.factor).max(self.options.min_lr);
            if old - new > self.options.eps {
                new
            } else {
                old
            }
        };
        let lrs: Vec<f64> = optimizer.lrs().into_iter().map(lower).collect();
        optimizer.set_lrs(&lrs)?;
        self.cooldown_counter = self.options.cooldown;
        self.num_bad_epochs = 0;
        Ok(true)
    }

    fn is_better(&self, metric: f64) -> bool {
        let ReduceLrOnPlateauOptions {
            mode, threshold, ..
        } = self.options;
        match (mode, self.options.threshold_mode) {
            (Mode::Min, ThresholdMode::Rel) => metric < self.best * (1.0 - threshold),
            (Mode::Min, ThresholdMode::Abs) => metric < self.best - threshold,
            (Mode::Max, ThresholdMode::Rel) => metric > self.best * (1.0 + threshold),
            (Mode::Max, ThresholdMode::Abs) => metric > self.best + threshold,
        }
    }
}
