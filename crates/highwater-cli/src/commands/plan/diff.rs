//! In what two plans differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use highwater::plan::Choice;
use highwater::{Decision, Forecast};
use highwater_memory::{Bytes, Files};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figures::time;
use crate::config::RunConfig;
use crate::error::{Code, Failure};
use crate::folder::RunDir;
use crate::terminal::output;

/// The largest plan that is read, in bytes.
const BYTES_MAX: u64 = 1 << 30;
/// Decisions that are shown.
const ROWS: usize = 24;

/// Two plans beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// Where the first was read.
    pub before: String,
    /// Where the second was read.
    pub after: String,
    /// Settings that are not the same.
    pub settings: Vec<Setting>,
    /// What each comes to.
    pub figures: Vec<Figure>,
    /// What is decided differently, most bytes first.
    pub decisions: Vec<Differs>,
}

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Its name in `config.toml`.
    pub name: String,
    /// The first plan's.
    pub before: Value,
    /// The second plan's.
    pub after: Value,
}

/// What a stored plan has. That of a run's folder has its settings in another file.
#[derive(Deserialize)]
struct Stored {
    /// As they are in `config.toml`; older versions of this program did not write them.
    config: Option<Value>,
    #[serde(flatten)]
    forecast: Forecast,
}

/// A number of both plans.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the field in a plan's JSON.
    pub name: &'static str,
    /// The first plan's.
    pub before: f64,
    /// The second plan's.
    pub after: f64,
}

/// A decision that is not the same in both plans.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Differs {
    /// What was decided.
    pub choice: Choice,
    /// The operation.
    pub operation: String,
    /// The modules, their numbers left out.
    pub module: String,
    /// The first plan's.
    pub before: Sum,
    /// The second plan's.
    pub after: Sum,
}

/// Decisions that are alike, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sum {
    /// How many nodes.
    pub nodes: u32,
    /// Bytes that are free because of it.
    pub bytes: u64,
    /// Predicted seconds that it costs.
    pub seconds: f64,
}

/// Compares two plans: files that `plan --json` wrote, or folders of runs.
///
/// # Errors
/// [`Failure`] for what cannot be read or is no plan.
pub fn diff(files: &dyn Files, before: &Path, after: &Path) -> Result<Diff, Failure> {
    let (a, b) = (read(files, before)?, read(files, after)?);
    if a.config.is_none() || b.config.is_none() {
        output::news(
            "note: settings are not compared: an older version wrote one of these plans, without them",
        );
    }
    Ok(Diff {
        before: before.display().to_string(),
        after: after.display().to_string(),
        settings: settings(&a, &b),
        figures: figures(&a.forecast, &b.forecast),
        decisions: differing(&a.forecast, &b.forecast),
    })
}

fn read(files: &dyn Files, path: &Path) -> Result<Stored, Failure> {
    let folder = files.metadata(path)?.is_some_and(|found| found.is_dir);
    let plan = if folder {
        RunDir::plan_of(path)
    } else {
        path.to_owned()
    };
    let damaged = |why: String| {
        Failure::new(
            Code::Files,
            format!("{}: not a plan: {why}", plan.display()),
        )
        .hint("write one with `highwater plan --json > FILE`, or name the folder of a run")
    };
    let mut file = files.open(&plan)?;
    if file.bytes() > BYTES_MAX {
        return Err(damaged("too large".to_owned()));
    }
    let mut json = vec![0; file.bytes() as usize];
    file.read_exact_at(0, &mut json)?;
    let mut stored: Stored =
        serde_json::from_slice(&json).map_err(|error| damaged(error.to_string()))?;
    if folder {
        let config = RunConfig::read(files, &path.join("config.toml"))?;
        let config = serde_json::to_value(config);
        stored.config = Some(config.map_err(|error| Failure::new(Code::Internal, error))?);
    }
    Ok(stored)
}

/// The settings that differ; one that a plan does not have is null there.
fn settings(a: &Stored, b: &Stored) -> Vec<Setting> {
    let (Some(a), Some(b)) = (&a.config, &b.config) else {
        return Vec::new();
    };
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    flatten("", a, &mut before);
    flatten("", b, &mut after);
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value =
        |of: &BTreeMap<String, Value>, name: &str| of.get(name).cloned().unwrap_or(Value::Null);
    let both = names.into_iter().map(|name| Setting {
        name: name.clone(),
        before: value(&before, name),
        after: value(&after, name),
    });
    both.filter(|setting| setting.before != setting.after)
        .collect()
}

/// Settings by their whole names. What a run began with is none, and budgets stand among the figures.
fn flatten(name: &str, value: &Value, all: &mut BTreeMap<String, Value>) {
    match value {
        _ if ["origin", "version", "machine.memory"].contains(&name) => {}
        Value::Object(table) => {
            for (key, value) in table {
                let dot = if name.is_empty() { "" } else { "." };
                flatten(&format!("{name}{dot}{key}"), value, all);
            }
        }
        value => drop(all.insert(name.to_owned(), value.clone())),
    }
}

