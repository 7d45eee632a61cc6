//! For tests: a file system in memory that can lose power.
//!
//! Each file and folder has what is live, and what is durable since it was last synced. Losing power
//! keeps what is durable, and of all that happened since any part: a seed decides which names were
//! changed, which 512-byte sectors of files were written, and how long the files are. That is what
//! POSIX permits, and worse than most real file systems.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Entry, FileRead, FileWrite, Files, FilesError, Metadata, Operation};

const SECTOR: usize = 512;
const ROOT: usize = 0;

/// A file system in memory, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    image: Arc<Mutex<Image>>,
}

/// All files and folders, by number. The numbers of removed ones are not used again.
#[derive(Clone, Debug)]
struct Image {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
enum Node {
    File {
        live: Vec<u8>,
        durable: Vec<u8>,
    },
    Dir {
        live: Names,
        durable: Names,
        since: Vec<Change>,
    },
}

type Names = BTreeMap<String, usize>;

/// A change to the names in a folder.
#[derive(Clone, Debug)]
enum Change {
    Add(String, usize),
    Remove(String),
    Rename(String, String, usize),
}

impl Change {
    fn apply(self, names: &mut Names) {
        match self {
            Self::Add(name, node) => _ = names.insert(name, node),
            Self::Remove(name) => _ = names.remove(&name),
            Self::Rename(from, to, node) => {
                names.remove(&from);
                names.insert(to, node);
            }
        }
    }
}

impl MemoryFiles {
    /// An empty file system.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is there after the power was lost and came back. This file system stays as it is.
    #[must_use]
    pub fn after_power_loss(&self, seed: u64) -> Self {
        let mut image = self.lock().clone();
        let mut dice = Dice(seed);
        // How much of what was not durable survives: from nothing to everything.
        let luck = dice.below(5);
        for node in &mut image.nodes {
            node.lose_power(&mut dice, luck);
        }
        Self {
            image: Arc::new(Mutex::new(image)),
        }
    }

    /// Flips one bit of a file, live and durable.
    ///
    /// # Errors
    /// When there is no such file or byte.
    pub fn flip_bit(&self, path: &Path, byte: u64, bit: u8) -> io::Result<()> {
        let mut image = self.lock();
        let (live, durable) = image.file(path)?;
        for bytes in [live, durable] {
            *bytes
                .get_mut(byte as usize)
                .ok_or(ErrorKind::UnexpectedEof)? ^= 1 << bit;
        }
        Ok(())
    }

    /// Cuts a file to at most so many bytes, live and durable.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let mut image = self.lock();
        let (live, durable) = image.file(path)?;
        live.truncate(bytes as usize);
        durable.truncate(bytes as usize);
        Ok(())
    }

    /// A copy that shares nothing with this one.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            image: Arc::new(Mutex::new(self.lock().clone())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Image> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        operation: Operation,
        path: &Path,
        body: impl FnOnce(&mut Image) -> io::Result<T>,
    ) -> Result<T, FilesError> {
        body(&mut self.lock()).map_err(|error| FilesError::new(operation, path, error))
    }
}

impl Node {
    fn dir() -> Self {
        Self::Dir {
            live: Names::new(),
            durable: Names::new(),
            since: Vec::new(),
        }
    }

    fn lose_power(&mut self, dice: &mut Dice, luck: u64) {
        let mut survives = || dice.below(4) < luck;
        match self {
            Self::Dir {
                live,
                durable,
                since,
            } => {
                for change in since.drain(..) {
                    if survives() {
                        change.apply(durable);
                    }
                }
                live.clone_from(durable);
            }
            Self::File { live, durable } => {
                if survives() {
                    // The new length, with zeros where the sectors were not written.
                    durable.resize(live.len(), 0);
                }
                for (old, new) in durable.chunks_mut(SECTOR).zip(live.chunks(SECTOR)) {
                    if survives() {
                        let len = old.len().min(new.len());
                        old[..len].copy_from_slice(&new[..len]);
                    }
                }
                live.clone_from(durable);
            }
        }
    }
}

impl Default for Image {
    fn default() -> Self {
        Self {
            nodes: vec![Node::dir()],
        }
    }
}

impl Image {
    fn find(&self, path: &Path) -> io::Result<usize> {
        parts(path)?.iter().try_fold(ROOT, |dir, name| {
            self.names(dir)?
                .get(*name)
                .copied()
                .ok_or_else(|| ErrorKind::NotFound.into())
        })
    }

