//! When transfers start: fetches ahead of their use and evictions behind it, as memory allows.
//!
//! The simulator fetches a value right before the run that needs it, and evicted values are gone at
//! once. Carried out like that, nothing would overlap. Here the runs are gone through in order with a
//! clock: before each, what is to be read next is issued if it fits beside all that will be alive until
//! its use; an evicted value keeps its bytes until its predicted end. Where a run needs them earlier it
//! waits. The result is an order of instructions; waits make it safe whatever the times turn out to be.

use crate::problem::{Link, Tier, Tiers, ValueId};
use std::collections::VecDeque;

/// A transfer of the trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) value: ValueId,
    pub(crate) tier: Tier,
    /// What it takes in the arena.
    pub(crate) bytes: u64,
    /// A fetch: the run that needs it. An eviction: the run that it follows. Runs count from 1.
    pub(crate) run: u32,
    /// A fetch: the first run before which it may be issued.
    pub(crate) earliest: u32,
    /// A fetch: the eviction, by index, that makes the copy, if the plan does.
    pub(crate) after: Option<usize>,
}

/// The runs of a trace, and its transfers in order.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Seconds of each run, and none for the end.
    pub(crate) seconds: Vec<f64>,
    /// Bytes alive at each run, and at the end, if every fetch is issued right before it.
    pub(crate) live: Vec<u64>,
    pub(crate) fetches: Vec<Transfer>,
    pub(crate) evicts: Vec<Transfer>,
}

/// The answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schedule {
    /// For each fetch the run before which it is issued.
    pub(crate) issue: Vec<u32>,
    /// For each eviction the run before which its bytes are free.
    pub(crate) close: Vec<u32>,
    /// Predicted seconds.
    pub(crate) seconds: f64,
}

/// Schedules transfers within `budget` bytes, with at most `ahead` bytes issued and not yet needed.
pub(crate) fn schedule(work: &Work, tiers: &Tiers, budget: u64, ahead: u64) -> Schedule {
    let runs = work.seconds.len() as u32;
    let mut s = Scheduler {
        work,
        live: work.live.clone(),
        lanes: Lanes::new(tiers),
        budget,
        ahead,
        issued: 0,
        early: 0,
        pending: VecDeque::new(),
        answer: Schedule {
            issue: vec![0; work.fetches.len()],
            close: vec![runs + 1; work.evicts.len()],
            seconds: 0.0,
        },
    };
    let (mut evict, mut clock) = (0, 0.0f64);
    // What is there from the start may leave before the first run.
    for run in 0..=runs {
        if run > 0 {
            clock = s.before(run, clock);
            clock += work.seconds[run as usize - 1];
        }
        while let Some(e) = work.evicts.get(evict).filter(|e| e.run == run) {
            s.lanes.advance(clock);
            s.lanes.start(e.tier, true, evict, e.bytes);
            s.pending.push_back(evict);
            evict += 1;
        }
    }
    s.answer.seconds = clock.max(s.lanes.drain());
    s.answer
}

struct Scheduler<'a> {
    work: &'a Work,
    /// Bytes alive at each run, with what was issued early.
    live: Vec<u64>,
    lanes: Lanes,
    budget: u64,
    ahead: u64,
    /// Fetches issued so far.
    issued: usize,
    /// Bytes issued and not yet needed.
    early: u64,
    /// Evictions whose bytes are not free yet, in order.
    pending: VecDeque<usize>,
    answer: Schedule,
}

impl Scheduler<'_> {
    /// Issues what is to be issued before a run, and answers when the run starts.
    fn before(&mut self, run: u32, mut clock: f64) -> f64 {
        self.lanes.advance(clock);
        self.close(run);
        clock = self.make_room(run, clock);
        // What this run needs is alive in it in any case.
        while let Some(&f) = self.work.fetches.get(self.issued).filter(|f| f.run <= run) {
            if let Some(evict) = f.after {
                clock = clock.max(self.lanes.until(f.tier, true, evict));
            }
            self.issue(run);
        }
        while self.may_issue(run) {
            self.issue(run);
        }
        // In its lane the last one needed ends last.
        let fetches = self.work.fetches[..self.issued].iter().enumerate().rev();
        let mut seen = [false; 2];
        for (i, f) in fetches.take_while(|(_, f)| f.run >= run) {
            if f.run == run && !std::mem::replace(&mut seen[f.tier as usize], true) {
                clock = clock.max(self.lanes.until(f.tier, false, i));
            }
            if f.run == run && self.answer.issue[i] < run {
                self.early -= f.bytes;
            }
        }
        self.lanes.advance(clock);
        clock
    }

    /// Frees the bytes of evictions that have ended.
    fn close(&mut self, run: u32) {
        while let Some(&e) = self.pending.front() {
            if !self.lanes.ended(self.work.evicts[e].tier, true, e) {
                break;
            }
            self.answer.close[e] = run;
            self.pending.pop_front();
        }
    }

    /// Waits for evictions until a run fits.
    fn make_room(&mut self, run: u32, mut clock: f64) -> f64 {
        let bytes = |s: &Self| {
            s.pending
                .iter()
                .map(|&e| s.work.evicts[e].bytes)
                .sum::<u64>()
        };
        while self.live[run as usize - 1] + bytes(self) > self.budget {
            let Some(e) = self.pending.pop_front() else {
                break;
            };
            clock = clock.max(self.lanes.until(self.work.evicts[e].tier, true, e));
            self.answer.close[e] = run;
        }
        clock
    }

    /// Whether the next fetch fits before a run, beside all that is alive until its use.
    fn may_issue(&self, run: u32) -> bool {
        let Some(f) = self.work.fetches.get(self.issued) else {
            return false;
        };
        let late = f.after.is_some_and(|e| !self.lanes.ended(f.tier, true, e));
        if f.earliest > run || late || self.early + f.bytes > self.ahead {
            return false;
        }
        let mut ends: VecDeque<(f64, u64)> = self
            .pending
            .iter()
            .map(|&e| {
                let evict = &self.work.evicts[e];
                (self.lanes.expected(evict.tier, true, e), evict.bytes)
            })
            .collect();
        let mut pending: u64 = ends.iter().map(|e| e.1).sum();
        let mut clock = self.lanes.now;
        (run..f.run).all(|k| {
            while let Some(&(_, bytes)) = ends.front().filter(|e| e.0 <= clock && k > run) {
                pending -= bytes;
                ends.pop_front();
            }
            clock += self.work.seconds[k as usize - 1];
            self.live[k as usize - 1] + pending + f.bytes <= self.budget
        })
    }

    fn issue(&mut self, run: u32) {
        let f = self.work.fetches[self.issued];
        self.answer.issue[self.issued] = run;
        for k in run..f.run {
            self.live[k as usize - 1] += f.bytes;
        }
        if f.run > run {
            self.early += f.bytes;
        }
        self.lanes.start(f.tier, false, self.issued, f.bytes);
        self.issued += 1;
    }
}

