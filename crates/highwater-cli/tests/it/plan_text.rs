//! What `plan` says, word for word, for a machine and a process that are always the same. After a
//! change that is meant: `INSTA_UPDATE=always cargo test -p highwater-cli --test it plan_text`.

use std::time::Duration;

use highwater::Forecast;
use highwater_cli::args::Settings;
use highwater_cli::commands::plan::{Report, diff, text};
use highwater_cli::planning::{Assumptions, Planner};
use highwater_cli::settings::resolve::{self, Resolved};
use highwater_memory::{Bytes, DiskFiles};
use serde_json::Value;

const NO_TIME: Duration = Duration::ZERO;
const ALL_THE_TIME: Duration = Duration::from_hours(1);

fn assumptions() -> Assumptions {
    Assumptions {
        reserve_bytes: 24 << 20,
        decoding_bytes: 0,
        prices: 0,
        tokenize_bytes: 0,
    }
}

fn settings(memory: u64, change: impl FnOnce(&mut Settings)) -> Resolved {
    let mut args = Settings {
        memory: Some(Bytes(memory << 20)),
        threads: Some(2),
        batch: Some(8),
        seq: Some(128),
        ..Settings::default()
    };
    change(&mut args);
    resolve::run(&DiskFiles, &args).expect("sound settings")
}

fn report(of: &Resolved, time: Duration) -> Report {
    Report::new(&of.config, &of.model, &assumptions(), time).expect("a plan")
}

fn forecast(of: &Resolved) -> Forecast {
    let assumptions = assumptions();
    let told = Planner::new(&of.config, &of.model, &assumptions).forecast();
    told.expect("a plan")
}

/// Each row of the ladder says what `plan` says of that budget.
#[test]
fn rows_of_the_ladder_are_what_those_budgets_cost() {
    for accumulate in [1, 3] {
        let mut resolved = settings(60, |args| args.accumulate = Some(accumulate));
        let ladder = report(&resolved, NO_TIME).ladder;
        assert!(ladder.len() > 3);
        for rung in ladder {
            resolved.config.machine.memory = Bytes(rung.bytes);
            let told = forecast(&resolved);
            let (row, asked) = (rung.seconds_per_step, told.seconds_per_step);
            assert!(told.fits, "{accumulate} batches in {}", Bytes(rung.bytes));
            assert!((row / asked - 1.0).abs() < 1e-9, "{row} and {asked}");
        }
    }
}

/// What people read, and every field of the JSON.
#[test]
fn a_plan_that_fits() {
    let report = report(&settings(56, |_| ()), ALL_THE_TIME);
    insta::assert_snapshot!("fits", text(&report, true));
    let json = serde_json::to_value(&report).unwrap();
    let mut fields = Vec::new();
    list(&json, "", &mut fields);
    fields.retain(|field| !field.starts_with("plan.instructions"));
    insta::assert_snapshot!("fields", fields.join("\n"));
}

#[test]
fn a_plan_that_does_not_fit() {
    let report = report(&settings(40, |_| ()), NO_TIME);
    insta::assert_snapshot!("does_not_fit", text(&report, false));
}

#[test]
fn a_step_of_several_plans() {
    let resolved = settings(60, |args| {
        (args.accumulate, args.clip) = (Some(3), Some(1.0));
    });
    let report = report(&resolved, NO_TIME);
    insta::assert_snapshot!("several_plans", text(&report, false));
}

#[test]
fn two_plans_beside_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for (name, memory) in [("a.json", 56), ("b.json", 80)] {
        let json = serde_json::to_vec(&report(&settings(memory, |_| ()), NO_TIME)).unwrap();
        std::fs::write(path(name), json).unwrap();
    }
    let found = diff(&DiskFiles, &path("a.json"), &path("b.json")).unwrap();
    let folder = dir.path().display().to_string();
    insta::assert_snapshot!("diff", found.to_string().replace(&folder, "DIR"));
    let same = diff(&DiskFiles, &path("a.json"), &path("a.json")).unwrap();
    assert!(same.decisions.is_empty());
    assert!(
        same.figures
            .iter()
            .all(|f| f.before.to_bits() == f.after.to_bits())
    );

    std::fs::write(path("plan.json"), "{\"format\": 1}").unwrap();
    let damaged = diff(&DiskFiles, &path("a.json"), dir.path()).unwrap_err();
    assert!(
        damaged.code() == 4 && damaged.to_string().contains("not a plan"),
        "{damaged}"
    );
    assert_eq!(
        diff(&DiskFiles, &path("none"), &path("a.json"))
            .unwrap_err()
            .code(),
        4
    );
}

/// Lists the paths of a value's fields; of a list, those of its first item.
fn list(value: &Value, path: &str, fields: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let dot = if path.is_empty() { "" } else { "." };
                list(value, &format!("{path}{dot}{name}"), fields);
            }
        }
        Value::Array(items) if items.first().is_some_and(Value::is_object) => {
            list(&items[0], &format!("{path}[]"), fields);
        }
        _ => fields.push(path.to_owned()),
    }
}

/// The floor that is told works, of steps of one plan and of several, and less does not.
#[test]
fn the_floor_that_is_told_works_and_less_does_not() {
    for (accumulate, clip) in [(1, Some(1.0)), (2, None), (12, None)] {
        let mut resolved = settings(100, |args| {
            (args.accumulate, args.clip) = (Some(accumulate), clip);
        });
        let assumptions = assumptions();
        let mut planner = Planner::new(&resolved.config, &resolved.model, &assumptions);
        let floor = planner.with_floor().unwrap().floor_bytes;
        for (bytes, fits) in [(floor, true), (floor - (2 << 20), false)] {
            resolved.config.machine.memory = Bytes(bytes);
            let told = forecast(&resolved);
            assert_eq!(told.fits, fits, "{accumulate} batches in {}", Bytes(bytes));
            assert!(!fits || told.peak_bytes <= bytes);
        }
    }
}
