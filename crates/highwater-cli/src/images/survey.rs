//! Looks over the images of a run before its first step, and remembers what came of that.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use highwater::data::DataError;
use highwater::data::images::{Depth, Found, LOOK_BYTES, Largest, Layout, Looked, look_over};
use highwater_memory::saved::{Digest, Digester};
use highwater_memory::{Bytes, Files, heap};
use highwater_models::data::Reads;
use serde::{Deserialize, Serialize};

use super::loading::WORKERS;
use crate::config::{MachineConfig, RunConfig};
use crate::error::{Code, Failure};
use crate::machine::cache;
use crate::terminal::output;

/// Images whose files have so many bytes together, at most, are decoded when they are looked over.
const DECODED_BYTES: u64 = 256 << 20;
/// Of a budget, what looking over may use.
const SHARE: u64 = 4;
/// Bad images that the terminal lists.
pub(crate) const LISTED: usize = 10;
/// From so many images on, looking over takes long enough to be announced.
const MANY: usize = 2000;
/// Memory of a decoder beside its pixels, in bytes.
const DECODER_BYTES: u64 = 1 << 20;
/// Files that were changed within so many nanoseconds may change again without a sign.
const SETTLED_NANOS: i128 = 2_000_000_000;
/// Changes when looking over comes to something else.
const FORMAT: u32 = 1;
/// Bytes of an entry of a list of images beside its path.
const ENTRY_BYTES: u64 = 64;

/// An image that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Where it is.
    pub path: PathBuf,
    /// Why.
    pub problem: String,
}

/// What came of looking over the images of a run.
#[derive(Debug)]
pub struct Survey {
    root: PathBuf,
    /// Images that cannot be used.
    pub bad: Vec<Bad>,
    /// The image that decoding needs most memory for.
    largest: Option<(PathBuf, Largest)>,
    /// Bytes of the lists of images.
    pub listing_bytes: u64,
}

/// What was found last, and of what.
type Once<K, T> = Mutex<Option<(K, Arc<T>)>>;

/// What was found of a run's data already: each thing once.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    layout: Once<PathBuf, Layout>,
    survey: Once<(PathBuf, Reads), Survey>,
}

impl Seen {
    pub(crate) fn layout(&self, files: &dyn Files, data: &Path) -> Result<Arc<Layout>, Failure> {
        once(&self.layout, data.to_owned(), || {
            Layout::find(files, data).map_err(explained)
        })
    }

    pub(crate) fn survey(
        &self,
        files: &dyn Files,
        config: &RunConfig,
    ) -> Result<Arc<Survey>, Failure> {
        let data = config.data.path.as_deref().unwrap_or(Path::new(""));
        let (layout, reads) = (self.layout(files, data)?, config.data.reads);
        once(&self.survey, (data.to_owned(), reads), || {
            Survey::of(
                files,
                data,
                (&layout, reads),
                &config.machine,
                (cache::folder().as_deref(), now()),
            )
        })
    }
}

fn once<K: PartialEq, T>(
    cell: &Once<K, T>,
    key: K,
    find: impl FnOnce() -> Result<T, Failure>,
) -> Result<Arc<T>, Failure> {
    let mut held = cell.lock().unwrap_or_else(PoisonError::into_inner);
    match &*held {
        Some((of, found)) if *of == key => Ok(Arc::clone(found)),
        _ => {
            let found = Arc::new(find()?);
            *held = Some((key, Arc::clone(&found)));
            Ok(found)
        }
    }
}

/// A layout that is not known, with what to do about it.
fn explained(error: DataError) -> Failure {
    match error {
        DataError::Layout(error) => {
            let hint = error.hint();
            Failure::new(Code::Files, error).id("HW1024").hint(hint)
        }
        DataError::Files(error)
            if error.is_not_found() || error.source.kind() == ErrorKind::NotADirectory =>
        {
            let is = if error.is_not_found() {
                "there is no such folder"
            } else {
                "this is not a folder"
            };
            let message = format!("{}: {is}", error.path.display());
            let hint = "--data is a folder with one subfolder of images per class";
            Failure::new(Code::Files, message).id("HW1020").hint(hint)
        }
        error => error.into(),
    }
}

