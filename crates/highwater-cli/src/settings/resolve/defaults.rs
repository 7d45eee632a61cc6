//! What is taken where nobody says anything.

use highwater_memory::Bytes;
use highwater_models::Order;

/// The preset that is taken when nobody names a model.
pub(super) const DEFAULT_MODEL: &str = "gpt2-nano";
/// The presets that are drawn anew and trained for a minute.
pub(crate) const NANO: [&str; 2] = [DEFAULT_MODEL, "llama-nano"];
/// The budget for them when nobody names one.
pub(crate) const DEFAULT_MEMORY: Bytes = Bytes(64 << 20);
/// What is taken of pictures when nobody names a model.
pub(crate) const DEFAULT_CLASSIFIER: &str = "resnet18";
/// Share of the built-in guide, and of pictures, that is held out.
pub(crate) const HELD_OUT: f64 = 0.1;
/// How often records are gone through when nobody says.
pub(crate) const RECORD_EPOCHS: f64 = 3.0;

/// What is taken where nobody says anything.
pub(crate) struct Defaults {
    pub(super) steps: u64,
    pub(super) batch: usize,
    pub(super) seq: usize,
    pub(super) order: Order,
    pub(super) lr: f64,
    pub(super) beta2: f64,
    pub(super) weight_decay: f64,
}

/// For models drawn anew and trained for a minute: many small steps, and moments that follow
/// them.
pub(crate) const SMALL: Defaults = Defaults {
    steps: 800,
    batch: 4,
    seq: 64,
    order: Order::Shuffled,
    lr: 2e-3,
    beta2: 0.99,
    weight_decay: 0.1,
};

/// For models that bring weights, or take long to get some.
pub(crate) const LARGE: Defaults = Defaults {
    steps: 200,
    batch: 8,
    seq: 128,
    order: Order::Sequential,
    lr: 1e-4,
    beta2: 0.999,
    weight_decay: 0.01,
};

/// For models that bring weights and read records, which have an end each.
pub(crate) const RECORDS: Defaults = Defaults {
    batch: 4,
    seq: 1024,
    order: Order::Shuffled,
    ..LARGE
};

/// For classifiers of pictures that are drawn anew.
pub(crate) const PICTURES: Defaults = Defaults {
    order: Order::Shuffled,
    lr: 1e-3,
    ..LARGE
};

/// For those that bring weights.
pub(crate) const TUNED_PICTURES: Defaults = Defaults {
    lr: 1e-4,
    ..PICTURES
};
