//! Planning one call of a model that is not trained.

use highwater::{Builder, Engine, Forecast};

use super::assumptions::foreseen;
use crate::error::{Code, Failure};

/// Plans one call of a model that is not trained, before anything is loaded. `beside` bytes are set aside for others.
/// Returns the forecast and the reserve that it assumes.
///
/// # Errors
/// [`Failure`] of what builds and asks; where there is no room to ask, the forecast says so.
pub(crate) fn plan_call<M>(
    (builder, beside): (impl Fn() -> Builder, u64),
    build: impl Fn(Builder) -> Result<(Engine, M), Failure>,
    ask: impl FnOnce(&Engine, &M) -> Result<(), Failure>,
) -> Result<(Forecast, u64), Failure> {
    let dry = || builder().dry_run().prices(0);
    let reserve = build(dry())?.0.reserve_bytes() + beside;
    let (engine, model) = build(dry().reserve(reserve))?;
    let asked = ask(&engine, &model);
    let forecast = foreseen(&engine);
    drop((engine, model));
    highwater_memory::heap::release_unused();
    match (asked, forecast) {
        (Err(failure), _) if failure.code() != Code::Budget as u8 => Err(failure),
        (_, Some(forecast)) => Ok((forecast, reserve)),
        (Err(failure), None) => Err(failure),
        (Ok(()), None) => Err(Failure::new(Code::Internal, "nothing was planned")),
    }
}
