//! Step 3: what each instruction finds, in list order.
//!
//! Whatever writes is ordered with all that uses the same, so what an instruction finds in list order it
//! finds in every order that the plan allows: contents, cells and guards can be followed here once.

use super::Violation;
use super::clock::Clocks;
use super::contents::{Right, hash, initial, rewritten, start};
use super::copies::Copied;
use super::form::{homes, taken};
use super::holding::{Close, Holding};
use super::order::{Latest, Uses};
use crate::plan::{Action, Plan};
use crate::problem::{CellId, Effect, Home, Node, NodeId, Problem, Tier, ValueId, Version};
use std::collections::BTreeMap;

/// What is there after the last instruction.
#[derive(Debug)]
pub(super) struct End {
    pub(super) holdings: Vec<Holding>,
    /// The open holding of each value in the arena.
    pub(super) open: Vec<Option<usize>>,
    pub(super) outside: Vec<Option<u64>>,
    pub(super) runs: Vec<u32>,
    pub(super) copies: BTreeMap<(ValueId, Tier), Copied>,
    /// What cells hold at the end.
    pub(super) cells: Vec<(ValueId, u64)>,
}

pub(super) struct Replay<'a> {
    pub(super) problem: &'a Problem,
    pub(super) clocks: &'a Clocks,
    pub(super) end: End,
    /// What program order gives.
    right: Right,
    cells: BTreeMap<CellId, Version>,
    /// Guards still to come.
    guards: u32,
    /// Guards that came.
    guarded: Latest,
    /// Who used the cells, and the values that are not in the arena.
    cell_uses: BTreeMap<CellId, Uses>,
    outside_uses: Vec<Uses>,
}

pub(super) fn replay(problem: &Problem, plan: &Plan, clocks: &Clocks) -> Result<End, Violation> {
    let mut replay = Replay::new(problem, plan, clocks)?;
    for (i, instruction) in (0..).zip(&plan.instructions) {
        match &instruction.action {
            Action::Run {
                node,
                outputs,
                scratch,
            } => replay.run(i, *node, outputs, *scratch)?,
            Action::Guard { node } => {
                replay.inputs(i, *node)?;
                replay.versions(i, *node)?;
                replay.once(i, *node)?;
                replay.guards -= 1;
                replay.guarded.note(i, clocks);
            }
            Action::Free { value } => replay.close(i, *value)?,
            Action::Evict { value, tier, place } => replay.evict(i, *value, *tier, *place)?,
            Action::Fetch {
                value,
                tier,
                offset,
            } => replay.fetch(i, *value, *tier, *offset)?,
        }
    }
    Ok(replay.end)
}

/// How many guards stand before the writes. Soft ones may be left out; those that are listed come
/// before every write as others do.
fn guards(problem: &Problem, plan: &Plan) -> u32 {
    let mut listed = vec![false; problem.nodes.len()];
    for instruction in &plan.instructions {
        if let Action::Guard { node } = instruction.action {
            listed[node.index()] = true;
        }
    }
    let nodes = problem.nodes.iter().zip(listed);
    let counts =
        nodes.filter(|(n, listed)| n.effect == Effect::Guard && !n.done && (!n.soft || *listed));
    counts.count() as u32
}

