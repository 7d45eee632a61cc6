//! `--label-smoothing`, of text and of images.

use std::path::Path;

use serde_json::Value;

use crate::pictures::paint;
use crate::started::highwater;

fn run(dir: &Path, line: &str) -> String {
    let (code, _, news) = highwater(dir, line);
    assert_eq!(code, 0, "{line}\n{news}");
    news
}

fn metric(run: &Path, name: &str) -> Vec<f64> {
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let records = metrics
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    records
        .filter_map(|record: Value| record[name].as_f64())
        .collect()
}

#[test]
fn it_is_the_same_under_any_budget_and_after_a_resume() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let train =
        "train --batch 4 --seq 64 --threads 2 --schedule constant --warmup 0 --eval-every 2";
    let smoothed = format!("{train} --label-smoothing 0.2");
    run(dir, &format!("{train} --steps 4 --out plain"));
    run(
        dir,
        &format!("{smoothed} --steps 4 --memory 1GiB --out plenty"),
    );
    run(
        dir,
        &format!("{smoothed} --steps 2 --memory 54MiB --out short"),
    );
    run(dir, "resume short --steps 4");
    run(dir, "train --config plenty/config.toml --out filed");
    let weights = |run: &str| std::fs::read(dir.join(run).join("final/model.safetensors")).unwrap();
    for run in ["short", "filed"] {
        assert!(weights("plenty") == weights(run), "{run}");
        assert_eq!(
            metric(&dir.join("plenty"), "loss"),
            metric(&dir.join(run), "loss")
        );
    }
    let [first, smoothed] = ["plain", "plenty"].map(|run| metric(&dir.join(run), "loss")[0]);
    // Weights that are drawn anew find all tokens about as likely.
    assert!(first.to_bits() != smoothed.to_bits() && (first - smoothed).abs() < 0.1);
    let [plain, smoothed] = ["plain", "plenty"].map(|run| metric(&dir.join(run), "held_out_loss"));
    assert!(plain != smoothed && (plain[0] - smoothed[0]).abs() < 0.1 * plain[0]);
}

#[test]
fn it_is_for_what_has_targets() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    paint(&dir.join("shapes"));
    let images = "train --model resnet18 --data shapes --size 32 --batch 4 --steps 1 --threads 2 --memory 1GiB";
    run(dir, &format!("{images} --out plain"));
    run(
        dir,
        &format!("{images} --label-smoothing 0.3 --out smoothed"),
    );
    let [plain, smoothed] = ["plain", "smoothed"].map(|run| metric(&dir.join(run), "loss"));
    assert!(plain != smoothed);
    for (line, told) in [
        ("train --label-smoothing 1.5", "a number from 0 to 1"),
        ("train --label-smoothing -0.1", "a number from 0 to 1"),
        (
            "train --set training.label_smoothing=2",
            "a number from 0 to 1",
        ),
        ("plan --label-smoothing nan", "a number from 0 to 1"),
    ] {
        let (code, _, news) = highwater(dir, line);
        assert!(code == 2 && news.contains(told), "{line}\n{news}");
    }
}
