//! Flags that mean nothing to the task or the model.

use super::defaults;
use crate::args::RunArgs;
use crate::config::Task;
use crate::error::Failure;
use crate::model::Blueprint;

/// That the model is for the task that was named, and no flag is for the other.
pub(super) fn check_task(args: &RunArgs, task: Task) -> Result<(), Failure> {
    if let Some(named) = args.task.filter(|&named| named != task) {
        let model = args.model.as_deref().unwrap_or(defaults::MODEL);
        let message = format!(
            "{model} is a model for {}, not for {}",
            task.name(),
            named.name()
        );
        return Err(Failure::usage(message).hint("leave out --task, or name another --model"));
    }
    let foreign = match task {
        Task::TextGeneration => vec![
            ("size", args.size.is_some()),
            ("skip-bad", args.skip_bad == Some(true)),
        ],
        Task::ImageClassification => vec![
            ("seq", args.seq.is_some()),
            ("tokenizer", args.tokenizer.is_some()),
            ("token-dtype", args.token_dtype.is_some()),
            ("eval-data", args.eval_data.is_some()),
            ("dropout", args.dropout.is_some_and(|dropout| dropout > 0.0)),
            ("lora", args.lora.lora.is_some()),
            ("chat-template", args.records.chat_template.is_some()),
            ("loss-on", args.records.loss_on.is_some()),
            ("no-packing", args.records.no_packing == Some(true)),
            ("map", args.records.map.is_some()),
            ("preference", args.preference.preference.is_some()),
        ],
    };
    match foreign.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(no_effect(flag, task)),
    }
}

/// That a flag means nothing to a task.
pub(super) fn no_effect(flag: &str, task: Task) -> Failure {
    let message = format!("--{flag} has no effect on {}", task.name());
    Failure::usage(message).hint("leave it out")
}

/// That the weights can be quantized, if they are to be.
pub(super) fn check_quantize(args: &RunArgs, model: &Blueprint) -> Result<(), Failure> {
    match model {
        Blueprint::Text(text) if args.lora.quantize.is_some() && !text.can_be_held() => {
            let message = "--quantize: weights of this family cannot be quantized";
            Err(Failure::usage(message)
                .id("HW1041")
                .hint("leave it out, or take another model"))
        }
        _ => Ok(()),
    }
}

/// A word on dropout that the model was made for and does not get.
pub(super) fn note_on_dropout(args: &RunArgs, model: &Blueprint) -> Option<String> {
    let most = model.dropout();
    (args.dropout.is_none() && most > 0.0).then(|| {
        format!(
            "note: the model was made for dropout ({most}), and this trains without: \
             --dropout {most} trains with it"
        )
    })
}
