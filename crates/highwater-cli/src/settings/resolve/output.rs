//! From flags to what a run keeps and shows.

use crate::args::Settings;
use crate::config::OutputConfig;

impl OutputConfig {
    /// As it is, but for what flags say.
    pub(crate) fn apply(&mut self, settings: &Settings) {
        self.save_every = settings.save_every.unwrap_or(self.save_every);
        self.keep = settings.keep.unwrap_or(self.keep);
        self.eval_every = settings.eval_every.or(self.eval_every);
        if let Some(sample) = &settings.sample {
            self.sample.clone_from(sample);
        }
        self.max_shard_size = settings.max_shard_size.or(self.max_shard_size);
        self.tensorboard = settings.tensorboard.unwrap_or(self.tensorboard);
    }
}
