//! `doctor`: what this machine offers, and what limits it sets.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use highwater::{Curve, DType};
use highwater_memory::process::HugePages;
use highwater_memory::spill::free_bytes;
use highwater_memory::{Bytes, DiskFiles, ProcessMemory};
use serde::Serialize;

use crate::error::{Code, Failure};
use crate::machine::{self, Found, FoundDisk, Origin, processor};
use crate::terminal::output;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<FoundDisk>,
}

/// The most of a disk that is measured with, in bytes.
const DISK_BYTES: u64 = 1 << 30;

/// `doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,

    /// Measure the machine again, and with --disk its disk, instead of using stored results
    #[arg(long)]
    pub measure: bool,

    /// Also measure the disk of this folder, in about three seconds
    #[arg(long, value_name = "DIR")]
    pub disk: Option<PathBuf>,

    /// Threads to measure with [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Prints what was found.
///
/// # Errors
/// [`Failure`] where the system does not tell, or the disk's folder cannot be written to.
pub fn doctor(args: &DoctorArgs) -> Result<(), Failure> {
    let memory = ProcessMemory::read().map_err(|error| {
        Failure::new(Code::Files, error).hint("the system has to provide /proc")
    })?;
    let threads = args.threads.map_or(memory.cores, usize::from);
    let disk = args.disk.as_ref().map(|folder| {
        let half_of_free = free_bytes(folder).map_or(DISK_BYTES, |free| free / 2);
        let bytes = half_of_free.min(DISK_BYTES);
        machine::disk_bandwidths(&DiskFiles, folder, bytes, args.measure)
    });
    let disk = disk.transpose()?;
    let rates = machine::find(&DiskFiles, threads, args.measure);
    let findings = Findings::new(&memory, rates, disk);
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
    fn new(memory: &ProcessMemory, rates: Found, disk: Option<FoundDisk>) -> Self {
        let limit = memory.limit.as_ref();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            cores: memory.cores,
            instructions: processor::instructions(),
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
            disk,
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
            "instruction sets",
            match self.instructions.as_slice() {
                [] => "baseline only: training will be slow".to_owned(),
                found => found.join(", "),
            },
        );
        line("memory", Bytes(self.total_ram_bytes).to_string());
        line("available", Bytes(self.available_ram_bytes).to_string());
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
        let huge_pages = match self.huge_pages {
            "where asked for" => "on request (madvise)",
            other => other,
        };
        line("huge pages", huge_pages.to_owned());
        line(
            "lockable",
            match self.lockable_bytes {
                Some(bytes) => Bytes(bytes).to_string(),
                None => "unlimited".to_owned(),
            },
        );
        let disk = self.disk.as_ref().map_or(String::new(), disk_text);
        (text + "\n" + &rates_text(&self.rates) + &disk)
            .trim_end()
            .to_owned()
    }
}

/// Where figures come from, and where they are kept.
fn origin_text(origin: Origin, file: Option<&PathBuf>) -> String {
    let file = file.map_or("not stored".to_owned(), |path| path.display().to_string());
    match origin {
        Origin::Cached => format!("stored in {file}; --measure measures again"),
        Origin::Measured => format!("measured now ({file})"),
        Origin::Constants => "built-in constants, because measuring was not possible".to_owned(),
    }
}

/// What a disk does.
fn disk_text(disk: &FoundDisk) -> String {
    let rate = |bytes: f64| format!("{:.2} GB/s", bytes / 1e9);
    let found = &disk.bandwidths;
    let free = disk.free_bytes.map(|bytes| Bytes(bytes).to_string());
    let lines = [
        ("disk of", disk.folder.display().to_string()),
        ("  figures", origin_text(disk.origin, disk.file.as_ref())),
        ("  transfers", disk.backend.clone()),
        ("  free", free.unwrap_or_else(|| "unknown".to_owned())),
        ("  reading", rate(found.read)),
        ("  writing", rate(found.write)),
        (
            "  both at once",
            format!(
                "{} reading, {} writing",
                rate(found.read_while_writing),
                rate(found.write_while_reading)
            ),
        ),
        (
            "  processor time",
            format!("{:.3} s per GB", found.processor_seconds * 1e9),
        ),
    ];
    lines
        .map(|(name, value)| format!("{name:<20}{value}\n"))
        .concat()
}

/// The operations whose largest work people are told the rate of, on which numbers, and whether it is
/// arithmetic.
const TOLD: [(&str, DType, &str, bool); 4] = [
    ("linear", DType::F32, "  matrix products", true),
    ("linear", DType::BF16, "    in bf16", true),
    ("adamw", DType::F32, "  AdamW updates", false),
    ("add", DType::F32, "  tensor addition", false),
];

/// Where the rates come from, and what some of them are.
fn rates_text(found: &Found) -> String {
    let rates = &found.rates;
    let origin = origin_text(found.origin, found.file.as_ref());
    let mut text = format!("{:<20}{origin}\n", "rates");
    for (op, dtype, name, arithmetic) in TOLD {
        let measured = rates.measured(op, dtype);
        let points = measured.map_or(&[][..], Curve::points);
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

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_memory::spill::Bandwidths;

    #[test]
    fn both_forms_say_the_same() {
        let rates = Found {
            origin: Origin::Constants,
            file: None,
            rates: highwater::Rates::default(),
        };
        let disk = FoundDisk {
            folder: "/fast".into(),
            backend: "threads, direct".to_owned(),
            direct: true,
            free_bytes: Some(1 << 30),
            origin: Origin::Measured,
            file: None,
            bandwidths: Bandwidths {
                read: 2.5e9,
                write: 1e9,
                read_while_writing: 1.5e9,
                write_while_reading: 5e8,
                processor_seconds: 1e-10,
            },
        };
        let findings = Findings::new(&ProcessMemory::read().unwrap(), rates, Some(disk));
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json["cores"], findings.cores);
        let text = findings.to_text();
        assert!(text.contains("built-in constants, because measuring was not possible"));
        assert!(text.contains("cores") && text.contains("largest --memory"));
        assert_eq!(json["disk"]["bandwidths"]["read"], 2.5e9);
        assert!(text.contains("threads, direct") && text.contains("2.50 GB/s"));
        assert!(text.contains("1.50 GB/s reading, 0.50 GB/s writing"));
    }
}
