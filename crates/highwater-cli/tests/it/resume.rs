//! A run that is stopped after any step and resumed, under the same or another budget, with a disk or
//! without, ends as the run that never was stopped.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test says what went wrong by stopping there"
)]

use std::path::Path;

use crate::outcome::{Outcome, assert_same, metrics, outcome, state};
use crate::program::{assert_empty, end, floor, highwater, news, spill};
use crate::share::some;

const STEPS: usize = 20;
const DATA: &str =
    "--data guide.txt --batch 2 --seq 32 --dropout 0.1 --order shuffled --seed 5 --threads 2";
const MIB: u64 = 1 << 20;

/// Runs the program to its end.
fn run(dir: &Path, line: &str) {
    let code = end(highwater(dir, line).spawn().unwrap());
    assert_eq!(code, Some(0), "{line}\n{}", news(dir));
}

/// Where a run goes on, and what that takes.
struct Means {
    name: &'static str,
    /// The disk's flag; none for a run in memory.
    disk: Option<String>,
    /// Two budgets, in bytes.
    memory: [u64; 2],
}

/// In memory, and with a disk: at the floor of each, a mebibyte spared as the reserve is measured anew each
/// time, and with more.
fn means(dir: &Path, data: &str, spill: &Path) -> [Means; 2] {
    let disk = format!("--disk {}=64MiB", spill.display());
    let floors = [floor(dir, data), floor(dir, &format!("{data} {disk}"))];
    assert!(floors[1] + 3 * MIB < floors[0], "{floors:?}");
    let budgets = |floor| [floor + MIB, floor + 6 * MIB];
    [
        Means {
            name: "memory",
            disk: None,
            memory: budgets(floors[0]),
        },
        Means {
            name: "disk",
            disk: Some(disk),
            memory: budgets(floors[1]),
        },
    ]
}

/// Runs of both kinds that saved after every step; their states are the same, and so are their ends.
fn origins(dir: &Path, data: &str, means: &[Means]) -> Outcome {
    std::fs::write(dir.join("guide.txt"), highwater_cli::data::GUIDE).unwrap();
    let train = |out: &str, more: &str| {
        let line = format!("train --out {out} {data} --steps {STEPS} --keep {STEPS} {more}");
        run(dir, &line);
        outcome(&dir.join(out), STEPS)
    };
    let expected = train("undisturbed", "");
    for Means { name, disk, memory } in means {
        let disk = disk.as_deref().unwrap_or_default();
        let saving = format!("--save-every 1 --memory {} {disk}", memory[0]);
        assert_same(&train(name, &saving), &expected, name);
    }
    let states = |name, step| state(&dir.join(name), step);
    assert!((1..=STEPS).all(|step| states("memory", step) == states("disk", step)));
    let moved = metrics(&dir.join("disk"));
    let moved = |step: usize| moved[step]["bytes_read"].as_u64().unwrap();
    assert!((0..STEPS).all(|step| moved(step) > 0));
    expected
}

/// Makes the folder `run` what `origin` was when it had been stopped after `step`.
fn stop(origin: &Path, run: &Path, step: usize) {
    let copy = |name: &str| std::fs::copy(origin.join(name), run.join(name)).unwrap();
    std::fs::create_dir(run).unwrap();
    for name in ["config.toml", "model.json", "plan.json", "metrics.jsonl"] {
        copy(name);
    }
    let state = format!("checkpoints/step-{step:06}");
    std::fs::create_dir_all(run.join(&state)).unwrap();
    for entry in std::fs::read_dir(origin.join(&state)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        copy(&format!("{state}/{name}"));
    }
    std::fs::write(run.join("checkpoints/LATEST"), format!("step-{step:06}\n")).unwrap();
}

