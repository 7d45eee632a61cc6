//! Where the bytes of cells are: in memory, or on a tier below it.

mod moves;

use crate::store::tiers::{TierExtent, Tiers};
use crate::store::{Storage, Store};
use crate::{Error, Result};
use highwater_graph::{CellId, Graph};
use highwater_memory::FilePart;
use highwater_memory::spill::{SpillError, Tag};
use highwater_plan::Tier;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cells of at least so many bytes may be moved to tiers below memory.
pub(crate) const MOVABLE_BYTES: u64 = 64 << 10;

/// The bytes of one cell.
#[derive(Debug)]
pub(crate) struct CellBytes {
    bytes: u64,
    /// In memory; if not, they are below it.
    storage: Option<Arc<Storage>>,
    /// Their extent below memory, while they are there.
    extent: Option<TierExtent>,
    /// A part of a user's file that has the same bytes, if there is one: they leave memory without being written,
    /// and take no extent.
    part: Option<FilePart>,
    /// How often they were written below memory; never means that they are zeros if they are there.
    version: AtomicU64,
    /// A plan decided where they are.
    decided: bool,
}

impl CellBytes {
    /// In memory, in storage that is there already.
    pub(crate) fn in_memory(storage: Arc<Storage>) -> Self {
        Self {
            bytes: storage.bytes(),
            storage: Some(storage),
            extent: None,
            part: None,
            version: AtomicU64::new(0),
            decided: false,
        }
    }

    /// Zeros, below memory, where nothing is written for them.
    pub(crate) fn zeros(bytes: u64, extent: TierExtent) -> Self {
        Self {
            extent: Some(extent),
            ..Self::nowhere(bytes)
        }
    }

    /// Zeros that are nowhere until a file has their bytes, or somebody writes them: as if on disk, without an
    /// extent.
    pub(crate) fn nowhere(bytes: u64) -> Self {
        Self {
            bytes,
            storage: None,
            extent: None,
            part: None,
            version: AtomicU64::new(0),
            decided: false,
        }
    }

    /// Its storage, if it is in memory.
    pub(crate) fn storage(&self) -> Option<&Arc<Storage>> {
        self.storage.as_ref()
    }

    /// The tier that it is on; none if it is in memory.
    pub(crate) fn home(&self) -> Option<Tier> {
        match &self.storage {
            Some(_) => None,
            None => Some(self.extent.as_ref().map_or(Tier::Disk, TierExtent::tier)),
        }
    }

    /// Whether a file has the same bytes.
    pub(crate) fn is_in_file(&self) -> bool {
        self.part.is_some()
    }

    /// Gives their memory back if a file has them. Answers whether one has.
    fn leave(&mut self) -> bool {
        let is_in_file = self.is_in_file();
        if is_in_file {
            (self.storage, self.extent) = (None, None);
        }
        is_in_file
    }

    /// Whether they are below memory, or would be on disk, without an extent.
    pub(crate) fn needs_no_extent(&self) -> bool {
        self.part.is_some() || self.storage.is_none() && self.extent.is_none()
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether they could be elsewhere: below memory, or in memory that nobody else holds and that would
    /// be free at once.
    pub(crate) fn is_movable(&self) -> bool {
        let alone = |storage: &Arc<Storage>| storage.is_room() && Arc::strong_count(storage) == 1;
        self.bytes >= MOVABLE_BYTES && self.storage.as_ref().is_none_or(alone)
    }

    /// Reads them from below memory. Answers how many bytes were really read.
    pub(crate) fn read(&self, id: CellId, to: &mut [u8]) -> Result<u64, SpillError> {
        let version = self.version.load(Ordering::Acquire);
        match &self.extent {
            Some(extent) if version > 0 => {
                let cell = id.number();
                extent.read(Tag { cell, version }, to)?;
                Ok(to.len() as u64)
            }
            None if let Some(part) = &self.part => {
                part.read(to).map_err(SpillError::File)?;
                Ok(to.len() as u64)
            }
            _ => {
                to.fill(0);
                Ok(0)
            }
        }
    }

    /// Writes them to their extent below memory: from then on no earlier version counts, even if this
    /// fails.
    pub(crate) fn write(&self, id: CellId, from: &[u8]) -> Result<u64, SpillError> {
        let cell = id.number();
        let Some(extent) = &self.extent else {
            // What a file has is never written there: `CellStore::own` comes first.
            return Err(SpillError::Extent {
                cell,
                bytes: from.len() as u64,
                capacity: 0,
            });
        };
        let version = self.version.fetch_add(1, Ordering::AcqRel) + 1;
        extent.write(Tag { cell, version }, from)?;
        Ok(from.len() as u64)
    }
}

/// All cells of an engine.
#[derive(Debug, Default)]
pub(crate) struct CellStore {
    all: BTreeMap<CellId, CellBytes>,
    tiers: Tiers,
    dry: bool,
    decided: bool,
}

impl CellStore {
    pub(crate) fn new(tiers: Tiers, dry: bool) -> Self {
        Self {
            tiers,
            dry,
            ..Self::default()
        }
    }

