//! What the program promises before it trains holds while it does.

use std::path::Path;

use crate::outcome::{metrics, state};
use crate::program::{end, floor, highwater, news, spill};
use crate::share::some;

const SMALL: &str = "--batch 1 --seq 16 --threads 1";
const MIB: u64 = 1 << 20;

/// Runs the program to its end; gives the exit code and what it said.
fn run(dir: &Path, line: &str) -> (Option<i32>, String) {
    let code = end(highwater(dir, line).spawn().unwrap());
    (code, news(dir))
}

/// A floor that is told does, to the byte, in each of several steps; a mebibyte less does not do for one.
#[test]
fn floors_hold_in_every_step() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let disk = format!("--disk {}=64MiB", spill("promises").display());
    for settings in some([
        "--batch 3 --seq 46 --accumulate 2 --clip 0.5 --threads 1",
        "--batch 2 --seq 33 --accumulate 3 --dropout 0.1 --threads 2",
        &format!("--batch 2 --seq 20 --clip 1 --threads 1 {disk}"),
    ]) {
        let floor = floor(dir, settings);
        let line = |out: &str, memory: u64| {
            format!("train {settings} --steps 4 --out {out} --force --memory {memory}")
        };
        let mut states = Vec::new();
        for memory in [floor, floor + floor / 50, 4 * floor] {
            let (code, news) = run(dir, &line("run", memory));
            assert_eq!(code, Some(0), "{settings} in {memory}\n{news}");
            let records = metrics(&dir.join("run"));
            for record in &records {
                let bytes = |key: &str| record[key].as_u64().unwrap();
                let (peak, planned) = (bytes("peak_rss_bytes"), bytes("planned_process_bytes"));
                assert!(
                    peak <= planned && planned <= memory,
                    "{settings}: {peak}, {planned}, {memory}"
                );
            }
            states.push(state(&dir.join("run"), 4));
        }
        assert!(states.iter().all(|state| *state == states[0]), "{settings}");
        let (code, news) = run(dir, &line("refused", floor - MIB));
        assert_eq!(code, Some(3), "{settings}\n{news}");
        assert!(
            !dir.join("refused").exists() && !news.contains("step 1"),
            "{news}"
        );
    }
}

/// A text that was drawn before the first step leaves nothing behind: not the tables of its positions either.
#[test]
fn a_floor_holds_after_a_sample() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for seq in [16, 17] {
        let settings = format!("--model llama-nano --batch 1 --seq {seq} --threads 1");
        let memory = floor(dir, &settings);
        let (code, news) = run(
            dir,
            &format!("train {settings} --steps 1 --out run --force --memory {memory}"),
        );
        assert_eq!(code, Some(0), "{settings} in {memory}\n{news}");
        assert!(news.contains("sample before"), "{news}");
    }
}

/// A step of however many batches holds on to none of them.
#[test]
fn many_batches_in_a_step_take_what_a_few_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for precision in some(["f32", "fp16"]) {
        let line = |batches: u32| {
            format!("{SMALL} --held-out 0 --precision {precision} --accumulate {batches}")
        };
        let floor = floor(dir, &line(4));
        let many = format!(
            "train {} --steps 1 --out run --force --memory {floor}",
            line(400)
        );
        let (code, news) = run(dir, &many);
        assert_eq!(code, Some(0), "{news}");
        let peak = metrics(&dir.join("run"))[0]["peak_rss_bytes"].as_u64();
        assert!(peak.unwrap() <= floor, "{peak:?} of {floor}: {news}");
    }
}

/// The held-out loss is of the same tokens whatever the batch is.
#[test]
fn the_held_out_loss_does_not_depend_on_the_batch() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let held_out = |batch: usize| {
        let line = format!("train --seq 32 --threads 2 --steps 0 --batch {batch} --out run{batch}");
        let (code, news) = run(dir, &line);
        assert_eq!(code, Some(0), "{news}");
        let line = news.lines().find(|line| line.contains("held-out")).unwrap();
        line.to_owned()
    };
    let one = held_out(1);
    assert_eq!(one, held_out(5));
    assert!(one.contains(" tokens)"), "{one}");
}

#[test]
fn who_only_looks_is_told_of_data_that_will_not_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let look = |data: &str| run(dir, &format!("train --dry-run {SMALL} --data {data}"));
    let (code, news) = look("missing.txt");
    assert_eq!(code, Some(4), "{news}");
    assert!(news.contains("missing.txt"), "{news}");
    std::fs::write(dir.join("short.txt"), "short").unwrap();
    let (code, news) = look("short.txt");
    assert_eq!(code, Some(4), "{news}");
    assert!(
        news.contains("hint: use a smaller --batch or --seq"),
        "{news}"
    );
    std::fs::write(dir.join("tokens.bin"), [7_u8; 201]).unwrap();
    assert_eq!(look("tokens.bin").0, Some(4));
    std::fs::write(dir.join("tokens.bin"), [0_u8; 200]).unwrap();
    assert_eq!(look("tokens.bin").0, Some(0));
}

#[test]
fn space_for_all_saves_is_looked_for_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let many = "--save-every 1 --steps 1000000000 --keep 1000000000";
    let (code, news) = run(dir, &format!("train {SMALL} {many} --out run"));
    assert_eq!(code, Some(4), "{news}");
    assert!(
        news.contains("are free there") && news.contains("--keep"),
        "{news}"
    );
    assert!(!dir.join("run").exists());
}

#[test]
fn a_budget_beyond_the_machine_is_lowered_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let bound = highwater_memory::ProcessMemory::read().unwrap().bound();
    let line = format!("train {SMALL} --steps 1 --out run --memory {}", 2 * bound);
    let (code, news) = run(dir, &line);
    assert_eq!(code, Some(0), "{news}");
    let told = format!("using {}", highwater_memory::Bytes(bound));
    assert!(news.contains(&told), "{news}");
    let settings = std::fs::read_to_string(dir.join("run/config.toml")).unwrap();
    let memory = settings
        .lines()
        .find(|line| line.starts_with("memory"))
        .unwrap();
    assert_eq!(memory, format!("memory = {bound}"));
}