impl<'a> Replay<'a> {
    fn new(problem: &'a Problem, plan: &Plan, clocks: &'a Clocks) -> Result<Replay<'a>, Violation> {
        let right = Right::new(problem);
        let homes = homes(problem, plan)?;
        let mut copies = BTreeMap::new();
        let mut producer: Vec<Option<&Node>> = vec![None; problem.values.len()];
        for n in &problem.nodes {
            for &v in &n.outputs {
                producer[v.index()] = Some(n);
            }
        }
        let mut holdings = Vec::new();
        let mut open = vec![None; problem.values.len()];
        let mut outside = vec![None; problem.values.len()];
        for (value, v) in ValueId::numbered(&problem.values) {
            let contents = right.values[value.index()];
            match v.home {
                Home::Cell(_) => match homes.get(&value) {
                    Some(&Some(tier)) => {
                        let copy = Copied {
                            evict: None,
                            contents: initial(value),
                            fetches: Vec::new(),
                            range: None,
                        };
                        copies.insert((value, tier), copy);
                    }
                    _ => outside[value.index()] = Some(initial(value)),
                },
                Home::Arena => {}
                Home::External => {
                    let there = producer[value.index()].is_none_or(|n| n.done);
                    outside[value.index()] = there.then_some(contents);
                }
                Home::Resident { offset } => {
                    open[value.index()] = Some(holdings.len());
                    let bytes = taken(problem, v.bytes);
                    let mut holding = holding(Some(value), offset, bytes, contents, 0);
                    holding.open = None;
                    holdings.push(holding);
                }
            }
        }
        let is_cell = |v: &ValueId| matches!(problem.values[v.index()].home, Home::Cell(_));
        let cells = ValueId::below(problem.values.len()).filter(is_cell);
        Ok(Replay {
            problem,
            clocks,
            end: End {
                holdings,
                open,
                outside,
                runs: vec![0; problem.nodes.len()],
                copies,
                cells: cells.map(|v| (v, right.values[v.index()])).collect(),
            },
            right,
            cells: start(problem),
            guards: guards(problem, plan),
            guarded: Latest::default(),
            cell_uses: BTreeMap::new(),
            outside_uses: vec![Uses::default(); problem.values.len()],
        })
    }

    fn run(
        &mut self,
        i: u32,
        node: NodeId,
        outputs: &[Option<u64>],
        scratch: Option<u64>,
    ) -> Result<(), Violation> {
        let n = &self.problem.nodes[node.index()];
        let inputs = self.inputs(i, node)?;
        let versions = self.versions(i, node)?;
        if n.effect == Effect::Repeatable {
            self.end.runs[node.index()] += 1;
        } else {
            self.once(i, node)?;
        }
        for (o, (&value, &place)) in (0..).zip(n.outputs.iter().zip(outputs)) {
            let contents = hash(node, o, &inputs, &versions);
            if contents != self.right.values[value.index()] {
                return Err(Violation::WrongContents {
                    instruction: i,
                    node,
                    value,
                });
            }
            let v = &self.problem.values[value.index()];
            if v.home == Home::External {
                self.end.outside[value.index()] = Some(contents);
                self.write_outside(i, value)?;
                continue;
            }
            if place.is_none() && n.optional.iter().any(|&(left_out, _)| left_out == o) {
                continue;
            }
            match (self.end.open[value.index()], place) {
                (Some(h), None) => self.end.holdings[h].uses.push((i, true)),
                (Some(_), Some(_)) => {
                    return Err(Violation::AlreadyThere {
                        instruction: i,
                        node,
                        value,
                    });
                }
                (None, None) => {
                    return Err(Violation::NoPlace {
                        instruction: i,
                        node,
                        value,
                    });
                }
                (None, Some(offset)) => {
                    self.take_over(i, n, o, offset);
                    self.end.open[value.index()] = Some(self.end.holdings.len());
                    let bytes = taken(self.problem, v.bytes);
                    self.end
                        .holdings
                        .push(holding(Some(value), offset, bytes, contents, i));
                }
            }
        }
        if let Some(offset) = scratch {
            let bytes = taken(self.problem, n.scratch_bytes);
            let mut scratch = holding(None, offset, bytes, 0, i);
            scratch.close = Close::At(i);
            self.end.holdings.push(scratch);
        }
        self.rewrite(i, node, &inputs, &versions)?;
        self.write(i, node)
    }

    /// Overwrites the bytes of cells.
    fn rewrite(
        &mut self,
        i: u32,
        node: NodeId,
        inputs: &[u64],
        versions: &[Version],
    ) -> Result<(), Violation> {
        let n = &self.problem.nodes[node.index()];
        for &at in &n.rewrites {
            let value = n.inputs[at as usize];
            let contents = rewritten(n, node, at, inputs, versions);
            if self.right.rewritten.get(&(node, at)) != Some(&contents) {
                return Err(Violation::WrongContents {
                    instruction: i,
                    node,
                    value,
                });
            }
            if let Some(outside) = &mut self.end.outside[value.index()] {
                *outside = contents;
                self.write_outside(i, value)?;
                continue;
            }
            let h = self.open(i, value)?;
            let holding = &mut self.end.holdings[h];
            holding.contents = contents;
            holding.uses.push((i, true));
        }
        Ok(())
    }

    /// Advances the cells that a node writes.
    fn write(&mut self, i: u32, node: NodeId) -> Result<(), Violation> {
        let n = &self.problem.nodes[node.index()];
        let unguarded = || self.guards > 0 || self.guarded.unordered(i, self.clocks).is_some();
        if !n.writes.is_empty() && unguarded() {
            return Err(Violation::Unguarded {
                instruction: i,
                node,
            });
        }
        for &(cell, needs) in &n.writes {
            let has = self.cells.insert(cell, needs + 1).unwrap_or(needs);
            let uses = self.cell_uses.entry(cell).or_default();
            if let Err(first) = uses.write(i, self.clocks) {
                let second = i;
                return Err(Violation::CellRace {
                    first,
                    second,
                    cell,
                });
            }
            if has != needs {
                return Err(Violation::WrongVersion {
                    instruction: i,
                    node,
                    cell,
                    needs,
                    has,
                });
            }
        }
        Ok(())
    }

    /// Notes that an instruction writes a value outside the arena.
    fn write_outside(&mut self, i: u32, value: ValueId) -> Result<(), Violation> {
        let written = self.outside_uses[value.index()].write(i, self.clocks);
        written.map_err(|first| Violation::Race {
            first,
            second: i,
            value,
        })
    }

    /// Closes the holding of the input, if any, on whose range the node may put this output.
    fn take_over(&mut self, i: u32, n: &Node, o: u32, offset: u64) {
        let bytes = self.problem.values[n.outputs[o as usize].index()].bytes;
        for &(at, _) in n.in_place.iter().filter(|&&(_, output)| output == o) {
            let Some(&input) = n.inputs.get(at as usize) else {
                continue;
            };
            let once = n.inputs.iter().filter(|&&v| v == input).count() == 1;
            let same = bytes > 0 && self.problem.values[input.index()].bytes == bytes;
            let Some(h) = self.end.open[input.index()].filter(|_| once && same) else {
                continue;
            };
            if self.end.holdings[h].offset == offset {
                self.end.holdings[h].close = Close::TakenBy(i, self.end.holdings.len());
                self.end.open[input.index()] = None;
                return;
            }
        }
    }

    /// Notes that an instruction reads a node's inputs, and returns their contents.
    fn inputs(&mut self, i: u32, node: NodeId) -> Result<Vec<u64>, Violation> {
        let mut contents = Vec::new();
        for &value in &self.problem.nodes[node.index()].inputs {
            let there = self.end.outside[value.index()];
            if let Some(there) = there {
                contents.push(there);
                let read = self.outside_uses[value.index()].read(i, self.clocks);
                read.map_err(|opened| Violation::MissingWait {
                    instruction: i,
                    opened,
                    value,
                })?;
            } else {
                let h = self.open(i, value)?;
                self.end.holdings[h].uses.push((i, false));
                contents.push(self.end.holdings[h].contents);
            }
        }
        Ok(contents)
    }

    /// The versions of the cells that a node reads.
    fn versions(&mut self, i: u32, node: NodeId) -> Result<Vec<Version>, Violation> {
        let mut versions = Vec::new();
        for &(cell, needs) in &self.problem.nodes[node.index()].reads {
            let has = self.cells.get(&cell).copied().unwrap_or(needs);
            if has != needs {
                return Err(Violation::WrongVersion {
                    instruction: i,
                    node,
                    cell,
                    needs,
                    has,
                });
            }
            versions.push(has);
            let uses = self.cell_uses.entry(cell).or_default();
            uses.read(i, self.clocks)
                .map_err(|first| Violation::CellRace {
                    first,
                    second: i,
                    cell,
                })?;
        }
        Ok(versions)
    }

    /// Counts a run of a node that may run only once, and only if it has not in an earlier plan.
    fn once(&mut self, i: u32, node: NodeId) -> Result<(), Violation> {
        let runs = &mut self.end.runs[node.index()];
        if *runs > 0 || self.problem.nodes[node.index()].done {
            return Err(Violation::Repeated {
                instruction: i,
                node,
            });
        }
        *runs = 1;
        Ok(())
    }

    pub(super) fn open(&self, i: u32, value: ValueId) -> Result<usize, Violation> {
        self.end.open[value.index()].ok_or(Violation::Absent {
            instruction: i,
            value,
        })
    }

    pub(super) fn close(&mut self, i: u32, value: ValueId) -> Result<(), Violation> {
        let h = self.open(i, value)?;
        self.end.holdings[h].close = Close::At(i);
        self.end.open[value.index()] = None;
        Ok(())
    }
}

pub(super) fn holding(
    value: Option<ValueId>,
    offset: u64,
    bytes: u64,
    contents: u64,
    open: u32,
) -> Holding {
    let (close, uses) = (Close::Never, Vec::new());
    Holding {
        value,
        offset,
        bytes,
        contents,
        open: Some(open),
        close,
        uses,
    }
}
