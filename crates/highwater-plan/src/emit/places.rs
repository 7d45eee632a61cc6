//! Places on tiers for what is evicted.

use crate::pack::{Buffer, Effort, pack};
use crate::plan::{Action, Plan};
use crate::problem::{Home, Problem, Tier, footprint_on};

/// Gives what is evicted, other than cells, a place on its tier, and counts what is moved.
pub(crate) fn give_places(problem: &Problem, lines: &mut [Action], plan: &mut Plan) {
    for tier in Tier::ALL {
        let mut copies: Vec<(usize, Buffer)> = Vec::new();
        let mut copy_of: Vec<Option<usize>> = vec![None; problem.values.len()];
        for (i, line) in lines.iter().enumerate() {
            let time = i as u32;
            match *line {
                Action::Evict { value, tier: t, .. } if t == tier => {
                    let bytes = problem.values[value.index()].bytes;
                    plan.traffic_mut(tier).written_bytes += bytes;
                    if !matches!(problem.values[value.index()].home, Home::Cell(_)) {
                        copy_of[value.index()] = Some(copies.len());
                        let bytes = footprint_on(tier, bytes);
                        let (from, to, fixed) = (time, time, None);
                        copies.push((
                            i,
                            Buffer {
                                bytes,
                                from,
                                to,
                                fixed,
                            },
                        ));
                    }
                }
                Action::Fetch { value, tier: t, .. } if t == tier => {
                    plan.traffic_mut(tier).read_bytes += problem.values[value.index()].bytes;
                    if let Some(copy) = copy_of[value.index()] {
                        copies[copy].1.to = time;
                    }
                }
                _ => {}
            }
        }
        let buffers: Vec<Buffer> = copies.iter().map(|copy| copy.1).collect();
        let packing = pack(&buffers, Effort::Quick, 1);
        for (&(i, _), &offset) in copies.iter().zip(&packing.offsets) {
            if let Action::Evict { place, .. } = &mut lines[i] {
                *place = Some(offset);
            }
        }
        plan.traffic_mut(tier).spill_bytes = packing.height;
    }
}
