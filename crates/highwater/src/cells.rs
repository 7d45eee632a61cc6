//! Where the bytes of cells are: in memory or on disk.

use crate::disk::{DiskTier, Stretch};
use crate::store::{Storage, Store};
use crate::{Error, Result, raw};
use highwater_graph::{Category, CellId, Graph};
use highwater_memory::spill::{Extent, SpillError, Tag};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// With a disk, cells of at least so many bytes may be moved there.
pub(crate) const MOVABLE_BYTES: u64 = 64 << 10;

/// The bytes of one cell.
#[derive(Debug)]
pub(crate) struct Cell {
    bytes: u64,
    category: Category,
    /// In memory; if not, they are on disk.
    storage: Option<Arc<Storage>>,
    /// Their place on disk. What lies there counts only while they are not in memory.
    stretch: Option<Stretch>,
    /// How often they were written to disk; never means that they are zeros if they are there.
    version: AtomicU64,
    /// A plan decided where they are.
    settled: bool,
}

impl Cell {
    /// In memory, in storage that is there already.
    pub(crate) fn in_memory(storage: Arc<Storage>, category: Category) -> Self {
        Self {
            bytes: storage.bytes(),
            category,
            storage: Some(storage),
            stretch: None,
            version: AtomicU64::new(0),
            settled: false,
        }
    }

    /// Zeros, on disk, where nothing is written for them.
    pub(crate) fn zeros_on_disk(bytes: u64, category: Category, stretch: Stretch) -> Self {
        Self {
            bytes,
            category,
            storage: None,
            stretch: Some(stretch),
            version: AtomicU64::new(0),
            settled: false,
        }
    }

    /// Its storage, if it is in memory.
    pub(crate) fn storage(&self) -> Option<&Arc<Storage>> {
        self.storage.as_ref()
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether they could be elsewhere: on disk, or in memory that nobody else holds and that would
    /// be free at once.
    pub(crate) fn is_movable(&self) -> bool {
        let alone = |storage: &Arc<Storage>| storage.is_home() && Arc::strong_count(storage) == 1;
        self.bytes >= MOVABLE_BYTES && self.storage.as_ref().is_none_or(alone)
    }

    /// What they take on disk.
    fn disk_bytes(&self) -> u64 {
        let stretch = self.stretch.as_ref();
        stretch.map_or(0, |stretch| Extent::footprint(stretch.extent.capacity))
    }

    /// Reads them from disk. Answers how many bytes were really read.
    pub(crate) fn read(
        &self,
        disk: &DiskTier,
        id: CellId,
        to: &mut [u8],
    ) -> Result<u64, SpillError> {
        let version = self.version.load(Ordering::Acquire);
        match &self.stretch {
            Some(stretch) if version > 0 => {
                let cell = u64::from(id);
                disk.read(stretch.extent, Tag { cell, version }, to)?;
                Ok(to.len() as u64)
            }
            _ => {
                to.fill(0);
                Ok(0)
            }
        }
    }

    /// Writes them to their place on disk: from then on no earlier version counts, even if this fails.
    pub(crate) fn write(
        &self,
        disk: &DiskTier,
        id: CellId,
        from: &[u8],
    ) -> Result<u64, SpillError> {
        let Some(stretch) = &self.stretch else {
            return Ok(0);
        };
        let version = self.version.fetch_add(1, Ordering::AcqRel) + 1;
        let cell = u64::from(id);
        disk.write(stretch.extent, Tag { cell, version }, from)?;
        Ok(from.len() as u64)
    }
}

/// All cells of an engine.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    all: BTreeMap<CellId, Cell>,
    disk: Option<Arc<DiskTier>>,
    dry: bool,
    settled: bool,
}

impl Cells {
    pub(crate) fn new(disk: Option<Arc<DiskTier>>, dry: bool) -> Self {
        Self {
            disk,
            dry,
            ..Self::default()
        }
    }

    pub(crate) fn disk(&self) -> Option<&Arc<DiskTier>> {
        self.disk.as_ref()
    }

    pub(crate) fn get(&self, id: CellId) -> Option<&Cell> {
        self.all.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (CellId, &Cell)> {
        self.all.iter().map(|(&id, cell)| (id, cell))
    }

    pub(crate) fn insert(&mut self, id: CellId, cell: Cell) {
        self.all.insert(id, cell);
    }

    pub(crate) fn remove(&mut self, id: CellId) {
        self.all.remove(&id);
    }

    /// Whether a plan of a training step has decided where cells are.
    pub(crate) fn are_settled(&self) -> bool {
        self.settled
    }

    /// Has the next plan of a training step decide anew.
    pub(crate) fn unsettle(&mut self) {
        self.settled = false;
    }

    /// The storage of a cell's bytes; of a copy, if they are on disk.
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
        let storage =
            store.alloc_home(cell.bytes, cell.category, "a cell that is read from disk")?;
        self.fill(cell, graph, id, &storage)?;
        Ok(storage)
    }

