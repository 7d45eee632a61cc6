//! Names of the hub where commands take paths.

use super::chat::ChatArgs;
use super::cli::Command;
use super::data_show::DataCommand;
use super::generate::GenerateArgs;
use crate::error::Failure;
use crate::hub::{folder, weights};

/// Puts folders of the cache in the place of names where commands take paths, with the weights that they read.
///
/// # Errors
/// As [`folder`].
pub(super) fn localize(command: &mut Command) -> Result<(), Failure> {
    let (paths, are_read) = match command {
        Command::Generate(GenerateArgs { sample, .. }) | Command::Chat(ChatArgs { sample, .. }) => {
            (vec![sample.dir.as_mut(), sample.model.as_mut()], true)
        }
        Command::Eval(args) => (vec![args.dir.as_mut(), args.model.as_mut()], true),
        Command::Merge(args) => (vec![args.model.as_mut()], true),
        Command::Export(args) => (vec![Some(&mut args.dir)], true),
        Command::Data(DataCommand::Show(args)) => (vec![args.model.as_mut()], false),
        _ => return Ok(()),
    };
    for path in paths.into_iter().flatten() {
        if let Some(found) = folder(path.to_str().unwrap_or_default())? {
            if are_read {
                weights(&found)?;
            }
            *path = found;
        }
    }
    Ok(())
}
