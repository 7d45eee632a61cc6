//! What a plan is made for, and sessions that only plan.

use highwater::{Engine, Forecast};
use highwater_memory::{Bytes, Files};

use crate::config::RunConfig;
use crate::data::{tokenize, tokenizer};
use crate::error::{Failure, without_places};
use crate::model::Blueprint;
use crate::session::Session;

/// What sets a floor where no step does.
pub(crate) const TOKENS: &str = "tokenization";
/// More than any step takes.
pub(crate) const PLENTY: Bytes = Bytes(1 << 50);

/// What a plan is made for.
#[derive(Clone, Debug)]
pub struct Assumptions {
    /// What the process takes beside its tensors, in bytes.
    pub reserve_bytes: u64,
    /// What decoding the largest image of the data takes, in bytes; 0 of text.
    pub decoding_bytes: u64,
    /// How many budgets' prices are told at most, for the curve of a forecast.
    pub prices: usize,
    /// What making tokens takes before the run starts, in bytes; 0 where there is nothing to make.
    pub tokenize_bytes: u64,
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
            tokenizer::tokenizer_bytes(files, config)?
        };
        Ok(Self {
            reserve_bytes: session.engine.reserve_bytes()
                + tokenizer_bytes
                + survey.as_ref().map_or(0, |survey| survey.listing_bytes),
            decoding_bytes: survey.map_or(0, |survey| survey.decoding_bytes()),
            prices: 0,
            tokenize_bytes: tokenize::needed_bytes(files, config)?,
        })
    }

    /// What a run takes beside its tensors, in bytes, with what it loads ahead.
    pub fn reserve(&self, config: &RunConfig, model: &Blueprint) -> u64 {
        self.reserve_bytes + model.loader_bytes(&config.training, self.decoding_bytes)
    }

    /// Has a forecast tell what making tokens takes, where that is more than a step.
    pub(crate) fn tokenize(&self, forecast: &mut Forecast) {
        if forecast.floor_bytes < self.tokenize_bytes {
            forecast.floor_bytes = self.tokenize_bytes;
            TOKENS.clone_into(&mut forecast.floor_at);
        }
        forecast.fits &= self.tokenize_bytes <= forecast.budget_bytes;
    }
}

/// What an engine for planning starts with.
#[derive(Clone, Debug, Default)]
pub(super) enum Like {
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
pub(super) fn session(
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

/// What an engine foresees, without lines of this program's source.
pub(super) fn foreseen(engine: &Engine) -> Option<Forecast> {
    let mut forecast = engine.forecast()?;
    for place in [&mut forecast.peak_at, &mut forecast.floor_at] {
        *place = without_places(place);
    }
    Some(forecast)
}
