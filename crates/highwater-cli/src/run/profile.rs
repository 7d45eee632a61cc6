//! `--profile`: what each operation took, beside what this machine does at most.

use std::fmt::Write;

use highwater::{DType, Engine, OperationProfile};
use serde_json::json;

use crate::machine::MachineLimits;

/// The profile of a run.
#[derive(Debug)]
pub struct Profile {
    rows: Vec<OperationProfile>,
    machine: Option<MachineLimits>,
}

impl Profile {
    /// What an engine's operations took.
    pub fn of(engine: &Engine, machine: Option<MachineLimits>) -> Self {
        Self {
            rows: engine.profile(),
            machine,
        }
    }

    /// The share of its limit that an operation reached: arithmetic's or copying's, whichever would
    /// take longer.
    fn share(&self, row: &OperationProfile) -> Option<f64> {
        let machine = self.machine?;
        let flops = match row.dtype {
            DType::BF16 => machine.bf16_flops,
            _ => machine.f32_flops,
        };
        let least = (row.flops / flops).max(row.bytes / machine.copy_bytes);
        Some(least / row.seconds)
    }

    /// For programs: a row for each operation and dtype, and the limits.
    pub fn to_json(&self) -> serde_json::Value {
        let row = |row: &OperationProfile| {
            json!({
                "op": row.op,
                "dtype": row.dtype.to_string(),
                "runs": row.runs,
                "seconds": row.seconds,
                "flops": row.flops,
                "bytes": row.bytes,
                "share_of_limit": self.share(row),
            })
        };
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        json!({ "operations": rows, "limits": self.machine })
    }

    /// For people: a table, those that took longest first.
    pub fn to_text(&self) -> String {
        let total: f64 = self.rows.iter().map(|row| row.seconds).sum();
        let mut text = match &self.machine {
            Some(machine) => format!(
                "limits of this machine: {:.0} GFLOP/s in f32, {:.0} in bf16, {:.1} GB/s copying {}\n",
                machine.f32_flops / 1e9,
                machine.bf16_flops / 1e9,
                machine.copy_bytes / 1e9,
                highwater_memory::Bytes(machine.measured_with_bytes),
            ),
            None => "the limits of this machine could not be measured\n".to_owned(),
        };
        let mut line = |cells: [&str; 8]| {
            let [op, dtype, runs, seconds, time, flops, bytes, limit] = cells;
            // Writing to a text cannot fail.
            let _ = writeln!(
                text,
                "{op:<38}{dtype:<6}{runs:>9}{seconds:>10}{time:>8}{flops:>10}{bytes:>8}{limit:>10}"
            );
        };
        line([
            "operation",
            "dtype",
            "runs",
            "seconds",
            "time",
            "GFLOP/s",
            "GB/s",
            "of limit",
        ]);
        for row in &self.rows {
            let percent = |share: f64| format!("{:.1}%", 100.0 * share);
            line([
                row.op,
                &row.dtype.to_string(),
                &row.runs.to_string(),
                &format!("{:.3}", row.seconds),
                &percent(row.seconds / total),
                &format!("{:.1}", row.flops / row.seconds / 1e9),
                &format!("{:.1}", row.bytes / row.seconds / 1e9),
                &self.share(row).map_or("-".to_owned(), percent),
            ]);
        }
        text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(machine: Option<MachineLimits>) -> Profile {
        let row = |op, dtype, seconds, flops, bytes| OperationProfile {
            op,
            dtype,
            runs: 10,
            seconds,
            flops,
            bytes,
        };
        Profile {
            rows: vec![
                row("linear", DType::F32, 3.0, 6e11, 3e9),
                row("gelu", DType::F32, 1.0, 1e9, 1e10),
                row("linear", DType::BF16, 1.0, 6e11, 3e9),
            ],
            machine,
        }
    }

    #[test]
    fn shares_are_of_the_limit_that_binds() {
        let machine = MachineLimits {
            f32_flops: 4e11,
            bf16_flops: 8e11,
            copy_bytes: 2e10,
            measured_with_bytes: 1 << 20,
        };
        let profile = profile(Some(machine));
        // 1.5 of 3 seconds by arithmetic, 0.5 of 1 by memory.
        assert_eq!(profile.share(&profile.rows[0]), Some(0.5));
        assert_eq!(profile.share(&profile.rows[1]), Some(0.5));
        // 0.75 of 1 by products of pairs.
        assert_eq!(profile.share(&profile.rows[2]), Some(0.75));
        let text = profile.to_text();
        assert!(
            text.contains("400 GFLOP/s in f32, 800 in bf16, 20.0 GB/s copying 1 MiB"),
            "{text}"
        );
        assert!(text.contains("60.0%") && text.contains("50.0%"), "{text}");
        assert_eq!(profile.to_json()["operations"][1]["share_of_limit"], 0.5);
    }

    #[test]
    fn without_limits_times_are_told_all_the_same() {
        let profile = profile(None);
        assert!(profile.to_text().contains("could not be measured"));
        assert!(profile.to_json()["operations"][0]["share_of_limit"].is_null());
    }
}
