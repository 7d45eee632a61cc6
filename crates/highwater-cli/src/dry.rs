//! What settings would take, found by planning them and running nothing.

use highwater::{Builder, Engine, Forecast};
use highwater_memory::{Bytes, Files};

use crate::config::RunConfig;
use crate::engine_error::without_places;
use crate::error::{Code, Failure};
use crate::session::Session;
use crate::task::Blueprint;
use crate::tokenise;

/// What sets a floor where no step does.
pub(crate) const TOKENS: &str = "making tokens of the text";
/// Batches of a step that are planned one by one. From the second on they pose the same problem, so
/// that the time of more follows.
const BATCHES: usize = 16;
/// Steps that are planned at most where the plans of one leave cells in other places than they found them
/// in: after so many they have theirs.
const STEPS: u64 = 4;
/// How often the floor of a step of several plans is tried upwards, before halving.
const TRIES: usize = 8;
/// Of a budget into which no step fits, so many shares above the floor are tried.
const SHARES: u64 = 4;
/// Halving ends when what is left is one part in so many, and at most so many bytes.
const NEAR: u64 = 256;
const NEAR_BYTES: u64 = 512 << 10;
/// So much less than a floor that is told is tried, as often as that does after all.
const UNIT_BYTES: u64 = 1 << 20;
/// More than any step takes.
pub(crate) const PLENTY: Bytes = Bytes(1 << 50);

/// What a plan is made for.
#[derive(Clone, Debug)]
pub struct Assumptions {
    /// What the process takes beside its tensors, in bytes.
    pub reserve_bytes: u64,
    /// What decoding the largest picture of the data takes, in bytes; 0 of text.
    pub decoding_bytes: u64,
    /// How many budgets' prices are told at most, for the curve of a forecast.
    pub prices: usize,
    /// What making tokens takes before the run starts, in bytes; 0 where there is nothing to make.
    pub tokenise_bytes: u64,
}

impl Assumptions {
    /// Those of this process on this machine.
    ///
    /// # Errors
    /// [`Failure`] of the engine.
    pub fn measure(
        files: &dyn Files,
        config: &RunConfig,
        model: &Blueprint,
    ) -> Result<Self, Failure> {
        let survey = model.survey(files, config)?;
        // Measured before there are batches, as when a run starts.
        let session = session(config, model, None, Like::Nothing)?;
        // What is shown of the model meanwhile is made by its tokenizer.
        let tokenizer_bytes = if config.output.sample.is_empty() {
            0
        } else {
            tokenise::tokenizer_bytes(files, config)?
        };
        Ok(Self {
            reserve_bytes: session.engine.reserve_bytes()
                + tokenizer_bytes
                + survey.as_ref().map_or(0, |survey| survey.listing_bytes),
            decoding_bytes: survey.map_or(0, |survey| survey.decoding_bytes()),
            prices: 0,
            tokenise_bytes: tokenise::needed_bytes(files, config)?,
        })
    }

    /// What a run takes beside its tensors, in bytes, with what it loads ahead.
    pub fn reserve(&self, config: &RunConfig, model: &Blueprint) -> u64 {
        self.reserve_bytes + model.loader_bytes(&config.training, self.decoding_bytes)
    }

    /// Has a forecast tell what making tokens takes, where that is more than a step.
    pub(crate) fn tokenise(&self, forecast: &mut Forecast) {
        if forecast.floor_bytes < self.tokenise_bytes {
            forecast.floor_bytes = self.tokenise_bytes;
            TOKENS.clone_into(&mut forecast.floor_at);
        }
        forecast.fits &= self.tokenise_bytes <= forecast.budget_bytes;
    }
}

/// What an engine for planning starts with.
#[derive(Clone, Debug, Default)]
pub enum Like {
    /// As a run does.
    #[default]
    Nothing,
    /// The decisions of an engine that planned the same steps: those for other budgets serve too.
    Plans(Engine),
    /// Its searches: what they come to is what a run would.
    Searches(Engine),
}

/// A session for planning only: no memory is taken for tensors. An engine whose decisions it starts with
/// goes first, so that two are never there at once.
///
/// # Errors
/// [`Failure`] of the engine.
pub fn session(
    config: &RunConfig,
    model: &Blueprint,
    assumptions: Option<&Assumptions>,
    like: Like,
) -> Result<Session, Failure> {
    let mut builder = Engine::builder().memory(config.machine.memory.0).dry_run();
    if let Some(assumptions) = assumptions {
        let (reserve, prices) = (assumptions.reserve(config, model), assumptions.prices);
        builder = builder.reserve(reserve).prices(prices);
    }
    builder = match like {
        Like::Nothing => builder,
        Like::Plans(engine) => builder.plans_of(&engine),
        Like::Searches(engine) => builder.searches_of(&engine),
    };
    Session::on(builder, config, model)
}

