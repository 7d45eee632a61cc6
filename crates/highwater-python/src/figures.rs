//! Figures of plans that Python reads: plain data.

use highwater_plan::{Choice, ValueId};
use pyo3::prelude::*;

/// Values and their bytes, by plain numbers.
pub(crate) fn plain(list: &[(ValueId, u64)]) -> Vec<(usize, u64)> {
    list.iter()
        .map(|&(v, number)| (v.index(), number))
        .collect()
}

/// An optional number as Python writes it.
pub(crate) fn or_none<T: ToString>(number: Option<T>) -> String {
    number.map_or_else(|| "None".to_owned(), |number| number.to_string())
}

/// The least that a problem needs.
#[pyclass(module = "highwater", frozen, get_all)]
#[derive(Clone)]
pub(crate) struct Floor {
    bytes: u64,
    node: Option<usize>,
    holders: Vec<(usize, u64)>,
    scratch_bytes: u64,
}

impl Floor {
    pub(crate) fn new(floor: &highwater_plan::Floor) -> Floor {
        Floor {
            bytes: floor.arena_bytes,
            node: floor.node.map(highwater_plan::NodeId::index),
            holders: plain(&floor.holders),
            scratch_bytes: floor.scratch_bytes,
        }
    }
}

#[pymethods]
impl Floor {
    fn __repr__(&self) -> String {
        format!(
            "Floor(bytes={}, node={}, holders={:?}, scratch_bytes={})",
            self.bytes,
            or_none(self.node),
            self.holders,
            self.scratch_bytes
        )
    }
}

/// Who holds the arena at an instruction.
#[pyclass(module = "highwater", frozen, get_all)]
pub(crate) struct Holders {
    pub(crate) node: Option<usize>,
    pub(crate) values: Vec<(usize, u64)>,
    pub(crate) scratch_bytes: u64,
}

#[pymethods]
impl Holders {
    fn __repr__(&self) -> String {
        format!(
            "Holders(node={}, values={:?}, scratch_bytes={})",
            or_none(self.node),
            self.values,
            self.scratch_bytes
        )
    }
}

/// What a plan moves to and from a tier.
#[pyclass(module = "highwater", frozen, get_all)]
#[expect(clippy::struct_field_names, reason = "units stand last")]
pub(crate) struct Traffic {
    read_bytes: u64,
    written_bytes: u64,
    spill_bytes: u64,
    home_bytes: u64,
}

impl Traffic {
    pub(crate) fn new(traffic: highwater_plan::Traffic) -> Traffic {
        Traffic {
            read_bytes: traffic.read_bytes,
            written_bytes: traffic.written_bytes,
            spill_bytes: traffic.spill_bytes,
            home_bytes: traffic.home_bytes,
        }
    }
}

#[pymethods]
impl Traffic {
    fn __repr__(&self) -> String {
        format!(
            "Traffic(read_bytes={}, written_bytes={}, spill_bytes={}, home_bytes={})",
            self.read_bytes, self.written_bytes, self.spill_bytes, self.home_bytes
        )
    }
}

/// One decision of a plan.
#[pyclass(module = "highwater", frozen, get_all)]
pub(crate) struct Decision {
    choice: &'static str,
    node: usize,
    times: u32,
    bytes: u64,
    lasts_seconds: f64,
    seconds: f64,
}

impl Decision {
    pub(crate) fn new(decision: &highwater_plan::Decision) -> Decision {
        Decision {
            choice: match decision.choice {
                Choice::Recompute => "recompute",
                Choice::InPlace => "in_place",
                Choice::Early => "early",
            },
            node: decision.node.index(),
            times: decision.times,
            bytes: decision.bytes,
            lasts_seconds: decision.lasts_seconds,
            seconds: decision.seconds,
        }
    }
}

#[pymethods]
impl Decision {
    fn __repr__(&self) -> String {
        format!(
            "Decision(choice='{}', node={}, times={}, bytes={}, lasts_seconds={:?}, seconds={:?})",
            self.choice, self.node, self.times, self.bytes, self.lasts_seconds, self.seconds
        )
    }
}
