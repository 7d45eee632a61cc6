//! How much address space an engine reserves: what its budget needs, and what there is.

use crate::store::limits::Limits;
use crate::{Error, Result};
use highwater_memory::rooms::SPREAD;
use highwater_memory::{Bytes, System};

/// Address space of an arena at most. A process has 128 TiB of it, and may have several engines.
const MOST: u64 = 1 << 41;
/// The least of an arena.
const LEAST: u64 = 1 << 20;
/// What an arena takes beside what it can hold: guards, and room to start at a huge page.
const BESIDE: u64 = 4 << 20;
/// What is left to others where address space is bounded: the heap, threads of transfers.
const OTHERS: u64 = 64 << 20;

/// Bytes of addresses to reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// For the arena of state, and as much for that of plans.
    pub(crate) arena: u64,
    /// For rooms of cells that may move below memory; none without tiers.
    pub(crate) rooms: Option<u64>,
    /// For host memory.
    pub(crate) host: u64,
    /// What the budget may be at most: all there is to be had, where that is bounded and the budget is not.
    pub(crate) most_budget: u64,
}

impl Addresses {
    /// Those of an engine. Rooms lie in [`SPREAD`] times the addresses that they need, or in what there is
    /// of that where address space is bounded.
    ///
    /// # Errors
    /// [`Error::Build`] where it is bounded too low for the budget.
    pub(crate) fn of(system: &dyn System, limits: &Limits, tiers: bool, dry: bool) -> Result<Self> {
        let stated = (!dry).then(|| limits.capacity()).flatten();
        let arena = stated.unwrap_or(MOST).clamp(LEAST, MOST);
        let host = limits.host.map_or(0, |host| host.clamp(LEAST, MOST));
        // Arenas of state and plans, rooms of cells.
        let arenas = if tiers { 3 } else { 2 };
        let needed = |arena: u64| {
            let beside = (arenas + 1) * BESIDE + OTHERS;
            (arena.saturating_mul(arenas)).saturating_add(host + beside)
        };
        let spread = |bytes: u64, times: u64| bytes.saturating_mul(times).min(MOST.max(bytes));
        let fit = |arena: u64, times: u64| Self {
            arena,
            rooms: tiers.then(|| spread(arena, times)),
            host: spread(host, times),
            most_budget: if arena < MOST && stated.is_none() {
                arena
            } else {
                u64::MAX
            },
        };
        let Some(left) = system.address_space() else {
            return Ok(fit(arena, SPREAD));
        };
        let least = needed(0);
        // Who states no budget asks for none in particular: an eighth stays for what the process does beside.
        let spared = if stated.is_some() { 0 } else { left / 8 };
        let most = left.saturating_sub(least + spared) / arenas;
        if needed(arena) > left && (stated.is_some() || most < LEAST) {
            let (who, least) = match stated {
                Some(_) => ("this budget", needed(arena)),
                // What is spared grows with what there is.
                None => ("the smallest budget", needed(LEAST) * 8 / 7),
            };
            let (least, left) = Bytes::needed_of(Bytes(least), Bytes(left));
            return Err(Error::Build(format!(
                "the process can map only {left} more of address space (ulimit -v), and {who} needs {least}\n  hint: \
                 raise the limit: `ulimit -v unlimited`{}",
                match most / LEAST * LEAST {
                    0 => String::new(),
                    most => format!(", or give a budget of at most {}", Bytes(most)),
                }
            )));
        }
        let arena = arena.min(most);
        let spare = left.saturating_sub(needed(arena) + spared);
        let spreads = if tiers {
            arena.saturating_add(host)
        } else {
            host
        };
        let times = 1 + (spare / spreads.max(1)).min(SPREAD - 1);
        Ok(fit(arena, times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_memory::{HostSystem, ScriptedSystem};

    const MIB: u64 = 1 << 20;

    fn limits(memory: Option<u64>, host: Option<u64>) -> Limits {
        Limits {
            memory,
            host,
            ..Limits::default()
        }
    }

    #[test]
    fn without_a_bound_rooms_have_space_to_spare() {
        let of = |memory, tiers| Addresses::of(&HostSystem, &limits(memory, None), tiers, false);
        let plain = of(Some(100 * MIB), true).unwrap();
        assert_eq!(plain.arena, 100 * MIB);
        assert_eq!(plain.rooms, Some(800 * MIB));
        assert_eq!(of(None, false).unwrap().arena, MOST);
        assert_eq!(of(None, false).unwrap().rooms, None);
        assert_eq!(of(None, false).unwrap().most_budget, u64::MAX);
    }

    /// What is reserved is never more than there is; budgets that need more are refused with one that works.
    #[test]
    fn a_bound_is_kept_to_or_refused() {
        for left in [
            0,
            60 * MIB,
            80 * MIB,
            100 * MIB,
            500 * MIB,
            1000 * MIB,
            9000 * MIB,
        ] {
            let system = ScriptedSystem::with_address_space(left);
            for memory in [None, Some(MIB), Some(40 * MIB), Some(300 * MIB)] {
                for (host, tiers) in [(None, false), (None, true), (Some(30 * MIB), true)] {
                    let limits = limits(memory, host);
                    match Addresses::of(&system, &limits, tiers, false) {
                        Ok(fit) => {
                            let sum = 2 * fit.arena + fit.rooms.unwrap_or(0) + fit.host + OTHERS;
                            assert!(sum <= left, "{fit:?} in {left}");
                            assert!(fit.host >= host.unwrap_or(0));
                            assert!(memory.is_some() || fit.most_budget == fit.arena);
                            assert!(memory.is_none_or(|memory| fit.arena >= memory));
                            assert!(fit.rooms.is_none_or(|rooms| rooms >= fit.arena));
                        }
                        Err(error) => {
                            let text = error.to_string();
                            assert!(text.contains("ulimit -v"), "{text}");
                            // Terabytes are what is reserved where nothing is bounded, and nobody needs them.
                            assert!(!text.contains("TiB"), "{text}");
                            let told = text.split("at most ").nth(1);
                            let told = told.map(|told| told.parse::<Bytes>().unwrap().0);
                            if let Some(told) = told {
                                let less = super::Limits {
                                    memory: Some(told),
                                    ..limits
                                };
                                Addresses::of(&system, &less, tiers, false).unwrap();
                            }
                        }
                    }
                }
            }
        }
    }
}
