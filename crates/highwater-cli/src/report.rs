//! What a run says before its start and at its end, to people and to programs.

use std::process::ExitCode;

use highwater::Forecast;
use highwater_memory::{Bytes, ProcessMemory};
use highwater_models::adapter::is_adapter;
use serde_json::json;

use crate::best::Best;
use crate::config::{MachineConfig, RunConfig};
use crate::data::RunData;
use crate::dry;
use crate::error::{Code, Failure};
use crate::output;
use crate::pace::Pace;
use crate::phases::Phases;
use crate::profile::Profile;
use crate::progress::duration;
use crate::run_dir::RunDir;
use crate::session::{HeldOut, Session};
use crate::task::{Blueprint, Task};

/// The losses of a run.
#[derive(Debug)]
pub struct Losses {
    /// Each step's.
    pub train: Vec<f32>,
    /// What is held out: before and after.
    pub held_out: Option<(HeldOut, HeldOut)>,
    /// The state that did best on that, where it was measured meanwhile.
    pub best: Option<Best>,
}

/// Says how a run went.
///
/// # Errors
/// None but a mistake of the program.
pub fn finished(
    session: &Session,
    dir: &RunDir,
    losses: &Losses,
    data: &RunData,
    (pace, phases, profile): (&Pace, &Phases, Option<&Profile>),
    as_json: bool,
) -> Result<ExitCode, Failure> {
    let plan = session.engine.last_step();
    let budget = session.config().machine.memory;
    let peak = phases.peak_rss_bytes();
    let (first, last) = (losses.train.first(), losses.train.last());
    if as_json {
        let summary = json!({
            "out": dir.path(),
            "steps": session.config().training.steps,
            "tokens_per_step": session.config().tokens_per_step(),
            "train_tokens": data.counts()[0],
            "epochs": data.epochs(session.config(), session.config().training.steps),
            "first_loss": first,
            "last_loss": last,
            "held_out_loss_before": losses.held_out.map(|held_out| held_out.0.loss),
            "held_out_loss_after": losses.held_out.map(|held_out| held_out.1.loss),
            "held_out_perplexity_before": losses.held_out.and_then(|it| it.0.perplexity(session.config())),
            "held_out_perplexity_after": losses.held_out.and_then(|it| it.1.perplexity(session.config())),
            "held_out_accuracy_before": losses.held_out.and_then(|held_out| held_out.0.accuracy),
            "held_out_accuracy_after": losses.held_out.and_then(|held_out| held_out.1.accuracy),
            "best_step": losses.best.map(|best| best.step),
            "best_held_out_loss": losses.best.map(|best| best.held_out_loss),
            "budget_bytes": budget.0,
            "peak_rss_bytes": peak,
            "planned_process_bytes": plan.planned_process_bytes,
            "phases": phases.list(),
            "seconds_per_step": pace.measured(),
            "predicted_seconds_per_step": pace.predicted(),
            "first_predicted_seconds_per_step": pace.first_predicted(),
            "profile": profile.map(Profile::to_json),
        });
        output::result(&summary.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = Vec::new();
    if let (Some(first), Some(last)) = (first, last) {
        lines.push(format!("loss {first:.4} -> {last:.4}"));
    }
    if let Some((before, after)) = losses.held_out {
        let (first, last) = (before.loss, after.loss);
        lines.push(format!("held-out loss {first:.4} -> {last:.4}"));
        let [first, last] = [before, after].map(|found| found.perplexity(session.config()));
        if let (Some(first), Some(last)) = (first, last) {
            let [first, last] = [first, last].map(perplexity);
            lines.push(format!("held-out perplexity {first} -> {last}"));
        }
        if let (Some(first), Some(last)) = (before.accuracy, after.accuracy) {
            let [first, last] = [first, last].map(|share| 100.0 * share);
            lines.push(format!("held-out accuracy {first:.1}% -> {last:.1}%"));
        }
    }
    lines.extend(of_best(losses, session.config().training.steps));
    lines.extend(pace.line());
    lines.push(format!(
        "{}; {} were set aside for code, heap and libraries",
        kept(budget, peak),
        Bytes(session.engine.reserve_bytes()),
    ));
    lines.push(format!("model: {}", dir.final_model().display()));
    lines.extend(profile.map(|profile| format!("\n{}", profile.to_text())));
    output::result(&lines.join("\n"));
    Ok(ExitCode::SUCCESS)
}

/// What there is to say of the state that did best, where the last one did not.
fn of_best(losses: &Losses, steps: u64) -> Option<String> {
    let best = losses.best?;
    let (before, _) = losses.held_out?;
    if best.held_out_loss > before.loss {
        return Some(
            "no state did better on what is held out than the model that this run began with"
                .to_owned(),
        );
    }
    (best.step < steps).then(|| {
        format!(
            "the held-out loss was least after step {}: {:.4}; its state is kept, and --best takes it in eval, \
             generate, chat, merge and export",
            best.step, best.held_out_loss
        )
    })
}

/// Whether the process kept to its budget, and its peak in bytes. What is in the process beside the engine,
/// such as an emulator or a tool that watches it, may take it above.
pub fn kept(budget: Bytes, peak: u64) -> String {
    if peak == 0 {
        // Without /proc.
        return format!("{budget} were allowed; what the process had, this system does not tell");
    }
    let kept = if peak > budget.0 { "above" } else { "kept to" };
    format!("{kept} {budget}: the process had {} at most", Bytes(peak))
}

/// What this process may have at most, if the budget is more than that: keeping to the budget would not
/// keep it alive.
fn bound_below(memory: Bytes) -> Option<Bytes> {
    // Where the system does not tell there is nothing to compare with.
    let bound = Bytes(ProcessMemory::read().ok()?.bound());
    (memory > bound).then_some(bound)
}

/// Warns who plans of a budget above what the process may have.
pub fn warn_of_budget(config: &RunConfig) {
    if let Some(bound) = bound_below(config.machine.memory) {
        let budget = config.machine.memory;
        output::news(&format!(
            "warning: --memory {budget} is more than a process may have here: training would keep to {bound}"
        ));
    }
}

/// Lowers a budget above what the process may have, and says so.
///
/// # Errors
/// [`Failure`] where what is left is not enough for the settings.
pub fn keep_to_bound(config: &mut RunConfig, model: &Blueprint) -> Result<(), Failure> {
    let within = bounded(config.machine.memory);
    if within < config.machine.memory {
        config.machine.memory = within;
        config.validate(model)?;
    }
    Ok(())
}

/// A budget, or what the process may have if that is less, with a word about it.
pub fn bounded(budget: Bytes) -> Bytes {
    let Some(bound) = bound_below(budget) else {
        return budget;
    };
    output::news(&format!(
        "warning: --memory {budget} is more than this process may have here: keeping to {bound}"
    ));
    bound
}

/// Lowers a budget to the one that a plan was found for, and says so.
pub fn keep_to_planned(config: &mut RunConfig, forecast: &Forecast) {
    let planned = Bytes(forecast.budget_bytes);
    if planned < config.machine.memory {
        let budget = std::mem::replace(&mut config.machine.memory, planned);
        output::news(&format!(
            "note: the plans of this step leave each other no room in {budget}: keeping to {planned}"
        ));
    }
}

/// Says that a step of a run does not fit: the floor, and what sets it.
pub fn refused(forecast: &Forecast, config: &RunConfig) -> Failure {
    let hint = "`highwater plan` with the same flags shows what other budgets cost";
    does_not_fit(forecast, &config.machine, smaller(config.task)).hint(hint)
}

/// What needs less memory than a batch of a task does.
pub fn smaller(task: Task) -> &'static str {
    match task {
        Task::TextGeneration => "a smaller --batch or --seq needs less",
        Task::ImageClassification => "a smaller --batch or --size needs less",
    }
}

/// Says that something does not fit: the floor, what sets it, and what would need less.
pub fn does_not_fit(forecast: &Forecast, machine: &MachineConfig, smaller: &str) -> Failure {
    let (floor, budget) =
        Bytes::needed_of(Bytes(forecast.floor_bytes), Bytes(forecast.budget_bytes));
    let largest = forecast.floor_held.operations.first();
    let largest = largest.map_or_else(String::new, |holder| {
        format!(
            "; the largest holder there is {} ({})",
            holder.what,
            Bytes(holder.bytes)
        )
    });
    let is_of_tokens = forecast.floor_at == dry::TOKENS;
    let largest = if is_of_tokens { String::new() } else { largest };
    let message = format!(
        "this does not fit into {budget}: it needs {floor} ({} bytes), set by {}{largest}",
        forecast.floor_bytes, forecast.floor_at
    );
    let less = if is_of_tokens {
        "text that is tokenized already (--data FILE.npy), or a smaller tokenizer.json, needs less"
    } else {
        smaller
    };
    let hint = format!("give it {} or more; {less}", more(forecast, machine));
    let mut failure = Failure::new(Code::Budget, message).hint(hint);
    // A disk with room for all that the step holds anywhere would not lower the floor by being larger.
    let held = forecast.floor_bytes + forecast.disk_bytes;
    if let Some(disk) = machine.disk.as_ref().filter(|disk| disk.bytes.0 < held) {
        failure = failure.hint(format!(
            "--disk gives {} of space: with more of it less memory may do",
            disk.bytes
        ));
    }
    // Of a small model, most of that is what planning takes, with a disk more than without.
    if machine.disk.is_some() && forecast.reserve_bytes > forecast.floor_bytes / 2 {
        failure = failure.hint(
            "a plan with a disk takes memory itself: a small model may need less without --disk",
        );
    }
    failure
}

/// The flags that a step needs which does not fit.
fn more(forecast: &Forecast, machine: &MachineConfig) -> String {
    // A mebibyte to spare: the reserve is measured anew each time.
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20) + 1;
    let Some(Bytes(device)) = machine.device_memory else {
        return format!("--memory {}MiB", mebibytes(forecast.floor_bytes));
    };
    let missing = forecast.floor_bytes.saturating_sub(forecast.budget_bytes);
    let device = mebibytes(device + missing);
    // All that is asked for has to find room, used or not, and the tables of its pages.
    let asked =
        forecast.reserve_bytes + (device << 20) + machine.host_memory.map_or(0, |host| host.0);
    let memory = forecast.floor_bytes.max(asked + asked / 256);
    let memory = format!("--memory {}MiB", mebibytes(memory));
    let device = format!("--device-memory {device}MiB");
    if forecast.floor_bytes < machine.memory.0 {
        device
    } else {
        format!("{memory} and {device}")
    }
}

