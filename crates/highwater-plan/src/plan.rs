//! What the planner answers: an instruction list with offsets.

use crate::problem::{Lane, NodeId, Tier, ValueId};
use serde::{Deserialize, Serialize};

/// What an instruction does.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Runs a node (again, if it ran before: that is recomputation).
    Run {
        /// The node.
        node: NodeId,
        /// Byte offset in the arena of each output, in the node's order; `None` for values outside
        /// the arena, for outputs that are still present (they are filled again where they are),
        /// and for outputs in the arena that the node lists as [`crate::Node::optional`]: those are
        /// left out, present or not. Any other output that nobody needs still gets an offset and
        /// is freed right after.
        outputs: Vec<Option<u64>>,
        /// Byte offset of the scratch memory, if the node asks for any.
        scratch: Option<u64>,
    },
    /// The value's buffer may be used for something else from here on.
    Free {
        /// The value.
        value: ValueId,
    },
    /// Evaluates a guard node.
    Guard {
        /// The node.
        node: NodeId,
    },
    /// Copies a value to a tier; its buffer is free when this completes.
    Evict {
        /// The value.
        value: ValueId,
        /// Where to.
        tier: Tier,
        /// Byte offset among what the plan puts there ([`Plan::spilled`]); `None` for cells, which
        /// have places of their own.
        place: Option<u64>,
    },
    /// Copies a value back into the arena; its bytes count from the issue.
    Fetch {
        /// The value.
        value: ValueId,
        /// Where from.
        tier: Tier,
        /// Byte offset in the arena.
        offset: u64,
    },
}

/// One instruction. It starts after the instruction before it in its own lane, and after all of
/// `waits` (indices into [`Plan::instructions`], each smaller than its own) have completed. The
/// order of the list says nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Instruction {
    /// The queue it runs in.
    pub lane: Lane,
    /// Instructions of other lanes that must have completed before it starts.
    pub waits: Vec<u32>,
    /// What it does.
    pub action: Action,
}

/// A step compiled under a budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The instruction list.
    pub instructions: Vec<Instruction>,
    /// Height of the arena in bytes: no buffer or scratch ends above it. With `home_bytes`, what must
    /// fit the budget.
    pub arena_bytes: u64,
    /// Largest sum of live bytes (buffers and scratch) at any instruction: `arena_bytes` less
    /// what packing lost.
    pub live_bytes: u64,
    /// Index of the instruction with the most live bytes.
    pub peak_instruction: u32,
    /// Predicted seconds of the whole list: of its runs one after the other, and of what they wait for
    /// transfers.
    pub seconds: f64,
    /// How many runs are repetitions.
    pub recomputed_nodes: u32,
    /// Predicted seconds of those repetitions.
    pub recompute_seconds: f64,
    /// For each wanted value that ends in the arena: its offset.
    pub residents: Vec<(ValueId, u64)>,
    /// For each value of home [`crate::Home::Cell`]: its tier; `None` for memory.
    #[serde(default)]
    pub homes: Vec<(ValueId, Option<Tier>)>,
    /// Bytes that cells whose home is in memory take outside the arena.
    #[serde(default)]
    pub home_bytes: u64,
    /// What is moved to and from host memory, and what it takes there.
    #[serde(default)]
    pub host: Traffic,
    /// What is moved to and from disk, and what it takes there.
    #[serde(default)]
    pub disk: Traffic,
}

/// What a plan moves to and from a tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes fetched.
    pub read_bytes: u64,
    /// Bytes evicted.
    pub written_bytes: u64,
    /// Bytes of the area for values that are not cells: no copy ends above it.
    pub spill_bytes: u64,
    /// Bytes of the cells whose home it is.
    pub home_bytes: u64,
}

impl Plan {
    /// Bytes of memory that the plan takes: the arena, and the cells in memory that it decided about.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.arena_bytes + self.home_bytes
    }

    /// Bytes that are moved to and from all tiers.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        let moved = |traffic: &Traffic| traffic.read_bytes + traffic.written_bytes;
        moved(&self.host) + moved(&self.disk)
    }

    /// What is moved to and from a tier.
    #[must_use]
    pub fn traffic(&self, tier: Tier) -> &Traffic {
        match tier {
            Tier::Host => &self.host,
            Tier::Disk => &self.disk,
        }
    }

    pub(crate) fn traffic_mut(&mut self, tier: Tier) -> &mut Traffic {
        match tier {
            Tier::Host => &mut self.host,
            Tier::Disk => &mut self.disk,
        }
    }
}