    /// The folder that a path is in, and the name it has there.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(usize, &'a str)> {
        let name = parts(path)?.pop().ok_or(ErrorKind::InvalidInput)?;
        let dir = self.find(path.parent().unwrap_or(Path::new("")))?;
        self.names(dir)?;
        Ok((dir, name))
    }

    fn names(&self, node: usize) -> io::Result<&Names> {
        match &self.nodes[node] {
            Node::Dir { live, .. } => Ok(live),
            Node::File { .. } => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn contents(&mut self, node: usize) -> io::Result<(&mut Vec<u8>, &mut Vec<u8>)> {
        match &mut self.nodes[node] {
            Node::File { live, durable } => Ok((live, durable)),
            Node::Dir { .. } => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn file(&mut self, path: &Path) -> io::Result<(&mut Vec<u8>, &mut Vec<u8>)> {
        let node = self.find(path)?;
        self.contents(node)
    }

    fn change(&mut self, dir: usize, change: Change) {
        if let Node::Dir { live, since, .. } = &mut self.nodes[dir] {
            change.clone().apply(live);
            since.push(change);
        }
    }

    fn add(&mut self, dir: usize, name: &str, node: Node) -> usize {
        self.nodes.push(node);
        let number = self.nodes.len() - 1;
        self.change(dir, Change::Add(name.into(), number));
        number
    }

    fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        parts(path)?
            .iter()
            .try_fold(ROOT, |dir, name| match self.names(dir)?.get(*name) {
                Some(&found) => Ok::<_, io::Error>(found),
                None => Ok(self.add(dir, name, Node::dir())),
            })?;
        Ok(())
    }

    /// The file at a path, made where missing.
    fn open_or_create(&mut self, path: &Path) -> io::Result<usize> {
        let (dir, name) = self.parent(path)?;
        let node = match self.names(dir)?.get(name) {
            Some(&found) => found,
            None => self.add(
                dir,
                name,
                Node::File {
                    live: Vec::new(),
                    durable: Vec::new(),
                },
            ),
        };
        self.contents(node)?;
        Ok(node)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        let ((old_dir, old), (new_dir, new)) = (self.parent(from)?, self.parent(to)?);
        if let Some(&there) = self.names(new_dir)?.get(new)
            && matches!(self.names(there), Ok(names) if !names.is_empty())
        {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        if old_dir == new_dir {
            self.change(old_dir, Change::Rename(old.into(), new.into(), node));
        } else {
            self.change(new_dir, Change::Add(new.into(), node));
            self.change(old_dir, Change::Remove(old.into()));
        }
        Ok(())
    }

    fn empty(&mut self, dir: usize) {
        let Ok(names) = self.names(dir).cloned() else {
            return;
        };
        for (name, node) in names {
            self.empty(node);
            self.change(dir, Change::Remove(name));
        }
    }
}

/// The names along a path, relative or absolute.
fn parts(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_str().ok_or(ErrorKind::InvalidInput)?),
            _ => return Err(ErrorKind::InvalidInput.into()),
        }
    }
    Ok(names)
}

impl Files for MemoryFiles {
    fn create_dir_all(&self, path: &Path) -> Result<(), FilesError> {
        self.with(Operation::CreateDir, path, |image| {
            image.create_dir_all(path)
        })
    }

    fn create(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        let node = self.with(Operation::Create, path, |image| {
            let node = image.open_or_create(path)?;
            image.contents(node)?.0.clear();
            Ok(node)
        })?;
        Ok(Box::new(Handle {
            files: self.clone(),
            path: path.into(),
            node,
            bytes: 0,
        }))
    }

