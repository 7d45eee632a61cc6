//! Flags that mean nothing to the task or the model.

use super::defaults;
use crate::args::Settings;
use crate::args::table::Table;
use crate::config::Task;
use crate::error::Failure;
use crate::model::Blueprint;

/// That the model is for the task that was named, and no flag is for the other.
pub(super) fn check_task(settings: &Settings, task: Task) -> Result<(), Failure> {
    if let Some(named) = settings.task.filter(|&named| named != task) {
        let model = settings.model.as_deref().unwrap_or(defaults::MODEL);
        let message = format!(
            "{model} is a model for {}, not for {}",
            task.name(),
            named.name()
        );
        return Err(Failure::usage(message).hint("leave out --task, or name another --model"));
    }
    let foreign = Settings::table()
        .iter()
        .find(|setting| setting.task.is_some_and(|of| of != task) && setting.is_given(settings));
    foreign.map_or(Ok(()), |setting| {
        let message = format!("--{} has no effect on {}", setting.flag, task.name());
        Err(Failure::usage(message).hint("leave it out"))
    })
}

/// That the weights can be quantized, if they are to be.
pub(super) fn check_quantize(settings: &Settings, model: &Blueprint) -> Result<(), Failure> {
    match model {
        Blueprint::Text(text) if settings.quantize.is_some() && !text.can_be_held() => {
            let message = "--quantize: weights of this family cannot be quantized";
            Err(Failure::usage(message)
                .id("HW1041")
                .hint("remove it, or use another model"))
        }
        _ => Ok(()),
    }
}

/// A word on dropout that the model was made for and does not get.
pub(super) fn note_on_dropout(settings: &Settings, model: &Blueprint) -> Option<String> {
    let most = model.dropout();
    (settings.dropout.is_none() && most > 0.0).then(|| {
        format!(
            "note: config.json has a dropout of {most}, and training uses none; add --dropout {most} to use it"
        )
    })
}
