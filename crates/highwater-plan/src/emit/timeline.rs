//! What a plan is predicted to take when its lanes run at once.

use crate::emit::schedule::Lanes;
use crate::plan::{Action, Instruction, Plan};
use crate::problem::{Lane, Problem, Tier};

/// Predicted seconds of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timeline {
    /// From its start until the last lane is done.
    pub seconds: f64,
    /// Of its runs, one after the other and beside no transfer.
    pub compute_seconds: f64,
    /// In which a transfer is under way.
    pub transfer_seconds: f64,
    /// Of reads from disk, one after the other.
    pub read_seconds: f64,
    /// Of writes to disk, one after the other.
    pub write_seconds: f64,
}

/// The lanes, in the order of the queues that [`Lanes`] has after that of runs.
fn queue(lane: Lane) -> Option<(Tier, bool)> {
    match lane {
        Lane::Compute | Lane::Communicate => None,
        Lane::HostToDevice => Some((Tier::Host, false)),
        Lane::DeviceToHost => Some((Tier::Host, true)),
        Lane::Read => Some((Tier::Disk, false)),
        Lane::Write => Some((Tier::Disk, true)),
    }
}

const ALL: [Lane; 5] = [
    Lane::Compute,
    Lane::HostToDevice,
    Lane::DeviceToHost,
    Lane::Read,
    Lane::Write,
];

/// Follows a plan's lanes, each instruction starting as soon as it may, with transfers at the rates of
/// their tiers.
#[must_use]
pub fn timeline(problem: &Problem, plan: &Plan) -> Timeline {
    let list = &plan.instructions;
    let lanes = ALL.map(|lane| {
        // Runs go one after the other, whatever their lanes.
        let queue = |own: Lane| match own {
            Lane::Communicate => Lane::Compute,
            own => own,
        };
        let own = (0..list.len()).filter(|&i| queue(list[i].lane) == lane);
        own.collect::<Vec<usize>>()
    });
    let mut follower = Follower {
        problem,
        list,
        next: [0; 5],
        over: vec![false; list.len()],
        running: None,
        moving: [None; 5],
        transfers: Lanes::new(&problem.tiers),
        timeline: Timeline::default(),
    };
    while follower.start(&lanes) || follower.pass() {}
    follower.timeline.seconds = follower.transfers.now;
    follower.timeline
}

struct Follower<'a> {
    problem: &'a Problem,
    list: &'a [Instruction],
    /// Per lane: what it starts next.
    next: [usize; 5],
    over: Vec<bool>,
    /// The run under way, and the seconds that are left of it.
    running: Option<(usize, f64)>,
    /// Per lane: the transfer under way.
    moving: [Option<usize>; 5],
    transfers: Lanes,
    timeline: Timeline,
}

impl Follower<'_> {
    /// Starts what can start now; whether there was anything.
    fn start(&mut self, lanes: &[Vec<usize>; 5]) -> bool {
        let mut any = false;
        for (at, lane) in lanes.iter().enumerate() {
            let busy = match at {
                0 => self.running.is_some(),
                _ => self.moving[at].is_some(),
            };
            let Some(&i) = lane.get(self.next[at]).filter(|_| !busy) else {
                continue;
            };
            let instruction = &self.list[i];
            if !instruction.waits.iter().all(|&w| self.over[w as usize]) {
                continue;
            }
            any = true;
            self.next[at] += 1;
            match &instruction.action {
                Action::Run { node, outputs, .. } => {
                    self.run(i, self.problem.run_seconds(*node, outputs));
                }
                Action::Guard { node } => self.run(i, self.problem.nodes[node.index()].seconds),
                Action::Free { .. } => self.over[i] = true,
                Action::Evict { value, .. } | Action::Fetch { value, .. } => {
                    if let Some((tier, write)) = queue(instruction.lane) {
                        let bytes = self.problem.values[value.index()].bytes;
                        self.transfers.start(tier, write, i, bytes);
                        self.moving[at] = Some(i);
                    }
                }
            }
        }
        any
    }

    fn run(&mut self, i: usize, seconds: f64) {
        self.timeline.compute_seconds += seconds;
        self.running = Some((i, seconds));
    }

    /// Lets time pass until something is over; whether anything was under way.
    fn pass(&mut self) -> bool {
        let before = self.transfers.now;
        let speed = self.transfers.left_to_runs();
        let to = (self.running).map_or(f64::INFINITY, |run| before + run.1 / speed);
        let moved = self.moving.iter().any(Option::is_some);
        if !moved && self.running.is_none() {
            return false;
        }
        if moved {
            self.transfers.pass(to);
            let passed = self.transfers.now - before;
            self.timeline.transfer_seconds += passed;
            for (moving, lane) in self.moving.iter().zip(&ALL) {
                match lane {
                    Lane::Read if moving.is_some() => self.timeline.read_seconds += passed,
                    Lane::Write if moving.is_some() => self.timeline.write_seconds += passed,
                    _ => {}
                }
            }
        } else {
            self.transfers.advance(to);
        }
        for (moving, &lane) in self.moving.iter_mut().zip(&ALL) {
            if let (Some(i), Some((tier, write))) = (*moving, queue(lane))
                && self.transfers.ended(tier, write, i)
            {
                self.over[i] = true;
                *moving = None;
            }
        }
        if let Some((i, left)) = &mut self.running {
            *left -= (self.transfers.now - before) * speed;
            if self.transfers.now >= to {
                self.over[*i] = true;
                self.running = None;
            }
        }
        true
    }
}
