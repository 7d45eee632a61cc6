//! The settings of a run that goes on, with what flags change about them.

use highwater_memory::Files;

use super::moved;
use super::run::Resolved;
use super::training::check_length;
use crate::args::ResumeArgs;
use crate::args::table::Table;
use crate::config::{Epochs, RunConfig};
use crate::error::Failure;
use crate::folder::RunDir;
use crate::model::Blueprint;
use crate::settings::from_config::Filed;

/// The settings of the run in a folder, with what `resume` was asked to change about them.
///
/// # Errors
/// [`Failure`] for settings that cannot be read or are not possible.
pub fn resume(files: &dyn Files, dir: &RunDir, args: &ResumeArgs) -> Result<Resolved, Failure> {
    let mut config = RunConfig::read(files, &dir.config())?;
    if let Some(origin) = &config.origin {
        origin.check_model(files, dir)?;
    }
    let model = Blueprint::read(files, &dir.model())?;
    moved::find(&mut config, args)?;
    moved::check(files, &config, dir.path())?;
    let changes = &args.changes;
    check_length(changes)?;
    let RunConfig {
        machine,
        training,
        output,
        ..
    } = &mut config;
    machine.memory = changes.memory.unwrap_or(machine.memory);
    machine.device_memory = changes.device_memory.or(machine.device_memory);
    machine.host_memory = changes.host_memory.or(machine.host_memory);
    if args.no_host_memory {
        (machine.device_memory, machine.host_memory) = (None, None);
    }
    machine.threads = changes.threads.unwrap_or(machine.threads);
    if changes.disk.is_some() || args.no_disk {
        machine.disk.clone_from(&changes.disk);
    }
    training.steps = changes.steps.unwrap_or(training.steps);
    training.epochs = changes.epochs.map(|count| Epochs {
        count,
        warmup_is_said: true,
    });
    output.apply(changes);
    Filed::check(files, &dir.config())?;
    changes.check()?;
    let shortened = config.shorten_warmup();
    config.validate(&model)?;
    Ok(Resolved {
        config,
        model,
        notes: shortened.into_iter().collect(),
    })
}