    fn append(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        let node = self.with(Operation::Append, path, |image| image.open_or_create(path))?;
        Ok(Box::new(Handle {
            files: self.clone(),
            path: path.into(),
            node,
            bytes: 0,
        }))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn FileRead>, FilesError> {
        let (node, bytes) = self.with(Operation::Open, path, |image| {
            let node = image.find(path)?;
            Ok((node, image.contents(node)?.0.len() as u64))
        })?;
        Ok(Box::new(Handle {
            files: self.clone(),
            path: path.into(),
            node,
            bytes,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FilesError> {
        self.with(Operation::Rename, from, |image| image.rename(from, to))
    }

    fn sync_dir(&self, path: &Path) -> Result<(), FilesError> {
        self.with(Operation::SyncDir, path, |image| {
            let node = image.find(path)?;
            match &mut image.nodes[node] {
                Node::Dir {
                    live,
                    durable,
                    since,
                } => {
                    durable.clone_from(live);
                    since.clear();
                    Ok(())
                }
                Node::File { .. } => Err(ErrorKind::NotADirectory.into()),
            }
        })
    }

    fn remove_file(&self, path: &Path) -> Result<(), FilesError> {
        self.with(Operation::Remove, path, |image| {
            image.file(path)?;
            let (dir, name) = image.parent(path)?;
            image.change(dir, Change::Remove(name.into()));
            Ok(())
        })
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), FilesError> {
        self.with(Operation::Remove, path, |image| {
            let node = image.find(path)?;
            image.names(node)?;
            let (dir, name) = image.parent(path)?;
            image.empty(node);
            image.change(dir, Change::Remove(name.into()));
            Ok(())
        })
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<Entry>, FilesError> {
        self.with(Operation::List, path, |image| {
            let names = image.names(image.find(path)?)?;
            let is_dir = |node| image.names(node).is_ok();
            let entries = names.iter();
            Ok(entries
                .map(|(name, &node)| Entry {
                    name: name.clone(),
                    is_dir: is_dir(node),
                })
                .collect())
        })
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>, FilesError> {
        self.with(Operation::Inspect, path, |image| match image.find(path) {
            Ok(node) => Ok(Some(match &image.nodes[node] {
                Node::File { live, .. } => Metadata {
                    bytes: live.len() as u64,
                    is_dir: false,
                },
                Node::Dir { .. } => Metadata {
                    bytes: 0,
                    is_dir: true,
                },
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
    }
}

/// An open file, for reading or for writing at its end.
#[derive(Debug)]
struct Handle {
    files: MemoryFiles,
    path: PathBuf,
    node: usize,
    bytes: u64,
}

impl FileWrite for Handle {
    fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, FilesError> {
        self.files.with(Operation::Write, &self.path, |image| {
            image.contents(self.node)?.0.extend_from_slice(bytes);
            Ok(bytes.len())
        })
    }

    fn sync_all(&mut self) -> Result<(), FilesError> {
        self.files.with(Operation::Sync, &self.path, |image| {
            let (live, durable) = image.contents(self.node)?;
            durable.clone_from(live);
            Ok(())
        })
    }
}

impl FileRead for Handle {
    fn path(&self) -> &Path {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FilesError> {
        self.files.with(Operation::Read, &self.path, |image| {
            let (live, _) = image.contents(self.node)?;
            let rest = live.get(offset as usize..).unwrap_or(&[]);
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        })
    }
}

/// Numbers that a seed decides (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(files: &MemoryFiles, path: &str) -> Option<Vec<u8>> {
        let mut file = files.open(Path::new(path)).ok()?;
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_exact_at(0, &mut bytes).unwrap();
        Some(bytes)
    }

    #[test]
    fn only_what_was_synced_is_sure_to_survive() {
        let files = MemoryFiles::new();
        let path = Path::new("/run/file");
        files.create_dir_all(Path::new("/run")).unwrap();
        files.sync_dir(Path::new("/")).unwrap();
        let mut file = files.create(path).unwrap();
        file.write_all(b"first").unwrap();
        file.sync_all().unwrap();
        let outcomes = |files: &MemoryFiles| -> std::collections::BTreeSet<Option<Vec<u8>>> {
            (0..200)
                .map(|seed| text(&files.after_power_loss(seed), "/run/file"))
                .collect()
        };
        // The name is not durable yet.
        assert_eq!(outcomes(&files), [None, Some(b"first".to_vec())].into());
        files.sync_dir(Path::new("/run")).unwrap();
        assert_eq!(outcomes(&files), [Some(b"first".to_vec())].into());
        file.write_all(&[b'x'; 2000]).unwrap();
        let torn = outcomes(&files);
        assert!(torn.len() > 4 && torn.contains(&Some(b"first".to_vec())));
        assert!(torn.contains(&text(&files, "/run/file")));
        // Renames and removals, too, can be lost.
        file.sync_all().unwrap();
        files.rename(path, Path::new("/run/other")).unwrap();
        assert_eq!(outcomes(&files).len(), 2);
        files.remove_file(Path::new("/run/other")).unwrap();
        files.sync_dir(Path::new("/run")).unwrap();
        assert_eq!(outcomes(&files), [None].into());
    }

    #[test]
    fn it_behaves_like_a_file_system() {
        let files = MemoryFiles::new();
        let at = |path: &str| PathBuf::from(path);
        assert!(
            files
                .create(&at("/missing/file"))
                .unwrap_err()
                .is_not_found()
        );
        files.create_dir_all(&at("/a/b")).unwrap();
        files
            .create(&at("/a/b/c"))
            .unwrap()
            .write_all(b"1")
            .unwrap();
        files
            .append(&at("/a/b/c"))
            .unwrap()
            .write_all(b"2")
            .unwrap();
        assert_eq!(text(&files, "/a/b/c").unwrap(), b"12");
        files.create_dir_all(&at("/d/e")).unwrap();
        let error = files.rename(&at("/a"), &at("/d")).unwrap_err();
        assert_eq!(error.source.kind(), ErrorKind::DirectoryNotEmpty);
        files.rename(&at("/a"), &at("/d/a")).unwrap();
        assert_eq!(text(&files, "/d/a/b/c").unwrap(), b"12");
        let entry = |name: &str| Entry {
            name: name.into(),
            is_dir: true,
        };
        assert_eq!(files.list_dir(&at("/d")).unwrap(), [entry("a"), entry("e")]);
        files.remove_dir_all(&at("/d/a")).unwrap();
        assert_eq!(files.metadata(&at("/d/a")).unwrap(), None);
        assert!(files.open(&at("/d")).is_err() && files.remove_file(&at("/d")).is_err());
    }
}
