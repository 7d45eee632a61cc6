//! What memory holds, by PyTorch's names.

use crate::engine::Engine;
use crate::store::Store;
use highwater_memory::Bytes;
use std::collections::BTreeMap;
use std::fmt::Write;

impl Engine {
    /// Bytes by the keys of `torch.cuda.memory_stats` that mean something here: `allocated_bytes.all.current`
    /// and `.peak`, which are parameters, buffers, moments, gradients, inputs, kept results and what the last
    /// step left of its arena; `reserved_bytes.all.current` and `.peak`, which are the same, since what is not
    /// in use goes back to the system; `active_bytes.all.current`, without what the next step would only use
    /// again; `state_bytes` and `kept_bytes`, its parts; `reserve_bytes`, process overhead;
    /// `budget_bytes`, and `num_ooms`, which is 0: steps that do not fit are refused before they start. The
    /// peak is since [`Engine::reset_peak_memory_stats`].
    pub fn memory_stats(&self) -> BTreeMap<&'static str, u64> {
        let reserve = self.reserve_bytes();
        let store: &Store = &self.0.store;
        let (current, peak) = (store.mapped_bytes(), store.peak());
        BTreeMap::from([
            ("allocated_bytes.all.current", current),
            ("allocated_bytes.all.peak", peak),
            ("reserved_bytes.all.current", current),
            ("reserved_bytes.all.peak", peak),
            (
                "active_bytes.all.current",
                store.state_bytes() + store.kept(),
            ),
            ("state_bytes", store.state_bytes()),
            ("kept_bytes", store.kept_bytes()),
            ("reserve_bytes", reserve),
            ("budget_bytes", store.budget()),
            ("num_ooms", 0),
        ])
    }

    /// The most bytes mapped for tensors since [`Engine::reset_peak_memory_stats`], as
    /// `torch.cuda.max_memory_allocated`.
    pub fn max_memory_allocated(&self) -> u64 {
        self.0.store.peak()
    }

    /// Has peaks begin anew at what is mapped now, as `torch.cuda.reset_peak_memory_stats`.
    pub fn reset_peak_memory_stats(&self) {
        self.0.store.take_peak();
    }

    /// Gives pages back to the system that the next step would only have used again, as
    /// `torch.cuda.empty_cache`, and forgets what of the pending graph nobody can want any more, with what that
    /// holds. Nothing here needs it: pages count towards the budget either way, and the rest goes when room is
    /// needed. Waits for an evaluation that another thread runs.
    pub fn empty_cache(&self) {
        let mut state = self.lock();
        // A backward walk that stopped for a hook goes on with its numbers.
        if !state.pending.hooks.are_running() {
            state.compact(None);
            self.take_up_dropped(&mut state);
        }
        self.0.store.release_idle();
    }

    /// [`Engine::memory_stats`] as a table, as `torch.cuda.memory_summary`, with what the last step took.
    pub fn memory_summary(&self) -> String {
        let (stats, step) = (self.memory_stats(), self.last_step());
        let mut text = String::new();
        let mut row = |name: &str, bytes: u64| {
            let bytes = match bytes {
                u64::MAX => "no bound".to_owned(),
                bytes => Bytes(bytes).to_string(),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<44} {bytes:>12}");
        };
        row(
            "mapped for tensors now",
            stats["allocated_bytes.all.current"],
        );
        row("at most", stats["allocated_bytes.all.peak"]);
        row(
            "  parameters, moments, gradients, inputs",
            stats["state_bytes"],
        );
        row("  of these inputs and kept results", stats["kept_bytes"]);
        row("process overhead", stats["reserve_bytes"]);
        row("budget for tensors", stats["budget_bytes"]);
        row(
            "arena of the last step, as planned",
            step.planned_arena_bytes,
        );
        row("arena of the last step, at most", step.peak_arena_bytes);
        let nodes = format!("{} of {}", step.recomputed_nodes, step.nodes);
        let _ = writeln!(
            text,
            "{:<44} {nodes:>12}",
            "nodes run again in the last step"
        );
        text
    }
}