    /// As [`Cells::copy`], to be written. What the disk lost is not a number, so that nothing is computed
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
        let storage =
            store.alloc_home(cell.bytes, cell.category, "a cell that is read from disk")?;
        match self.fill(cell, graph, id, &storage) {
            Ok(()) => {}
            Err(Error::Disk { source, .. })
                if lost || matches!(source, SpillError::Damaged { .. }) =>
            {
                raw::bytes_mut(&storage).fill(0xff);
            }
            Err(error) => return Err(error),
        }
        Ok(storage)
    }

    /// Writes a copy back, if it is one.
    pub(crate) fn write_back(&self, graph: &Graph, id: CellId, copy: &Storage) -> Result<()> {
        let cell = self.known(id)?;
        if cell.storage.is_some() || self.dry {
            return Ok(());
        }
        let disk = self.disk.as_ref().ok_or_else(no_disk)?;
        let written = cell.write(disk, id, raw::bytes(copy));
        written
            .map(|_| ())
            .map_err(|source| failed(graph, id, source))
    }

    fn fill(&self, cell: &Cell, graph: &Graph, id: CellId, storage: &Storage) -> Result<()> {
        if self.dry {
            return Ok(());
        }
        let disk = self.disk.as_ref().ok_or_else(no_disk)?;
        let read = cell.read(disk, id, raw::bytes_mut(storage));
        read.map(|_| ()).map_err(|source| failed(graph, id, source))
    }

    fn known(&self, id: CellId) -> Result<&Cell> {
        let gone = || Error::Internal("a cell that was dropped is used".into());
        self.all.get(&id).ok_or_else(gone)
    }

    /// What the cells among `ids` that are in memory take there.
    pub(crate) fn memory_bytes(&self, store: &Store, ids: impl Iterator<Item = CellId>) -> u64 {
        let cells = ids.filter_map(|id| self.all.get(&id));
        let in_memory = cells.filter(|cell| cell.storage.is_some());
        in_memory.map(|cell| store.home_cost(cell.bytes)).sum()
    }

    /// What the cells that `is_posed` does not name take on disk.
    pub(crate) fn others_on_disk(&self, is_posed: impl Fn(CellId) -> bool) -> u64 {
        let others = self.all.iter().filter(|&(&id, _)| !is_posed(id));
        others.map(|(_, cell)| cell.disk_bytes()).sum()
    }

    /// Whether all of these are where a plan wants them (on disk or not), as far as another plan
    /// settled that.
    pub(crate) fn are_at(&self, homes: impl IntoIterator<Item = (CellId, bool)>) -> bool {
        homes.into_iter().all(|(id, on_disk)| {
            let at = |cell: &Cell| !cell.settled || cell.storage.is_none() == on_disk;
            self.all.get(&id).is_some_and(at)
        })
    }

    /// Moves cells to where a plan wants them: first those that go out, then those that come in. With
    /// `for_good` other problems leave them there.
    ///
    /// A move that fails leaves the cell where it was.
    pub(crate) fn settle(
        &mut self,
        store: &Arc<Store>,
        graph: &Graph,
        homes: &[(CellId, bool)],
        for_good: bool,
    ) -> Result<()> {
        for &(id, on_disk) in homes {
            if on_disk && self.known(id)?.storage.is_some() {
                self.move_out(graph, id)?;
            }
        }
        for &(id, on_disk) in homes {
            if !on_disk && self.known(id)?.storage.is_none() {
                self.move_in(store, graph, id)?;
            }
        }
        if for_good {
            self.settled = true;
            for (id, _) in homes {
                if let Some(cell) = self.all.get_mut(id) {
                    cell.settled = true;
                }
            }
        }
        Ok(())
    }

    /// Writes a cell to disk and gives its memory back.
    pub(crate) fn move_out(&mut self, graph: &Graph, id: CellId) -> Result<()> {
        let disk = Arc::clone(self.disk.as_ref().ok_or_else(no_disk)?);
        let dry = self.dry;
        let Some(cell) = self.all.get_mut(&id) else {
            return Ok(());
        };
        if cell.storage.is_none() {
            return Ok(());
        }
        if cell.stretch.is_none() {
            cell.stretch = Some(disk.take(cell.bytes, &name(graph, id))?);
        }
        if let Some(storage) = &cell.storage
            && !dry
        {
            let written = cell.write(&disk, id, raw::bytes(storage));
            written.map_err(|source| failed(graph, id, source))?;
        }
        cell.storage = None;
        Ok(())
    }

    /// Reads a cell into memory and gives its place on disk back.
    fn move_in(&mut self, store: &Arc<Store>, graph: &Graph, id: CellId) -> Result<()> {
        let storage = self.copy(store, graph, id)?;
        if let Some(cell) = self.all.get_mut(&id) {
            cell.storage = Some(storage);
            cell.stretch = None;
        }
        Ok(())
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

fn no_disk() -> Error {
    Error::Internal("a cell is to be on disk, and there is none".into())
}
