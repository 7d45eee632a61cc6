//! What the files and folders in a run's folder are called.

pub(crate) const MANIFEST: &str = "manifest.txt";
pub(crate) const CONFIG: &str = "config.toml";
pub(crate) const MODEL: &str = "model.json";
pub(crate) const PLAN: &str = "plan.json";
pub(crate) const METRICS: &str = "metrics.jsonl";
pub(crate) const TENSORBOARD: &str = "tensorboard";
pub(crate) const LOG: &str = "run.log";
pub(crate) const TOKENS: &str = "tokens.bin";
pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const BEST: &str = "best.json";
/// The folder of the model that a run ended with.
pub(crate) const FINAL: &str = "final";
pub(crate) const FINAL_STEP: &str = "final.json";
pub(crate) const TEMPLATE: &str = "chat_template.jinja";
pub(crate) const SAVE_NOW: &str = "save.now";
pub(crate) const REPLACED: &str = "replaced";
pub(crate) const LOCK: &str = "lock";
/// What a run writes in its folder. A new run begins where none of these is.
pub(crate) const PARTS: [&str; 14] = [
    MANIFEST,
    CONFIG,
    TEMPLATE,
    MODEL,
    PLAN,
    METRICS,
    TENSORBOARD,
    LOG,
    TOKENS,
    CHECKPOINTS,
    BEST,
    FINAL,
    FINAL_STEP,
    REPLACED,
];

/// Those that every run has.
pub(crate) const FILES: [&str; 5] = [MANIFEST, CONFIG, MODEL, METRICS, LOG];
