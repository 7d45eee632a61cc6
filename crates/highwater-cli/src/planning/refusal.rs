//! What is said of a step that does not fit.

use highwater::Forecast;
use highwater_memory::Bytes;

use super::{assumptions, budget};
use crate::config::{MachineConfig, RunConfig, Task};
use crate::error::{Code, Failure};

/// Says that a step of a run does not fit: the floor, and what sets it.
pub fn refused(forecast: &Forecast, config: &RunConfig) -> Failure {
    let command = match config.origin {
        // A run that resumes: its settings are in its folder, and not in flags.
        Some(_) => "`highwater plan --config FILE`, with the run's config.toml,",
        None => "`highwater plan` with the same flags",
    };
    let hint = format!("{command} shows the time per step under other budgets");
    let machine = (&config.machine, config.has_tiers());
    does_not_fit(forecast, machine, smaller(config.task)).hint(hint)
}

/// What needs less memory than a batch of a task does.
pub fn smaller(task: Task) -> &'static str {
    match task {
        Task::TextGeneration => "a smaller --batch or --seq",
        Task::ImageClassification => "a smaller --batch or --size",
    }
}

/// Says that something does not fit: the floor, what sets it, and what would need less.
pub fn does_not_fit(
    forecast: &Forecast,
    (machine, has_tiers): (&MachineConfig, bool),
    smaller: &str,
) -> Failure {
    let (floor, budget) =
        Bytes::needed_of(Bytes(forecast.floor_bytes), Bytes(forecast.budget_bytes));
    let is_of_tokens = forecast.floor_at == assumptions::TOKENS;
    let largest = forecast.floor_held.operations.first();
    let largest = largest.map_or_else(String::new, |holder| {
        format!("; largest there: {} ({})", holder.what, Bytes(holder.bytes))
    });
    let reached = if is_of_tokens {
        format!(" for {}", assumptions::TOKENS)
    } else {
        format!(", reached in {}{largest}", forecast.floor_at)
    };
    let message = format!(
        "this does not fit into {budget}: it needs at least {floor} ({} bytes){reached}",
        forecast.floor_bytes
    );
    let less = if is_of_tokens {
        "tokenized data (--data FILE.npy), or a smaller tokenizer.json"
    } else {
        smaller
    };
    let is_addressable =
        budget::addressable_below(Bytes(forecast.floor_bytes), has_tiers).is_none();
    let hint = if is_addressable {
        format!("use {} or more, or {less}", more(forecast, machine))
    } else {
        format!(
            "raise the limit of address space (`ulimit -v`), which allows no such budget, or use {less}"
        )
    };
    let mut failure = Failure::new(Code::Budget, message).hint(hint);
    // A disk with room for all that the step holds anywhere would not lower the floor by being larger.
    let held = forecast.floor_bytes + forecast.disk_bytes;
    if let Some(disk) = machine.disk.as_ref().filter(|disk| disk.bytes.0 < held) {
        failure = failure.hint(format!(
            "--disk is limited to {}: a larger limit may reduce the memory that is needed",
            disk.bytes
        ));
    }
    // Of a small model, most of that is what planning takes, with a disk more than without.
    if machine.disk.is_some() && forecast.reserve_bytes > forecast.floor_bytes / 2 {
        failure = failure.hint(
            "planning with --disk uses memory itself: a small model may need less without it",
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
