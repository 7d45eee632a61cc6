//! Instructions of a plan, one class for each kind.

use crate::figures::or_none;
use highwater_plan::{Action, Lane, Tier};
use pyo3::prelude::*;

/// One instruction of a plan.
#[pyclass(module = "highwater", frozen, eq)]
#[derive(Clone, PartialEq)]
pub(crate) enum Instruction {
    /// Runs a node.
    Run {
        node: usize,
        offsets: Vec<Option<u64>>,
        scratch: Option<u64>,
        lane: String,
        waits: Vec<u32>,
    },
    /// Gives the bytes of a value free.
    Free {
        value: usize,
        lane: String,
        waits: Vec<u32>,
    },
    /// Evaluates a guard.
    Guard {
        node: usize,
        lane: String,
        waits: Vec<u32>,
    },
    /// Copies a value to a tier.
    Evict {
        value: usize,
        tier: String,
        place: Option<u64>,
        lane: String,
        waits: Vec<u32>,
    },
    /// Copies a value back.
    Fetch {
        value: usize,
        tier: String,
        offset: u64,
        lane: String,
        waits: Vec<u32>,
    },
}

impl Instruction {
    pub(crate) fn new(instruction: &highwater_plan::Instruction) -> Instruction {
        let lane = lane(instruction.lane).to_owned();
        let waits = instruction.waits.clone();
        match &instruction.action {
            Action::Run {
                node,
                outputs,
                scratch,
            } => Instruction::Run {
                node: node.index(),
                offsets: outputs.clone(),
                scratch: *scratch,
                lane,
                waits,
            },
            Action::Free { value } => Instruction::Free {
                value: value.index(),
                lane,
                waits,
            },
            Action::Guard { node } => Instruction::Guard {
                node: node.index(),
                lane,
                waits,
            },
            Action::Evict {
                value,
                tier: to,
                place,
            } => Instruction::Evict {
                value: value.index(),
                tier: tier(*to).to_owned(),
                place: *place,
                lane,
                waits,
            },
            Action::Fetch {
                value,
                tier: from,
                offset,
            } => Instruction::Fetch {
                value: value.index(),
                tier: tier(*from).to_owned(),
                offset: *offset,
                lane,
                waits,
            },
        }
    }

    fn scheduled(&self) -> (&str, &[u32]) {
        match self {
            Instruction::Run { lane, waits, .. }
            | Instruction::Free { lane, waits, .. }
            | Instruction::Guard { lane, waits, .. }
            | Instruction::Evict { lane, waits, .. }
            | Instruction::Fetch { lane, waits, .. } => (lane, waits),
        }
    }
}

fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Host => "host",
        Tier::Disk => "disk",
    }
}

fn lane(lane: Lane) -> &'static str {
    match lane {
        Lane::Compute => "compute",
        Lane::HostToDevice => "host_to_device",
        Lane::DeviceToHost => "device_to_host",
        Lane::Read => "read",
        Lane::Write => "write",
        Lane::Communicate => "communicate",
    }
}

#[pymethods]
impl Instruction {
    #[getter]
    fn lane(&self) -> &str {
        self.scheduled().0
    }

    #[getter]
    fn waits(&self) -> Vec<u32> {
        self.scheduled().1.to_vec()
    }

    fn __repr__(&self) -> String {
        let kind = match self {
            Instruction::Run {
                node,
                offsets,
                scratch,
                ..
            } => {
                let offsets: Vec<String> = offsets.iter().map(|&offset| or_none(offset)).collect();
                let (offsets, scratch) = (offsets.join(", "), or_none(*scratch));
                format!("Run(node={node}, offsets=[{offsets}], scratch={scratch}")
            }
            Instruction::Free { value, .. } => format!("Free(value={value}"),
            Instruction::Guard { node, .. } => format!("Guard(node={node}"),
            Instruction::Evict {
                value, tier, place, ..
            } => {
                let place = or_none(*place);
                format!("Evict(value={value}, tier='{tier}', place={place}")
            }
            Instruction::Fetch {
                value,
                tier,
                offset,
                ..
            } => format!("Fetch(value={value}, tier='{tier}', offset={offset}"),
        };
        let (lane, waits) = self.scheduled();
        format!("Instruction.{kind}, lane='{lane}', waits={waits:?})")
    }
}
