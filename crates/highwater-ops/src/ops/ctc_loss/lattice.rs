//! The states that a target goes through, frame by frame: before, between and behind its labels it may be blank.
//! State `2 i + 1` is label `i`, states of even number are blanks.
//!
//! A path stays in its state from one frame to the next, or goes on to the next one, or, past the blank between two
//! labels that differ, to the one after. It ends in one of the last two. Probabilities are logarithms.

/// The extents of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) frames: usize,
    pub(super) batch: usize,
    pub(super) classes: usize,
    /// Labels of the longest target that there may be, or all of them if they are packed.
    pub(super) width: usize,
    /// Whether targets lie one behind the other.
    pub(super) packed: bool,
}

/// How many states a target of so many labels has.
pub(super) fn states(labels: usize) -> usize {
    2 * labels + 1
}

/// One target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) labels: &'a [usize],
    pub(super) blank: usize,
}

impl Target<'_> {
    /// The class that a state asks for.
    pub(super) fn class(self, state: usize) -> usize {
        if state.is_multiple_of(2) {
            self.blank
        } else {
            self.labels[state / 2]
        }
    }

    /// Whether a path may come to a state from the last but one.
    fn skips_to(self, state: usize) -> bool {
        state >= 2 && self.class(state) != self.blank && self.class(state) != self.class(state - 2)
    }

    /// How probable it is to be in each state at the first frame.
    pub(super) fn begin(self, alpha: &mut [f64], log_prob: impl Fn(usize) -> f64) {
        alpha.fill(f64::NEG_INFINITY);
        for (state, alpha) in alpha.iter_mut().enumerate().take(2) {
            *alpha = log_prob(self.class(state));
        }
    }

    /// The same at the next frame.
    pub(super) fn advance(self, alpha: &mut [f64], log_prob: impl Fn(usize) -> f64) {
        for state in (0..alpha.len()).rev() {
            let before = |back: usize| alpha[state - back];
            let next = if state >= 1 {
                before(1)
            } else {
                f64::NEG_INFINITY
            };
            let skipped = if self.skips_to(state) {
                before(2)
            } else {
                f64::NEG_INFINITY
            };
            alpha[state] = log_sum([before(0), next, skipped]) + log_prob(self.class(state));
        }
    }

    /// How probable what is to come is from each state of the last frame.
    pub(super) fn end(beta: &mut [f64]) {
        beta.fill(f64::NEG_INFINITY);
        for beta in beta.iter_mut().rev().take(2) {
            *beta = 0.0;
        }
    }

    /// The same one frame before, of whose next the classes have these probabilities.
    pub(super) fn retreat(self, beta: &mut [f64], log_prob: impl Fn(usize) -> f64) {
        let count = beta.len();
        // What follows is not needed any more once its predecessors are made, so it is multiplied where it is.
        for (state, beta) in beta.iter_mut().enumerate() {
            *beta += log_prob(self.class(state));
        }
        for state in 0..count {
            let behind = |ahead: usize| beta[state + ahead];
            let next = if state + 1 < count {
                behind(1)
            } else {
                f64::NEG_INFINITY
            };
            let skips = state + 2 < count && self.skips_to(state + 2);
            let skipped = if skips { behind(2) } else { f64::NEG_INFINITY };
            beta[state] = log_sum([behind(0), next, skipped]);
        }
    }

    /// The loss, of what the last frame ends in.
    pub(super) fn loss(alpha: &[f64]) -> f64 {
        let last = |back: usize| {
            let state = alpha.len().checked_sub(back);
            state.map_or(f64::NEG_INFINITY, |state| alpha[state])
        };
        -log_sum([last(1), last(2), f64::NEG_INFINITY])
    }

    /// The loss where there are no frames.
    pub(super) fn loss_of_nothing(self) -> f64 {
        if self.labels.is_empty() {
            0.0
        } else {
            f64::INFINITY
        }
    }
}

/// The logarithm of a sum of exponentials.
fn log_sum(x: [f64; 3]) -> f64 {
    let largest = x[0].max(x[1]).max(x[2]);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    let sum: f64 = x.iter().map(|x| (x - largest).exp()).sum();
    largest + sum.ln()
}
