//! Versions of cells, as one graph counts them: 0 is what is in memory when the graph begins.
//!
//! Each graph counts its own writes. What other graphs write meanwhile takes the place of what is in memory,
//! so that nodes which have not run read it as it is when they run.

use super::{CellId, Graph, Operand, Source, Version};
use crate::{BuildMixer, Location};

/// How far the writes of a graph to one cell are.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    /// The version that a read takes now: pending writes included.
    pub(super) version: Version,
    /// The version that is really in memory.
    pub(super) evaluated: Version,
    /// Who wrote it last.
    pub(super) at: Option<Location>,
}

/// Of the cells that nodes of a graph write, or wrote.
#[derive(Debug, Clone, Default)]
pub(super) struct Versions(
    #[expect(clippy::disallowed_types, reason = "its order is never read")]
    pub(super)  std::collections::HashMap<CellId, Written, BuildMixer>,
);

impl Versions {
    /// Notes a write of a node that was added.
    pub(super) fn write(&mut self, id: CellId, version: Version, at: Location) {
        let written = self.0.entry(id).or_default();
        written.version = version;
        written.at = Some(at);
    }
}

impl Graph {
    /// The version of a cell that a read takes now: pending writes included.
    pub fn version(&self, id: CellId) -> Version {
        self.written(id).version
    }

    /// The version of a cell that is really in memory.
    pub fn evaluated(&self, id: CellId) -> Version {
        self.written(id).evaluated
    }

    /// Whether a pending node is to write a cell.
    pub fn has_pending_writes(&self, id: CellId) -> bool {
        let written = self.written(id);
        written.evaluated < written.version
    }

    /// Whether a cell is written at all.
    pub fn is_any_written(&self) -> bool {
        !self.versions.0.is_empty()
    }

    /// Who wrote a cell last.
    pub(super) fn written_at(&self, id: CellId) -> Option<Location> {
        self.written(id).at
    }

    fn written(&self, id: CellId) -> Written {
        self.versions.0.get(&id).copied().unwrap_or_default()
    }

    /// Whether an operand reads a version of a cell that a pending node is to write.
    pub fn is_awaited(&self, operand: &Operand) -> bool {
        match operand.source {
            Source::Cell(id, version) => self.cell(id).is_some() && self.evaluated(id) < version,
            Source::Value(_) => false,
        }
    }

    /// Whether a pending node writes the version of a cell that an operand reads.
    pub fn is_overwritten(&self, operand: &Operand) -> bool {
        match operand.source {
            Source::Cell(id, version) => self.cell(id).is_some() && self.version(id) > version,
            Source::Value(_) => false,
        }
    }

    /// Somebody writes a cell by hand, after all that nodes were to write: what they read of it until now is gone then.
    pub fn overwrite(&mut self, id: CellId, at: Location) {
        let next = self.version(id).next();
        self.versions.write(id, next, at);
    }

    /// The pending updates were left out: what they would have written is as it was.
    pub fn leave_out_updates(&mut self) {
        for node in self.nodes.iter().rev().filter(|node| node.is_update()) {
            for &(id, before) in &node.writes {
                if let Some(written) = self.versions.0.get_mut(&id) {
                    written.version = before;
                }
            }
        }
    }

    /// Every pending write is now in memory.
    pub fn mark_evaluated(&mut self) {
        for written in self.versions.0.values_mut() {
            written.evaluated = written.version;
        }
    }
}
