//! `train`: resolves the settings, opens the data and makes the run's folder.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use highwater_memory::{DiskFiles, Files};
use highwater_models::DataError;

use crate::args::TrainArgs;
use crate::config::{ModelSource, RunConfig};
use crate::data::RunData;
use crate::error::Failure;
use crate::resolve::{self, Resolved};
use crate::run_dir::RunDir;
use crate::{not_built, output};

/// Trains a model.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn train(args: &TrainArgs) -> Result<ExitCode, Failure> {
    let files: Arc<dyn Files> = Arc::new(DiskFiles);
    let Resolved { config, model } = resolve::train(&*files, args)?;
    if args.dry_run {
        output::result(config.to_toml(Path::new("config.toml"))?.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &config.data.path
        && files.metadata(path)?.is_none()
    {
        let path = path.clone();
        return Err(DataError::Missing { path }.into());
    }
    let dir = make_dir(&*files, args, &config)?;
    let data = RunData::open(&files, &config, &model, &dir.tokens())?;
    let _batches = data.batches(&config)?;
    Err(not_built())
}

/// The folder that was named, or one of the model's name under `runs`.
fn make_dir(files: &dyn Files, args: &TrainArgs, config: &RunConfig) -> Result<RunDir, Failure> {
    if let Some(path) = &args.out {
        return Ok(RunDir::create(files, path, args.force)?);
    }
    let path = PathBuf::from("runs").join(run_name(&config.model.source));
    if args.force {
        return Ok(RunDir::create(files, &path, true)?);
    }
    Ok(RunDir::create_numbered(files, &path)?)
}

/// What a run is called when nobody names its folder.
fn run_name(source: &ModelSource) -> String {
    match source {
        ModelSource::Preset(name) => name.clone(),
        ModelSource::Folder(path) => match path.file_name() {
            Some(name) => name.to_string_lossy().into_owned(),
            None => "model".to_owned(),
        },
    }
}
