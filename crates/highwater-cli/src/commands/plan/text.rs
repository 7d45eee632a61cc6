//! A plan as people read it.

mod decisions;

use std::fmt::Write as _;

use decisions::decisions;
use highwater::{Forecast, Held, Holder, Layer};
use highwater_memory::Bytes;

use super::changes::Change;
use super::figures::{time, times};
use super::ladder::{Rung, share};
use super::report::{Report, Settings};
use crate::config::{Moments, Precision};
use crate::planning::{Phase, TOKENS};
use crate::terminal::figures::per_second;

/// Rows of a list that are shown.
const ROWS: usize = 8;

/// Writes a report for people; with `explain`, each decision of the plan too.
pub fn text(report: &Report, explain: bool) -> String {
    let f = &report.forecast;
    let mut text = String::new();
    headline(&mut text, report);
    let (floor_bytes, is_of_tokens) = (f.floor_bytes, f.floor_at == TOKENS);
    if f.fits || is_of_tokens {
        let _ = writeln!(text, "\nmemory at the peak, {}", Bytes(f.peak_bytes));
        held(&mut text, &f.peak_held, f.peak_bytes);
        if !is_of_tokens {
            floor(&mut text, f);
        }
    } else {
        let _ = writeln!(text, "\nmemory at the floor, {}", Bytes(floor_bytes));
        held(&mut text, &f.floor_held, floor_bytes);
    }
    ladder(&mut text, f, &report.ladder);
    changes(&mut text, report);
    if explain {
        decisions(&mut text, f);
    } else {
        text.push_str("\n--explain lists the decisions of the plan; --json prints everything\n");
    }
    text.trim_end().to_owned()
}

/// In which precision, and with which optimizer.
fn forms(settings: &Settings) -> String {
    let mut forms = match settings.precision {
        Precision::F32 => String::new(),
        half => format!(", {}", half.name()),
    };
    if let Some(master) = settings.master {
        let _ = write!(forms, ", --master {}", master.name());
    }
    let moments = match settings.moments {
        Moments::F32 => "",
        Moments::Int8 => " in int8",
    };
    let _ = write!(forms, ", {}{moments}", settings.optimizer);
    forms
}

/// The verdict, then what was planned, and its main figures.
fn headline(text: &mut String, report: &Report) {
    let (f, s) = (&report.forecast, &report.settings);
    let budget = Bytes(f.budget_bytes);
    if f.fits {
        let _ = writeln!(text, "fits into {budget}");
    } else {
        let missing = Bytes(f.floor_bytes.saturating_sub(f.budget_bytes)).rounded_up();
        let (floor, budget) = Bytes::needed_of(Bytes(f.floor_bytes), budget);
        let _ = writeln!(
            text,
            "does not fit into {budget}: it needs {floor}, {missing} more\n\
             the figures below are for {floor}"
        );
    }
    let _ = writeln!(text, "  settings    {}", planned(s));
    let (peak, at) = (Bytes(f.peak_bytes), &f.peak_at);
    let left = match f.budget_bytes.saturating_sub(f.peak_bytes) {
        left if f.fits => format!(", {} below the budget", Bytes(left)),
        _ => String::new(),
    };
    let _ = writeln!(
        text,
        "  peak        {peak} in a training step{left}, reached in {at}"
    );
    let (seconds, again) = (f.seconds_per_step, f.recompute_seconds);
    let _ = writeln!(
        text,
        "  time        {} per step, {} {} per second (predicted)",
        time(seconds),
        per_second(report.tokens_per_second),
        s.task.unit()
    );
    let _ = writeln!(
        text,
        "  recomputed  {}",
        recomputed(f.recomputed_nodes, again, seconds)
    );
    let floor = Bytes(f.floor_bytes).rounded_up();
    let why = match f.floor_at.as_str() {
        TOKENS => format!("{TOKENS} before training needs it"),
        at => format!("reached in {at}"),
    };
    let _ = writeln!(
        text,
        "  floor       {floor}, the smallest budget that works: {why}"
    );
    if !report.phases.is_empty() {
        let phase = |phase: &Phase| format!("{} {}", doing(phase), Bytes(phase.planned_bytes));
        let phases: Vec<String> = report.phases.iter().map(phase).collect();
        let _ = writeln!(text, "  phases      peak when {}", phases.join(", "));
    }
    below(text, f, report.settings.from_files);
    if f.plans > 1 {
        let _ = writeln!(
            text,
            "  plans       a step runs {} plans in sequence: time is their sum, memory that of the largest",
            f.plans
        );
    }
}

/// The settings in a line.
fn planned(s: &Settings) -> String {
    let parts = match s.accumulate {
        1 => String::new(),
        parts => format!(" x {parts} accumulated"),
    };
    let what = match s.size {
        Some(size) => format!("images of {size} x {size}"),
        None => format!("sequences of {} tokens", s.seq),
    };
    format!(
        "{}: {} {what}{parts}{}, {} threads",
        s.model,
        s.batch,
        forms(s),
        s.threads
    )
}