/// What was learnt of a floor in some tries.
#[derive(Debug)]
pub struct NearFloor {
    /// With the floor, or the least that it is above.
    pub forecast: Forecast,
    /// A budget that does not do, in bytes; the floor itself where one plan tells it.
    pub refused: u64,
    /// Whether the floor of the forecast does.
    pub found: bool,
}

/// Plans a step of some settings, without taking memory for it.
#[derive(Debug)]
pub struct Planner<'a> {
    config: &'a RunConfig,
    model: &'a Blueprint,
    assumptions: &'a Assumptions,
    /// Planned last: its decisions serve other budgets too.
    engine: Option<Engine>,
}

impl<'a> Planner<'a> {
    /// One for these settings.
    pub fn new(config: &'a RunConfig, model: &'a Blueprint, assumptions: &'a Assumptions) -> Self {
        Self {
            config,
            model,
            assumptions,
            engine: None,
        }
    }

    /// The engine that planned last, with its decisions.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// What a step takes under the budget of the settings, once cells have their places. Where it does not fit, the floor is as far
    /// as it was planned: see [`Planner::with_floor`].
    ///
    /// # Errors
    /// [`Failure`] of the engine; a step that does not fit is an answer, not an error.
    pub fn forecast(&mut self) -> Result<Forecast, Failure> {
        self.at(self.config.machine.memory)
    }

    /// The same under another budget.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub fn at(&mut self, memory: Bytes) -> Result<Forecast, Failure> {
        let like = self.engine.take().map_or(Like::Nothing, Like::Plans);
        self.plan(memory, like)
    }

    fn plan(&mut self, memory: Bytes, like: Like) -> Result<Forecast, Failure> {
        let mut config = self.config.clone();
        config.machine.memory = memory;
        let training = &config.training;
        let count = training.accumulate.min(BATCHES);
        let several = training.accumulate > 1;
        let more = training.accumulate as f64 / count as f64;
        let assumptions = Some(self.assumptions);
        let mut session = session(&config, self.model, assumptions, like)?;
        let moves = config.moves_between_plans();
        let steps = if moves { STEPS } else { 1 };
        let mut refused = None;
        for step in 1..=steps {
            let batches = (0..count).map(|_| Ok(self.model.blank(&config, config.training.batch)));
            let counted = (several && config.counts_differ()).then_some(1);
            match session.step(step, batches, counted) {
                Ok(_) if session.engine.is_settled() => break,
                Ok(_) => {}
                Err(failure) if failure.code() == Code::Budget as u8 => {
                    refused = Some(failure);
                    break;
                }
                Err(failure) => return Err(failure),
            }
        }
        // Where the system refused memory before anything was planned, that is what there is to say.
        let nothing =
            || refused.unwrap_or_else(|| Failure::new(Code::Internal, "a step planned nothing"));
        let mut forecast = forecast(&session.engine).ok_or_else(nothing)?;
        self.assumptions.tokenise(&mut forecast);
        let scale = |nodes: u32| (f64::from(nodes) * more).round() as u32;
        let bytes = |bytes: u64| (bytes as f64 * more) as u64;
        forecast.seconds_per_step *= more;
        forecast.bytes_read = bytes(forecast.bytes_read);
        forecast.bytes_written = bytes(forecast.bytes_written);
        forecast.host_bytes_read = bytes(forecast.host_bytes_read);
        forecast.host_bytes_written = bytes(forecast.host_bytes_written);
        forecast.recompute_seconds *= more;
        forecast.recomputed_nodes = scale(forecast.recomputed_nodes);
        for price in &mut forecast.curve {
            price.seconds_per_step *= more;
            price.recompute_seconds *= more;
            price.recomputed_nodes = scale(price.recomputed_nodes);
            price.bytes_read = bytes(price.bytes_read);
            price.bytes_written = bytes(price.bytes_written);
            price.host_bytes_read = bytes(price.host_bytes_read);
            price.host_bytes_written = bytes(price.host_bytes_written);
        }
        self.engine = Some(session.engine);
        Ok(forecast)
    }

    /// The same without the decisions for other budgets: as a run finds it that has this one.
    fn anew(&mut self, memory: Bytes) -> Result<Forecast, Failure> {
        let like = self.engine.take().map_or(Like::Nothing, Like::Searches);
        self.plan(memory, like)
    }

    /// What a step takes, with the floor of all of it; where it does not fit, of the plan at its floor.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub fn with_floor(&mut self) -> Result<Forecast, Failure> {
        let near = self.near_floor(TRIES)?;
        let (mut forecast, mut refused) = (near.forecast, near.refused);
        let mut found = near.found;
        if !found {
            let plenty = self.at(PLENTY)?.peak_bytes;
            found = self.try_floor(&mut forecast, plenty)?;
        }
        // Where there is no end to it, or a refusal asked for too much, what is found by halving is near
        // the least.
        let near = |refused: u64| (refused / NEAR).min(NEAR_BYTES);
        while found && forecast.floor_bytes.saturating_sub(refused) > near(refused) {
            let middle = refused.midpoint(forecast.floor_bytes);
            if !self.try_floor(&mut forecast, middle)? {
                refused = middle;
            }
        }
        // Of several plans the later ones may do with less and not with a little more, as the earlier ones
        // left them more or less; and with tiers what a plan asks for of nothing may be more than it needs.
        let several = self.config.training.accumulate > 1;
        for _ in 0..TRIES {
            let less = forecast.floor_bytes.saturating_sub(UNIT_BYTES);
            if !(found && several && self.try_floor(&mut forecast, less)?) {
                break;
            }
        }
        Ok(forecast)
    }

    /// What a step takes under the most of the budget that one was found to fit into, with its floor. Of
    /// several plans the later ones may do with the floor and not with somewhat more, as the earlier ones
    /// leave less room then: the forecast is of a smaller budget where there is one that does.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub fn within(&mut self) -> Result<Forecast, Failure> {
        let stated = self.with_floor()?;
        let floor = stated.floor_bytes;
        let spare = stated.budget_bytes.saturating_sub(floor);
        if stated.fits || stated.budget_bytes < floor {
            return Ok(stated);
        }
        for share in (0..SHARES).rev() {
            let less = self.anew(Bytes(floor + spare * share / SHARES))?;
            if less.fits {
                return Ok(Forecast {
                    floor_bytes: floor,
                    floor_at: stated.floor_at,
                    floor_held: stated.floor_held,
                    ..less
                });
            }
        }
        Ok(stated)
    }

    /// The floor in so many tries.
    ///
    /// A step of several plans is refused by the first that does not fit, with what that one needs:
    /// that is tried next.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub fn near_floor(&mut self, tries: usize) -> Result<NearFloor, Failure> {
        let forecast = self.forecast()?;
        let mut near = NearFloor {
            refused: forecast.floor_bytes,
            found: self.config.training.accumulate == 1,
            forecast,
        };
        let mut memory = 1;
        for _ in 0..tries {
            if near.found {
                break;
            }
            let least = self.anew(Bytes(memory))?;
            near.found = least.fits;
            // What the first plan asks for of nothing is its floor; what later ones ask for depends on
            // what those before them left.
            if !near.found {
                near.refused = if memory == 1 {
                    least.floor_bytes.saturating_sub(1)
                } else {
                    memory
                };
            }
            memory = memory.max(least.floor_bytes);
            take_floor(&mut near.forecast, least, memory);
        }
        Ok(near)
    }

    /// Takes a budget for the floor if a step fits into it.
    fn try_floor(&mut self, forecast: &mut Forecast, memory: u64) -> Result<bool, Failure> {
        let least = self.anew(Bytes(memory))?;
        let found = least.fits;
        if found {
            take_floor(forecast, least, memory);
        }
        Ok(found)
    }
}

