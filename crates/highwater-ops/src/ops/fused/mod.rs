//! Pointwise operations one after the other, as one: what they hand on stays in a cache.
//!
//! No user makes such a node: it stands for nodes that were merged before planning. Each piece of the output
//! goes through all of the operations, by their own kernels' [`Piece`]s, so that every element is rounded to
//! the element type of each operation's result as if that had been written to memory.

mod cpu;
#[cfg(test)]
mod tests;

pub(crate) use cpu::FusedKernel;

use crate::Piece;
use crate::kernels::pointwise::one_pass;
use highwater_graph::{Cost, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// What a step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Taken {
    /// An input of the node.
    Input(usize),
    /// What an earlier step made.
    Step(usize),
}

/// One of the operations.
#[derive(Debug, Clone)]
pub struct Step {
    /// The operation.
    pub op: Arc<dyn Op>,
    /// What its kernel does with a piece.
    pub piece: Piece,
    /// What it reads, in its own order.
    pub reads: SmallVec<[Taken; 3]>,
    /// What it makes: in the shape of all that the steps make.
    pub output: Spec,
}

/// Several pointwise operations. The inputs broadcast to the shape of the output, which is what the last step
/// makes; the output may lie over any input like it.
#[derive(Debug)]
pub struct Fused {
    name: &'static str,
    steps: Vec<Step>,
    /// Where a piece of what a step makes is held: the place of the input, or one behind those of all inputs.
    slots: SmallVec<[usize; SLOTS]>,
}

/// Pieces that are held at a time, at most: as many as a first-level cache has room for.
const SLOTS: usize = 8;

impl Fused {
    /// From its steps, in order, which read `inputs` inputs. None if too much would have to be held at a time.
    pub fn new(steps: Vec<Step>, inputs: usize) -> Option<Self> {
        let slots = slots(&steps, inputs)?;
        let names: Vec<&str> = steps.iter().map(|step| step.op.name()).collect();
        let name = lasting(format!("fused({})", names.join(",")));
        Some(Self { name, steps, slots })
    }
}

/// A place for what each step makes, but for the last one, until the last step that reads it.
fn slots(steps: &[Step], inputs: usize) -> Option<SmallVec<[usize; SLOTS]>> {
    let mut free: SmallVec<[usize; SLOTS]> = (inputs..SLOTS).rev().collect();
    let mut slots = SmallVec::new();
    for at in 0..steps.len().checked_sub(1)? {
        slots.push(free.pop()?);
        let read_after = |j: usize| {
            let mut later = steps[at + 1..].iter();
            later.any(|step| step.reads.contains(&Taken::Step(j)))
        };
        for (j, &slot) in slots.iter().enumerate().take(at) {
            if steps[at].reads.contains(&Taken::Step(j)) && !read_after(j) {
                free.push(slot);
            }
        }
    }
    (inputs <= SLOTS).then_some(slots)
}

/// The name for as long as the process lives, each once: there are as many as chains of operations in programs.
fn lasting(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let name = name.leak();
    names.insert(name);
    name
}

impl Op for Fused {
    fn name(&self) -> &'static str {
        self.name
    }

    fn hash_attributes(&self, mut hasher: &mut dyn Hasher) {
        for step in &self.steps {
            step.op.hash_attributes(hasher);
            (&step.reads, &step.output).hash(&mut hasher);
        }
    }

    fn infer(&self, _inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        Ok(self
            .steps
            .last()
            .map(|last| smallvec![last.output.clone()])
            .unwrap_or_default())
    }

    /// The arithmetic of all steps; what they hand on is neither read nor written.
    fn cost(&self, inputs: &[Spec], outputs: &[Spec], threads: usize) -> Cost {
        let flops = self.steps.iter().map(|step| {
            let reads = step.reads.iter().map(|read| match *read {
                Taken::Input(i) => inputs[i].clone(),
                Taken::Step(j) => self.steps[j].output.clone(),
            });
            let reads: SmallVec<[Spec; 3]> = reads.collect();
            let cost = step
                .op
                .cost(&reads, std::slice::from_ref(&step.output), threads);
            cost.vector_flops
        });
        one_pass(inputs, outputs, flops.sum())
    }
}