impl Survey {
    fn of(
        files: &dyn Files,
        root: &Path,
        (layout, reads): (&Layout, Reads),
        machine: &MachineConfig,
        (cache, now): (Option<&Path>, i128),
    ) -> Result<Self, Failure> {
        let held_out = layout.held_out.as_ref().map(|(_, images)| images);
        // Nothing that is not read can be in the way.
        let train = match (reads, held_out) {
            (Reads::Evaluation, Some(_)) => None,
            _ => Some(&layout.train),
        };
        let parts: Vec<&Vec<Found>> = train.into_iter().chain(held_out).collect();
        let images = || parts.iter().copied().flatten();
        let bytes: u64 = images().map(|image| image.bytes).sum();
        // By the files alone, so that a budget or a number of threads changes nothing about which are bad.
        let depth = if bytes <= DECODED_BYTES {
            Depth::Decoded
        } else {
            Depth::Whole
        };
        let most = machine.memory.0 / SHARE / LOOK_BYTES;
        let threads = machine.threads.min(most as usize).max(1);
        let classes = parts
            .iter()
            .flat_map(|images| images.chunk_by(|a, b| a.class == b.class));
        let file = file_name(root);
        let mut kept = Kept::read(files, cache, &file);
        let (mut keep, mut looked) = (BTreeMap::new(), Vec::new());
        let mut announced = images().count() < MANY;
        for images in classes {
            let key = key(root, images, depth);
            let known = kept.as_mut().and_then(|kept| kept.classes.remove(&key));
            let found = if let Some(found) = known {
                found
            } else {
                if !announced {
                    announced = true;
                    output::news("checking the images, once");
                }
                look_over(files, images, depth, threads)?.into()
            };
            if is_settled(images, &found, now) {
                keep.insert(key, found.clone());
            }
            looked.push((images, found));
        }
        if train.is_none() {
            // What is known of the rest is still true.
            keep.extend(kept.into_iter().flat_map(|kept| kept.classes));
        }
        let keep = Kept {
            format: FORMAT,
            classes: keep,
        };
        keep.write(files, cache, &file);
        let mut survey = Self {
            root: root.to_owned(),
            bad: Vec::new(),
            largest: None,
            listing_bytes: layout
                .images()
                .map(|image| image.path.as_os_str().len() as u64 + ENTRY_BYTES)
                .sum(),
        };
        for (images, found) in looked {
            survey.take(images, found);
        }
        // What decoding took is not there while the run plans and computes.
        heap::release_unused();
        Ok(survey)
    }

    fn take(&mut self, images: &[Found], found: Class) {
        let path = |place: usize| images[place].path.clone();
        for (place, problem) in found.bad {
            self.bad.push(Bad {
                path: path(place),
                problem,
            });
        }
        let Some((place, sides, decoding_bytes)) = found.largest else {
            return;
        };
        let most = self.largest.as_ref().map_or(0, |(_, of)| of.decoding_bytes);
        if decoding_bytes > most {
            let largest = Largest {
                place,
                sides,
                decoding_bytes,
            };
            self.largest = Some((path(place), largest));
        }
    }

    /// Memory that decoding the largest image needs, in bytes.
    pub fn decoding_bytes(&self) -> u64 {
        let most = self.largest.as_ref().map_or(0, |(_, of)| of.decoding_bytes);
        most + DECODER_BYTES
    }

    /// A word on the largest image, where decoding it takes a quarter of a budget or more.
    pub fn large(&self, budget: Bytes) -> Option<String> {
        let (path, largest) = self.largest.as_ref()?;
        let bytes = WORKERS as u64 * self.decoding_bytes();
        (bytes >= budget.0 / SHARE).then(|| {
            let [width, height] = largest.sides;
            format!(
                "{} is the largest image ({width} x {height} pixels): decoding two like it at once needs {}; scale it \
                 down, or leave it out",
                path.display(),
                Bytes(bytes)
            )
        })
    }

