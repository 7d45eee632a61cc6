//! From flags to the data of a run, and the share of it that is held out.

use highwater_memory::Files;
use highwater_models::data::Reads;

use super::defaults::{Defaults, HELD_OUT};
use super::paths::absolute;
use crate::args::Settings;
use crate::config::{DataConfig, RecordsConfig};
use crate::data::held_out::parts;
use crate::error::Failure;
use crate::model::Blueprint;

/// Of records that are said to be nothing else, so many are held out.
const OF_RECORDS: f64 = 0.05;

/// The data that flags name.
///
/// # Errors
/// [`Failure`] where flags say twice what is held out, or something is held out of no data.
pub(super) fn data(
    files: &dyn Files,
    settings: &Settings,
    model: &Blueprint,
    (records, defaults): (Option<RecordsConfig>, &Defaults),
) -> Result<DataConfig, Failure> {
    let held_out = match (model, &settings.data) {
        (Blueprint::Images(images), Some(data)) => {
            images.held_out(files, data, settings.held_out, HELD_OUT)?
        }
        (Blueprint::Text(_), Some(_)) => share(files, settings, records.is_some())?,
        (_, None) => {
            check_alone(settings)?;
            settings.held_out.unwrap_or(HELD_OUT)
        }
    };
    Ok(DataConfig {
        path: settings.data.as_deref().map(absolute).transpose()?,
        eval_data: settings.eval_data.as_deref().map(absolute).transpose()?,
        token_dtype: settings.token_dtype,
        held_out,
        skip_bad: settings.skip_bad.unwrap_or(false),
        order: settings.order.unwrap_or(defaults.order),
        records,
        reads: Reads::default(),
    })
}

/// The share of the text, the tokens or the records that is held out: what flags say, otherwise of records a few, if
/// no file says what is held out.
///
/// # Errors
/// [`Failure`] where flags say it twice, or a folder says it too.
fn share(files: &dyn Files, settings: &Settings, has_records: bool) -> Result<f64, Failure> {
    let named = settings.eval_data.as_deref();
    if let Some(missing) = named.filter(|path| !files.metadata(path).is_ok_and(|it| it.is_some())) {
        let path = missing.to_owned();
        return Err(highwater_models::DataError::Missing { path }.into());
    }
    let default = if has_records { OF_RECORDS } else { 0.0 };
    let share = settings.held_out.unwrap_or(default);
    if share == 0.0 {
        return Ok(share);
    }
    let held_out = if let Some(named) = named {
        Some(format!("--eval-data {}", named.display()))
    } else {
        let ways = (None, Reads::Training, has_records);
        let found = parts(files, settings.data.as_deref(), ways)?;
        let first = found.and_then(|found| found.held_out.into_iter().next());
        first.map(|(path, _)| path.display().to_string())
    };
    let Some(held_out) = held_out else {
        return Ok(share);
    };
    if settings.held_out.is_none() {
        return Ok(0.0);
    }
    let message = format!("--held-out {share} and {held_out} both choose the held-out data");
    Err(Failure::usage(message)
        .hint("remove --held-out, or use --data FILE with the file to train on"))
}

/// That there is something to train on beside what is held out.
///
/// # Errors
/// [`Failure`] for `--eval-data` alone.
fn check_alone(settings: &Settings) -> Result<(), Failure> {
    let Some(named) = settings.eval_data.as_deref() else {
        return Ok(());
    };
    let message = format!(
        "--eval-data {} needs --data, the data to train on",
        named.display()
    );
    Err(Failure::usage(message).hint("add --data PATH"))
}