/// What trains where a model is frozen.
pub fn adapters(config: &RunConfig, session: &Session) -> Option<String> {
    let lora = config.model.lora.as_ref()?;
    let mut named = session.model.module().named_parameters();
    named.retain(|(name, _)| is_adapter(name));
    let layers = named
        .iter()
        .filter(|(name, _)| name.ends_with("lora_A.weight"))
        .count();
    let numbers: usize = named
        .iter()
        .map(|(_, parameter)| parameter.shape().numel())
        .sum();
    let kind = if lora.dora { "DoRA" } else { "LoRA" };
    let rank = lora.rank;
    Some(format!(
        "{kind} of rank {rank} on {layers} layers: {numbers} numbers train, all else is frozen"
    ))
}

/// What a run reads, for people: its data, and how often it goes through it.
pub fn portions(config: &RunConfig, data: &RunData) -> String {
    let [train, held_out] = data.counts();
    let unit = config.task.unit();
    let per_step = config.tokens_per_step();
    let held_out = match held_out {
        0 if config.data.held_out > 0.0 => ", too few to hold some out".to_owned(),
        0 => String::new(),
        held_out => format!(", {held_out} held out"),
    };
    let epochs = data.epochs(config, config.training.steps);
    let records = match data {
        RunData::Packed(data) => data.summary() + "\n",
        RunData::Pictures(data) => data.summary() + "\n",
        RunData::Text(_) => {
            let notes = data.notes().iter();
            notes.flat_map(|note| [note, "\n"]).collect()
        }
    };
    let often = match epochs {
        many if many > EPOCHS_MANY && config.data.records.is_some() => format!(
            "\nwarning: {} steps read every record {many:.0} times, and a model learns them by heart: --epochs 3 reads \
             them 3 times",
            config.training.steps
        ),
        _ => String::new(),
    };
    format!(
        "{records}{train} {unit} to train on{held_out}; {per_step} {unit} a step; {} steps are {epochs:.1} epochs{often}",
        config.training.steps
    )
}

