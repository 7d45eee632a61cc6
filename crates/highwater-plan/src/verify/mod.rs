//! Proves a plan, or says what is wrong with it. Shares no function with the planner.
//!
//! A plan is a partial order: an instruction starts after the one before it in its own lane and
//! after all that it waits for. Everything below is shown for every order that this allows.
//!
//! 1. *Form.* Ids exist; waits point back; each action stands in its lane (that of the node for runs and
//!    guards; one that runs for frees; copies in the lane of their tier and direction); a run names one
//!    place per output; offsets are aligned; nothing ends above `arena_bytes`, which is within the
//!    budget.
//! 2. *Clocks.* Each instruction gets one number per lane: how many instructions of that lane have
//!    completed whenever it starts. Lanes being in order, that is all of happens-before.
//! 3. *Replay.* In list order (one of the orders allowed), each run, fetch or resident value opens
//!    a *holding*: value, range, contents, the instruction that opens it. A free, an evict or a run
//!    that takes the range over closes it. Reads and rewrites are attributed to the holding open
//!    then. Contents are a hash of (node, output, contents of the inputs, versions of the cells read),
//!    and must be what program order gives. Cells advance; a write needs all guards behind it. What is
//!    not in the arena (values outside it, cells, guards) is ordered here too: whatever writes happens
//!    after all uses before it in the list, and before all after it.
//! 4. *Access.* For each holding: the opening happens before each access, each access before the
//!    closing, and a rewrite is ordered with every other access.
//! 5. *Memory.* Whenever a holding (or scratch) opens on bytes of another that was opened earlier in
//!    the list, the other's closing happens before. Bytes of a fetch count from its issue, of an
//!    evict until its completion.
//! 6. *End.* Nodes that are not done ran, guards and once-nodes exactly once; wanted values are there,
//!    at the places stated; everything else in the arena has been closed.
//! 7. *Figures.* Live bytes, the peak's instruction, seconds and repetitions are as stated.
//!
//! In place: a run's output may be placed exactly on an input's range, if the node allows the pair
//! and the input stands once among its inputs. That closes the input's holding; no
//! [`Action::Free`](crate::plan::Action::Free) follows for it. `None` for an output in the arena that is
//! open means that it is rewritten where it is, with the same bits; for an output that the node
//! lists as optional it means that the run leaves it out.
//!
mod clock;
mod contents;
mod copies;
mod end;
mod figures;
mod form;
mod holding;
mod memory;
mod order;
mod replay;
mod violation;

pub(crate) use clock::Clocks;

pub use violation::Violation;

use crate::plan::Plan;
use crate::problem::Problem;

/// What has been proved of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// Instructions looked at.
    pub instructions: usize,
    /// Buffers shown to be apart: values, repeated ones each time, and scratch.
    pub buffers: usize,
    /// The most bytes alive at any instruction.
    pub live_bytes: u64,
    /// Height of the arena.
    pub arena_bytes: u64,
}

/// Proves that a plan computes the problem within a budget, in every order that it allows.
///
/// # Errors
/// The first violation found.
pub fn verify(problem: &Problem, plan: &Plan, budget_bytes: u64) -> Result<Proof, Violation> {
    form::check(problem, plan, budget_bytes)?;
    let clocks = clock::Clocks::new(plan);
    let end = replay::replay(problem, plan, &clocks)?;
    for holding in &end.holdings {
        holding.check(&clocks)?;
    }
    let live = memory::check(plan, &clocks, &end.holdings)?;
    end::check(problem, plan, &end)?;
    figures::check(problem, plan, &live)?;
    Ok(Proof {
        instructions: plan.instructions.len(),
        buffers: end.holdings.len(),
        live_bytes: plan.live_bytes,
        arena_bytes: plan.arena_bytes,
    })
}