/// What an engine foresees, without lines of this program's source.
fn forecast(engine: &Engine) -> Option<Forecast> {
    let mut forecast = engine.forecast()?;
    for place in [&mut forecast.peak_at, &mut forecast.floor_at] {
        *place = without_places(place);
    }
    Some(forecast)
}

/// Plans one call of a model that is not trained, before anything is loaded. `beside` bytes are set aside for others.
/// Returns the forecast and the reserve that it assumes.
///
/// # Errors
/// [`Failure`] of what builds and asks; where there is no room to ask, the forecast says so.
pub(crate) fn asked<M>(
    (builder, beside): (impl Fn() -> Builder, u64),
    build: impl Fn(Builder) -> Result<(Engine, M), Failure>,
    ask: impl FnOnce(&Engine, &M) -> Result<(), Failure>,
) -> Result<(Forecast, u64), Failure> {
    let dry = || builder().dry_run().prices(0);
    let reserve = build(dry())?.0.reserve_bytes() + beside;
    let (engine, model) = build(dry().reserve(reserve))?;
    let asked = ask(&engine, &model);
    let forecast = forecast(&engine);
    drop((engine, model));
    highwater_memory::heap::release_unused();
    match (asked, forecast) {
        (Err(failure), _) if failure.code() != Code::Budget as u8 => Err(failure),
        (_, Some(forecast)) => Ok((forecast, reserve)),
        (Err(failure), None) => Err(failure),
        (Ok(()), None) => Err(Failure::new(Code::Internal, "nothing was planned")),
    }
}

/// Tells of another floor; where the step does not fit, of the plan there.
fn take_floor(forecast: &mut Forecast, least: Forecast, floor_bytes: u64) {
    if !forecast.fits {
        let budget_bytes = forecast.budget_bytes;
        *forecast = Forecast {
            fits: false,
            budget_bytes,
            ..least.clone()
        };
    }
    forecast.floor_bytes = floor_bytes;
    forecast.floor_at = least.floor_at;
    forecast.floor_held = least.floor_held;
}