/// Records that are read more often than this are learnt by heart.
const EPOCHS_MANY: f64 = 5.0;

/// Says what a model comes to on what is held out.
pub fn held_out(found: &HeldOut, config: &RunConfig, when: &str) -> String {
    let HeldOut { loss, units, .. } = found;
    let accuracy = found.accuracy.map_or_else(String::new, |share| {
        format!(", accuracy {:.1}%", 100.0 * share)
    });
    let of_text = found.perplexity(config).map_or_else(String::new, |found| {
        format!(", perplexity {}", perplexity(found))
    });
    let unit = match config.training.preference {
        Some(_) => "pairs",
        None => config.task.unit(),
    };
    format!("held-out loss {when}: {loss:.4}{of_text}{accuracy} (of {units} {unit})")
}

/// A perplexity, for people: with as many digits as mean something.
pub fn perplexity(perplexity: f64) -> String {
    match perplexity {
        few if few < 100.0 => format!("{few:.2}"),
        some if some < 1e6 => format!("{some:.1}"),
        many => format!("{many:.2e}"),
    }
}

/// How long a run will take, for people.
pub fn announce(forecast: &Forecast, steps: u64) -> String {
    format!(
        "planned peak {} of {}; {:.3} s per step predicted, {} in all; {} nodes are recomputed",
        Bytes(forecast.peak_bytes),
        Bytes(forecast.budget_bytes),
        forecast.seconds_per_step,
        duration(forecast.seconds_per_step * steps as f64),
        forecast.recomputed_nodes,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_above_its_budget_is_not_said_to_have_kept_to_it() {
        let budget = Bytes(64 << 20);
        let told = kept(budget, 64 << 20);
        assert_eq!(told, "kept to 64 MiB: the process had 64 MiB at most");
        let told = kept(budget, 96 << 20);
        assert_eq!(told, "above 64 MiB: the process had 96 MiB at most");
    }
}
