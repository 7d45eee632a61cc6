//! What the process uses, and what it may use.

use std::io;
use std::path::Path;

use crate::cgroup::{self, Limit};

/// What the process and the machine have, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    /// What the process uses.
    pub usage: Usage,
    /// The machine's memory in bytes.
    pub total_ram: u64,
    /// What the system thinks could be used without swapping, in bytes: of the whole machine.
    pub available_ram: u64,
    /// The strictest limit of the process's control groups, if there is one.
    pub limit: Option<Limit>,
    /// How many threads can run at once, under affinity and CPU quota.
    pub cores: usize,
    /// How many bytes the process may lock in memory; none without a limit.
    pub lockable: Option<u64>,
    /// When the system uses huge pages.
    pub huge_pages: HugePages,
}

/// Memory in use by the process, in bytes, as the system counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All memory in use (`VmRSS`).
    pub resident: u64,
    /// The most ever in use since the start or [`reset_peak`] (`VmHWM`).
    pub peak: u64,
    /// Of that in use: heap, stacks, arenas (`RssAnon`).
    pub anonymous: u64,
    /// Of that in use: code and mapped files (`RssFile`).
    pub file: u64,
    /// Of that in use: shared memory (`RssShmem`).
    pub shared: u64,
}

/// When the system uses huge pages (`transparent_hugepage/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Wherever they fit.
    Always,
    /// Where a program asks for them, as an arena does.
    OnRequest,
    /// Nowhere.
    Never,
    /// The system does not tell.
    Unknown,
}

impl ProcessMemory {
    /// Reads all of it.
    ///
    /// # Errors
    /// Where the system does not tell: without `/proc`.
    pub fn read() -> io::Result<Self> {
        let meminfo = std::fs::read_to_string("/proc/meminfo")?;
        let field = |name| parse_field(&meminfo, name).ok_or_else(|| missing("meminfo", name));
        let total_ram = field("MemTotal")?;
        Ok(Self {
            usage: Usage::read()?,
            total_ram,
            available_ram: field("MemAvailable").unwrap_or(total_ram),
            limit: cgroup::own_limit(),
            cores: std::thread::available_parallelism()?.get(),
            lockable: rustix::process::getrlimit(rustix::process::Resource::Memlock).current,
            huge_pages: HugePages::read(),
        })
    }

    /// The most that the process can ever have, in bytes: the machine's memory, or the control
    /// group's limit where that is less.
    pub fn bound(&self) -> u64 {
        self.limit
            .as_ref()
            .map_or(self.total_ram, |limit| limit.bytes.min(self.total_ram))
    }
}

impl Usage {
    /// Reads the process's use of memory. Takes tens of microseconds.
    ///
    /// # Errors
    /// Where the system does not tell: without `/proc/self/status`.
    pub fn read() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        Self::parse(&status).ok_or_else(|| missing("self/status", "VmRSS"))
    }

    /// From the text of `/proc/self/status`; none without the total.
    fn parse(status: &str) -> Option<Self> {
        let resident = parse_field(status, "VmRSS")?;
        let field = |name| parse_field(status, name).unwrap_or(0);
        Some(Self {
            resident,
            peak: field("VmHWM").max(resident),
            anonymous: field("RssAnon"),
            file: field("RssFile"),
            shared: field("RssShmem"),
        })
    }
}

impl HugePages {
    fn read() -> Self {
        let setting = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
        std::fs::read_to_string(setting).map_or(Self::Unknown, |text| Self::parse(&text))
    }

    /// From `always [madvise] never`.
    fn parse(text: &str) -> Self {
        match text.split(['[', ']']).nth(1) {
            Some("always") => Self::Always,
            Some("madvise") => Self::OnRequest,
            Some("never") => Self::Never,
            _ => Self::Unknown,
        }
    }
}

/// Makes [`Usage::peak`] start anew from what is in use now.
///
/// # Errors
/// Where the system does not permit it, as in some containers.
pub fn reset_peak() -> io::Result<()> {
    std::fs::write("/proc/self/clear_refs", "5")
}

fn missing(file: &str, field: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("/proc/{file} has no {field}"),
    )
}

/// The bytes of the line `name:   123 kB`.
fn parse_field(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| parse_kilobytes(line.strip_prefix(name)?.strip_prefix(':')?))
}

/// The bytes of `   123 kB`.
pub(crate) fn parse_kilobytes(text: &str) -> Option<u64> {
    text.trim()
        .strip_suffix("kB")?
        .trim_end()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read() {
        let status = "Name:\thighwater\nVmPeak:\t  999 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n\
                      RssAnon:\t     512 kB\nRssFile:\t     500 kB\nRssShmem:\t      12 kB\n";
        let usage = Usage::parse(status).unwrap();
        let expected = Usage {
            resident: 1 << 20,
            peak: 2 << 20,
            anonymous: 512 << 10,
            file: 500 << 10,
            shared: 12 << 10,
        };
        assert_eq!(usage, expected);
        assert_eq!(Usage::parse("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn huge_page_settings_are_read() {
        assert_eq!(
            HugePages::parse("[always] madvise never\n"),
            HugePages::Always
        );
        assert_eq!(
            HugePages::parse("always [madvise] never\n"),
            HugePages::OnRequest
        );
        assert_eq!(
            HugePages::parse("always madvise [never]\n"),
            HugePages::Never
        );
        assert_eq!(HugePages::parse("\n"), HugePages::Unknown);
    }

    #[test]
    fn the_bound_is_the_lesser_of_limit_and_machine() {
        let limit = |bytes| {
            Some(Limit {
                bytes,
                file: "/memory.max".into(),
            })
        };
        let mut memory = ProcessMemory {
            usage: Usage::default(),
            total_ram: 100,
            available_ram: 50,
            limit: None,
            cores: 1,
            lockable: None,
            huge_pages: HugePages::Unknown,
        };
        assert_eq!(memory.bound(), 100);
        memory.limit = limit(70);
        assert_eq!(memory.bound(), 70);
        memory.limit = limit(1000);
        assert_eq!(memory.bound(), 100);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_read() {
        let memory = ProcessMemory::read().unwrap();
        assert!(memory.usage.resident > 0 && memory.usage.resident <= memory.usage.peak);
        assert!(
            memory.usage.resident <= memory.bound() && memory.available_ram <= memory.total_ram
        );
        assert!(memory.cores > 0);
    }
}
