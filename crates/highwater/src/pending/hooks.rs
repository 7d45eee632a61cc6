//! What users have done with gradients on their way: hooks, by the values and cells whose gradients they see.

use super::handle::Handle;
use super::renumber_keys;
use crate::Result;
use highwater_graph::{CellId, Source, ValueId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Given a gradient, answers another in its place, or none.
pub(crate) type Replace = dyn Fn(Arc<Handle>) -> Result<Option<Arc<Handle>>> + Send + Sync;

/// One of them, with its number.
#[derive(Clone)]
struct Hook {
    number: u64,
    replace: Arc<Replace>,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hook").field(&self.number).finish()
    }
}

/// Those of the graph at hand. Those of values end with it, those of cells go to the next.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    values: BTreeMap<ValueId, Vec<Hook>>,
    cells: BTreeMap<CellId, Vec<Hook>>,
    made: u64,
    /// How many are at work, for which a walk waits.
    running: u32,
}

impl Hooks {
    /// Whether a walk waits for one.
    pub(crate) fn are_running(&self) -> bool {
        self.running > 0
    }

    /// One begins to work, for which a walk waits.
    pub(crate) fn begin(&mut self) {
        self.running += 1;
    }

    /// One has ended.
    pub(crate) fn finish(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// Adds one, and answers its number.
    pub(crate) fn add(&mut self, source: Source, replace: Arc<Replace>) -> u64 {
        self.made += 1;
        let number = self.made;
        let hook = Hook { number, replace };
        match source {
            Source::Value(id) => self.values.entry(id).or_default().push(hook),
            Source::Cell(id, _) => self.cells.entry(id).or_default().push(hook),
        }
        number
    }

    /// Takes one away, if it is still there.
    pub(crate) fn remove(&mut self, number: u64) {
        let rest = |hooks: &mut Vec<Hook>| {
            hooks.retain(|hook| hook.number != number);
            !hooks.is_empty()
        };
        self.values.retain(|_, hooks| rest(hooks));
        self.cells.retain(|_, hooks| rest(hooks));
    }

    /// Those of a source, in the order in which they came.
    pub(crate) fn of(&self, source: Source) -> Vec<Arc<Replace>> {
        let hooks = match source {
            Source::Value(id) => self.values.get(&id),
            Source::Cell(id, _) => self.cells.get(&id),
        };
        let hooks = hooks.into_iter().flatten();
        hooks.map(|hook| Arc::clone(&hook.replace)).collect()
    }

    /// Gives the hooks of cells to another graph's, which is at hand now.
    pub(crate) fn pass_on(&mut self, next: &mut Self) {
        std::mem::swap(&mut self.cells, &mut next.cells);
        next.made = self.made;
    }

    /// Takes those of another graph's values, which are called otherwise here.
    pub(crate) fn join(&mut self, other: Self, new: impl Fn(ValueId) -> ValueId) {
        for (id, hooks) in other.values {
            self.values.entry(new(id)).or_default().extend(hooks);
        }
    }

    /// Which sources have any.
    pub(crate) fn hooked(&self) -> Hooked {
        Hooked {
            values: self.values.keys().copied().collect(),
            cells: self.cells.keys().copied().collect(),
        }
    }

    pub(crate) fn renumber(&mut self, new: impl Fn(ValueId) -> Option<ValueId>) {
        renumber_keys(&mut self.values, new);
    }

    /// The graph has ended.
    pub(crate) fn end(&mut self) {
        self.values.clear();
        // One that panicked has not said that it ended.
        self.running = 0;
    }

    pub(crate) fn forget_cell(&mut self, id: CellId) {
        self.cells.remove(&id);
    }
}

/// Sources whose gradients somebody wants to see.
#[derive(Debug, Default)]
pub(crate) struct Hooked {
    values: BTreeSet<ValueId>,
    cells: BTreeSet<CellId>,
}

impl Hooked {
    pub(crate) fn has(&self, source: Source) -> bool {
        match source {
            Source::Value(id) => self.values.contains(&id),
            Source::Cell(id, _) => self.cells.contains(&id),
        }
    }
}
