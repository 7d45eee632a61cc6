//! Happens-before.

use crate::plan::Plan;
use crate::problem::Lane;

/// How many lanes there may be.
pub(super) const LANES: usize = 6;

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
}

impl Clocks {
    pub(crate) fn new(plan: &Plan) -> Clocks {
        let mut clocks = Clocks {
            place: Vec::new(),
            done: Vec::new(),
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
            last[lane] = Some(i);
        }
        clocks
    }

    /// Whether `a` has completed whenever `b` starts.
    pub(crate) fn before(&self, a: u32, b: u32) -> bool {
        let (lane, place) = self.place[a as usize];
        self.done[b as usize][lane] >= place
    }

    /// The lane of an instruction.
    pub(super) fn lane(&self, i: u32) -> usize {
        self.place[i as usize].0
    }

    /// How many instructions of a lane have completed whenever an instruction starts.
    pub(super) fn known(&self, i: u32, lane: usize) -> u32 {
        self.done[i as usize][lane]
    }
}