    /// The tiers below memory.
    pub(crate) fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    pub(crate) fn get(&self, id: CellId) -> Option<&CellBytes> {
        self.all.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (CellId, &CellBytes)> {
        self.all.iter().map(|(&id, cell)| (id, cell))
    }

    pub(crate) fn insert(&mut self, id: CellId, cell: CellBytes) {
        self.all.insert(id, cell);
    }

    pub(crate) fn remove(&mut self, id: CellId) {
        self.all.remove(&id);
    }

    /// Whether a plan of a training step has decided where cells are.
    pub(crate) fn homes_are_decided(&self) -> bool {
        self.decided
    }

    /// Has the next plan of a training step decide anew.
    pub(crate) fn reopen_homes(&mut self) {
        self.decided = false;
    }

    /// The storage of a cell's bytes; of a copy, if they are below memory.
    pub(crate) fn copy(
        &self,
        store: &Arc<Store>,
        graph: &Graph,
        id: CellId,
    ) -> Result<Arc<Storage>> {
        let cell = self.known(id)?;
        if let Some(storage) = &cell.storage {
            return Ok(Arc::clone(storage));
        }
        let mut storage = Self::empty_copy(store, cell)?;
        self.fill(cell, graph, id, &mut storage)?;
        Ok(Arc::new(storage))
    }

    /// As [`CellStore::copy`], to be written. What the disk lost is not a number, so that nothing is computed
    /// from it unless all of it is replaced; with `lost`, neither is what cannot be read.
    pub(crate) fn copy_to_write(
        &self,
        store: &Arc<Store>,
        graph: &Graph,
        id: CellId,
        lost: bool,
    ) -> Result<Arc<Storage>> {
        let cell = self.known(id)?;
        if let Some(storage) = &cell.storage {
            return Ok(Arc::clone(storage));
        }
        let mut storage = Self::empty_copy(store, cell)?;
        match self.fill(cell, graph, id, &mut storage) {
            Ok(()) => {}
            Err(Error::Disk { source, .. })
                if lost || matches!(source, SpillError::Damaged { .. } | SpillError::File(_)) =>
            {
                storage.bytes_mut().fill(0xff);
            }
            Err(error) => return Err(error),
        }
        Ok(Arc::new(storage))
    }

    fn empty_copy(store: &Arc<Store>, cell: &CellBytes) -> Result<Storage> {
        store.alloc_room(cell.bytes, "a cell that is read from below memory")
    }

    /// Writes a copy back, unless the cell has come to memory. The copy is the cell where there is no extent.
    pub(crate) fn write_back(
        &mut self,
        graph: &Graph,
        id: CellId,
        mut copy: Arc<Storage>,
    ) -> Result<()> {
        let dry = self.dry;
        let cell = self.known_mut(id)?;
        if cell.storage.is_some() {
            return Ok(());
        }
        cell.part = None;
        if cell.extent.is_none() {
            cell.storage = Some(copy);
            return Ok(());
        }
        let Some(copy) = Arc::get_mut(&mut copy).filter(|_| !dry) else {
            return Ok(());
        };
        let written = cell.write(id, copy.bytes_mut());
        written
            .map(|_| ())
            .map_err(|source| failed(graph, id, source))
    }

    fn fill(
        &self,
        cell: &CellBytes,
        graph: &Graph,
        id: CellId,
        storage: &mut Storage,
    ) -> Result<()> {
        if self.dry {
            return Ok(());
        }
        let read = cell.read(id, storage.bytes_mut());
        read.map(|_| ()).map_err(|source| failed(graph, id, source))
    }

    fn known(&self, id: CellId) -> Result<&CellBytes> {
        let gone = || Error::Internal("a cell that was dropped is used".into());
        self.all.get(&id).ok_or_else(gone)
    }

    fn known_mut(&mut self, id: CellId) -> Result<&mut CellBytes> {
        let gone = || Error::Internal("a cell that was dropped is used".into());
        self.all.get_mut(&id).ok_or_else(gone)
    }

    /// Says that a part of a file has the bytes of a cell, and reads it: into memory if it is to be there, else
    /// only to know it again.
    pub(crate) fn attach(
        &mut self,
        store: &Arc<Store>,
        graph: &Graph,
        (id, part): (CellId, FilePart),
        in_memory: bool,
    ) -> Result<()> {
        let dry = self.dry;
        let cell = self.known_mut(id)?;
        // What was there does not count from now on.
        cell.part = None;
        let own = cell.storage.take();
        let fresh = || {
            let room = store.alloc_room(cell.bytes, "a cell that is read from a file");
            room.map(Arc::new).ok()
        };
        let mut storage = own.or_else(|| if in_memory { fresh() } else { None });
        let read = match storage.as_mut().map(Arc::get_mut) {
            _ if dry => Ok(()),
            Some(Some(storage)) => part.read(storage.bytes_mut()),
            Some(None) => return Err(Error::Internal("a cell that is lent is loaded".into())),
            None => part.look(),
        };
        // Where that fails it is zeros, on any tier.
        cell.extent = None;
        read.map_err(|source| failed(graph, id, SpillError::File(source)))?;
        (cell.storage, cell.part) = (storage, Some(part));
        Ok(())
    }

    /// Says that a cell is about to be written where it is in memory: no file has the same bytes then.
    pub(crate) fn leave_file(&mut self, id: CellId) {
        if let Some(cell) = self.all.get_mut(&id).filter(|cell| cell.storage.is_some()) {
            cell.part = None;
        }
    }

    /// Sees to it that a cell may be written: what a file has is read into memory, and is a cell like others.
    pub(crate) fn own(&mut self, store: &Arc<Store>, graph: &Graph, id: CellId) -> Result<()> {
        if self.known(id)?.needs_no_extent() {
            if self.known(id)?.home().is_some() {
                self.move_in(store, graph, id)?;
            }
            self.leave_file(id);
        }
        Ok(())
    }

    /// What the cells among `ids` that are in memory take there.
    pub(crate) fn memory_bytes(&self, store: &Store, ids: impl Iterator<Item = CellId>) -> u64 {
        let cells = ids.filter_map(|id| self.all.get(&id));
        let in_memory = cells.filter(|cell| cell.storage.is_some());
        in_memory.map(|cell| store.room_cost(cell.bytes)).sum()
    }

    /// What the cells that `is_posed` does not name take on a tier.
    pub(crate) fn others_on(&self, tier: Tier, is_posed: impl Fn(CellId) -> bool) -> u64 {
        let others = self.all.iter().filter(|&(&id, _)| !is_posed(id));
        let extents = others.filter_map(|(_, cell)| cell.extent.as_ref());
        let there = extents.filter(|extent| extent.tier() == tier);
        there.map(TierExtent::cost).sum()
    }

    /// Whether all of these are where a plan wants them, as far as another plan decided that.
    pub(crate) fn are_at(&self, homes: impl IntoIterator<Item = (CellId, Option<Tier>)>) -> bool {
        homes.into_iter().all(|(id, home)| {
            let at = |cell: &CellBytes| !cell.decided || cell.home() == home;
            self.all.get(&id).is_some_and(at)
        })
    }
}

/// What messages call a cell.
pub(crate) fn name(graph: &Graph, id: CellId) -> String {
    let cell = graph.cell(id);
    cell.map_or_else(|| format!("cell {id}"), |cell| cell.name.to_string())
}

/// The error of a transfer of a cell.
pub(crate) fn failed(graph: &Graph, id: CellId, source: SpillError) -> Error {
    Error::Disk {
        what: name(graph, id),
        source,
    }
}
