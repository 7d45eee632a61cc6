//! What a run comes to: all that has to be the same whatever happened on the way.

use std::path::Path;

use serde_json::Value;

/// The bytes of the last saved state and of the model, and what is determined of each step's metrics.
#[derive(PartialEq)]
pub(crate) struct Outcome {
    files: Vec<Vec<u8>>,
    metrics: Vec<[Value; 4]>,
}

/// That of a run of so many steps.
pub(crate) fn outcome(run: &Path, steps: usize) -> Outcome {
    let mut files = state(run, steps);
    let weights =
        ["adapter_model.safetensors", "model.safetensors"].map(|name| run.join("final").join(name));
    let weights = weights.iter().find(|path| path.exists()).unwrap();
    files.push(std::fs::read(weights).unwrap());
    let fields =
        |record: Value| ["step", "loss", "lr", "grad_norm"].map(|field| record[field].clone());
    let metrics: Vec<_> = metrics(run).into_iter().map(fields).collect();
    assert_eq!(metrics.len(), steps);
    Outcome { files, metrics }
}

/// The bytes of a saved state.
pub(crate) fn state(run: &Path, step: usize) -> Vec<Vec<u8>> {
    let saved = run.join(format!("checkpoints/step-{step:06}"));
    ["model.safetensors", "optimizer.safetensors", "state.json"]
        .map(|name| std::fs::read(saved.join(name)).unwrap())
        .to_vec()
}

/// The whole lines of `metrics.jsonl`.
pub(crate) fn metrics(run: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    let whole = lines
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[track_caller]
pub(crate) fn assert_same(found: &Outcome, expected: &Outcome, what: &str) {
    assert_eq!(found.metrics, expected.metrics, "{what}");
    assert!(found == expected, "{what}: other bytes");
}
