//! How training goes, for the person who waits: one line that is redrawn, or lines now and then
//! where there is no terminal.

use std::time::{Duration, Instant};

use highwater_memory::Bytes;
use indicatif::{ProgressBar, ProgressStyle};

use super::metrics::Record;
use crate::config::Task;
use crate::terminal::figures::{duration, per_second};
use crate::terminal::output;

/// Lines come no more often than this.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// The progress of a run.
#[derive(Debug)]
pub(super) struct Progress {
    steps: u64,
    budget: Bytes,
    /// What the data is counted in.
    unit: &'static str,
    started: Instant,
    /// Steps that were done before this start of the program.
    before: u64,
    display: Display,
}

#[derive(Debug)]
enum Display {
    Bar(ProgressBar),
    Lines { last: Option<Instant> },
}

impl Progress {
    /// Begins behind step `done` of `steps`.
    pub(super) fn new(done: u64, steps: u64, budget: Bytes, task: Task) -> Self {
        let display = if output::is_terminal() {
            let bar = ProgressBar::new(steps).with_position(done);
            // The template is a constant; were it wrong, the plain bar would do.
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
                bar.set_style(style);
            }
            Display::Bar(bar)
        } else {
            Display::Lines { last: None }
        };
        Self {
            steps,
            budget,
            unit: task.unit(),
            started: Instant::now(),
            before: done,
            display,
        }
    }

    /// Shows a step that is done.
    pub(super) fn step(&mut self, record: &Record) {
        let done = record.step.saturating_sub(self.before).max(1);
        let left = self.steps.saturating_sub(record.step);
        let remaining = self.started.elapsed().as_secs_f64() / done as f64 * left as f64;
        let text = describe(record, self.budget, self.unit, remaining);
        match &mut self.display {
            Display::Bar(bar) => {
                bar.set_position(record.step);
                bar.set_message(text);
            }
            Display::Lines { last } => {
                let due = last.is_none_or(|last| last.elapsed() >= LINE_EVERY);
                if due || left == 0 {
                    *last = Some(Instant::now());
                    output::news(&format!("step {}/{}  {text}", record.step, self.steps));
                }
            }
        }
    }

    /// Ends; the last line stays.
    pub(super) fn finish(&self) {
        if let Display::Bar(bar) = &self.display {
            bar.abandon();
        }
    }
}

fn describe(record: &Record, budget: Bytes, unit: &str, remaining: f64) -> String {
    format!(
        "loss {:.4}  lr {:.2e}  {} {unit}/s  {:.3} s ({:.3} predicted)  {} of {budget}  {} left",
        record.loss,
        record.lr,
        per_second(record.tokens_per_second),
        record.seconds,
        record.predicted_seconds,
        Bytes(record.peak_rss_bytes),
        duration(remaining),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_for_people() {
        for (seconds, text) in [
            (-1.0, "0 s"),
            (59.4, "59 s"),
            (59.6, "1 min 0 s"),
            (200.0, "3 min 20 s"),
            (18_600.0, "5 h 10 min"),
            (f64::NAN, "0 s"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn a_step_is_one_line() {
        let record = Record {
            step: 3,
            loss: 2.345_67,
            lr: 1e-3,
            tokens_per_second: 20_345.6,
            seconds: 0.0503,
            predicted_seconds: 0.0488,
            peak_rss_bytes: 60 << 20,
            ..Record::default()
        };
        assert_eq!(
            describe(&record, Bytes(64 << 20), "tokens", 12.0),
            "loss 2.3457  lr 1.00e-3  20346 tokens/s  0.050 s (0.049 predicted)  60 MiB of 64 MiB  \
             12 s left"
        );
    }
}
