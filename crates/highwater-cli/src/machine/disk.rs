//! What the disk of a folder does in a second: measured once for each folder, like the rest.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use highwater_memory::Files;
use highwater_memory::spill::{self, Bandwidths, SpillError};
use serde::{Deserialize, Serialize};

use super::cache::{self, Origin};
use crate::terminal::output;

/// A run that moved so many bytes knows a disk better than a measurement.
const TELLING: u64 = 8 << 30;
/// Changes when the figures come to mean something else.
const FORMAT: u32 = 2;

/// What a folder's disk does, and where that is known from.
#[derive(Clone, Debug, Serialize)]
pub struct FoundDisk {
    /// The folder, as the system names it.
    pub folder: PathBuf,
    /// How bytes travel, in a few words: `io_uring, direct`, say.
    pub backend: String,
    /// Whether they go past the page cache.
    pub direct: bool,
    /// The space that is free, in bytes, where the system tells.
    pub free_bytes: Option<u64>,
    /// How the program came by the figures.
    pub origin: Origin,
    /// The file in the cache; none where the user has no folder for it.
    pub file: Option<PathBuf>,
    /// The figures.
    pub bandwidths: Bandwidths,
}

/// What figures belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    format: u32,
    version: String,
    device: u64,
    folder: PathBuf,
    backend: String,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    place: Place,
    /// With how much of the disk they were measured.
    bytes: u64,
    bandwidths: Bandwidths,
}

impl Place {
    fn of(folder: &Path) -> Result<Self, SpillError> {
        let backend = spill::open(folder, 1, 0)?.backend();
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        Ok(Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device: std::fs::metadata(&folder).map_or(0, |found| found.dev()),
            folder,
            backend: backend.to_owned(),
        })
    }

    fn file_name(&self) -> String {
        let words = cache::words(&self.folder.to_string_lossy());
        format!("disk-{:x}-{words}.json", self.device)
    }

    /// Its figures from the cache, if they are there, whole, and measured with at least so much.
    fn read(&self, files: &dyn Files, folder: &Path, bytes: u64) -> Option<Bandwidths> {
        let entry: Entry = cache::read(files, &folder.join(self.file_name()))?;
        let found = entry.bandwidths;
        let all = [
            found.read,
            found.write,
            found.read_while_writing,
            found.write_while_reading,
            found.processor_seconds,
        ];
        let sound = all.iter().all(|figure| figure.is_finite() && *figure > 0.0);
        (entry.place == *self && entry.bytes >= bytes && sound).then_some(found)
    }
}

/// What the disk of a folder does: from the cache, or measured with `bytes` of it, as
/// [`spill::measure`] has it. It is measured `again` if so wanted. Tells the user when it measures.
///
/// # Errors
/// [`SpillError`] where the folder cannot hold what is measured with.
pub fn disk_bandwidths(
    files: &dyn Files,
    folder: &Path,
    bytes: u64,
    again: bool,
) -> Result<FoundDisk, SpillError> {
    // Whether the folder can be written to, and how, is asked each time.
    let place = Place::of(folder)?;
    let (backend, folder) = (place.backend.clone(), place.folder.clone());
    let cache_folder = cache::folder();
    let read = |cache: &PathBuf| place.read(files, cache, bytes);
    let cached = cache_folder.as_ref().filter(|_| !again).and_then(read);
    let (origin, bandwidths) = if let Some(bandwidths) = cached {
        (Origin::Cached, bandwidths)
    } else {
        let name = folder.display();
        output::news(&format!(
            "measuring the disk of {name} once (about three seconds)"
        ));
        (Origin::Measured, spill::measure(&folder, bytes)?)
    };
    let kept = cache_folder.filter(|cache| {
        let entry = || Entry {
            place: place.clone(),
            bytes,
            bandwidths,
        };
        cached.is_some() || cache::write(files, cache, &place.file_name(), &entry()).is_ok()
    });
    Ok(FoundDisk {
        direct: backend.ends_with("direct"),
        backend,
        free_bytes: spill::free_bytes(&folder),
        origin,
        file: kept.map(|cache| cache.join(place.file_name())),
        bandwidths,
        folder,
    })
}

/// Keeps what a run of `moved` bytes saw of a folder's disk, in place of what a short measurement said:
/// a disk that is used for long is slower than one that was just idle. Short runs say nothing.
pub fn remember(files: &dyn Files, folder: &Path, bandwidths: Bandwidths, moved: u64) {
    let place = Place::of(folder).ok().filter(|_| moved >= TELLING);
    if let Some((place, cache)) = place.zip(cache::folder()) {
        let entry = Entry {
            place: place.clone(),
            bytes: u64::MAX,
            bandwidths,
        };
        // Without it, the next run starts with the old figures.
        let _ = cache::write(files, &cache, &place.file_name(), &entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_memory::files::MemoryFiles;

    #[test]
    fn figures_are_those_of_one_place_and_of_enough_bytes() {
        let files = MemoryFiles::new();
        let folder = Path::new("/cache/highwater");
        let place = Place {
            format: FORMAT,
            version: "1".to_owned(),
            device: 7,
            folder: "/somewhere/fast".into(),
            backend: "io_uring, direct".to_owned(),
        };
        let bandwidths = Bandwidths {
            read: 2e9,
            write: 1e9,
            read_while_writing: 8e8,
            write_while_reading: 5e8,
            processor_seconds: 1e-10,
        };
        assert_eq!(place.file_name(), "disk-7-somewhere-fast.json");
        assert_eq!(place.read(&files, folder, 1), None);
        let entry = |bandwidths| Entry {
            place: place.clone(),
            bytes: 100,
            bandwidths,
        };
        let write = |entry| cache::write(&files, folder, &place.file_name(), &entry).unwrap();
        write(entry(bandwidths));
        assert_eq!(place.read(&files, folder, 100), Some(bandwidths));
        assert_eq!(place.read(&files, folder, 101), None);
        let other = Place {
            backend: "threads, direct".to_owned(),
            ..place.clone()
        };
        assert_eq!(other.read(&files, folder, 1), None);
        write(entry(Bandwidths {
            read: -1.0,
            ..bandwidths
        }));
        assert_eq!(place.read(&files, folder, 1), None);
    }
}
