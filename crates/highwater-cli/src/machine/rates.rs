//! What this machine does in a second: measured once, then read from the user's cache.
//!
//! The file is `rates-..json` in the folder `highwater` of the user's cache (`$XDG_CACHE_HOME`, else
//! `~/.cache`), one for each processor, number of threads and version of this program. A file that is
//! missing, damaged or of another machine is no error: it is measured again. Measuring is left to a
//! child process, whose memory is all given back when it ends. What the disk of a folder does is kept
//! beside it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use highwater::Rates;
use highwater::op::cpu;
use highwater_memory::{Bytes, Files, FilesError, ProcessMemory, spill};
use serde::{Deserialize, Serialize};

use super::cache::{self, Origin, folder};
use super::disk::disk_bandwidths;
use super::measuring::{Measured, is_sound, share};
use super::processor::{instructions, processor};
use crate::config::MachineConfig;
use crate::error::Failure;
use crate::terminal::output;

/// Changes when rates come to mean something else.
const FORMAT: u32 = 3;
/// Under a smaller budget nothing is measured: the process that measures takes up to this much.
const MEASURE_BYTES: Bytes = Bytes(64 << 20);
/// What a busy machine took is measured again, but not before so long.
const AGAIN: Duration = Duration::from_mins(10);

/// Rates, and where they come from.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// How it came by them.
    pub origin: Origin,
    /// The file in the cache; none where the user has no folder for it.
    pub file: Option<PathBuf>,
    /// The rates.
    pub rates: Rates,
}

/// What rates belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    format: u32,
    version: String,
    processor: String,
    instructions: Vec<String>,
    threads: usize,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    machine: Machine,
    /// What measuring could take, in bytes.
    bytes: u64,
    rates: Rates,
    /// When it is to be measured again, in seconds since 1970: the machine was busy, or a run took another time than
    /// was predicted by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    again_at: Option<u64>,
}

