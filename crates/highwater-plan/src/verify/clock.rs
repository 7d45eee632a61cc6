//! Happens-before.

use crate::plan::{Lane, Plan};

const LANES: usize = 6;

fn index(lane: Lane) -> usize {
    match lane {
        Lane::Compute => 0,
        Lane::HostToDevice => 1,
        Lane::DeviceToHost => 2,
        Lane::Read => 3,
        Lane::Write => 4,
        Lane::Communicate => 5,
    }
}

/// For each instruction and lane: how many of the lane's instructions have completed whenever it
/// starts.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// Lane of each instruction and its place in it, counted from 1.
    place: Vec<(usize, u32)>,
    done: Vec<[u32; LANES]>,
    /// Lanes with any instruction.
    used: [bool; LANES],
}

impl Clocks {
    pub(crate) fn new(plan: &Plan) -> Clocks {
        let mut clocks = Clocks {
            place: Vec::new(),
            done: Vec::new(),
            used: [false; LANES],
        };
        let mut last: [Option<u32>; LANES] = [None; LANES];
        let mut count = [0; LANES];
        for (i, instruction) in (0..).zip(&plan.instructions) {
            let lane = index(instruction.lane);
            let mut done = [0; LANES];
            for j in instruction.waits.iter().copied().chain(last[lane]) {
                let (other, place) = clocks.place[j as usize];
                let known = clocks.done[j as usize];
                done.iter_mut().zip(known).for_each(|(d, k)| *d = k.max(*d));
                done[other] = done[other].max(place);
            }
            count[lane] += 1;
            clocks.place.push((lane, count[lane]));
            clocks.done.push(done);
            clocks.used[lane] = true;
            last[lane] = Some(i);
        }
        clocks
    }

    /// Whether `a` has completed whenever `b` starts.
    pub(crate) fn before(&self, a: u32, b: u32) -> bool {
        let (lane, place) = self.place[a as usize];
        self.done[b as usize][lane] >= place
    }

    /// Follows the list and knows the latest instruction of each lane.
    pub(super) fn front(&self) -> Front<'_> {
        Front {
            clocks: self,
            last: [None; LANES],
        }
    }
}

/// The latest instruction of each lane, up to some place in the list.
#[derive(Debug)]
pub(super) struct Front<'a> {
    clocks: &'a Clocks,
    last: [Option<u32>; LANES],
}

impl Front<'_> {
    pub(super) fn advance(&mut self, i: u32) {
        self.last[self.clocks.place[i as usize].0] = Some(i);
    }

    /// Whether `a` happens before every instruction that is still to come in the list.
    pub(super) fn passed(&self, a: u32) -> bool {
        let own = self.clocks.place[a as usize].0;
        let lanes = (0..LANES).filter(|&lane| self.clocks.used[lane] && lane != own);
        lanes
            .into_iter()
            .all(|lane| self.last[lane].is_some_and(|j| self.clocks.before(a, j)))
    }
}