/// A phase of a run, as people call it.
fn doing(phase: &Phase) -> &'static str {
    match phase.phase {
        "load" => "loading",
        "resume" => "resuming",
        "evaluate" => "evaluating",
        "step" => "training",
        "save" => "saving",
        other => other,
    }
}

/// What tiers below memory move and hold.
fn below(text: &mut String, f: &Forecast, from_files: bool) {
    if f.host_bytes > 0 || f.host_bytes_read > 0 {
        let _ = writeln!(
            text,
            "  host        {} read and {} written per step; {} used",
            Bytes(f.host_bytes_read),
            Bytes(f.host_bytes_written),
            Bytes(f.host_bytes)
        );
    }
    if from_files && f.bytes_read > 0 {
        let _ = writeln!(
            text,
            "  files       {} of frozen weights read per step from the model's files; nothing is written",
            Bytes(f.bytes_read)
        );
    } else if f.disk_bytes > 0 || f.bytes_read > 0 {
        let _ = writeln!(
            text,
            "  disk        {} read and {} written per step ({} in 1000 steps); {} used",
            Bytes(f.bytes_read),
            Bytes(f.bytes_written),
            Bytes(f.bytes_written * 1000),
            Bytes(f.disk_bytes)
        );
    }
}

fn recomputed(nodes: u32, again: f64, seconds: f64) -> String {
    if nodes == 0 {
        return "nothing: all activations are kept".to_owned();
    }
    format!(
        "{} of the step ({}): {nodes} operations are recomputed to save memory",
        time(again),
        percent(share(again, seconds))
    )
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 1.0 => "<1 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

fn row(text: &mut String, bytes: u64, all: u64, what: &str) {
    let share = percent(share(bytes as f64, all as f64));
    let _ = writeln!(
        text,
        "    {:>10} {share:>6}  {what}",
        Bytes(bytes).to_string()
    );
}

fn held(text: &mut String, held: &Held, all: u64) {
    text.push_str("  by kind\n");
    holders(text, &held.kinds, all, kind);
    text.push_str("  by layer\n");
    for layer in held.layers.iter().take(ROWS) {
        row(text, layer.bytes, all, &layer_row(layer));
    }
    rest(
        text,
        held.layers.iter().skip(ROWS).map(|layer| layer.bytes),
        all,
    );
    let layers: u64 = held.layers.iter().map(|layer| layer.bytes).sum();
    row(
        text,
        all.saturating_sub(layers),
        all,
        "in no layer: reserve, inputs, unused memory",
    );
    text.push_str("  by operation, without parameters and optimizer state\n");
    holders(text, &held.operations, all, |holder| {
        format!("{}{}", holder.what, times(holder.values))
    });
}

fn holders(text: &mut String, list: &[Holder], all: u64, name: impl Fn(&Holder) -> String) {
    for holder in list.iter().take(ROWS) {
        row(text, holder.bytes, all, &name(holder));
    }
    rest(text, list.iter().skip(ROWS).map(|holder| holder.bytes), all);
}

fn rest(text: &mut String, left: impl ExactSizeIterator<Item = u64>, all: u64) {
    if left.len() > 0 {
        let what = format!("{} more, in total", left.len());
        row(text, left.sum(), all, &what);
    }
}

fn kind(holder: &Holder) -> String {
    match holder.what.as_str() {
        "reserve" => "reserve: code, heap, stacks, libraries".to_owned(),
        "rounding" => "unused, between buffers and at the end of pages".to_owned(),
        "workspace" => "workspace (scratch memory) of the operation".to_owned(),
        _ => format!("{}{}", kind_name(holder), times(holder.values)),
    }
}

fn kind_name(holder: &Holder) -> &str {
    match holder.what.as_str() {
        "parameter" => "parameters",
        "gradient" => "gradients",
        "activation" => "activations",
        "input" => "inputs",
        "rounding" => "unused",
        other => other,
    }
}

fn layer_row(layer: &Layer) -> String {
    let module = match layer.module.as_str() {
        "" => "outside any module",
        module => module,
    };
    let state = match layer.state_bytes {
        0 => String::new(),
        state if state == layer.bytes => "all of it parameters and optimizer state".to_owned(),
        state => format!("{} of it parameters and optimizer state", Bytes(state)),
    };
    let each = match (
        layer.layers,
        Bytes(layer.least_bytes),
        Bytes(layer.most_bytes),
    ) {
        (1, ..) => String::new(),
        (_, least, most) if least == most => format!("{most} each"),
        (_, least, most) => format!("{least} to {most} each, most in {}", layer.most_in),
    };
    let notes: Vec<String> = [each, state]
        .into_iter()
        .filter(|note| !note.is_empty())
        .collect();
    if notes.is_empty() {
        return module.to_owned();
    }
    format!("{module}: {}", notes.join(", "))
}

/// The floor in two lines: memory by kind, and the largest activations and gradients.
fn floor(text: &mut String, f: &Forecast) {
    let (floor, at) = (Bytes(f.floor_bytes), &f.floor_at);
    let _ = writeln!(text, "\nmemory at the floor, {floor}, reached in {at}");
    let kinds = f.floor_held.kinds.iter();
    let (large, small): (Vec<_>, Vec<_>) =
        kinds.partition(|holder| holder.bytes * 100 > f.floor_bytes);
    let kinds = large.iter();
    let mut kinds: Vec<String> = kinds
        .map(|holder| format!("{} {}", Bytes(holder.bytes), kind_name(holder)))
        .collect();
    if !small.is_empty() {
        let rest = small.iter().map(|holder| holder.bytes).sum();
        kinds.push(format!("{} other", Bytes(rest)));
    }
    let _ = writeln!(text, "  {}", kinds.join(", "));
    let largest = f.floor_held.operations.iter().take(3);
    let largest: Vec<String> = largest
        .map(|holder| {
            format!(
                "{} {}{}",
                Bytes(holder.bytes),
                holder.what,
                times(holder.values)
            )
        })
        .collect();
    if !largest.is_empty() {
        let _ = writeln!(
            text,
            "  largest activations and gradients: {}",
            largest.join(", ")
        );
    }
}

fn ladder(text: &mut String, f: &Forecast, ladder: &[Rung]) {
    text.push_str("\ntime under other budgets\n");
    let moves = ladder.iter().any(|rung| rung.bytes_read > 0);
    let moved = |rung: &Rung| {
        let bytes = |bytes| Bytes(bytes).to_string();
        let (read, written) = (bytes(rung.bytes_read), bytes(rung.bytes_written));
        format!("  {read:>10}  {written:>10}")
    };
    let heads = if moves {
        format!("  {:>10}  {:>10}", "read", "written")
    } else {
        String::new()
    };
    let _ = writeln!(
        text,
        "    {:>10}  {:>10}  {:>10}  {:>10}{heads}",
        "budget", "per step", "recomputed", "saved"
    );
    let last = ladder.len().saturating_sub(1);
    for (i, rung) in ladder.iter().enumerate() {
        let note = match rung.bytes {
            bytes if bytes == f.floor_bytes => "  the floor",
            bytes if bytes == f.budget_bytes => "  this budget",
            _ if i == last => "  more memory saves no time",
            _ => "",
        };
        let saved = if i == 0 {
            String::new()
        } else {
            time(rung.saved_seconds)
        };
        let line = format!(
            "    {:>10}  {:>10}  {:>10}  {saved:>10}{}{note}",
            Bytes(rung.bytes).to_string(),
            time(rung.seconds_per_step),
            percent(rung.recomputed_share),
            if moves { moved(rung) } else { String::new() }
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if let Some(best) = best_step(ladder) {
        let _ = writeln!(text, "  {best}");
    }
}

/// Where further memory buys most.
fn best_step(ladder: &[Rung]) -> Option<String> {
    let more = |pair: &[Rung]| pair[1].bytes - pair[0].bytes;
    let gain = |pair: &[Rung]| pair[1].saved_seconds / more(pair) as f64;
    let best = ladder
        .windows(2)
        .max_by(|a, b| gain(a).total_cmp(&gain(b)))?;
    (best[1].saved_seconds > 0.0).then(|| {
        format!(
            "more memory helps most from {} to {}: {} save {} per step",
            Bytes(best[0].bytes),
            Bytes(best[1].bytes),
            Bytes(more(best)),
            time(best[1].saved_seconds)
        )
    })
}

fn changes(text: &mut String, report: &Report) {
    let changes = &report.changes;
    if changes.changes.is_empty() && changes.changes_not_tried > 0 {
        text.push_str(
            "\n`highwater plan` with the same flags shows the effect of other settings\n",
        );
        return;
    }
    if changes.changes.is_empty() {
        text.push_str("\nno other setting that was tried needs less memory or is faster\n");
    } else {
        text.push_str("\neffect of other settings, each planned for this budget\n");
        let wide = changes.changes.iter().map(|change| change.flags.len());
        let wide = wide.max().unwrap_or(0).max(10);
        let each = format!("per {}", report.settings.task.unit().trim_end_matches('s'));
        let _ = writeln!(
            text,
            "    {:<wide$}  {:>10}  {:>10}  {:>10}",
            "", "floor", "peak", each
        );
        let given = Change::of(
            "these settings",
            "",
            report.tokens_per_step,
            &report.forecast,
        );
        for change in std::iter::once(&given).chain(&changes.changes) {
            let floor = match Bytes(change.floor_bytes) {
                floor if change.floor_found => floor.to_string(),
                floor => format!(">{floor}"),
            };
            let fits = if change.fits { "" } else { "does not fit; " };
            let line = format!(
                "    {:<wide$}  {:>10}  {:>10}  {:>10}  {fits}{}",
                change.flags,
                floor,
                Bytes(change.peak_bytes).to_string(),
                change.seconds_per_token.map_or("-".to_owned(), time),
                change.effect
            );
            let _ = writeln!(text, "{}", line.trim_end().trim_end_matches(';'));
        }
    }
    if changes.changes_left_out > 0 {
        let _ = writeln!(text, "  {} more would help less", changes.changes_left_out);
    }
    if changes.changes_not_tried > 0 {
        let left = changes.changes_not_tried;
        let _ = writeln!(text, "  {left} more were not planned, to save time");
    }
}
