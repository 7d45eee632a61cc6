//! How cells move between memory and the tiers below it, and how they make room for others.

use super::{CellBytes, CellStore, failed, name};
use crate::store::Store;
use crate::store::tiers::TierExtent;
use crate::{Error, Result};
use highwater_graph::{CellId, Graph};
use highwater_plan::Tier;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl CellStore {
    /// Moves cells to where a plan wants them. With `for_good` other problems leave them there.
    ///
    /// Who finds no room waits until others have made some: those that leave memory go first. A move that
    /// fails leaves the cell in memory or where it was.
    pub(crate) fn bring_home(
        &mut self,
        store: &Arc<Store>,
        graph: &Graph,
        homes: &[(CellId, Option<Tier>)],
        for_good: bool,
    ) -> Result<()> {
        let mut parked = BTreeSet::new();
        loop {
            let (mut moved, mut waiting) = (false, None);
            for leaves_memory in [true, false] {
                for &(id, home) in homes {
                    let at = self.known(id)?.home();
                    if at == home || at.is_none() != leaves_memory {
                        continue;
                    }
                    match self.move_to(store, graph, id, home) {
                        Ok(()) => moved = true,
                        Err(error) if error.is_full() => {
                            // It may have come half its way, into memory.
                            moved |= self.known(id)?.home() != at;
                            waiting = Some(error);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            match waiting {
                None => break,
                // Where two tiers are full of what belongs on the other, a third is a detour.
                Some(error) if !moved => {
                    let waits = |&&(id, home): &&(CellId, Option<Tier>)| {
                        let in_memory =
                            self.all.get(&id).is_some_and(|cell| cell.storage.is_some());
                        in_memory && home.is_some() && !parked.contains(&id)
                    };
                    let Some(&(id, _)) = homes.iter().find(waits) else {
                        return Err(error);
                    };
                    parked.insert(id);
                    if self.park(graph, id).is_err() {
                        return Err(error);
                    }
                }
                Some(_) => {}
            }
        }
        if for_good {
            self.decided = true;
            for (id, _) in homes {
                if let Some(cell) = self.all.get_mut(id) {
                    cell.decided = true;
                }
            }
        }
        Ok(())
    }

    /// Sees to it that a plan finds an area of so many bytes on a tier.
    pub(crate) fn clear_area(&mut self, graph: &Graph, tier: Tier, bytes: u64) -> Result<()> {
        let below = self.tiers.get(tier)?;
        let area = |_: &Self| {
            let area = below.area(bytes);
            below.leave();
            area.map(|_| ())
        };
        self.without_holes(graph, area)
    }

    /// An extent for so many bytes on the nearest tier that has one.
    pub(crate) fn take(&mut self, graph: &Graph, bytes: u64, what: &str) -> Result<TierExtent> {
        self.without_holes(graph, |cells| cells.tiers.take(bytes, what))
    }

    /// What `take` answers; where only holes were in its way on a disk, what it answers without them.
    fn without_holes<T>(&mut self, graph: &Graph, take: impl Fn(&Self) -> Result<T>) -> Result<T> {
        match take(self) {
            Err(error) if self.close_holes(graph, &error)? => take(self),
            other => other,
        }
    }

    /// Moves cells down on a disk that has no extent for something, though bytes enough are free. Answers
    /// whether there were holes.
    fn close_holes(&mut self, graph: &Graph, full: &Error) -> Result<bool> {
        match *full {
            Error::DiskFull {
                bytes,
                room_bytes,
                taken_bytes,
                ..
            } if taken_bytes.saturating_add(bytes) <= room_bytes => {}
            _ => return Ok(false),
        }
        if self.tiers.writable().disk.is_none() {
            return Ok(false);
        }
        let on_disk = self.all.iter_mut().filter_map(|(&id, cell)| {
            let written = (cell.version.load(Ordering::Acquire) > 0).then_some(id.number());
            Some((id, written, cell.extent.as_mut()?))
        });
        let mut on_disk: Vec<(CellId, Option<u64>, &mut TierExtent)> = on_disk.collect();
        on_disk.sort_unstable_by_key(|(.., extent)| extent.offset());
        let mut any = false;
        for (id, written, extent) in on_disk {
            let lower = extent.lower(written);
            any |= lower.map_err(|source| failed(graph, id, source))?;
        }
        Ok(any)
    }

    /// Makes room in memory for so many bytes, or some of it: moves a cell out that is not needed. The
    /// smallest that suffices goes, or else the largest for which there is an extent. Answers whether there
    /// was one; if all together are not enough, none goes.
    pub(crate) fn make_room(
        &mut self,
        graph: &Graph,
        bytes: u64,
        is_needed: impl Fn(CellId) -> bool,
    ) -> Result<bool> {
        let movable = self
            .all
            .iter()
            .filter(|&(&id, cell)| cell.storage.is_some() && cell.is_movable() && !is_needed(id));
        let mut movable: Vec<(CellId, u64)> = movable.map(|(&id, cell)| (id, cell.bytes)).collect();
        movable.sort_by_key(|&(_, own)| {
            let suffices = own >= bytes;
            (!suffices, if suffices { own } else { u64::MAX - own })
        });
        if movable.iter().map(|&(_, own)| own).sum::<u64>() < bytes {
            return Ok(false);
        }
        for (id, _) in movable {
            match self.park(graph, id) {
                Ok(()) => {
                    // The next plan of a training step knows best who should have gone.
                    self.decided = false;
                    return Ok(true);
                }
                Err(error) if error.is_full() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Moves a cell out of memory to the nearest tier that has room and that plans may write to.
    fn park(&mut self, graph: &Graph, id: CellId) -> Result<()> {
        if self.leave(id)? {
            return Ok(());
        }
        let (open, what, bytes) = (
            self.tiers.writable(),
            name(graph, id),
            self.known(id)?.bytes,
        );
        let extent = self.without_holes(graph, |_| open.take(bytes, &what))?;
        self.move_out(graph, id, extent)
    }

    /// Moves a cell, between tiers through memory.
    fn move_to(
        &mut self,
        store: &Arc<Store>,
        graph: &Graph,
        id: CellId,
        home: Option<Tier>,
    ) -> Result<()> {
        if home == Some(Tier::Disk) && self.leave(id)? {
            return Ok(());
        }
        if self.known(id)?.home().is_some() {
            self.move_in(store, graph, id)?;
        }
        match home {
            Some(tier) => {
                let below = self.tiers.get(tier)?;
                let (bytes, what) = (self.known(id)?.bytes, name(graph, id));
                let extent =
                    self.without_holes(graph, |_| TierExtent::take(&below, bytes, &what))?;
                self.move_out(graph, id, extent)
            }
            None => Ok(()),
        }
    }

    /// Gives the memory of a cell back that a file has. Answers whether it is such a one.
    fn leave(&mut self, id: CellId) -> Result<bool> {
        Ok(self.known_mut(id)?.leave())
    }

    /// Gives the memory of all cells back that files have and that may move. Answers whether there are any.
    pub(crate) fn leave_all(&mut self) -> bool {
        let movable = self.all.values_mut().filter(|cell| cell.is_movable());
        // All of them, not up to the first.
        movable.map(CellBytes::leave).filter(|&left| left).count() > 0
    }

    /// Moves a cell out of memory to the nearest tier that has room.
    pub(crate) fn move_below(&mut self, graph: &Graph, id: CellId) -> Result<()> {
        let extent = self.take(graph, self.known(id)?.bytes, &name(graph, id))?;
        self.move_out(graph, id, extent)
    }

    /// Writes a cell to an extent below memory and gives its memory back.
    fn move_out(&mut self, graph: &Graph, id: CellId, extent: TierExtent) -> Result<()> {
        let dry = self.dry;
        let Some(cell) = self.all.get_mut(&id) else {
            return Ok(());
        };
        let Some(mut storage) = cell.storage.take() else {
            return Ok(());
        };
        cell.extent = Some(extent);
        let written = match Arc::get_mut(&mut storage) {
            Some(_) if dry => Ok(()),
            Some(storage) => cell
                .write(id, storage.bytes_mut())
                .map(drop)
                .map_err(|source| failed(graph, id, source)),
            // What others hold would not be free, and may be written by them.
            None => Err(Error::Internal(format!(
                "{} moves, though somebody holds it",
                name(graph, id)
            ))),
        };
        if written.is_err() {
            (cell.storage, cell.extent) = (Some(storage), None);
        }
        written
    }

    /// Reads a cell into memory and gives its extent below back.
    pub(super) fn move_in(&mut self, store: &Arc<Store>, graph: &Graph, id: CellId) -> Result<()> {
        let storage = self.copy(store, graph, id)?;
        if let Some(cell) = self.all.get_mut(&id) {
            cell.storage = Some(storage);
            cell.extent = None;
        }
        Ok(())
    }
}
