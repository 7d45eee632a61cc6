//! What stands in folders of runs and of models.

pub(crate) mod adapters;
mod best;
pub(crate) mod copies;
pub(crate) mod digest;
mod facts;
pub(crate) mod final_step;
pub mod model_folder;
pub(crate) mod new;
mod newest;
mod real;
mod run_dir;
pub mod state;

pub use best::Best;
pub use newest::{Newest, Which};
pub(crate) use real::real;
pub use run_dir::{RunDir, RunDirError};
pub use state::Counters;