impl Machine {
    /// This one, with so many threads.
    pub fn this(threads: usize) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            processor: processor(),
            instructions: instructions().into_iter().map(str::to_owned).collect(),
            threads,
        }
    }

    /// The name of its file.
    fn file_name(&self) -> String {
        let level = cpu::level();
        let name = cache::words(&format!("{} {} {level}", self.version, self.processor));
        format!("rates-{name}-{}-threads.json", self.threads)
    }

    /// Its rates from the cache, if they are there, whole, and measured with at least so many bytes.
    pub fn read(&self, files: &dyn Files, folder: &Path, bytes: u64) -> Option<Rates> {
        let entry: Entry = cache::read(files, &folder.join(self.file_name()))?;
        let sound = is_sound(&entry.rates) && entry.bytes >= bytes;
        let stays = entry.again_at.is_none_or(|at| seconds_now() < at);
        (entry.machine == *self && sound && stays).then_some(entry.rates)
    }

    /// The rates that were measured last, whether they stay or not.
    fn last(&self, files: &dyn Files, folder: &Path) -> Option<Rates> {
        let entry: Entry = cache::read(files, &folder.join(self.file_name()))?;
        (entry.machine == *self && is_sound(&entry.rates)).then_some(entry.rates)
    }

    /// Has the machine measured again some time from now, as a run took another time than its rates predict. Without a
    /// cache there is nothing to do.
    pub fn doubt(&self, files: &dyn Files) {
        let Some(folder) = folder() else { return };
        let path = folder.join(self.file_name());
        let Some(entry) = cache::read::<Entry>(files, &path).filter(|it| it.machine == *self)
        else {
            return;
        };
        // Rates that nobody measured are not measured again.
        if entry.again_at.is_none() && entry.bytes != u64::MAX {
            let entry = Entry {
                again_at: Some(seconds_now() + AGAIN.as_secs()),
                ..entry
            };
            // Without it, later runs go by these rates too.
            let _ = cache::write(files, &folder, &self.file_name(), &entry);
        }
    }

    /// Writes its rates, measured with so many bytes, to the cache: all of them or nothing.
    ///
    /// # Errors
    /// When a file operation fails.
    pub fn write(
        &self,
        files: &dyn Files,
        folder: &Path,
        (rates, bytes): (&Rates, u64),
        busy: bool,
    ) -> Result<(), FilesError> {
        let entry = Entry {
            machine: self.clone(),
            bytes,
            rates: rates.clone(),
            again_at: busy.then(|| seconds_now() + AGAIN.as_secs()),
        };
        cache::write(files, folder, &self.file_name(), &entry)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "when rates were measured decides when they are measured again, and no number of a run"
)]
fn seconds_now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Has predictions be about this machine: by its rates from the cache, or measured if the budget has
/// room for that. Tells the user when it measures.
///
/// It measures before this process takes memory: what measuring takes is not there at the same time.
///
/// # Errors
/// [`Failure`] where the folder of `--disk` cannot hold what it is to hold.
pub fn find_rates(files: &dyn Files, settings: &mut MachineConfig) -> Result<(), Failure> {
    if let Some(disk) = &mut settings.disk {
        // Measuring takes a quarter of what it moves of memory.
        let bytes = disk.bytes.0.min(settings.memory.0 / 2);
        let found = disk_bandwidths(files, &disk.folder, bytes, false)?;
        let rings = found.backend.starts_with("io_uring") || cfg!(not(target_os = "linux"));
        if !(found.direct && rings) {
            output::news(&format!(
                "warning: {} is accessed by {}, which is slower; results are the same",
                disk.folder.display(),
                found.backend
            ));
        }
        if spill::is_memory(&disk.folder) {
            output::news(&format!(
                "warning: {} is in memory, not on a disk: tensors offloaded there use memory in addition to --memory",
                disk.folder.display()
            ));
        }
        disk.rates = Some(found.bandwidths);
    }
    let machine = Machine::this(settings.threads);
    let bytes = share(settings.memory.0);
    let cached = folder().and_then(|folder| machine.read(files, &folder, bytes));
    settings.rates = match cached {
        Some(rates) => rates,
        None if settings.memory < MEASURE_BYTES => {
            output::news(
                "predicted times are rough: this machine was never measured, and the budget is too small to measure \
                it now; run `highwater doctor` once",
            );
            Rates::default()
        }
        None => {
            output::news("measuring this machine (some seconds)");
            let found = measured(files, &machine, bytes, false);
            // Another process would measure others, and come to other plans.
            match found.file {
                Some(_) => found.rates,
                None => Rates::default(),
            }
        }
    };
    Ok(())
}

/// The same for `doctor`: says where they come from, and measures again if asked to.
pub fn find(files: &dyn Files, threads: usize, again: bool) -> Found {
    let machine = Machine::this(threads);
    let folder = folder();
    let read = |folder: &PathBuf| machine.read(files, folder, 0);
    if let Some(rates) = folder.as_ref().filter(|_| !again).and_then(read) {
        return Found {
            origin: Origin::Cached,
            file: folder.map(|folder| folder.join(machine.file_name())),
            rates,
        };
    }
    // Where the system does not tell there is no bound to keep to.
    let bound = ProcessMemory::read().map_or(u64::MAX, |memory| memory.bound());
    measured(files, &machine, share(bound), again)
}

