//! Steps 3 and 6: what each instruction finds, in list order, and what is left at the end.
//!
//! Runs and guards all stand in one lane, so their list order is the order in which they happen:
//! contents, cells and guards can be followed here once for all orders.

use super::Violation;
use super::clock::Clocks;
use super::form::{homes, taken};
use super::holding::{Close, Holding};
use crate::plan::{Action, Plan};
use crate::problem::{CellId, Effect, Home, Node, NodeId, Problem, Tier, ValueId, Version};
use std::collections::BTreeMap;

/// What is there after the last instruction.
#[derive(Debug)]
pub(super) struct End {
    pub(super) holdings: Vec<Holding>,
    /// The open holding of each value in the arena.
    open: Vec<Option<usize>>,
    outside: Vec<Option<u64>>,
    runs: Vec<u32>,
    copies: BTreeMap<(ValueId, Tier), Copied>,
    /// What cells hold at the end.
    cells: Vec<(ValueId, u64)>,
}

/// The last copy of a value on a tier, and who uses it.
#[derive(Debug)]
struct Copied {
    /// `None` if it is there from the start.
    evict: Option<u32>,
    contents: u64,
    fetches: Vec<u32>,
    /// The range that it takes among what is spilled; `None` for cells.
    range: Option<(u64, u64)>,
}

struct Replay<'a> {
    problem: &'a Problem,
    clocks: &'a Clocks,
    end: End,
    /// What program order gives.
    right: Right,
    cells: BTreeMap<CellId, Version>,
    /// Guards still to come.
    guards: u32,
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

