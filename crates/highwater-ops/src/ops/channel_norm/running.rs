//! Running statistics.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::{Entry, Fill};

/// `momentum correction statistic + (1 - momentum) running`, of `running` and `statistic`: what
/// `torch.nn.BatchNorm2d` makes its running mean and variance of. Has no gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunningAverage {
    /// What the new statistic counts; may change from step to step.
    pub momentum: f64,
    /// What it is multiplied by: for a variance, elements by elements less one.
    pub correction: f64,
}

pointwise_op!(RunningAverage: 2);

impl Pointwise<2> for RunningAverage {
    const NAME: &'static str = "running_average";
    const FLOPS: f64 = 3.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [running, statistic]: [f32; 2]) -> f32 {
        let new = (self.momentum * self.correction) as f32 * statistic;
        I::fma((1.0 - self.momentum) as f32, running, new)
    }

    fn exact(&self, [running, statistic]: [f64; 2]) -> f64 {
        self.momentum * self.correction * statistic + (1.0 - self.momentum) * running
    }
}

const SAMPLE: RunningAverage = RunningAverage {
    momentum: 0.1,
    correction: 1.25,
};

pub(super) const ENTRY: Entry = pointwise::binary_entry::<RunningAverage>(
    || pointwise::binary_samples(&SAMPLE, [Fill::Normal(1.0), Fill::Normal(1.0)]),
    || pointwise::rejects::<2>(&SAMPLE),
);
