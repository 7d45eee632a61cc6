//! What is on a file system in memory: live, and durable.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};

const SECTOR: usize = 512;
const ROOT: usize = 0;

/// All files and folders, by number. The numbers of removed ones are not used again.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
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

pub(super) type Names = BTreeMap<String, usize>;

/// A change to the names in a folder.
#[derive(Clone, Debug)]
pub(super) enum Change {
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
    /// Keeps what is durable, and of the rest what the seed decides.
    pub(super) fn lose_power(&mut self, seed: u64) {
        let mut dice = Dice(seed);
        // How much of the rest survives: from nothing to everything.
        let luck = dice.below(5);
        for node in &mut self.nodes {
            node.lose_power(&mut dice, luck);
        }
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<usize> {
        parts(path)?.iter().try_fold(ROOT, |dir, name| {
            self.names(dir)?
                .get(*name)
                .copied()
                .ok_or_else(|| ErrorKind::NotFound.into())
        })
    }

    /// The folder that a path is in, and the name it has there.
    pub(super) fn parent<'a>(&self, path: &'a Path) -> io::Result<(usize, &'a str)> {
        let name = parts(path)?.pop().ok_or(ErrorKind::InvalidInput)?;
        let dir = self.find(path.parent().unwrap_or(Path::new("")))?;
        self.names(dir)?;
        Ok((dir, name))
    }

    pub(super) fn names(&self, node: usize) -> io::Result<&Names> {
        match &self.nodes[node] {
            Node::Dir { live, .. } => Ok(live),
            Node::File { .. } => Err(ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn contents(&mut self, node: usize) -> io::Result<(&mut Vec<u8>, &mut Vec<u8>)> {
        match &mut self.nodes[node] {
            Node::File { live, durable } => Ok((live, durable)),
            Node::Dir { .. } => Err(ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn file(&mut self, path: &Path) -> io::Result<(&mut Vec<u8>, &mut Vec<u8>)> {
        let node = self.find(path)?;
        self.contents(node)
    }

    pub(super) fn change(&mut self, dir: usize, change: Change) {
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

    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        parts(path)?
            .iter()
            .try_fold(ROOT, |dir, name| match self.names(dir)?.get(*name) {
                Some(&found) => Ok::<_, io::Error>(found),
                None => Ok(self.add(dir, name, Node::dir())),
            })?;
        Ok(())
    }

    /// That nothing is at a path.
    pub(super) fn check_unused(&self, path: &Path) -> io::Result<()> {
        match self.find(path) {
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The file at a path, made where missing.
    pub(super) fn open_or_create(&mut self, path: &Path) -> io::Result<usize> {
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

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
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

    pub(super) fn empty(&mut self, dir: usize) {
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
