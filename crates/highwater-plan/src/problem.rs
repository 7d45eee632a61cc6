//! What the planner is told about a step: nodes, values, bytes, costs and edges. No operation is
//! named here and no byte of a tensor is seen.

pub use crate::ids::{CellId, NodeId, ValueId};
use serde::{Deserialize, Serialize};

/// Bytes of a disk's block.
pub const BLOCK: u64 = 4096;

/// What kernels on a processor want buffers to start at multiples of, in bytes.
pub const ALIGN: u64 = 64;

/// Bytes that a value takes on a tier: on disk, whole blocks behind a header of one.
#[must_use]
pub const fn footprint_on(tier: Tier, bytes: u64) -> u64 {
    match tier {
        Tier::Host => footprint(bytes),
        Tier::Disk => BLOCK + bytes.next_multiple_of(BLOCK),
    }
}

/// Bytes that a buffer takes in the arena: its size rounded up to [`ALIGN`].
#[must_use]
pub const fn footprint(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGN) * ALIGN
}

/// Version of a cell: each write makes the next one.
pub type Version = u32;

/// Where the bytes of a value live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Home {
    /// In the arena, placed by the plan, for as long as the plan says.
    Arena,
    /// In the arena already when the plan starts, at this byte offset (an earlier plan of the same
    /// step left it there). May be freed, and, if it has a producer, recomputed like any other.
    Resident {
        /// Byte offset in the arena.
        offset: u64,
    },
    /// In storage of its own outside the arena: an input that the user gave, or (when it has a
    /// producer) a result that outlives the plan. Costs the arena nothing; once produced it stays
    /// readable to the end of the plan, and is never freed or overwritten.
    External,
    /// The bytes of a cell, which outlive the plan and have no producer. With a tier, they wait there
    /// when the plan starts, are fetched to be read, and must be there again when it ends. Without
    /// one the plan decides (see [`crate::Plan::homes`]): either on a tier, or in storage of their own
    /// in memory, as if `External`, which counts against the budget.
    Cell(Option<Tier>),
}

/// A tier below the arena that a value can wait in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// Host memory.
    Host,
    /// Disk.
    Disk,
}

impl Tier {
    /// All, nearest first.
    pub const ALL: [Tier; 2] = [Tier::Host, Tier::Disk];
}

/// What is known of the way to a tier. Rates are bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The most bytes that what the plan puts there may take: homes of cells and copies of values.
    pub bytes: u64,
    /// Rate of fetching while nothing is evicted.
    pub read: f64,
    /// Rate of evicting while nothing is fetched.
    pub write: f64,
    /// Rate of fetching while something is evicted.
    pub read_while_writing: f64,
    /// Rate of evicting while something is fetched.
    pub write_while_reading: f64,
    /// Seconds that runs lose beside for each byte moved either way: processors have work with that too.
    pub lost: f64,
    /// Whether plans may evict to it.
    pub writable: bool,
}

/// The tiers that there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Tiers {
    /// Host memory, if it is apart from the arena's.
    pub host: Option<Link>,
    /// Disk.
    pub disk: Option<Link>,
}

impl Tiers {
    /// The way to a tier.
    #[must_use]
    pub fn link(&self, tier: Tier) -> Option<&Link> {
        match tier {
            Tier::Host => self.host.as_ref(),
            Tier::Disk => self.disk.as_ref(),
        }
    }

    /// Whether these are others but for the room on them, of which there is as much or less.
    fn are_with_less_room(&self, than: &Tiers) -> bool {
        Tier::ALL
            .iter()
            .all(|&tier| match (self.link(tier), than.link(tier)) {
                (Some(link), Some(than)) => {
                    let bytes = than.bytes;
                    link.bytes <= bytes && Link { bytes, ..*link } == *than
                }
                (link, than) => link == than,
            })
    }

    /// Whether there is any.
    #[must_use]
    pub fn any(&self) -> bool {
        self.host.is_some() || self.disk.is_some()
    }
}

/// What the planner may decide for a value by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pin {
    /// The planner decides.
    #[default]
    Free,
    /// Must be kept from its first production to its last use.
    Keep,
    /// Must be dropped after its last use in the forward part, and recomputed for later uses, as
    /// `checkpoint(f, x)` asks; unless that is impossible.
    Recompute,
    /// As `Keep` in every plan, as long as one that follows all preferences fits: see
    /// [`crate::Families`]. To one [`crate::Family`] it is `Free`.
    PreferKeep,
    /// As `Recompute` in every plan, in the same way.
    PreferRecompute,
}

/// A value: the bytes that one output of one node fills.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Value {
    /// Size in bytes; may be 0.
    pub bytes: u64,
    /// Where it lives.
    pub home: Home,
    /// What the user decided about it.
    pub pin: Pin,
    /// Must be present, in the arena or outside it, when the plan ends. For `Home::Arena` and
    /// `Home::Resident` its last offset stands in [`crate::Plan::residents`].
    pub wanted: bool,
}

/// A queue whose instructions run in order; different lanes run at the same time.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Lane {
    /// Kernels.
    #[default]
    Compute,
    /// Copies from the host to the device.
    HostToDevice,
    /// Copies from the device to the host.
    DeviceToHost,
    /// Reads from disk.
    Read,
    /// Writes to disk.
    Write,
    /// Collectives.
    Communicate,
}

/// How many lanes there are.
pub(crate) const LANES: usize = 6;

