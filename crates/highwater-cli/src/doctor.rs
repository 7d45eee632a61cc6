//! `doctor`: what this machine offers, and what limits it sets.

use std::fmt::Write;
use std::path::PathBuf;

use highwater::Curve;
use highwater_memory::process::HugePages;
use highwater_memory::{Bytes, DiskFiles, ProcessMemory};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::error::{Code, Failure};
use crate::machine::{self, Found, Origin};
use crate::output;

/// What was found.
#[derive(Debug, Serialize)]
struct Findings {
    version: &'static str,
    cores: usize,
    instructions: Vec<&'static str>,
    total_ram_bytes: u64,
    available_ram_bytes: u64,
    limit_bytes: Option<u64>,
    limit_file: Option<String>,
    largest_budget_bytes: u64,
    lockable_bytes: Option<u64>,
    huge_pages: &'static str,
    rates: Found,
}

/// Prints what was found.
///
/// # Errors
/// [`Failure`] where the system does not tell.
pub fn doctor(args: &DoctorArgs) -> Result<(), Failure> {
    let memory = ProcessMemory::read().map_err(|error| {
        Failure::new(Code::Files, error).hint("the system has to provide /proc")
    })?;
    let threads = args.threads.map_or(memory.cores, usize::from);
    let rates = machine::find(&DiskFiles, threads, args.measure);
    let findings = Findings::new(&memory, rates);
    let json = || serde_json::to_string_pretty(&findings);
    let text = if args.json {
        json().map_err(|error| Failure::new(Code::Internal, error))?
    } else {
        findings.to_text()
    };
    output::result(&text);
    Ok(())
}

impl Findings {
    fn new(memory: &ProcessMemory, rates: Found) -> Self {
        let limit = memory.limit.as_ref();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            cores: memory.cores,
            instructions: instructions(),
            total_ram_bytes: memory.total_ram,
            available_ram_bytes: memory.available_ram,
            limit_bytes: limit.map(|limit| limit.bytes),
            limit_file: limit.map(|limit| limit.file.display().to_string()),
            largest_budget_bytes: memory.bound(),
            lockable_bytes: memory.lockable,
            huge_pages: match memory.huge_pages {
                HugePages::Always => "always",
                HugePages::OnRequest => "where asked for",
                HugePages::Never => "never",
                HugePages::Unknown => "unknown",
            },
            rates,
        }
    }

    fn to_text(&self) -> String {
        let mut text = format!("highwater {}\n", self.version);
        let mut line = |name: &str, value: String| {
            // Writing to a text cannot fail.
            let _ = write!(text, "\n{name:<20}{value}");
        };
        line("cores", self.cores.to_string());
        line(
            "instructions",
            match self.instructions.as_slice() {
                [] => "the basic ones only: training will be slow".to_owned(),
                found => found.join(", "),
            },
        );
        line("memory", Bytes(self.total_ram_bytes).to_string());
        line("free to use", Bytes(self.available_ram_bytes).to_string());
        line(
            "limit",
            match (self.limit_bytes, &self.limit_file) {
                (Some(bytes), Some(file)) => format!("{} ({file})", Bytes(bytes)),
                _ => "none".to_owned(),
            },
        );
        line(
            "largest --memory",
            Bytes(self.largest_budget_bytes).to_string(),
        );
        line("huge pages", self.huge_pages.to_owned());
        line(
            "lockable",
            match self.lockable_bytes {
                Some(bytes) => Bytes(bytes).to_string(),
                None => "without limit".to_owned(),
            },
        );
        text + "\n" + rates_text(&self.rates).trim_end()
    }
}

/// The operations whose largest work people are told the rate of, and whether it is arithmetic.
const TOLD: [(&str, &str, bool); 3] = [
    ("linear", "  matrix products", true),
    ("adamw", "  updates", false),
    ("add", "  sums of tensors", false),
];

/// Where the rates come from, and what some of them are.
fn rates_text(found: &Found) -> String {
    let rates = &found.rates;
    let file = |path: &PathBuf| path.display().to_string();
    let file = found.file.as_ref().map_or("not kept".to_owned(), file);
    let mut text = format!(
        "{:<20}{}\n",
        "rates",
        match found.origin {
            Origin::Cached => format!("known from {file}; --measure measures again"),
            Origin::Measured => format!("measured now ({file})"),
            Origin::Constants => "constants: measuring was not possible".to_owned(),
        }
    );
    for (op, name, arithmetic) in TOLD {
        let points = rates.operations.get(op).map_or(&[][..], Curve::points);
        if let Some(largest) = points.last() {
            let speed = largest.roofline_seconds / largest.seconds;
            // Writing to a text cannot fail.
            let _ = if arithmetic {
                let rate = speed * rates.matmul_flops / 1e9;
                writeln!(text, "{name:<20}{rate:.0} GFLOP/s")
            } else {
                let rate = speed * rates.memory_bytes / 1e9;
                writeln!(text, "{name:<20}{rate:.1} GB/s")
            };
        }
    }
    text
}

/// The instructions that kernels make use of, among those that this machine has.
pub(crate) fn instructions() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let all = [
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("fma", std::is_x86_feature_detected!("fma")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ("avx512bf16", std::is_x86_feature_detected!("avx512bf16")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let all: [(&str, bool); 0] = [];
    let found = all.into_iter().filter(|&(_, found)| found);
    found.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let rates = Found {
            origin: Origin::Constants,
            file: None,
            rates: highwater::Rates::default(),
        };
        let findings = Findings::new(&ProcessMemory::read().unwrap(), rates);
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json["cores"], findings.cores);
        let text = findings.to_text();
        assert!(text.contains("constants: measuring was not possible"));
        assert!(text.contains("cores") && text.contains("largest --memory"));
    }
}