/// Measures, and keeps the result: in place of what is kept only if asked to, as another process may have
/// measured meanwhile, by whose rates it plans.
fn measured(files: &dyn Files, machine: &Machine, bytes: u64, again: bool) -> Found {
    let Some(Measured { mut rates, busy }) = Measured::measure_in_child(machine.threads, bytes)
    else {
        return Found {
            origin: Origin::Constants,
            file: None,
            rates: Rates::default(),
        };
    };
    let read = |folder: &PathBuf| machine.read(files, folder, bytes);
    let kept = folder().filter(|_| !again).and_then(|folder| read(&folder));
    if let (Some(rates), Some(folder)) = (kept, folder()) {
        return Found {
            origin: Origin::Measured,
            file: Some(folder.join(machine.file_name())),
            rates,
        };
    }
    if let Some(before) = folder()
        .filter(|_| busy)
        .and_then(|folder| machine.last(files, &folder))
    {
        // What else a machine does only adds to what it takes.
        rates = rates.least(&before);
    }
    if busy {
        output::news(
            "note: this machine is busy, so predicted times may be too long; it will be measured again",
        );
    }
    let write = |folder: &PathBuf| machine.write(files, folder, (&rates, bytes), busy).is_ok();
    let written = folder().filter(write);
    Found {
        origin: Origin::Measured,
        file: written.map(|folder| folder.join(machine.file_name())),
        rates,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater::{Curve, Point};
    use highwater_memory::files::MemoryFiles;

    const BYTES: u64 = 28 << 20;

    fn measured() -> Rates {
        let point = Point {
            roofline_seconds: 0.1,
            seconds: 0.25,
        };
        let curve = Curve::through(vec![point]);
        Rates {
            operations: [("linear".to_owned(), curve)].into(),
            ..Rates::default()
        }
    }

    fn files() -> (MemoryFiles, PathBuf, Machine) {
        let machine = Machine {
            processor: "x86_64 Some(R) Processor @ 2.10GHz 6 207".to_owned(),
            ..Machine::this(2)
        };
        (
            MemoryFiles::new(),
            PathBuf::from("/cache/highwater"),
            machine,
        )
    }

    #[test]
    fn what_was_written_is_read_by_the_same_machine_only() {
        let (files, folder, machine) = files();
        assert_eq!(machine.read(&files, &folder, BYTES), None);
        machine
            .write(&files, &folder, (&measured(), BYTES), false)
            .unwrap();
        assert_eq!(machine.read(&files, &folder, BYTES), Some(measured()));
        assert_eq!(machine.read(&files, &folder, BYTES + 1), None);
        let other = Machine {
            threads: 3,
            ..machine.clone()
        };
        assert_eq!(other.read(&files, &folder, BYTES), None);
        // Under the same name, from a processor with other instructions.
        let other = Machine {
            instructions: vec!["another".to_owned()],
            ..machine.clone()
        };
        assert_eq!(other.file_name(), machine.file_name());
        assert_eq!(other.read(&files, &folder, BYTES), None);
        assert_eq!(files.list_dir(&folder).unwrap().len(), 1);
    }

    #[test]
    fn what_a_busy_machine_took_is_measured_again_later() {
        let (files, folder, machine) = files();
        let write = |busy| machine.write(&files, &folder, (&measured(), BYTES), busy);
        write(true).unwrap();
        assert_eq!(machine.read(&files, &folder, BYTES), Some(measured()));
        let path = folder.join(machine.file_name());
        let mut entry: Entry = cache::read(&files, &path).unwrap();
        entry.again_at = Some(seconds_now() - 1);
        cache::write(&files, &folder, &machine.file_name(), &entry).unwrap();
        assert_eq!(machine.read(&files, &folder, BYTES), None);
        assert_eq!(machine.last(&files, &folder), Some(measured()));
        write(false).unwrap();
        assert_eq!(machine.read(&files, &folder, BYTES), Some(measured()));
    }

    #[test]
    fn damaged_files_are_as_if_missing() {
        let (files, folder, machine) = files();
        machine
            .write(&files, &folder, (&measured(), BYTES), false)
            .unwrap();
        let path = folder.join(machine.file_name());
        let mut file = files.open(&path).unwrap();
        let mut whole = vec![0; file.bytes() as usize];
        file.read_exact_at(0, &mut whole).unwrap();
        for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
            files
                .create(&path)
                .unwrap()
                .write_all(&whole[..cut])
                .unwrap();
            assert_eq!(machine.read(&files, &folder, BYTES), None, "{cut}");
        }
        for (from, to) in [
            ("0.25", "-1.0"),
            ("\"linear\"", "7"),
            ("390000000000.0", "1.0"),
        ] {
            let text = String::from_utf8(whole.clone()).unwrap();
            assert!(text.contains(from), "{text}");
            let text = text.replace(from, to);
            files
                .create(&path)
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
            let read = machine.read(&files, &folder, BYTES);
            assert!(read.is_none_or(|rates| rates.operations["linear"].points().is_empty()));
        }
        machine
            .write(&files, &folder, (&measured(), BYTES), false)
            .unwrap();
        assert_eq!(machine.read(&files, &folder, BYTES), Some(measured()));
        assert_eq!(machine.read(&files, &folder, BYTES + 1), None);
    }
}
