//! `measure`: what other commands start when they need the rates or the limits of this machine, in a process whose
//! memory is all given back when it ends.

use clap::Args;

use crate::error::{Code, Failure};
use crate::machine::{MachineLimits, Measured};
use crate::terminal::{output, signals};

/// `measure`.
#[derive(Args, Debug)]
pub struct MeasureArgs {
    /// Threads to compute with
    #[arg(long, value_name = "N")]
    pub threads: usize,
    /// What tensors may take, in bytes
    #[arg(long, value_name = "N")]
    pub bytes: u64,
    /// What the processor does at most, instead of rates
    #[arg(long)]
    pub limits: bool,
}

/// Prints what was measured, as JSON.
///
/// # Errors
/// [`Failure`] of the engine.
pub(crate) fn measure(args: &MeasureArgs) -> Result<(), Failure> {
    signals::end_with_parent();
    let json = if args.limits {
        serde_json::to_string(&MachineLimits::measure(args.threads, args.bytes)?)
    } else {
        serde_json::to_string(&Measured::measure(args.threads, args.bytes)?)
    };
    output::result(&json.map_err(|error| Failure::new(Code::Internal, error))?);
    Ok(())
}