/// Stops after each of these steps, and goes on in so many of the four ways, with so many of two budgets: the
/// next ones after each step.
fn resumed_after(steps: impl Iterator<Item = usize>, forms: &str, ways: usize, budgets: usize) {
    let data = format!("{DATA} {forms}");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let spill = spill(&format!("resume{}", forms.replace(' ', "")));
    std::fs::write(dir.join("guide.txt"), highwater_cli::data::GUIDE).unwrap();
    let means = means(dir, &data, &spill);
    let expected = origins(dir, &data, &means);
    let mut trials = 0;
    for step in steps {
        for way in (0..ways).map(|i| (step + i) % 4) {
            let (from, to) = (&means[way / 2], &means[way % 2]);
            for memory in (0..budgets).map(|i| to.memory[(step / 4 + i) % 2]) {
                let name = format!("{}-{}-{step}-{memory}", from.name, to.name);
                let out = dir.join(&name);
                stop(&dir.join(from.name), &out, step);
                let disk = match (&from.disk, &to.disk) {
                    (Some(_), None) => "--no-disk",
                    (None, Some(flag)) => flag,
                    _ => "",
                };
                let line = format!("resume {name} --save-every {STEPS} --memory {memory} {disk}");
                run(dir, &line);
                let begun = format!("resuming after step {step}\n");
                assert!(news(dir).contains(&begun), "{}", news(dir));
                assert_same(&outcome(&out, STEPS), &expected, &name);
                std::fs::remove_dir_all(out).unwrap();
                trials += 1;
            }
        }
    }
    assert_empty(&spill);
    println!("{trials} runs were resumed");
}

#[test]
fn a_run_goes_on_with_or_without_a_disk() {
    resumed_after(some(1..=STEPS), "", 1, 1);
}

const HALVES: [&str; 3] = [
    "--precision bf16 --master stochastic --moments int8",
    "--precision bf16 --master split",
    "--precision fp16 --master f32 --moments int8",
];

#[test]
fn a_run_in_half_precision_goes_on_with_or_without_a_disk() {
    resumed_after(some([1, 8, 14, 19]), HALVES[0], 1, 1);
}

#[test]
#[ignore = "in full: minutes"]
fn in_full_a_run_in_half_precision_goes_on_with_or_without_a_disk() {
    for forms in HALVES {
        resumed_after(1..=STEPS, forms, 2, 1);
    }
}

#[test]
#[ignore = "in full: minutes"]
fn in_full_a_run_goes_on_with_or_without_a_disk() {
    resumed_after(1..=STEPS, "", 4, 2);
}

#[test]
fn a_run_that_was_set_too_long_can_be_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::write(dir.join("guide.txt"), highwater_cli::data::GUIDE).unwrap();
    let settings = "--seq 16 --batch 1 --threads 2 --steps 10 --warmup 10 --save-every 1 --keep 10";
    run(
        dir,
        &format!("train --out long --data guide.txt {settings}"),
    );
    for (name, more, note) in [
        (
            "fewer",
            "--steps 4",
            "note: warmup is 0 steps instead of 10",
        ),
        ("as-many", "--steps 10", ""),
        ("more", "--steps 12", ""),
    ] {
        stop(&dir.join("long"), &dir.join(name), 2);
        run(dir, &format!("resume {name} {more}"));
        let said = std::fs::read_to_string(dir.join(name).join("run.log")).unwrap();
        assert_eq!(said.contains("note: warmup"), !note.is_empty(), "{said}");
        assert!(said.contains(note), "{said}");
    }
}

#[test]
fn a_run_is_not_asked_to_have_ended_before() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    run(dir, "train --steps 4 --threads 2 --out run");
    let files = ["config.toml", "final.json", "run.log"];
    let before = files.map(|name| std::fs::read(dir.join("run").join(name)).unwrap());
    let (code, _, news) = crate::started::highwater(dir, "resume run --steps 1");
    assert!(
        code == 2 && news.contains("--steps is 1; expected at least 4"),
        "{news}"
    );
    let after = files.map(|name| std::fs::read(dir.join("run").join(name)).unwrap());
    assert!(before == after);
    run(dir, "resume run --steps 4");
    run(dir, "resume run --steps 5");
}
