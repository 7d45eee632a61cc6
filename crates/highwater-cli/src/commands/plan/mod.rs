//! `plan`: whether a step fits, what it costs, who holds the memory, and what would change that.
//!
//! `plan --json` prints a [`Report`]; the guide lists its fields. `plan --diff` reads two of them.

mod changes;
mod diff;
mod figures;
mod ladder;
mod report;
mod text;

pub use changes::{Change, Changes};
pub use diff::{Diff, diff};
pub use ladder::Rung;
pub use report::Report;
pub use text::text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args};
use highwater_memory::DiskFiles;
use serde::Serialize;

use crate::args::table::Table;
use crate::args::{Computation, RunArgs, Settings, Subset};
use crate::error::{Code, Failure};
use crate::machine;
use crate::planning::{Assumptions, budget};
use crate::settings::inputs::check_data;
use crate::settings::resolve::{self, Resolved};
use crate::terminal::meter::Waiting;
use crate::terminal::output;

/// How long settings and changes of them are planned before the rest of the changes is left out.
const CHANGES_TIME: Duration = Duration::from_secs(6);
/// Planning so many layers takes long enough to say so.
const MANY_LAYERS: usize = 16;

/// Says whether a step fits and what it costs, or in what two plans differ.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn plan(args: &PlanArgs) -> Result<ExitCode, Failure> {
    if let [before, after] = args.diff.as_slice() {
        if args.explain || args.run != RunArgs::default() {
            let message = "--diff compares two stored plans and takes no settings";
            return Err(
                Failure::usage(message).hint("store a plan with `highwater plan --json > FILE`")
            );
        }
        let found = diff(&DiskFiles, before, after)?;
        output::result(&if args.json {
            json(&found)?
        } else {
            found.to_string()
        });
        return Ok(ExitCode::SUCCESS);
    }
    let (_, resolved) = args.run.resolved(&DiskFiles, resolve::run)?;
    let Resolved {
        mut config,
        model,
        notes,
    } = resolved;
    for note in args.ignored().iter().chain(&notes) {
        output::news(note);
    }
    if let Err(failure) = check_data(&DiskFiles, &config) {
        // What it takes does not depend on what it says.
        output::news(&format!(
            "note: {}; `train` will need it",
            failure.message()
        ));
    }
    machine::find_rates(&DiskFiles, &mut config.machine)?;
    budget::warn_of_budget(&mut config);
    let assumptions = Assumptions::measure(&DiskFiles, &config, &model)?;
    if let Err(failure) = model.check_data(&DiskFiles, &config) {
        output::news(&format!("note: {}", failure.message()));
    }
    if let Some(large) = model.large_data(&DiskFiles, &config)? {
        output::news(&format!("note: {large}"));
    }
    let layers = model.depth();
    let waiting = (layers >= MANY_LAYERS)
        .then(|| Waiting::on(format!("planning {layers} layers (some seconds)")));
    let report = Report::new(&config, &model, &assumptions, CHANGES_TIME)?;
    drop(waiting);
    budget::keep_to_planned(&mut config, &report.forecast);
    show(&report, args.explain, args.json)
}

/// Prints what there is to say about a plan. The exit code tells whether the step fits.
///
/// # Errors
/// None but a mistake of the program.
pub fn show(report: &Report, explain: bool, as_json: bool) -> Result<ExitCode, Failure> {
    output::result(&if as_json {
        json(report)?
    } else {
        text(report, explain)
    });
    Ok(if report.forecast.fits {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(Code::Budget as u8)
    })
}

fn json(what: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(what).map_err(|error| Failure::new(Code::Internal, error))
}

/// `plan`.
#[derive(Args, Debug, Default)]
#[command(allow_negative_numbers = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct PlanArgs {
    /// The settings.
    #[command(flatten)]
    pub run: RunArgs<Computation>,

    /// List the planner's decisions: recomputed operations, in-place writes, early updates
    #[arg(long, help_heading = "Output")]
    pub explain: bool,

    /// Compare two plans: files that plan --json wrote, or folders of runs
    #[arg(long, num_args = 2, value_names = ["A", "B"], help_heading = "Output")]
    pub diff: Vec<PathBuf>,

    /// Print the plan as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// A flag of `train` and `init`, as are those below: their command lines are such of `plan` too.
    #[arg(long, hide = true)]
    pub out: Option<PathBuf>,

    /// As above.
    #[arg(long, hide = true)]
    pub force: bool,

    /// As above.
    #[arg(long, hide = true)]
    pub dry_run: bool,

    /// As above.
    #[arg(long, hide = true)]
    pub profile: bool,

    /// As above.
    #[arg(long, hide = true)]
    pub all: bool,

    /// Print help with all flags
    #[arg(long, action = ArgAction::HelpLong)]
    pub help_all: Option<bool>,
}

impl PlanArgs {
    /// A note on flags that say nothing about a step.
    fn ignored(&self) -> Option<String> {
        let own = [
            ("out", self.out.is_some()),
            ("force", self.force),
            ("dry-run", self.dry_run),
            ("profile", self.profile),
            ("all", self.all),
        ];
        let own = own
            .iter()
            .filter_map(|(flag, given)| given.then_some(*flag));
        let settings = Settings::table().iter();
        let settings =
            settings.filter(|it| Computation::ignores(it) && it.is_given(&self.run.flags));
        let flags = own.chain(settings.map(|setting| setting.flag));
        let flags: Vec<_> = flags.map(|flag| format!("--{flag}")).collect();
        (!flags.is_empty()).then(|| format!("note: ignored in a plan: {}", flags.join(", ")))
    }
}
