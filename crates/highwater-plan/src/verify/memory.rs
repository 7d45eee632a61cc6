//! Step 5: no two things are in the same bytes at the same time.

use super::Violation;
use super::clock::{Clocks, LANES};
use super::holding::{Close, Holding};
use crate::plan::Plan;
use std::collections::BTreeMap;

/// Checks that whatever opens finds its bytes closed, and returns the live bytes at each instruction: of
/// all that was opened up to it in the list and whose closing is not known to have happened before it.
pub(super) fn check(
    plan: &Plan,
    clocks: &Clocks,
    holdings: &[Holding],
) -> Result<Vec<u64>, Violation> {
    let mut opening: Vec<Vec<usize>> = vec![Vec::new(); plan.instructions.len()];
    let mut closing: Vec<Vec<usize>> = vec![Vec::new(); plan.instructions.len()];
    let mut memory = Memory::new(clocks, holdings);
    for (h, holding) in holdings.iter().enumerate().filter(|(_, h)| h.bytes > 0) {
        if let Some(i) = holding.close.instruction() {
            closing[i as usize].push(h);
        }
        match holding.open {
            Some(i) => opening[i as usize].push(h),
            None => memory.start(h)?,
        }
    }
    let mut live = Vec::with_capacity(plan.instructions.len().max(1));
    for (i, (opening, closing)) in (0..).zip(opening.iter().zip(&closing)) {
        for &h in opening {
            memory.open(i, h)?;
        }
        live.push(memory.live(i, closing));
        memory.close(i, closing);
    }
    if live.is_empty() {
        live.push(memory.opened);
    }
    Ok(live)
}

/// Bytes that were closed, by offset: the end of each stretch, the instruction that closed it last, and
/// what it closed.
type Closed = BTreeMap<u64, (u64, u32, usize)>;

/// What is in the arena, followed through the list.
struct Memory<'a> {
    clocks: &'a Clocks,
    holdings: &'a [Holding],
    /// What no instruction up to here closes, by offset: no two overlap.
    open: BTreeMap<u64, usize>,
    /// For each lane: what instructions of it closed. The latest that closed a byte comes after all others
    /// of its lane.
    closed: Vec<Closed>,
    /// For each lane: bytes that its first so many instructions closed.
    sums: Vec<Vec<u64>>,
    /// Bytes of all that was opened.
    opened: u64,
}

impl<'a> Memory<'a> {
    fn new(clocks: &'a Clocks, holdings: &'a [Holding]) -> Memory<'a> {
        Memory {
            clocks,
            holdings,
            open: BTreeMap::new(),
            closed: vec![Closed::new(); LANES],
            sums: vec![vec![0]; LANES],
            opened: 0,
        }
    }

    /// What is open at any byte of a holding, other than what the holding takes over.
    fn in_the_way(&self, h: usize) -> Option<usize> {
        let holding = &self.holdings[h];
        let below = self.open.range(..holding.offset + holding.bytes).rev();
        let mut near = below
            .map(|(_, &o)| o)
            .take_while(|&o| self.holdings[o].overlaps(holding));
        near.find(|&o| !matches!(self.holdings[o].close, Close::TakenBy(_, by) if by == h))
    }

    /// Notes what is there from the start.
    fn start(&mut self, h: usize) -> Result<(), Violation> {
        if let Some(o) = self.in_the_way(h) {
            let (value, other) = (self.holdings[h].value, self.holdings[o].value);
            return Err(Violation::OverlapAtStart { value, other });
        }
        self.insert(h);
        Ok(())
    }

    fn open(&mut self, i: u32, h: usize) -> Result<(), Violation> {
        let in_the_way = self.in_the_way(h).or_else(|| self.still_closing(i, h));
        if let Some(o) = in_the_way {
            let (value, other) = (self.holdings[h].value, self.holdings[o].value);
            return Err(Violation::Overlap {
                instruction: i,
                value,
                other,
            });
        }
        self.insert(h);
        Ok(())
    }

    fn insert(&mut self, h: usize) {
        self.opened += self.holdings[h].bytes;
        self.open.insert(self.holdings[h].offset, h);
    }

    /// What another lane closes at some byte of a holding, and may not have closed by an instruction.
    fn still_closing(&self, i: u32, h: usize) -> Option<usize> {
        let holding = &self.holdings[h];
        let own = self.clocks.lane(i);
        let others = (0..self.closed.len()).filter(|&lane| lane != own);
        let mut met = others.flat_map(|lane| {
            let below = self.closed[lane].range(..holding.offset + holding.bytes);
            let below = below.rev().map(|(_, &stretch)| stretch);
            below.take_while(|stretch| stretch.0 > holding.offset)
        });
        let open = met.find(|&(_, by, _)| !self.clocks.before(by, i));
        open.map(|(_, _, o)| o)
    }

    /// Bytes of all that was opened, less what is known to be closed before an instruction, or is taken
    /// over by it.
    fn live(&self, i: u32, closing: &[usize]) -> u64 {
        let taken = closing.iter().map(|&h| &self.holdings[h]);
        let taken = taken.filter(|h| matches!(h.close, Close::TakenBy(..)));
        let known = |lane: usize| self.sums[lane][self.clocks.known(i, lane) as usize];
        let closed: u64 = (0..self.sums.len()).map(known).sum();
        self.opened - closed - taken.map(|h| h.bytes).sum::<u64>()
    }

    fn close(&mut self, i: u32, closing: &[usize]) {
        let lane = self.clocks.lane(i);
        let bytes: u64 = closing.iter().map(|&h| self.holdings[h].bytes).sum();
        let before = self.sums[lane].last().copied().unwrap_or(0);
        self.sums[lane].push(before + bytes);
        for &h in closing {
            // What took it over stands in its place.
            let offset = self.holdings[h].offset;
            if self.open.get(&offset) == Some(&h) {
                self.open.remove(&offset);
            }
            self.paint(lane, i, h);
        }
    }

    /// Notes that an instruction closes the bytes of a holding.
    fn paint(&mut self, lane: usize, i: u32, h: usize) {
        let (from, to) = {
            let holding = &self.holdings[h];
            (holding.offset, holding.offset + holding.bytes)
        };
        let closed = &mut self.closed[lane];
        let under: Vec<(u64, (u64, u32, usize))> = closed
            .range(..to)
            .rev()
            .map(|(&start, &stretch)| (start, stretch))
            .take_while(|(_, stretch)| stretch.0 > from)
            .collect();
        for (start, (end, by, other)) in under {
            closed.remove(&start);
            if start < from {
                closed.insert(start, (from, by, other));
            }
            if end > to {
                closed.insert(to, (end, by, other));
            }
        }
        closed.insert(from, (to, i, h));
    }
}