/// What transfers leave to runs at the least.
const LEAST_LEFT: f64 = 0.1;

/// Transfers under way, at rates that depend on whether the other direction is busy.
pub(crate) struct Lanes {
    links: [Option<Link>; 2],
    /// Reading and writing, by tier: identity and bytes left.
    queues: [[VecDeque<(usize, f64)>; 2]; 2],
    /// One past the highest identity that ended.
    ended: [[usize; 2]; 2],
    pub(crate) now: f64,
}

impl Lanes {
    pub(crate) fn new(tiers: &Tiers) -> Lanes {
        Lanes {
            links: [tiers.host, tiers.disk],
            queues: Default::default(),
            ended: [[0; 2]; 2],
            now: 0.0,
        }
    }

    /// Puts a transfer at the end of its queue. Identities rise in each queue.
    pub(crate) fn start(&mut self, tier: Tier, write: bool, id: usize, bytes: u64) {
        self.queues[tier as usize][usize::from(write)].push_back((id, bytes as f64));
    }

    pub(crate) fn ended(&self, tier: Tier, write: bool, id: usize) -> bool {
        self.ended[tier as usize][usize::from(write)] > id
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, to: f64) {
        while self.now < to && self.pass(to) {}
        self.now = self.now.max(to);
    }

    /// When everything has ended.
    pub(crate) fn drain(&mut self) -> f64 {
        while self.pass(f64::INFINITY) {}
        self.now
    }

    /// Lets time pass until a transfer has ended; answers when that is.
    pub(crate) fn until(&mut self, tier: Tier, write: bool, id: usize) -> f64 {
        while !self.ended(tier, write, id) && self.pass(f64::INFINITY) {}
        self.now
    }

    /// About when a transfer will have ended if nothing else is started.
    fn expected(&self, tier: Tier, write: bool, id: usize) -> f64 {
        let ahead = self.queues[tier as usize][usize::from(write)].iter();
        let bytes: f64 = ahead.take_while(|t| t.0 <= id).map(|t| t.1).sum();
        let link = self.links[tier as usize];
        let rate = link.map_or(1.0, |link| {
            if write {
                link.write_while_reading
            } else {
                link.read_while_writing
            }
        });
        self.now + bytes / rate
    }

    /// Bytes per second of a queue now.
    fn rate(&self, tier: usize, write: usize) -> f64 {
        let Some(link) = self.links[tier] else {
            return f64::INFINITY;
        };
        let both = !self.queues[tier][1 - write].is_empty();
        match (write == 1, both) {
            (false, false) => link.read,
            (false, true) => link.read_while_writing,
            (true, false) => link.write,
            (true, true) => link.write_while_reading,
        }
    }

    /// How much of a second runs get done in one, beside what is under way.
    pub(crate) fn left_to_runs(&self) -> f64 {
        let lost = |tier: usize, write: usize| match &self.links[tier] {
            Some(link) if !self.queues[tier][write].is_empty() => {
                self.rate(tier, write) * link.lost
            }
            _ => 0.0,
        };
        let all = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(tier, write)| lost(tier, write));
        (1.0 - all.iter().sum::<f64>()).max(LEAST_LEFT)
    }

    /// Goes on to the next end of a transfer, or to a moment before it; whether there was any.
    pub(crate) fn pass(&mut self, to: f64) -> bool {
        let mut step = to - self.now;
        let mut any = false;
        for tier in 0..2 {
            for write in 0..2 {
                if let Some(&(_, left)) = self.queues[tier][write].front() {
                    step = step.min(left / self.rate(tier, write));
                    any = true;
                }
            }
        }
        if !any {
            return false;
        }
        let rates = [0, 1].map(|tier| [0, 1].map(|write| self.rate(tier, write)));
        self.now += step;
        for (tier, rates) in rates.iter().enumerate() {
            for (write, rate) in rates.iter().enumerate() {
                let queue = &mut self.queues[tier][write];
                if let Some((id, left)) = queue.front_mut() {
                    *left -= rate * step;
                    if *left <= 1e-3 {
                        self.ended[tier][write] = *id + 1;
                        queue.pop_front();
                    }
                }
            }
        }
        true
    }
}
