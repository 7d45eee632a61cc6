//! Training with host memory apart from what kernels work in: the same bytes, and the bounds are told.

use std::path::Path;

use crate::started::highwater;
use serde_json::Value;

/// Settings under which a run takes no time.
const SMALL: &str = "--batch 2 --seq 32 --threads 2 --steps 3 --clip 1";

/// The results of a line that has to do.
fn done(dir: &Path, line: &str) -> String {
    let (code, result, news) = highwater(dir, line);
    assert_eq!(code, 0, "{line}\n{news}");
    result
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn training_gives_the_same_bytes() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let steps = format!("{SMALL} --accumulate 2");
    done(dir, &format!("train {steps} --memory 512MiB --out plenty"));
    let bounds = "--memory 128MiB --device-memory 12MiB --host-memory 48MiB";
    let told = done(dir, &format!("plan {SMALL} {bounds}"));
    assert!(told.contains("\n  host "), "{told}");

    let line = format!("train {steps} {bounds} --save-every 2 --out apart --json");
    let result = json(&done(dir, &line));
    let peak = result["peak_rss_bytes"].as_u64().expect("a peak");
    assert!(peak <= 128 << 20, "{peak}");
    let read = |path: &str| std::fs::read(dir.join(path)).expect("a file");
    assert!(read("plenty/final/model.safetensors") == read("apart/final/model.safetensors"));
    // The bounds are settings of the run, and others may take their place.
    let settings = String::from_utf8(read("apart/config.toml")).expect("UTF-8");
    assert!(
        settings.contains("device_memory") && settings.contains("host_memory"),
        "{settings}"
    );
    let metrics = String::from_utf8(read("apart/metrics.jsonl")).expect("UTF-8");
    for line in metrics.lines().map(json) {
        let copied = line["host_bytes_read"].as_u64();
        assert!(copied > Some(0) && line["bytes_read"] == 0, "{line}");
    }
    done(dir, "resume apart --steps 5 --host-memory 40MiB");
    done(dir, "resume apart --steps 6 --no-host-memory");
    let settings = String::from_utf8(read("apart/config.toml")).expect("UTF-8");
    assert!(!settings.contains("host_memory"), "{settings}");
    // A schedule stretches with the number of steps: the same ones for both.
    done(dir, "resume plenty --steps 5");
    done(dir, "resume plenty --steps 6");
    assert!(read("plenty/final/model.safetensors") == read("apart/final/model.safetensors"));
}

#[test]
fn bounds_that_do_not_go_together_are_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let refused = |bounds: &str, code: i32, expected: &str| {
        let (found, _, news) = highwater(dir.path(), &format!("train {SMALL} {bounds}"));
        assert_eq!(found, code, "{bounds}\n{news}");
        assert!(news.contains(expected), "{bounds}\n{news}");
    };
    let both = "--device-memory 30MiB --host-memory 40MiB";
    refused(&format!("--memory 64MiB {both}"), 2, "more than 70 MiB");
    // Enough for a step, but not for all that is asked for.
    let memory = "--memory 92MiB";
    refused(&format!("{memory} {both}"), 3, "host memory 40 MiB");
    refused(&format!("{memory} {both}"), 3, "together ");
    refused("--device-memory 0B", 2, "device-memory");
    let short = "--memory 128MiB --device-memory 1MiB --host-memory 40MiB";
    refused(short, 3, "use --device-memory ");
}
