//! With which means a run computes.

use clap::ValueEnum;
use highwater::Rates;
use highwater_memory::Bytes;
use serde::{Deserialize, Serialize};

use super::disk::DiskConfig;

/// With which means. Changes nothing about the numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineConfig {
    /// Bytes for the whole process.
    pub memory: Bytes,
    /// What may be recomputed.
    pub policy: Policy,
    /// Threads to compute with.
    pub threads: usize,
    /// Bytes of that for what kernels work in; what is left without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<Bytes>,
    /// Bytes of that for tensors to wait in besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<Bytes>,
    /// Where tensors may wait beside memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskConfig>,
    /// What the run does without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbid: Vec<Forbid>,
    /// What the machine does in a second: found when a run starts or is planned, and no setting.
    #[serde(skip)]
    pub rates: Rates,
}

/// What a run may do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forbid {
    /// No writes to disk during training: only frozen weights are offloaded.
    DiskWrites,
}

/// What may be recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Those that do not fit the budget, at the least cost.
    Auto,
    /// None.
    Keep,
    /// All that can be recomputed.
    Recompute,
}
