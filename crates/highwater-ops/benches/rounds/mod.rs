//! Times rounds of a closure; prints the median and the fastest, and what was computed or moved in a second.

use std::time::{Duration, Instant};

/// Rounds go on for so long, and for so many at least.
const LONG_ENOUGH: Duration = Duration::from_millis(600);
const FEWEST: usize = 10;

/// Times what the command line asks for: `cargo bench -p highwater-ops --bench conv -- dw` takes labels with "dw".
pub(crate) struct Rounds {
    wanted: Vec<String>,
}

impl Rounds {
    pub(crate) fn asked_for() -> Self {
        // Cargo itself says `--bench`.
        let words = std::env::args().skip(1);
        Self {
            wanted: words.filter(|word| !word.starts_with("--")).collect(),
        }
    }

    /// Times a closure that does so many things, `unit` being 10^9 of them in a second.
    #[expect(clippy::print_stdout, reason = "a bench prints its figures")]
    pub(crate) fn time(&self, label: &str, (count, unit): (u64, &str), mut round: impl FnMut()) {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|word| label.contains(word)) {
            return;
        }
        // The first touches pages and finds code.
        round();
        let (mut seconds, start) = (Vec::new(), Instant::now());
        while seconds.len() < FEWEST || start.elapsed() < LONG_ENOUGH {
            let start = Instant::now();
            round();
            seconds.push(start.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        let (median, fastest) = (seconds[seconds.len() / 2], seconds[0]);
        let rate = count as f64 / median / 1e9;
        println!(
            "{label:<44} {:>10.3} ms, fastest {:>10.3} ms, {rate:>8.2} {unit}",
            median * 1e3,
            fastest * 1e3
        );
    }
}
