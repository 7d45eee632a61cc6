//! The decisions of a plan as people read them.

use std::fmt::Write as _;

use highwater::plan::Choice;
use highwater::{Decision, Forecast};
use highwater_memory::Bytes;

use crate::commands::plan::figures::{time, times};

/// Rows of the list of decisions of one kind.
const DECISIONS: usize = 12;

/// Writes what the plan decided, by kind.
pub(crate) fn decisions(text: &mut String, f: &Forecast) {
    text.push_str("\ndecisions of the plan\n");
    for (choice, title) in [
        (Choice::Recompute, "recomputed in the backward pass"),
        (
            Choice::InPlace,
            "computed in place, over an input that is no longer needed",
        ),
        (
            Choice::Early,
            "updated early, so that gradients are freed sooner",
        ),
    ] {
        let list: Vec<&Decision> = f.decisions.iter().filter(|d| d.choice == choice).collect();
        let count: u32 = list.iter().map(|d| d.nodes).sum();
        let runs: u32 = list.iter().map(|d| d.times).sum();
        let bytes = list.iter().map(|d| d.bytes).sum();
        let seconds: f64 = list.iter().map(|d| d.seconds).sum();
        let cost = match choice {
            Choice::Recompute if runs > count => format!(", {} in {runs} runs", time(seconds)),
            Choice::Recompute => format!(", {}", time(seconds)),
            Choice::InPlace | Choice::Early => String::new(),
        };
        if count == 0 {
            let _ = writeln!(text, "  {title}: nothing");
            continue;
        }
        if bytes == 0 {
            let _ = writeln!(
                text,
                "  {title}: {count} operations; this frees nothing, because their inputs are needed later"
            );
            continue;
        }
        let _ = writeln!(
            text,
            "  {title}: {count} operations, {}{cost}",
            Bytes(bytes)
        );
        let shown = list.iter().filter(|d| d.bytes > 0);
        for decision in shown.take(DECISIONS) {
            let _ = writeln!(text, "{}", decision_row(decision));
        }
        if list.len() > DECISIONS {
            let left: u64 = list.iter().skip(DECISIONS).map(|d| d.bytes).sum();
            let count = list.len() - DECISIONS;
            let _ = writeln!(
                text,
                "    {:>10}  {count} more, in total",
                Bytes(left).to_string()
            );
        }
    }
}

fn decision_row(d: &Decision) -> String {
    let phase = match d.phase.as_str() {
        "backward" => " (backward)",
        _ => "",
    };
    let mut line = format!(
        "    {:>10}  {}{phase}",
        Bytes(d.bytes).to_string(),
        d.operation
    );
    if !d.module.is_empty() {
        let _ = write!(line, " in {}", d.module);
    }
    line.push_str(&times(d.nodes));
    match d.choice {
        Choice::Recompute => {
            let again = if d.times > d.nodes {
                format!("{} runs in total, ", d.times)
            } else {
                String::new()
            };
            let from = if d.from.is_empty() {
                String::new()
            } else {
                format!("from {}, ", d.from.join(" and "))
            };
            let _ = write!(
                line,
                ": {again}{from}{}; frees memory for {}",
                time(d.seconds),
                time(d.lasts_seconds)
            );
        }
        Choice::Early => {
            let _ = write!(line, ": freed {} earlier", time(d.lasts_seconds));
        }
        Choice::InPlace => {}
    }
    line
}