/// What a node does besides filling its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Effect {
    /// A function of its inputs (and of a replayable random counter): may be run again.
    Repeatable,
    /// Writes cells, or otherwise must run exactly once.
    Once,
    /// Looks at its inputs and may stop the step: no node that writes a cell may run before any
    /// guard of the problem. Runs exactly once.
    Guard,
}

/// A node: an operation applied once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Values read. A value may stand here twice.
    pub inputs: Vec<ValueId>,
    /// Values filled. Each value has at most one producer.
    pub outputs: Vec<ValueId>,
    /// Cells read, and the version that must be current when the node runs.
    pub reads: Vec<(CellId, Version)>,
    /// Cells written, and the version that must be current before; after the node, `version + 1`
    /// is. A node that writes a cell may read the old version of it without naming it in `reads`.
    pub writes: Vec<(CellId, Version)>,
    /// Positions in `inputs` of the values of home [`Home::Cell`] that the node overwrites where they
    /// are: the bytes of cells that it writes.
    #[serde(default)]
    pub rewrites: Vec<u32>,
    /// Pairs (position in `inputs`, position in `outputs`): the output may take over the input's
    /// buffer if the node is the input's last reader and `bytes` are equal.
    pub in_place: Vec<(u32, u32)>,
    /// Bytes of scratch memory needed while it runs.
    pub scratch_bytes: u64,
    /// Predicted seconds of one run that fills every output.
    pub seconds: f64,
    /// Outputs, by position, that a run may leave out, and the predicted seconds that this saves.
    /// A run that fills the others gives them the same bits. Only values in the arena are ever
    /// left out; one that is needed later is made by another run.
    pub optional: Vec<(u32, f64)>,
    /// What it does besides.
    pub effect: Effect,
    /// A guard that a plan may leave out: one that keeps everything has it, others do not, so that
    /// nothing is held or made again for it.
    #[serde(default)]
    pub soft: bool,
    /// The queue that runs it: [`Lane::Compute`] or [`Lane::Communicate`].
    #[serde(default)]
    pub lane: Lane,
    /// It ran in an earlier plan of the same step: it need not run now, unless a value of it that
    /// is no longer there is needed (possible only for `Effect::Repeatable`).
    pub done: bool,
}

impl Node {
    /// A node that may run again, takes no scratch memory and touches no cell.
    #[must_use]
    pub fn new(inputs: &[ValueId], outputs: &[ValueId], seconds: f64) -> Node {
        Node {
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            reads: Vec::new(),
            writes: Vec::new(),
            rewrites: Vec::new(),
            in_place: Vec::new(),
            scratch_bytes: 0,
            seconds,
            optional: Vec::new(),
            effect: Effect::Repeatable,
            soft: false,
            lane: Lane::Compute,
            done: false,
        }
    }

    /// Seconds saved by leaving out the output at a position; `None` if it must be filled.
    #[must_use]
    pub fn saved(&self, output: usize) -> Option<f64> {
        let at = |&&(o, _): &&(u32, f64)| o as usize == output;
        self.optional.iter().find(at).map(|&(_, seconds)| seconds)
    }

    /// Seconds of a run that leaves out those of its optional outputs for which that is said.
    #[must_use]
    pub fn seconds_without(&self, left_out: impl Fn(u32) -> bool) -> f64 {
        let left_out = self.optional.iter().filter(|&&(o, _)| left_out(o));
        self.seconds - left_out.map(|&(_, seconds)| seconds).sum::<f64>()
    }
}

impl Problem {
    /// Seconds of a run of a node that places its outputs so; see [`crate::Action::Run`].
    #[must_use]
    pub fn run_seconds(&self, node: NodeId, outputs: &[Option<u64>]) -> f64 {
        let n = &self.nodes[node.index()];
        n.seconds_without(|o| {
            let value = n.outputs[o as usize];
            let inside = self.values[value.index()].home != Home::External;
            inside && outputs.get(o as usize) == Some(&None)
        })
    }

    /// Bytes that something takes in the arena: whole multiples of [`Problem::align`]; where there is a
    /// disk, of blocks, so that transfers need not be copied.
    #[must_use]
    pub fn footprint(&self, bytes: u64) -> u64 {
        if self.tiers.disk.is_some() && bytes >= BLOCK {
            return bytes.next_multiple_of(self.align.max(BLOCK));
        }
        bytes.next_multiple_of(self.align)
    }

    /// Whether runs are in more than one lane.
    pub(crate) fn has_lanes(&self) -> bool {
        self.nodes.iter().any(|n| n.lane != Lane::Compute)
    }
}

impl Default for Problem {
    fn default() -> Problem {
        Problem {
            nodes: Vec::new(),
            values: Vec::new(),
            tiers: Tiers::default(),
            align: ALIGN,
        }
    }
}

const fn default_align() -> u64 {
    ALIGN
}

/// One step's graph. `nodes` stand in program order: each value is produced before it is used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// Nodes in program order.
    pub nodes: Vec<Node>,
    /// Values, in no particular order.
    pub values: Vec<Value>,
    /// Where values may wait besides the arena.
    #[serde(default)]
    pub tiers: Tiers,
    /// Every buffer and scratch in the arena starts at a multiple of so many bytes: a power of two.
    #[serde(default = "default_align")]
    pub align: u64,
}

impl Problem {
    /// Whether this is another problem but for the room on tiers, of which there is as much or less: it
    /// cannot be solved in less memory.
    #[must_use]
    pub fn is_with_less_room(&self, than: &Problem) -> bool {
        self.tiers.are_with_less_room(&than.tiers)
            && (&self.nodes, &self.values, self.align) == (&than.nodes, &than.values, than.align)
    }
}
