//! What can be wrong with a plan.

use crate::problem::{CellId, Lane, NodeId, Tier, ValueId, Version};
use thiserror::Error;

/// A reason why a plan must not be carried out.
#[derive(Debug, Clone, PartialEq, Error)]
#[allow(
    missing_docs,
    reason = "fields are named for what they are: ids, offsets, bytes"
)]
pub enum Violation {
    /// The arena is larger than the budget.
    #[error("the arena has {arena_bytes} bytes, the budget {budget_bytes}")]
    OverBudget { arena_bytes: u64, budget_bytes: u64 },
    /// The problem or the plan names a node that does not exist.
    #[error("instruction {instruction}: no node {node}")]
    NoSuchNode { instruction: u32, node: NodeId },
    /// The problem or the plan names a value that does not exist.
    #[error("no value {value}")]
    NoSuchValue { value: ValueId },
    /// The action does not belong in this lane.
    #[error("instruction {instruction} stands in lane {lane:?}, where its action does not belong")]
    WrongLane { instruction: u32, lane: Lane },
    /// An instruction waits for itself or a later one.
    #[error("instruction {instruction} waits for instruction {wait}, which is not before it")]
    WaitsForLater { instruction: u32, wait: u32 },
    /// A guard is run, or something else guarded.
    #[error("instruction {instruction}: node {node} is not carried out by this kind of action")]
    WrongAction { instruction: u32, node: NodeId },
    /// A run does not name one place per output.
    #[error("instruction {instruction}: node {node} has another number of outputs")]
    WrongOutputs { instruction: u32, node: NodeId },
    /// Scratch is named and not asked for, or asked for and not named.
    #[error("instruction {instruction}: scratch of node {node} is missing or not asked for")]
    WrongScratch { instruction: u32, node: NodeId },
    /// An offset that is not a multiple of the problem's alignment, or an alignment that is none.
    #[error("instruction {instruction}: offset {offset} is not aligned")]
    Misaligned { instruction: u32, offset: u64 },
    /// A buffer ends above the arena (`value` is `None` for scratch, `instruction` for residents).
    #[error("instruction {instruction:?}: value {value:?} ends at {end}, above the arena")]
    AboveArena {
        instruction: Option<u32>,
        value: Option<ValueId>,
        end: u64,
    },
    /// A value outside the arena is placed, freed or moved.
    #[error("instruction {instruction}: value {value} is not in the arena's keeping")]
    NotInArena { instruction: u32, value: ValueId },
    /// A value is read, freed or moved that is not there.
    #[error("instruction {instruction}: value {value} is not there")]
    Absent { instruction: u32, value: ValueId },
    /// A value is there in list order, but not in every order that the waits allow.
    #[error("instruction {instruction} may start before {opened} has made value {value}")]
    MissingWait {
        instruction: u32,
        opened: u32,
        value: ValueId,
    },
    /// A value may go while it is still read.
    #[error("instruction {instruction} may take value {value} away before {reader} has read it")]
    StillRead {
        instruction: u32,
        reader: u32,
        value: ValueId,
    },
    /// A value is rewritten in place while another instruction may read it.
    #[error("instructions {first} and {second} may use value {value} at once, and one writes it")]
    Race {
        first: u32,
        second: u32,
        value: ValueId,
    },
    /// A cell is written while another instruction may use it.
    #[error("instructions {first} and {second} may use cell {cell} at once, and one writes it")]
    CellRace {
        first: u32,
        second: u32,
        cell: CellId,
    },
    /// A run places an output that is there already.
    #[error("instruction {instruction}: node {node} places value {value}, which is there already")]
    AlreadyThere {
        instruction: u32,
        node: NodeId,
        value: ValueId,
    },
    /// A run gives no place to an output that is not there.
    #[error("instruction {instruction}: node {node} has no place for value {value}")]
    NoPlace {
        instruction: u32,
        node: NodeId,
        value: ValueId,
    },
    /// Two buffers share bytes at a time when both are alive (`None`: scratch).
    #[error("instruction {instruction}: value {value:?} overlaps value {other:?}, still alive")]
    Overlap {
        instruction: u32,
        value: Option<ValueId>,
        other: Option<ValueId>,
    },
    /// Two values share bytes from the start.
    #[error("values {value:?} and {other:?} overlap from the start")]
    OverlapAtStart {
        value: Option<ValueId>,
        other: Option<ValueId>,
    },
    /// A cell has another version than the node reads or overwrites.
    #[error(
        "instruction {instruction}: node {node} needs version {needs} of cell {cell}, not {has}"
    )]
    WrongVersion {
        instruction: u32,
        node: NodeId,
        cell: CellId,
        needs: Version,
        has: Version,
    },
    /// A value's contents are not what program order gives.
    #[error("instruction {instruction}: node {node} makes a different value {value}")]
    WrongContents {
        instruction: u32,
        node: NodeId,
        value: ValueId,
    },
    /// A cell is written although a guard is still to come.
    #[error("instruction {instruction}: node {node} writes a cell before a guard")]
    Unguarded { instruction: u32, node: NodeId },
    /// A node that may run only once runs again.
    #[error("instruction {instruction}: node {node} must not run again")]
    Repeated { instruction: u32, node: NodeId },
    /// A node never runs.
    #[error("node {node} never runs")]
    NeverRuns { node: NodeId },
    /// A value is fetched from a tier that has no copy.
    #[error("instruction {instruction}: no copy of value {value} on {tier:?}")]
    NoCopy {
        instruction: u32,
        value: ValueId,
        tier: Tier,
    },
    /// A cell has no home, two, one that it may not have, or is said to take other bytes.
    #[error("the stated homes of cells are not what they may be (value {value})")]
    WrongHome { value: ValueId },
    /// A value is evicted to a place that is not its own.
    #[error("instruction {instruction}: value {value} may not be put there on {tier:?}")]
    WrongPlace {
        instruction: u32,
        value: ValueId,
        tier: Tier,
    },
    /// Two copies share bytes of a tier, and one is still needed.
    #[error("instruction {instruction} writes value {value} over value {other} on {tier:?}")]
    CopiesOverlap {
        instruction: u32,
        value: ValueId,
        other: ValueId,
        tier: Tier,
    },
    /// A tier is to hold more than there is room for.
    #[error("{found} bytes on {tier:?}, which has room for {room}")]
    TierFull { tier: Tier, found: u64, room: u64 },
    /// What is said to be moved to and from a tier, or to be there, is not what is.
    #[error("the stated traffic with {tier:?} is not what the instructions come to")]
    WrongTraffic { tier: Tier },
    /// A cell's home does not hold its newest contents at the end.
    #[error("value {value} was overwritten and is not at home at the end")]
    NotAtHome { value: ValueId },
    /// A value is left in the arena that nobody wants.
    #[error("value {value} is never freed")]
    NeverFreed { value: ValueId },
    /// A wanted value is not there at the end.
    #[error("value {value} is wanted and not there at the end")]
    Missing { value: ValueId },
    /// The list of residents differs from what is there at the end.
    #[error("the stated residents are not what is in the arena at the end (value {value})")]
    WrongResidents { value: ValueId },
    /// The stated live bytes are wrong.
    #[error("live bytes are {found}, not {stated}")]
    WrongLiveBytes { stated: u64, found: u64 },
    /// The stated instruction does not have the most live bytes.
    #[error("instruction {stated} does not have the most live bytes, {found} has")]
    WrongPeak { stated: u32, found: u32 },
    /// The stated number of repetitions is wrong.
    #[error("{found} runs are repetitions, not {stated}")]
    WrongRepetitions { stated: u32, found: u32 },
    /// The stated seconds, in all or of the repetitions, are wrong.
    #[error("the instructions come to {found} seconds, not {stated}")]
    WrongSeconds { stated: f64, found: f64 },
}