    /// That images are bad; none where all are good.
    pub fn refusal(&self) -> Option<Failure> {
        if self.bad.is_empty() {
            return None;
        }
        let count = match self.bad.len() {
            1 => "1 image cannot be used".to_owned(),
            count => format!("{count} images cannot be used"),
        };
        let message = format!(
            "{}: {count}\n{}",
            self.root.display(),
            self.first().join("\n")
        );
        let hint = "repair or remove them, or use --skip-bad to skip and list them";
        Some(Failure::new(Code::Files, message).id("HW1024").hint(hint))
    }

    /// The first bad images, and how many there are more.
    pub fn first(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.lines().take(LISTED).collect();
        if let Some(more) = self.bad.len().checked_sub(LISTED).filter(|&more| more > 0) {
            lines.push(format!("  and {more} more"));
        }
        lines
    }

    /// All bad images, a line each.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.bad.iter().map(|bad| {
            let name = bad.path.strip_prefix(&self.root).unwrap_or(&bad.path);
            format!("  {}: {}", name.display(), bad.problem)
        })
    }
}

/// What came of looking over the images of a class, by their places.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Class {
    largest: Option<(usize, [usize; 2], u64)>,
    bad: Vec<(usize, String)>,
}

impl From<Looked> for Class {
    fn from(looked: Looked) -> Self {
        let largest = looked.largest;
        Self {
            largest: largest.map(|of| (of.place, of.sides, of.decoding_bytes)),
            bad: looked.bad,
        }
    }
}

/// What is kept in the user's cache, by a digest of the names, lengths and times of the images of a class.
#[derive(Serialize, Deserialize)]
struct Kept {
    format: u32,
    classes: BTreeMap<String, Class>,
}

impl Kept {
    fn read(files: &dyn Files, cache: Option<&Path>, name: &str) -> Option<Self> {
        let kept: Self = cache::read(files, &cache?.join(name))?;
        (kept.format == FORMAT).then_some(kept)
    }

    /// Writes it, if there is where. What cannot be kept is looked over again.
    fn write(&self, files: &dyn Files, cache: Option<&Path>, name: &str) {
        if let Some(folder) = cache.filter(|_| !self.classes.is_empty()) {
            let _ = cache::write(files, folder, name, self);
        }
    }
}

fn file_name(root: &Path) -> String {
    let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let digest = Digest::of(root.as_os_str().as_encoded_bytes()).blake3;
    format!("images-{}.json", &digest[..16.min(digest.len())])
}

/// What tells whether images are those that were looked over: names, lengths and times.
fn key(root: &Path, images: &[Found], depth: Depth) -> String {
    let mut told = Digester::default();
    told.update(format!("{} {depth:?}\n", env!("CARGO_PKG_VERSION")).as_bytes());
    for image in images {
        let name = image.path.strip_prefix(root).unwrap_or(&image.path);
        told.update(name.as_os_str().as_encoded_bytes());
        // No name has a zero in it.
        let of = format!(
            "\0{} {:?} {:?}\n",
            image.bytes, image.changed, image.problem
        );
        told.update(of.as_bytes());
    }
    told.finish().blake3
}

/// Whether what came of looking at images will hold as long as their times stay the same: none was changed just now,
/// and none could not be opened, which may be this user's alone.
fn is_settled(images: &[Found], found: &Class, now: i128) -> bool {
    let is_old = |image: &Found| {
        let changed = image.changed;
        changed.is_some_and(|changed| changed + SETTLED_NANOS < now)
    };
    let is_of_system = |(_, problem): &(usize, String)| problem.contains("os error");
    images.iter().all(is_old) && !found.bad.iter().any(is_of_system)
}

/// Nanoseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the date decides what is kept, and no number of a run"
)]
fn now() -> i128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as i128)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Settings;
    use crate::settings::resolve;
    use highwater_memory::DiskFiles;
    use highwater_memory::files::{Operation, ScriptedFiles};

    /// Looks over images as if it were so many nanoseconds later. Returns the bad ones, and how many were opened.
    fn survey(root: &Path, cache: &Path, later: i128) -> (Vec<String>, usize) {
        survey_for(Reads::Training, root, cache, later)
    }

    fn survey_for(reads: Reads, root: &Path, cache: &Path, later: i128) -> (Vec<String>, usize) {
        let files = ScriptedFiles::new(Arc::new(DiskFiles), None);
        let layout = Layout::find(&DiskFiles, root).unwrap();
        let machine = resolve::run(&DiskFiles, &Settings::default()).unwrap();
        let machine = machine.config.machine;
        let found = Survey::of(
            &files,
            root,
            (&layout, reads),
            &machine,
            (Some(cache), now() + later),
        );
        let calls = files.calls().into_iter();
        // One of them is of the cache.
        let opened = calls.filter(|call| *call == Operation::Open).count() - 1;
        (found.unwrap().lines().collect(), opened)
    }

    #[test]
    fn images_are_looked_over_again_when_they_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (root, cache) = (folder.path().join("images"), folder.path().join("cache"));
        let put = |name: &str, bytes: &[u8]| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        let good = b"P5\n1 1\n255\n\x80";
        for name in ["a/0.pgm", "a/1.pgm", "b/0.pgm", "b/1.pgm"] {
            put(name, good);
        }
        let settled = 2 * SETTLED_NANOS;
        // What was written just now may be written again within the same tick.
        assert_eq!(survey(&root, &cache, 0), (vec![], 4));
        assert_eq!(survey(&root, &cache, settled), (vec![], 4));
        assert_eq!(survey(&root, &cache, settled), (vec![], 0));
        // Of the same length: the time tells, and only this class is looked at.
        put("b/1.pgm", b"P5\n1 1\n999\n\x80");
        let (bad, opened) = survey(&root, &cache, settled);
        assert!(bad[0].starts_with("  b/1.pgm: cut off"), "{bad:?}");
        assert_eq!((bad.len(), opened), (1, 2));
        assert_eq!(survey(&root, &cache, settled), (bad, 0));
        put("b/1.pgm", good);
        assert_eq!(survey(&root, &cache, settled), (vec![], 2));
        std::fs::remove_file(root.join("b/1.pgm")).unwrap();
        assert_eq!(survey(&root, &cache, settled), (vec![], 1));
        // A cache that is damaged is as if it were missing.
        for entry in std::fs::read_dir(&cache).unwrap() {
            std::fs::write(entry.unwrap().path(), "{}").unwrap();
        }
        assert_eq!(survey(&root, &cache, settled), (vec![], 3));
        assert_eq!(survey(&root, &cache, settled), (vec![], 0));
    }

    #[test]
    fn an_evaluation_looks_at_what_is_held_out_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (root, cache) = (folder.path().join("images"), folder.path().join("cache"));
        for name in ["train/a/0.pgm", "train/a/1.pgm", "val/a/0.pgm"] {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let damaged = name == "train/a/1.pgm";
            let end = if damaged { "" } else { "\u{7f}" };
            std::fs::write(path, format!("P5\n1 1\n255\n{end}")).unwrap();
        }
        let settled = 2 * SETTLED_NANOS;
        let (bad, opened) = survey(&root, &cache, settled);
        assert!(bad[0].starts_with("  train/a/1.pgm"), "{bad:?}");
        assert_eq!((bad.len(), opened), (1, 3));
        let evaluated = survey_for(Reads::Evaluation, &root, &cache, settled);
        assert_eq!(evaluated, (vec![], 0));
        // It forgets nothing of the rest.
        assert_eq!(survey(&root, &cache, settled), (bad, 0));
    }
}
