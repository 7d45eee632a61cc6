//! Flags that several commands share, and those that become settings of a run. What only one command has stands with
//! the command.

mod assignment;
mod lora;
mod output;
mod preference;
mod records;
mod resume;
mod run;
mod train;
pub(crate) mod values;

pub use assignment::Assignment;
pub use lora::LoraArgs;
pub use output::OutputArgs;
pub use preference::PreferenceArgs;
pub use records::RecordsArgs;
pub use resume::ResumeArgs;
pub use run::RunArgs;
pub use train::TrainArgs;
