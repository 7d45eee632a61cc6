//! From flags to what a run keeps and shows.

use crate::args::OutputArgs;
use crate::config::OutputConfig;

impl OutputConfig {
    /// As it is, but for what flags say.
    pub(crate) fn apply(&mut self, args: &OutputArgs) {
        self.save_every = args.save_every.unwrap_or(self.save_every);
        self.keep = args.keep.unwrap_or(self.keep);
        self.eval_every = args.eval_every.or(self.eval_every);
        if let Some(sample) = &args.sample {
            self.sample.clone_from(sample);
        }
        self.max_shard_size = args.max_shard_size.or(self.max_shard_size);
        self.tensorboard = args.tensorboard.unwrap_or(self.tensorboard);
    }
}
