//! The settings of a run as flags, and what several commands share. What only one command has stands with the command.

mod assignment;
mod flags;
mod resume;
mod run;
mod settings;
pub mod table;
mod train;

pub use assignment::Assignment;
pub use flags::{All, Changes, Computation, Flags, Format, Subset};
pub use resume::ResumeArgs;
pub use run::RunArgs;
pub use settings::Settings;
pub use train::TrainArgs;