fn figures(a: &Forecast, b: &Forecast) -> Vec<Figure> {
    let figure = |name, of: fn(&Forecast) -> f64| Figure {
        name,
        before: of(a),
        after: of(b),
    };
    vec![
        figure("budget_bytes", |f| f.budget_bytes as f64),
        figure("peak_bytes", |f| f.peak_bytes as f64),
        figure("floor_bytes", |f| f.floor_bytes as f64),
        figure("arena_bytes", |f| f.arena_bytes as f64),
        figure("state_bytes", |f| f.state_bytes as f64),
        figure("reserve_bytes", |f| f.reserve_bytes as f64),
        figure("seconds_per_step", |f| f.seconds_per_step),
        figure("recompute_seconds", |f| f.recompute_seconds),
        figure("recomputed_nodes", |f| f64::from(f.recomputed_nodes)),
    ]
}

/// What decisions are about, whichever layers they are in.
type About = (Choice, String, String);

fn sums(forecast: &Forecast) -> BTreeMap<About, Sum> {
    let mut sums: BTreeMap<About, Sum> = BTreeMap::new();
    for d in &forecast.decisions {
        let about = (d.choice, operation(d), module(&d.module));
        let sum = sums.entry(about).or_default();
        sum.nodes += d.nodes;
        sum.bytes += d.bytes;
        sum.seconds += d.seconds;
    }
    sums
}

fn operation(d: &Decision) -> String {
    if d.phase == "backward" {
        return format!("{} (backward)", d.operation);
    }
    d.operation.clone()
}

/// A path without the numbers of its layers: `h.[0-3].mlp` to `h.*.mlp`.
fn module(path: &str) -> String {
    let number = |part: &&str| part.starts_with('[') || part.parse::<u32>().is_ok();
    let part = |part: &str| {
        if number(&part) {
            "*".to_owned()
        } else {
            part.to_owned()
        }
    };
    let parts: Vec<String> = path.split('.').map(part).collect();
    parts.join(".")
}

fn differing(a: &Forecast, b: &Forecast) -> Vec<Differs> {
    let (before, after) = (sums(a), sums(b));
    let mut keys: Vec<&About> = before.keys().chain(after.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let sum =
        |sums: &BTreeMap<About, Sum>, about: &About| sums.get(about).copied().unwrap_or_default();
    let differs = |about: &&About| {
        let (before, after) = (sum(&before, about), sum(&after, about));
        (before.nodes, before.bytes) != (after.nodes, after.bytes)
    };
    let mut list: Vec<Differs> = keys
        .into_iter()
        .filter(differs)
        .map(|about| Differs {
            choice: about.0,
            operation: about.1.clone(),
            module: about.2.clone(),
            before: sum(&before, about),
            after: sum(&after, about),
        })
        .collect();
    list.sort_by_key(|d| std::cmp::Reverse(d.before.bytes.abs_diff(d.after.bytes)));
    list
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A is {}\nB is {}\n", self.before, self.after)?;
        writeln!(f, "  {:<30}{:>12}{:>12}{:>14}", "", "A", "B", "B - A")?;
        for figure in &self.figures {
            writeln!(f, "{figure}")?;
        }
        for setting in &self.settings {
            writeln!(f, "{setting}")?;
        }
        if self.decisions.is_empty() {
            return write!(f, "\nboth plans make the same decisions");
        }
        write!(f, "\ndecisions that differ")?;
        for differs in self.decisions.iter().take(ROWS) {
            write!(f, "\n{differs}")?;
        }
        match self.decisions.len().saturating_sub(ROWS) {
            0 => Ok(()),
            left => write!(f, "\n  {left} more, smaller ones"),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let say = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Null => "none".to_owned(),
            other => other.to_string(),
        };
        let (before, after) = (say(&self.before), say(&self.after));
        write!(f, "  {:<30}{before:>12}{after:>12}", self.name)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = match self.name.rsplit_once('_') {
            Some((name, "bytes")) => (name, "bytes"),
            Some((name, "seconds")) => (name, "seconds"),
            _ if self.name == "seconds_per_step" => ("time per step", "seconds"),
            _ => (self.name, ""),
        };
        let say = |value: f64| match unit {
            "bytes" => Bytes(value as u64).to_string(),
            "seconds" => time(value),
            _ => format!("{value}"),
        };
        let change = self.after - self.before;
        let sign = match change {
            0.0 => "",
            change if change < 0.0 => "-",
            _ => "+",
        };
        write!(
            f,
            "  {:<30}{:>12}{:>12}{:>14}",
            name.replace('_', " "),
            say(self.before),
            say(self.after),
            format!("{sign}{}", say(change.abs()))
        )
    }
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choice = match self.choice {
            Choice::Recompute => "recompute",
            Choice::InPlace => "in place",
            Choice::Early => "early",
        };
        let module = if self.module.is_empty() {
            String::new()
        } else {
            format!(" in {}", self.module)
        };
        write!(
            f,
            "  {choice:<10}{}{module}: {} -> {}",
            self.operation, self.before, self.after
        )
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return write!(f, "none");
        }
        write!(f, "{} ({})", self.nodes, Bytes(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_compared_whatever_their_numbers() {
        assert_eq!(module("transformer.h.[0-3,7].mlp"), "transformer.h.*.mlp");
        assert_eq!(module("transformer.h.3"), module("transformer.h.[0-8]"));
        assert_eq!(module("lm_head"), "lm_head");
    }
}
