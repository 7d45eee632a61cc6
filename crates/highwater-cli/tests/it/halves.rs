//! Half precision and what it is updated by, as users ask for it.

use std::path::Path;

use crate::started::highwater;
use serde_json::Value;

/// The same, which must go well; gives its results.
fn ok(dir: &Path, line: &str) -> String {
    let (code, results, news) = highwater(dir, line);
    assert_eq!(code, 0, "{line}: {news}");
    results
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("a file of lines");
    let parse = |line| serde_json::from_str(line).expect("JSON");
    text.lines().map(parse).collect()
}

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().expect(name)
}

#[test]
fn half_precision_needs_less_and_learns_as_much() {
    let dir = tempfile::tempdir().expect("a folder");
    let run = |precision: &str, steps: u64| {
        let out = format!("{precision}-{steps}");
        let train = format!("train --steps {steps} --precision {precision} --json --out {out}");
        serde_json::from_str::<Value>(&ok(dir.path(), &train)).expect("JSON")
    };
    let (whole, half) = (run("f32", 40), run("bf16", 40));
    for name in ["last_loss", "held_out_loss_after"] {
        let (whole, half) = (number(&whole, name), number(&half, name));
        assert!(
            (whole - half).abs() < 0.01 * whole,
            "{name}: {half} beside {whole}"
        );
        assert!(
            whole.to_bits() != half.to_bits(),
            "{name}: nothing was rounded"
        );
    }
    let floor = |precision: &str| {
        let line = format!("plan --precision {precision} --json");
        let plan: Value = serde_json::from_str(&ok(dir.path(), &line)).expect("JSON");
        (number(&plan, "floor_bytes"), number(&plan, "peak_bytes"))
    };
    let (whole, half) = (floor("f32"), floor("bf16"));
    assert!(
        half.0 < whole.0 && half.1 < whole.1,
        "{half:?} beside {whole:?}"
    );
    // In fp16 the scale is told, and goes on where it was.
    run("fp16", 20);
    let resume = "resume fp16-20 --steps 30 --json";
    ok(dir.path(), resume);
    let records = lines(&dir.path().join("fp16-20/metrics.jsonl"));
    let last = records.last().expect("records");
    assert_eq!(last["step"], 30);
    let (scale, skipped) = (number(last, "loss_scale"), number(last, "skipped_steps"));
    assert!(
        (scale * 2.0_f64.powf(skipped) - 65_536.0).abs() < 1e-9,
        "{scale}, {skipped}"
    );
    let whole_at_30 = number(&lines(&dir.path().join("f32-40/metrics.jsonl"))[29], "loss");
    let half_at_30 = number(last, "loss");
    assert!(
        (half_at_30 - whole_at_30).abs() < 0.2 * whole_at_30,
        "{half_at_30}"
    );
    // Stopped, and gone on with in the precision of the run.
    run("bf16", 20);
    let resume = "resume bf16-20 --steps 20 --json";
    ok(dir.path(), resume);
    let config = std::fs::read_to_string(dir.path().join("bf16-20/config.toml")).expect("settings");
    assert!(config.contains("precision = \"bf16\""), "{config}");
}

/// Weights that a step made far too large: no scale helps, and after 30 steps that were skipped the run
/// stops, with each of them in its metrics and its state saved.
#[test]
fn where_no_scale_helps_the_run_stops_with_its_state_saved() {
    let dir = tempfile::tempdir().expect("a folder");
    let wild =
        "--precision fp16 --lr 100 --schedule constant --warmup 0 --batch 1 --seq 16 --held-out 0";
    let (code, _, news) = highwater(dir.path(), &format!("train --out run --steps 60 {wild}"));
    assert_eq!(code, 5, "{news}");
    let run = dir.path().join("run");
    let records = lines(&run.join("metrics.jsonl"));
    let last = records.last().expect("records");
    let step = last["step"].as_u64().expect("a step");
    assert!((30..60).contains(&step), "{step}");
    assert_eq!(last["skipped_steps"], 30);
    assert!(last["loss"].is_null(), "{last}");
    let told = format!(
        "error[HW0205]: step {step}: gradients are not finite even at the smallest loss scale, 1.2"
    );
    assert!(news.contains(&told) && news.contains("is saved"), "{news}");
    let saved = run.join(format!("checkpoints/step-{step:06}/model.safetensors"));
    assert!(saved.exists(), "{news}");
    // Going on meets the same at once.
    let (code, _, news) = highwater(dir.path(), "resume run");
    assert_eq!(code, 5, "{news}");
    let told = format!("step {}: gradients are not finite", step + 1);
    assert!(news.contains(&told), "{news}");
}

#[test]
fn weights_in_half_precision_go_on_bit_for_bit() {
    let dir = tempfile::tempdir().expect("a folder");
    let ok = |line: &str| ok(dir.path(), line);
    for (name, forms, dtype) in [
        ("split", "--precision bf16 --master split", "bfloat16"),
        (
            "chance",
            "--precision bf16 --master stochastic --moments int8",
            "bfloat16",
        ),
        (
            "half",
            "--precision fp16 --master f32 --moments int8",
            "float16",
        ),
    ] {
        let always = "--schedule constant --warmup 0 --batch 1 --seq 32 --held-out 0";
        ok(&format!("train --steps 16 {always} {forms} --out {name}"));
        ok(&format!("train --steps 7 {always} {forms} --out {name}-7"));
        ok(&format!(
            "resume {name}-7 --steps 16 --memory 50MiB --threads 1"
        ));
        let weights = |run: &str| {
            let path = dir.path().join(run).join("final/model.safetensors");
            std::fs::read(path).expect("weights")
        };
        let (straight, resumed) = (weights(name), weights(&format!("{name}-7")));
        assert!(straight == resumed, "{name}: other bits");
        let config = dir.path().join(name).join("final/config.json");
        let config = std::fs::read_to_string(config).expect("a config");
        let config: Value = serde_json::from_str(&config).expect("JSON");
        assert_eq!(config["torch_dtype"], dtype);
        assert!(straight.len() < 3 << 20, "{} bytes", straight.len());
        let prompt = "--prompt Memory --tokens 4";
        ok(&format!("generate {name} {prompt}"));
        // What was trained is where another run starts from, in `f32` and in halves.
        for (i, forms) in ["", "--precision bf16 --master f32"].iter().enumerate() {
            let from = format!("--model {name}/final --steps 2 --batch 1 --seq 16");
            ok(&format!("train {from} {forms} --out {name}-next-{i}"));
        }
    }
    let floor = |forms: &str| {
        let plan = ok(&format!("plan {forms} --json"));
        let plan: Value = serde_json::from_str(&plan).expect("JSON");
        plan["floor_bytes"].as_f64().expect("a floor")
    };
    let floors = ["", "--precision bf16 --master split", "--moments int8"].map(floor);
    assert!(floors[1] < floors[0] && floors[2] < floors[0], "{floors:?}");
    for (line, told) in [
        ("--master split", "precision"),
        (
            "--precision fp16 --master split",
            "bf16, to hold weights in, with --master split",
        ),
        ("--precision fp16 --master stochastic", "bf16, to hold"),
        ("--master f32", "bf16 or fp16"),
    ] {
        let (code, _, news) = highwater(dir.path(), &format!("train --steps 1 {line}"));
        assert!(code == 2 && news.contains(told), "{line}: {code}, {news}");
    }
}
