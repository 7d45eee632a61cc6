//! `doctor`: what this machine offers, and what limits it sets.

use std::fmt::Write;

use highwater_memory::process::HugePages;
use highwater_memory::{Bytes, ProcessMemory};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::error::{Code, Failure};
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
}

/// Prints what was found.
///
/// # Errors
/// [`Failure`] where the system does not tell.
pub fn doctor(args: &DoctorArgs) -> Result<(), Failure> {
    let findings = Findings::collect()?;
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
    fn collect() -> Result<Self, Failure> {
        let memory = ProcessMemory::read().map_err(|error| {
            Failure::new(Code::Files, error).hint("the system has to provide /proc")
        })?;
        let limit = memory.limit.as_ref();
        Ok(Self {
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
        })
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
        text
    }
}

/// The instructions that kernels make use of, among those that this machine has.
fn instructions() -> Vec<&'static str> {
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
        let findings = Findings::collect().unwrap();
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json["cores"], findings.cores);
        let text = findings.to_text();
        assert!(text.contains("cores") && text.contains("largest --memory"));
    }
}
