//! What a run or a plan says at its end, to people and to programs.

use std::fmt::Write as _;
use std::process::ExitCode;

use highwater::Forecast;
use highwater_memory::Bytes;
use highwater_memory::process::Usage;
use serde_json::json;

use crate::error::{Code, Failure};
use crate::output;
use crate::pace::Pace;
use crate::progress::duration;
use crate::run_dir::RunDir;
use crate::session::Session;

/// Rows of a list that people are shown.
const ROWS: usize = 8;

/// The losses of a run.
#[derive(Debug)]
pub struct Losses {
    /// Each step's.
    pub train: Vec<f32>,
    /// What is held out: before and after.
    pub held_out: Option<(f32, f32)>,
}

/// Says how a run went.
///
/// # Errors
/// None but a mistake of the program.
pub fn finished(
    session: &Session,
    dir: &RunDir,
    losses: &Losses,
    pace: &Pace,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    let plan = session.engine.last_step();
    let budget = session.config().machine.memory;
    let peak = Usage::read().map_or(0, |usage| usage.peak);
    let (first, last) = (losses.train.first(), losses.train.last());
    if as_json {
        let summary = json!({
            "out": dir.path(),
            "steps": session.config().training.steps,
            "first_loss": first,
            "last_loss": last,
            "held_out_loss_before": losses.held_out.map(|losses| losses.0),
            "held_out_loss_after": losses.held_out.map(|losses| losses.1),
            "budget_bytes": budget.0,
            "peak_rss_bytes": peak,
            "planned_process_bytes": plan.planned_process_bytes,
            "seconds_per_step": pace.measured(),
            "predicted_seconds_per_step": pace.predicted(),
            "first_predicted_seconds_per_step": pace.first_predicted(),
        });
        output::result(&summary.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = Vec::new();
    if let (Some(first), Some(last)) = (first, last) {
        lines.push(format!("loss {first:.4} -> {last:.4}"));
    }
    if let Some((before, after)) = losses.held_out {
        lines.push(format!("held-out loss {before:.4} -> {after:.4}"));
    }
    lines.extend(pace.line());
    lines.push(format!(
        "kept to {budget}: the process had {} at most; {} of it is reserve (code, heap, libraries)",
        Bytes(peak),
        Bytes(plan.reserve_bytes),
    ));
    lines.push(format!("model: {}", dir.final_model().display()));
    output::result(&lines.join("\n"));
    Ok(ExitCode::SUCCESS)
}

/// Says what a step takes. The exit code tells whether it fits.
///
/// # Errors
/// None but a mistake of the program.
pub fn planned(forecast: &Forecast, as_json: bool) -> Result<ExitCode, Failure> {
    if as_json {
        let json =
            serde_json::to_string(forecast).map_err(|error| Failure::new(Code::Internal, error))?;
        output::result(&json);
    } else {
        output::result(&describe(forecast));
    }
    Ok(if forecast.fits {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(Code::Budget as u8)
    })
}

fn describe(forecast: &Forecast) -> String {
    let f = forecast;
    let mut text = if f.fits {
        format!("fits into {}\n", Bytes(f.budget_bytes))
    } else {
        format!("does not fit into {}\n", Bytes(f.budget_bytes))
    };
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<18}{value}");
    };
    row("peak", format!("{} of process memory", Bytes(f.peak_bytes)));
    row(
        "  plan",
        format!("{} at {}", Bytes(f.arena_bytes), f.peak_at),
    );
    row(
        "  state",
        format!(
            "{} (parameters, optimizer state, inputs)",
            Bytes(f.state_bytes)
        ),
    );
    row(
        "  reserve",
        format!("{} (code, heap, stacks, libraries)", Bytes(f.reserve_bytes)),
    );
    row(
        "floor",
        format!("{}, set by {}", Bytes(f.floor_bytes), f.floor_at),
    );
    row(
        "seconds per step",
        format!(
            "{:.3} predicted; {:.3} of them recompute {} nodes",
            f.seconds_per_step, f.recompute_seconds, f.recomputed_nodes
        ),
    );
    text.push_str("held at the peak\n");
    for holder in f.holders.iter().take(ROWS) {
        let (bytes, count) = (Bytes(holder.bytes).to_string(), holder.values);
        let _ = writeln!(text, "  {bytes:<18}{} (x{count})", holder.what);
    }
    text.push_str("what other budgets cost\n");
    let step = f.curve.len().div_ceil(ROWS).max(1);
    let last = f.curve.len().saturating_sub(1);
    for (i, price) in f.curve.iter().enumerate() {
        if i % step == 0 || i == last {
            let time = price.seconds_per_step;
            let bytes = Bytes(price.bytes).to_string();
            let _ = writeln!(text, "  {bytes:<18}{time:.3} s per step");
        }
    }
    text.trim_end().to_owned()
}

/// Says that a step does not fit: the floor, and what sets it.
pub fn refused(forecast: &Forecast) -> Failure {
    let (budget, floor) = (Bytes(forecast.budget_bytes), Bytes(forecast.floor_bytes));
    let largest = forecast.holders.first().map_or_else(String::new, |holder| {
        format!(
            "; the largest holder there is {} ({})",
            holder.what,
            Bytes(holder.bytes)
        )
    });
    let message = format!(
        "this does not fit into {budget}: it needs {floor} ({} bytes), set by {}{largest}",
        forecast.floor_bytes, forecast.floor_at
    );
    Failure::new(Code::Budget, message)
        .hint(format!(
            "give it --memory {}MiB or more; a smaller --batch or --seq needs less",
            // A mebibyte to spare: the reserve is measured anew each time.
            forecast.floor_bytes.div_ceil(1 << 20) + 1
        ))
        .hint("`highwater plan` with the same flags shows what other budgets cost")
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
