//! What a run says before its start and at its end, to people and to programs.

use std::process::ExitCode;

use highwater::Forecast;
use highwater_memory::Bytes;
use highwater_models::adapter::is_adapter;
use serde_json::json;

use super::pace::Pace;
use super::profile::Profile;
use crate::config::RunConfig;
use crate::data::RunData;
use crate::error::Failure;
use crate::folder::{Best, RunDir};
use crate::planning::Phases;
use crate::planning::budget::kept;
use crate::session::{HeldOut, Session};
use crate::terminal::figures::{duration, perplexity};
use crate::terminal::output;

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
        "{}; {} of the budget are reserved for code, heap and libraries",
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
        return Some("no state has a lower held-out loss than the initial model".to_owned());
    }
    (best.step < steps).then(|| {
        format!(
            "lowest held-out loss: {1:.4} after step {0}. That state is kept: use it with --best in eval, generate, \
            chat, merge and export",
            best.step, best.held_out_loss
        )
    })
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
        "{kind} of rank {rank} on {layers} layers: {numbers} trainable parameters; all other weights are frozen"
    ))
}

/// What a run reads, for people: its data, and how often it goes through it.
pub fn portions(config: &RunConfig, data: &RunData) -> String {
    let [train, held_out] = data.counts();
    let unit = config.task.unit();
    let per_step = config.tokens_per_step();
    let held_out = match held_out {
        0 if config.data.held_out > 0.0 => ", too few to hold any out".to_owned(),
        0 => String::new(),
        held_out => format!(", {held_out} held out"),
    };
    let epochs = data.epochs(config, config.training.steps);
    let records = match data {
        RunData::Packed(data) => data.summary() + "\n",
        RunData::Images(data) => data.summary() + "\n",
        RunData::Text(_) => {
            let notes = data.notes().iter();
            notes.flat_map(|note| [note, "\n"]).collect()
        }
    };
    let often = match epochs {
        many if many > EPOCHS_MANY && config.data.records.is_some() => format!(
            "\nwarning: {} steps are {many:.0} epochs, so the model may overfit; consider --epochs 3",
            config.training.steps
        ),
        _ => String::new(),
    };
    format!(
        "{records}{train} training {unit}{held_out}; {per_step} {unit} per step; {} steps ({epochs:.1} epochs){often}",
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

/// How long a run will take, for people.
pub fn announce(forecast: &Forecast, steps: u64) -> String {
    format!(
        "planned peak {} of {}; predicted {:.3} s per step, {} in total; {} operations recomputed",
        Bytes(forecast.peak_bytes),
        Bytes(forecast.budget_bytes),
        forecast.seconds_per_step,
        duration(forecast.seconds_per_step * steps as f64),
        forecast.recomputed_nodes,
    )
}
