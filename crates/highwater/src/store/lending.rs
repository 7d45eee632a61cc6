//! Which cells user code has the bytes of, and which threads wait for that to end.

use highwater_graph::CellId;
use std::collections::BTreeSet;
use std::thread::ThreadId;

/// How user code has the bytes of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// The bytes of a cell in the hands of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) cell: CellId,
    pub(crate) how: Use,
    thread: ThreadId,
}

/// All notes, and who waits for whom.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    notes: Vec<Note>,
    waiting: Vec<(ThreadId, ThreadId)>,
}

/// What somebody finds who wants cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nobody has them.
    Free,
    /// Other threads have some, and will give them back.
    Busy,
    /// This thread has some, or whoever has them waits for this thread: they would never come back.
    Never,
}

impl Lending {
    /// Notes what this thread takes. Answers the note, to be given back.
    pub(crate) fn lend(&mut self, cell: CellId, how: Use) -> Note {
        let thread = std::thread::current().id();
        let note = Note { cell, how, thread };
        self.notes.push(note);
        note
    }

    /// Takes a note back.
    pub(crate) fn give_back(&mut self, note: &Note) {
        if let Some(index) = self.notes.iter().position(|known| known == note) {
            self.notes.swap_remove(index);
        }
        // Who waited for that thread looks again.
        self.waiting.retain(|&(_, holder)| holder != note.thread);
    }

    /// Whether anybody has a cell.
    pub(crate) fn has(&self, cell: CellId) -> bool {
        self.notes.iter().any(|note| note.cell == cell)
    }

    /// Whether anybody has what `wants` looks for; where other threads do, notes that this one waits for them.
    pub(crate) fn find(&mut self, wants: impl Fn(&Note) -> bool) -> Found {
        let this = std::thread::current().id();
        self.waiting.retain(|&(waiting, _)| waiting != this);
        let notes = self.notes.iter().filter(|note| wants(note));
        let holders: Vec<ThreadId> = notes.map(|note| note.thread).collect();
        if holders.is_empty() {
            return Found::Free;
        }
        let (mut reached, mut next) = (Vec::new(), holders.clone());
        while let Some(thread) = next.pop() {
            if thread == this {
                return Found::Never;
            }
            if !reached.contains(&thread) {
                reached.push(thread);
                let waiting = self.waiting.iter().filter(|edge| edge.0 == thread);
                next.extend(waiting.map(|edge| edge.1));
            }
        }
        let waits = holders.into_iter().map(|holder| (this, holder));
        self.waiting.extend(waits);
        Found::Busy
    }

    /// Whether somebody has one of the cells that an evaluation reads, to write it, or one that it writes.
    pub(crate) fn is_in_the_way(&self, uses: &CellUses) -> bool {
        self.notes.iter().any(|note| uses.meets(note))
    }

    /// Whether anybody has anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }
}

/// Cells that an evaluation reads and writes.
#[derive(Debug, Default)]
pub(crate) struct CellUses {
    pub(crate) read: BTreeSet<CellId>,
    pub(crate) written: BTreeSet<CellId>,
}

impl CellUses {
    /// Whether the evaluation must wait for a cell to be given back.
    pub(crate) fn meets(&self, note: &Note) -> bool {
        let reads = self.read.contains(&note.cell) && note.how == Use::Write;
        reads || self.written.contains(&note.cell)
    }
}
