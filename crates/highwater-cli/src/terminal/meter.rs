//! How far something is that has to be done before a run: a bar at a terminal, elsewhere a line now and then.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use highwater_memory::Bytes;
use indicatif::{ProgressBar, ProgressStyle};

use super::figures::duration;
use super::output;

/// What takes less says nothing.
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// Lines come no more often than this.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The same of a bar.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Shows how many bytes are done.
#[derive(Debug)]
pub(crate) struct Meter {
    what: &'static str,
    started: Instant,
    is_terminal: bool,
    shown: RefCell<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    last: Option<Instant>,
    bar: Option<ProgressBar>,
}

impl Meter {
    /// Begins with nothing done of what is called so.
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            started: Instant::now(),
            is_terminal: output::is_terminal(),
            shown: RefCell::default(),
        }
    }

    /// Shows that so many bytes are done, if it is time.
    pub(crate) fn tell(&self, done: u64, of: u64) {
        let elapsed = self.started.elapsed();
        let mut shown = self.shown.borrow_mut();
        let every = if self.is_terminal {
            DRAW_EVERY
        } else {
            LINE_EVERY
        };
        let is_due = shown.last.is_none_or(|last| last.elapsed() >= every);
        if elapsed < FIRST_AFTER || !is_due || of == 0 {
            return;
        }
        shown.last = Some(Instant::now());
        let text = describe(self.what, (done.min(of), of), elapsed.as_secs_f64());
        if !self.is_terminal {
            output::news(&text);
            return;
        }
        let bar = shown.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(of);
            // The template is a constant; were it wrong, the plain bar would do.
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        bar.set_position(done.min(of));
        bar.set_message(text);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = self.shown.get_mut().bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Says what takes some seconds, until it is dropped: with a clock at a terminal, elsewhere by a line.
#[derive(Debug)]
pub(crate) struct Waiting {
    bar: Option<ProgressBar>,
}

impl Waiting {
    pub(crate) fn on(what: String) -> Self {
        if !output::is_terminal() {
            output::news(&what);
            return Self { bar: None };
        }
        let bar = ProgressBar::new_spinner();
        // The template is a constant; were it wrong, the plain spinner would do.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_message(what);
        bar.enable_steady_tick(DRAW_EVERY);
        Self { bar: Some(bar) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn describe(what: &str, (done, of): (u64, u64), seconds: f64) -> String {
    let share = done as f64 / of as f64;
    let rate = done as f64 / seconds.max(1e-9);
    let left = match done {
        0 => String::new(),
        done => format!(", {} left", duration((of - done) as f64 / rate)),
    };
    format!(
        "{what}: {:.0}% ({} of {}), {:.1} MB/s{left}",
        100.0 * share,
        Bytes(done),
        Bytes(of),
        rate / 1e6,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_share_rate_and_rest() {
        let half = (50 << 20, 100 << 20);
        assert_eq!(
            describe("tokenizing", half, 10.0),
            "tokenizing: 50% (50 MiB of 100 MiB), 5.2 MB/s, 10 s left"
        );
        assert_eq!(
            describe("tokenizing", (0, 100 << 20), 10.0),
            "tokenizing: 0% (0 B of 100 MiB), 0.0 MB/s"
        );
    }
}