impl<'a> Replay<'a> {
    fn new(problem: &'a Problem, plan: &Plan, clocks: &'a Clocks) -> Result<Replay<'a>, Violation> {
        let right = Right::new(problem);
        let homes = homes(problem, plan)?;
        let mut copies = BTreeMap::new();
        let mut producer: Vec<Option<&Node>> = vec![None; problem.values.len()];
        for n in &problem.nodes {
            for &v in &n.outputs {
                producer[v as usize] = Some(n);
            }
        }
        let mut holdings = Vec::new();
        let mut open = vec![None; problem.values.len()];
        let mut outside = vec![None; problem.values.len()];
        for (value, v) in (0..).zip(&problem.values) {
            let contents = right.values[value as usize];
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
                    _ => outside[value as usize] = Some(initial(value)),
                },
                Home::Arena => {}
                Home::External => {
                    let there = producer[value as usize].is_none_or(|n| n.done);
                    outside[value as usize] = there.then_some(contents);
                }
                Home::Resident { offset } => {
                    open[value as usize] = Some(holdings.len());
                    let bytes = taken(problem, v.bytes);
                    let mut holding = holding(Some(value), offset, bytes, contents, 0);
                    holding.open = None;
                    holdings.push(holding);
                }
            }
        }
        let guard = |n: &&Node| n.effect == Effect::Guard && !n.done;
        let is_cell = |v: &ValueId| matches!(problem.values[*v as usize].home, Home::Cell(_));
        let cells = (0..problem.values.len() as ValueId).filter(is_cell);
        Ok(Replay {
            problem,
            clocks,
            end: End {
                holdings,
                open,
                outside,
                runs: vec![0; problem.nodes.len()],
                copies,
                cells: cells.map(|v| (v, right.values[v as usize])).collect(),
            },
            right,
            cells: start(problem),
            guards: problem.nodes.iter().filter(guard).count() as u32,
        })
    }

    fn run(
        &mut self,
        i: u32,
        node: NodeId,
        outputs: &[Option<u64>],
        scratch: Option<u64>,
    ) -> Result<(), Violation> {
        let n = &self.problem.nodes[node as usize];
        let inputs = self.inputs(i, node)?;
        let versions = self.versions(i, node)?;
        if n.effect == Effect::Repeatable {
            self.end.runs[node as usize] += 1;
        } else {
            self.once(i, node)?;
        }
        for (o, (&value, &place)) in (0..).zip(n.outputs.iter().zip(outputs)) {
            let contents = hash(node, o, &inputs, &versions);
            if contents != self.right.values[value as usize] {
                return Err(Violation::WrongContents {
                    instruction: i,
                    node,
                    value,
                });
            }
            let v = &self.problem.values[value as usize];
            if v.home == Home::External {
                self.end.outside[value as usize] = Some(contents);
                continue;
            }
            if place.is_none() && n.optional.iter().any(|&(left_out, _)| left_out == o) {
                continue;
            }
            match (self.end.open[value as usize], place) {
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
                    self.end.open[value as usize] = Some(self.end.holdings.len());
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
        let n = &self.problem.nodes[node as usize];
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
            if let Some(outside) = &mut self.end.outside[value as usize] {
                *outside = contents;
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
        let n = &self.problem.nodes[node as usize];
        if !n.writes.is_empty() && self.guards > 0 {
            return Err(Violation::Unguarded {
                instruction: i,
                node,
            });
        }
        for &(cell, needs) in &n.writes {
            let has = self.cells.insert(cell, needs + 1).unwrap_or(needs);
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

    /// Closes the holding of the input, if any, on whose range the node may put this output.
    fn take_over(&mut self, i: u32, n: &Node, o: u32, offset: u64) {
        let bytes = self.problem.values[n.outputs[o as usize] as usize].bytes;
        for &(at, _) in n.in_place.iter().filter(|&&(_, output)| output == o) {
            let Some(&input) = n.inputs.get(at as usize) else {
                continue;
            };
            let once = n.inputs.iter().filter(|&&v| v == input).count() == 1;
            let same = bytes > 0 && self.problem.values[input as usize].bytes == bytes;
            let Some(h) = self.end.open[input as usize].filter(|_| once && same) else {
                continue;
            };
            if self.end.holdings[h].offset == offset {
                self.end.holdings[h].close = Close::TakenBy(i, self.end.holdings.len());
                self.end.open[input as usize] = None;
                return;
            }
        }
    }

    /// Notes that an instruction reads a node's inputs, and returns their contents.
    fn inputs(&mut self, i: u32, node: NodeId) -> Result<Vec<u64>, Violation> {
        let mut contents = Vec::new();
        for &value in &self.problem.nodes[node as usize].inputs {
            let there = self.end.outside[value as usize];
            if let Some(there) = there {
                contents.push(there);
            } else {
                let h = self.open(i, value)?;
                self.end.holdings[h].uses.push((i, false));
                contents.push(self.end.holdings[h].contents);
            }
        }
        Ok(contents)
    }

    /// The versions of the cells that a node reads.
    fn versions(&self, i: u32, node: NodeId) -> Result<Vec<Version>, Violation> {
        let mut versions = Vec::new();
        for &(cell, needs) in &self.problem.nodes[node as usize].reads {
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
        }
        Ok(versions)
    }

    /// Counts a run of a node that may run only once, and only if it has not in an earlier plan.
    fn once(&mut self, i: u32, node: NodeId) -> Result<(), Violation> {
        let runs = &mut self.end.runs[node as usize];
        if *runs > 0 || self.problem.nodes[node as usize].done {
            return Err(Violation::Repeated {
                instruction: i,
                node,
            });
        }
        *runs = 1;
        Ok(())
    }

    fn open(&self, i: u32, value: ValueId) -> Result<usize, Violation> {
        self.end.open[value as usize].ok_or(Violation::Absent {
            instruction: i,
            value,
        })
    }

    fn close(&mut self, i: u32, value: ValueId) -> Result<(), Violation> {
        let h = self.open(i, value)?;
        self.end.holdings[h].close = Close::At(i);
        self.end.open[value as usize] = None;
        Ok(())
    }

    fn evict(
        &mut self,
        i: u32,
        value: ValueId,
        tier: Tier,
        place: Option<u64>,
    ) -> Result<(), Violation> {
        let h = self.open(i, value)?;
        self.end.holdings[h].uses.push((i, false));
        self.close(i, value)?;
        let contents = self.end.holdings[h].contents;
        let bytes = self.problem.values[value as usize].bytes;
        let range = place.map(|place| (place, place + bytes.max(1)));
        self.overwrite(i, value, tier, range)?;
        let copy = Copied {
            evict: Some(i),
            contents,
            fetches: Vec::new(),
            range,
        };
        if let Some(old) = self.end.copies.insert((value, tier), copy) {
            let mut users = old.fetches.into_iter().chain(old.evict);
            if let Some(first) = users.find(|&u| !self.clocks.before(u, i)) {
                return Err(Violation::Race {
                    first,
                    second: i,
                    value,
                });
            }
        }
        Ok(())
    }

    /// Gives up the copies of other values in a range of a tier.
    fn overwrite(
        &mut self,
        i: u32,
        value: ValueId,
        tier: Tier,
        range: Option<(u64, u64)>,
    ) -> Result<(), Violation> {
        let Some((from, to)) = range else {
            return Ok(());
        };
        let meets = |copy: &Copied| copy.range.is_some_and(|(f, t)| f < to && from < t);
        let others = self.end.copies.iter();
        let others = others.filter(|&(&(v, t), copy)| v != value && t == tier && meets(copy));
        let others: Vec<ValueId> = others.map(|(&(v, _), _)| v).collect();
        for other in others {
            let Some(copy) = self.end.copies.remove(&(other, tier)) else {
                continue;
            };
            let mut users = copy.fetches.into_iter().chain(copy.evict);
            if users.any(|u| !self.clocks.before(u, i)) {
                return Err(Violation::CopiesOverlap {
                    instruction: i,
                    value,
                    other,
                    tier,
                });
            }
        }
        Ok(())
    }

    fn fetch(&mut self, i: u32, value: ValueId, tier: Tier, offset: u64) -> Result<(), Violation> {
        let copy = self.end.copies.get_mut(&(value, tier));
        let copy = copy.ok_or(Violation::NoCopy {
            instruction: i,
            value,
            tier,
        })?;
        if let Some(opened) = copy.evict.filter(|&e| !self.clocks.before(e, i)) {
            return Err(Violation::MissingWait {
                instruction: i,
                opened,
                value,
            });
        }
        copy.fetches.push(i);
        if let Some(h) = self.end.open[value as usize] {
            let other = self.end.holdings[h].value;
            return Err(Violation::Overlap {
                instruction: i,
                value: Some(value),
                other,
            });
        }
        let bytes = self.problem.values[value as usize].bytes;
        self.end.open[value as usize] = Some(self.end.holdings.len());
        let bytes = taken(self.problem, bytes);
        self.end
            .holdings
            .push(holding(Some(value), offset, bytes, copy.contents, i));
        Ok(())
    }
}

fn holding(value: Option<ValueId>, offset: u64, bytes: u64, contents: u64, open: u32) -> Holding {
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

/// Step 6.
pub(super) fn check_end(problem: &Problem, plan: &Plan, end: &End) -> Result<(), Violation> {
    for ((node, n), &runs) in (0..).zip(&problem.nodes).zip(&end.runs) {
        if runs == 0 && !n.done {
            return Err(Violation::NeverRuns { node });
        }
    }
    let mut listed = vec![None; problem.values.len()];
    for &(value, offset) in &plan.residents {
        if listed[value as usize].replace(offset).is_some() {
            return Err(Violation::WrongResidents { value });
        }
    }
    for (value, v) in (0..).zip(&problem.values) {
        let open = end.open[value as usize].map(|h| end.holdings[h].offset);
        let there = open.is_some() || end.outside[value as usize].is_some();
        if v.wanted && !there {
            return Err(Violation::Missing { value });
        }
        if !v.wanted && open.is_some() {
            return Err(Violation::NeverFreed { value });
        }
        if listed[value as usize] != open {
            return Err(Violation::WrongResidents { value });
        }
    }
    for &(value, contents) in &end.cells {
        let copies = Tier::ALL
            .iter()
            .filter_map(|&tier| end.copies.get(&(value, tier)));
        let mut there = copies
            .map(|copy| copy.contents)
            .chain(end.outside[value as usize]);
        let at_home = there.any(|there| there == contents);
        if !at_home {
            return Err(Violation::NotAtHome { value });
        }
    }
    Ok(())
}

/// What there is when nodes run once, in program order, on the versions they name.
struct Right {
    /// The contents of each value; of cells, at the end.
    values: Vec<u64>,
    /// What a node makes of the cell at a position of its inputs.
    rewritten: BTreeMap<(NodeId, u32), u64>,
}

impl Right {
    fn new(problem: &Problem) -> Right {
        let mut values: Vec<u64> = (0..problem.values.len() as ValueId).map(initial).collect();
        let mut all = BTreeMap::new();
        for (node, n) in (0..).zip(&problem.nodes) {
            let inputs: Vec<u64> = n.inputs.iter().map(|&v| values[v as usize]).collect();
            let versions: Vec<Version> = n.reads.iter().map(|r| r.1).collect();
            for (o, &v) in (0..).zip(&n.outputs) {
                values[v as usize] = hash(node, o, &inputs, &versions);
            }
            // What an earlier plan did is there from the start.
            for &at in n.rewrites.iter().filter(|_| !n.done) {
                let contents = rewritten(n, node, at, &inputs, &versions);
                values[n.inputs[at as usize] as usize] = contents;
                all.insert((node, at), contents);
            }
        }
        Right {
            values,
            rewritten: all,
        }
    }
}

/// The contents of a value that no node of the plan fills.
fn initial(value: ValueId) -> u64 {
    mix(u64::from(value), u64::MAX)
}

fn rewritten(n: &Node, node: NodeId, at: u32, inputs: &[u64], versions: &[Version]) -> u64 {
    hash(node, n.outputs.len() as u32 + at, inputs, versions)
}

fn hash(node: NodeId, output: u32, inputs: &[u64], versions: &[Version]) -> u64 {
    let seed = mix(u64::from(node), u64::from(output));
    let seed = inputs.iter().fold(seed, |h, &input| mix(h, input));
    versions
        .iter()
        .fold(seed, |h, &version| mix(h, u64::from(version)))
}

fn mix(a: u64, b: u64) -> u64 {
    let h = (a.rotate_left(23) ^ b).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

/// The version of each cell at the start: one past what nodes that are done wrote; if they wrote
/// none, the least that the others name; if they name none, the highest read.
fn start(problem: &Problem) -> BTreeMap<CellId, Version> {
    let mut cells: BTreeMap<CellId, (u8, Version)> = BTreeMap::new();
    let mut note = |cell, rank, version| {
        let entry = cells.entry(cell).or_insert((rank, version));
        let least = rank == 1;
        if rank > entry.0 || rank == entry.0 && (version < entry.1) == least {
            *entry = (rank, version);
        }
    };
    for n in &problem.nodes {
        for &(cell, version) in &n.reads {
            note(cell, u8::from(!n.done), version);
        }
        for &(cell, version) in &n.writes {
            let (rank, version) = if n.done {
                (2, version + 1)
            } else {
                (1, version)
            };
            note(cell, rank, version);
        }
    }
    cells
        .into_iter()
        .map(|(cell, (_, version))| (cell, version))
        .collect()
}
