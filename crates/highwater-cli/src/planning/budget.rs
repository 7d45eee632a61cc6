//! Budgets above what the process may have, or that plans leave no room in.

use highwater::{Engine, Forecast};
use highwater_memory::spill::free_bytes;
use highwater_memory::{Bytes, ProcessMemory};

use crate::config::RunConfig;
use crate::error::Failure;
use crate::model::Blueprint;
use crate::terminal::output;

/// Whether the process kept to its budget, and its peak in bytes. What is in the process beside the engine,
/// such as an emulator or a tool that watches it, may take it above.
pub fn kept(budget: Bytes, peak: u64) -> String {
    if peak == 0 {
        // Without /proc.
        return format!(
            "budget {budget}; this system does not report the peak memory of the process"
        );
    }
    let kept = if peak > budget.0 { "above" } else { "within" };
    format!("peak memory {}, {kept} the budget of {budget}", Bytes(peak))
}

/// What a budget can be at most under the limit of addresses (`ulimit -v`), if that is less than `memory`. Where no
/// budget is possible, the engine says so.
pub(super) fn addressable_below(memory: Bytes, has_tiers: bool) -> Option<Bytes> {
    let builder = Engine::builder();
    let builder = if has_tiers { builder.files() } else { builder };
    let most = builder.most_memory();
    (1..memory.0).contains(&most).then_some(Bytes(most))
}

/// What this process may have at most, if the budget is more than that, with a reason: keeping to the budget would not
/// keep it alive.
fn bound_below(memory: Bytes, has_tiers: bool) -> Option<(Bytes, &'static str)> {
    // Where the system does not tell there is nothing to compare with.
    let bound = ProcessMemory::read().map_or(memory, |memory| Bytes(memory.bound()));
    let addressable = addressable_below(memory.min(bound), has_tiers);
    let addressable = addressable.map(|most| (most, " (`ulimit -v` limits its address space)"));
    addressable.or((memory > bound).then_some((bound, "")))
}

/// Warns who plans of a budget above what the process may have, and of a disk with less space than it is to hold. A
/// budget that has no addresses cannot be planned for either, and is lowered.
pub fn warn_of_budget(config: &mut RunConfig) {
    if let Some((bound, why)) = bound_below(config.machine.memory, config.has_tiers()) {
        let budget = config.machine.memory;
        output::news(&format!(
            "warning: --memory {budget} is more than a process can use here{why}: training would use {bound}"
        ));
        if !why.is_empty() {
            config.machine.memory = bound;
        }
    }
    if let Some(disk) = &config.machine.disk
        && let Some(free) = free_bytes(&disk.folder).filter(|&free| free < disk.bytes.0)
    {
        output::news(&format!(
            "warning: --disk {}={} is more than the {} that are free there: training would be refused",
            disk.folder.display(),
            disk.bytes,
            Bytes(free)
        ));
    }
}

/// Lowers a budget above what the process may have, and says so.
///
/// # Errors
/// [`Failure`] where what is left is not enough for the settings.
pub fn keep_to_bound(config: &mut RunConfig, model: &Blueprint) -> Result<(), Failure> {
    let within = bounded(config.machine.memory, config.has_tiers());
    if within < config.machine.memory {
        config.machine.memory = within;
        config.validate(model)?;
    }
    Ok(())
}

/// A budget, or what the process may have if that is less, with a word about it.
pub fn bounded(budget: Bytes, has_tiers: bool) -> Bytes {
    let Some((bound, why)) = bound_below(budget, has_tiers) else {
        return budget;
    };
    output::news(&format!(
        "warning: --memory {budget} is more than this process can use here{why}: using {bound}"
    ));
    bound
}

/// Lowers a budget to the one that a plan was found for, and says so.
pub fn keep_to_planned(config: &mut RunConfig, forecast: &Forecast) {
    let planned = Bytes(forecast.budget_bytes);
    if planned < config.machine.memory {
        let budget = std::mem::replace(&mut config.machine.memory, planned);
        output::news(&format!(
            "note: the plans of this step do not fit together in {budget}: using a budget of {planned}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_above_its_budget_is_not_said_to_have_kept_to_it() {
        let budget = Bytes(64 << 20);
        let told = kept(budget, 64 << 20);
        assert_eq!(told, "peak memory 64 MiB, within the budget of 64 MiB");
        let told = kept(budget, 96 << 20);
        assert_eq!(told, "peak memory 96 MiB, above the budget of 64 MiB");
    }
}
