//! Settings of which nobody says anything.

use highwater_memory::Bytes;
use highwater_models::Order;

use crate::config::{ModelSource, Task};

/// The preset that is taken when nobody names a model.
pub(super) const MODEL: &str = "gpt2-nano";
/// The preset for images when nobody names a model.
pub(super) const CLASSIFIER: &str = "resnet18";
/// Share of the built-in guide, and of images, that is held out.
pub(super) const HELD_OUT: f64 = 0.1;
/// The presets that are drawn anew and trained for a minute.
const NANO: [&str; 2] = [MODEL, "llama-nano"];

/// What is taken where nobody says anything.
pub(super) struct Defaults {
    /// The budget; most of what the process may have without one.
    pub memory: Option<Bytes>,
    /// How long a run is where its data has an end, instead of so many steps.
    pub epochs: Option<f64>,
    pub steps: u64,
    pub batch: usize,
    pub seq: usize,
    pub order: Order,
    pub lr: f64,
    pub beta2: f64,
    pub weight_decay: f64,
}

/// For models drawn anew and trained for a minute: many small steps, and moments that follow
/// them.
const SMALL: Defaults = Defaults {
    memory: Some(Bytes(64 << 20)),
    epochs: None,
    steps: 800,
    batch: 4,
    seq: 64,
    order: Order::Shuffled,
    lr: 2e-3,
    beta2: 0.99,
    weight_decay: 0.1,
};
/// For models that bring weights, or take long to get some.
const LARGE: Defaults = Defaults {
    memory: None,
    epochs: None,
    steps: 200,
    batch: 8,
    seq: 128,
    order: Order::Sequential,
    lr: 1e-4,
    beta2: 0.999,
    weight_decay: 0.01,
};
/// For models that read records, which have an end each.
const RECORDS: Defaults = Defaults {
    epochs: Some(3.0),
    batch: 4,
    seq: 1024,
    order: Order::Shuffled,
    ..LARGE
};
/// For classifiers of images that are drawn anew.
const IMAGES: Defaults = Defaults {
    order: Order::Shuffled,
    lr: 1e-3,
    ..LARGE
};
/// For those that bring weights.
const TUNED_IMAGES: Defaults = Defaults { lr: 1e-4, ..IMAGES };

impl Defaults {
    /// Those of a task, by where the model is from and whether it reads records.
    pub(super) fn of(task: Task, source: &ModelSource, has_records: bool) -> &'static Self {
        let is_nano = matches!(source, ModelSource::Preset(name) if NANO.contains(&name.as_str()));
        match task {
            Task::TextGeneration if is_nano => &SMALL,
            Task::TextGeneration if has_records => &RECORDS,
            Task::TextGeneration => &LARGE,
            Task::ImageClassification if source.brings_weights() => &TUNED_IMAGES,
            Task::ImageClassification => &IMAGES,
        }
    }
}
