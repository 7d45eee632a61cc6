//! From flags to the means that a run has.

use highwater_memory::{Bytes, ProcessMemory};

use super::defaults::Defaults;
use crate::args::Settings;
use crate::config::{MachineConfig, Policy};
use crate::error::{Code, Failure};
use crate::machine::processor::cores;

/// The means that flags give a run.
///
/// # Errors
/// [`Failure`] where none is given, and the system does not say what there is.
pub(super) fn machine(settings: &Settings, defaults: &Defaults) -> Result<MachineConfig, Failure> {
    Ok(MachineConfig {
        memory: memory(settings.memory.or(defaults.memory))?,
        policy: settings.policy.unwrap_or(Policy::Auto),
        threads: settings.threads.unwrap_or_else(cores),
        device_memory: settings.device_memory,
        host_memory: settings.host_memory,
        disk: settings.disk.clone(),
        forbid: settings.forbid.clone().unwrap_or_default(),
        rates: highwater::Rates::default(),
    })
}

/// The budget that was given, or most of what the process may have.
fn memory(given: Option<Bytes>) -> Result<Bytes, Failure> {
    if let Some(memory) = given {
        return Ok(memory);
    }
    let machine = ProcessMemory::read().map_err(|error| {
        Failure::new(Code::Files, error).hint("use --memory SIZE, such as --memory 3GiB")
    })?;
    Ok(Bytes(machine.bound() / 10 * 9))
}
