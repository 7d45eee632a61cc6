//! A model, its optimizer and its settings, ready to take steps. Uses nothing of the library that a
//! user's crate could not.

use highwater::op::WeightFormat;
use highwater::optim::{
    AdamW, AdamWOptions, GradScaler, GradScalerOptions, Optimizer, Sgd, SgdOptions,
    clip_grad_norm_, grad_norm,
};
use highwater::{
    DType, DiskRates, Engine, Module, Parameter, Policy as PlanPolicy, Tensor, no_grad, skip_init,
    with_parameter_dtype,
};
use highwater_models::CausalLm;
use highwater_models::adapter::is_adapter;

use crate::config::{
    Forbid, Master, Method, ModelSource, Policy, Precision, PreferenceConfig, Quantize, RunConfig,
};
use crate::error::Failure;
use crate::model::{Batch, Blueprint, Model, base};

/// Something that trains.
#[derive(Debug)]
pub struct Session {
    /// The engine.
    pub engine: Engine,
    /// The model.
    pub model: Model,
    /// The optimizer, with moments for every parameter.
    pub optimizer: Box<dyn Optimizer>,
    /// What scales losses, in `fp16`.
    pub scaler: Option<GradScaler>,
    /// The model as it was, frozen, where pairs of answers are compared with it.
    pub before: Option<Box<dyn CausalLm>>,
    config: RunConfig,
}

/// What a step gave.
#[derive(Debug, Default)]
pub struct StepResult {
    /// Mean loss over the step's batches, before the update.
    pub loss: f32,
    /// Global norm of the gradients, before clipping.
    pub grad_norm: f32,
    /// Why no step should follow: no scale of the loss is small enough. This one was skipped.
    pub stop: Option<Failure>,
}

/// What a model comes to on what is held out.
#[derive(Clone, Copy, Debug)]
pub struct HeldOut {
    /// The mean loss.
    pub loss: f32,
    /// The share of images whose class it tells; none of text.
    pub accuracy: Option<f32>,
    /// Tokens or images that this is of.
    pub units: usize,
}

impl HeldOut {
    /// As how many tokens that are all as likely the text was to the model; none of images and of pairs of answers.
    pub fn perplexity(&self, config: &RunConfig) -> Option<f64> {
        let is_of_tokens = config.task.is_text() && config.training.preference.is_none();
        is_of_tokens.then(|| f64::from(self.loss).exp())
    }
}

impl Session {
    /// Builds model and optimizer within the budget. `reserve` is what an earlier engine of the
    /// process measured.
    ///
    /// # Errors
    /// [`Failure`] where the budget has no room for them.
    pub fn new(
        config: &RunConfig,
        model: &Blueprint,
        reserve: Option<u64>,
    ) -> Result<Self, Failure> {
        let builder = Engine::builder().memory(config.machine.memory.0);
        let mut builder = match reserve {
            Some(bytes) => builder.reserve(bytes),
            None => builder,
        };
        if config.has_tiers() {
            // With transfers each budget is planned by itself: that is for who asks for a plan.
            builder = builder.prices(0);
        }
        Self::on(builder, config, model)
    }

    /// The same on an engine of the caller's making, with the budget that it has.
    ///
    /// # Errors
    /// [`Failure`] of the engine.
    pub fn on(
        builder: highwater::Builder,
        config: &RunConfig,
        blueprint: &Blueprint,
    ) -> Result<Self, Failure> {
        let folder = config.base();
        let builder = match folder {
            Some(_) => builder.files(),
            None => builder,
        };
        let (engine, model) = engine_and_model(builder, config, blueprint)?;
        let before = before(config, blueprint, &engine, weights_dtype(config))?;
        let optimizer = optimizer(config, model.module())?;
        if let (true, Model::Text(text)) = (engine.is_dry_run(), &model) {
            foresee(config, &**text, before.as_deref())?;
        }
        let scaled = config.training.precision == Precision::Fp16;
        let scaler = scaled.then(|| GradScaler::new(GradScalerOptions::default()));
        Ok(Self {
            engine,
            model,
            optimizer,
            scaler: scaler.transpose()?,
            before,
            config: config.clone(),
        })
    }

    /// What weights are held in.
    pub fn weights_dtype(&self) -> DType {
        weights_dtype(&self.config)
    }

    /// The settings.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// Takes step number `step` (from 1) on so many batches as the settings say, each asked for when the one
    /// before is done with. Where not all count the same, `counted` is what they have together, so that the step is
    /// that of one large batch.
    ///
    /// # Errors
    /// [`Failure`] of the engine and of the batches; [`Code::NonFinite`](crate::error::Code::NonFinite) if nothing was updated because the loss or a
    /// gradient is not finite. With a scaler such a step is skipped, and where no scale is small enough
    /// [`StepResult::stop`] says so.
    pub fn step(
        &mut self,
        step: u64,
        batches: impl IntoIterator<Item = Result<Batch, Failure>>,
        counted: Option<usize>,
    ) -> Result<StepResult, Failure> {
        let mut loss: Option<Tensor> = None;
        for batch in batches {
            // Without history, which would be kept for as long as the tensor is.
            let part = self.backward(&batch?, counted)?.detach()?;
            let part = match part.dtype() {
                DType::F32 => part,
                _ => part.to_dtype(DType::F32)?,
            };
            loss = Some(match loss {
                Some(before) => before.add(&part)?,
                None => part,
            });
        }
        let parameters = self.optimizer.parameters();
        if let Some(scaler) = &mut self.scaler {
            scaler.unscale_(&parameters)?;
        }
        let norm = match self.config.optimizer.clip {
            Some(max_norm) => clip_grad_norm_(&parameters, max_norm)?,
            None => grad_norm(&parameters)?,
        };
        self.optimizer
            .set_lr(self.config.learning_rate().at(step - 1))?;
        let stop = if let Some(scaler) = &mut self.scaler {
            scaler.step(&mut *self.optimizer)?;
            scaler.update().err().map(Failure::from)
        } else {
            self.optimizer.step()?;
            None
        };
        if self.engine.is_dry_run() {
            return Ok(StepResult::default());
        }
        Ok(StepResult {
            loss: loss.map_or(Ok(0.0), |loss| loss.item())?,
            grad_norm: norm.item()?,
            stop,
        })
    }

    /// Adds a batch's share to the gradients. The losses of a step add up to their mean.
    fn backward(&self, batch: &Batch, counted: Option<usize>) -> Result<Tensor, Failure> {
        let (loss, _) = self.loss(batch)?;
        let accumulate = self.config.training.accumulate;
        let loss = if let Some(counted) = counted {
            // An input, so that one plan serves whatever they count.
            let share = batch.units() as f32 / counted.max(1) as f32;
            loss.mul(&Tensor::from_slice(&self.engine, &[share], [1])?.squeeze(0)?)?
        } else if accumulate > 1 {
            loss.mul_scalar(1.0 / accumulate as f64)?
        } else {
            loss
        };
        match &self.scaler {
            Some(scaler) => scaler.scale(&loss)?.backward()?,
            None => loss.backward()?,
        }
        Ok(loss)
    }

    fn loss(&self, batch: &Batch) -> Result<(Tensor, Option<Tensor>), Failure> {
        let (training, before) = (&self.config.training, self.before.as_deref());
        self.model.loss(&self.engine, batch, training, before)
    }

    /// What the model comes to over some batches, without dropout and without gradients; none of no batch.
    ///
    /// # Errors
    /// [`Failure`] of the engine and of the batches.
    pub fn evaluate(
        &self,
        batches: impl IntoIterator<Item = Result<Batch, Failure>>,
    ) -> Result<Option<HeldOut>, Failure> {
        self.model.module().eval();
        let found = no_grad(|| self.mean(batches));
        self.model.module().train(true);
        found
    }

    fn mean(
        &self,
        batches: impl IntoIterator<Item = Result<Batch, Failure>>,
    ) -> Result<Option<HeldOut>, Failure> {
        let (mut units, mut first, mut weights) = (0, 0, 0.0);
        let (mut loss, mut right) = (0.0, None);
        for batch in batches {
            let batch = batch?;
            units += batch.units();
            first = if first == 0 { batch.units() } else { first };
            // A last batch may be smaller.
            let weight = batch.units() as f64 / first as f64;
            weights += weight;
            let (part, told) = self.loss(&batch)?;
            loss += f64::from(part.item()?) * weight;
            if let Some(told) = told {
                *right.get_or_insert(0.0) += f64::from(told.item()?) * weight;
            }
        }
        Ok((units > 0).then(|| HeldOut {
            loss: (loss / weights) as f32,
            accuracy: right.map(|right| (right / weights) as f32),
            units,
        }))
    }
}

/// What a plan knows of weights before they are read: that they are the model's, and which of them wait in their files.
fn foresee(
    config: &RunConfig,
    model: &dyn CausalLm,
    before: Option<&dyn CausalLm>,
) -> Result<(), Failure> {
    match (config.base(), &config.model.source) {
        (Some(folder), _) => {
            base::foresee(folder, model)?;
            before.map_or(Ok(()), |before| base::foresee(folder, before))
        }
        (None, ModelSource::Folder(folder)) => base::check(folder, model),
        (None, ModelSource::Preset(_) | ModelSource::Config(_)) => Ok(()),
    }
}

/// An engine as settings say, and the model on it, with adapters if there are some, and nothing that trains it.
///
/// # Errors
/// [`Failure`] where the budget has no room for it.
pub(crate) fn engine_and_model(
    builder: highwater::Builder,
    config: &RunConfig,
    blueprint: &Blueprint,
) -> Result<(Engine, Model), Failure> {
    let policy = match config.machine.policy {
        Policy::Auto => PlanPolicy::Auto,
        Policy::Keep => PlanPolicy::Keep,
        Policy::Recompute => PlanPolicy::Recompute,
    };
    let machine = &config.machine;
    let builder = builder.threads(machine.threads);
    let builder = builder.rates(machine.rates.clone()).correct_times(true);
    // What was planned before the first step must hold in all: see `Builder::correct_plans`.
    let builder = builder.correct_plans(!config.moves_between_plans());
    let builder = match machine.device_memory {
        Some(bytes) => builder.device_memory(bytes.0),
        None => builder,
    };
    let builder = match machine.host_memory {
        Some(bytes) => builder.host_memory(bytes.0),
        None => builder,
    };
    let builder = match &machine.disk {
        Some(disk) => {
            let rates = disk.rates.map(DiskRates::from).unwrap_or_default();
            builder.disk(&disk.folder, disk.bytes.0).disk_rates(rates)
        }
        None => builder,
    };
    let builder = if machine.forbid.contains(&Forbid::DiskWrites) {
        builder.forbid_disk_writes()
    } else {
        builder
    };
    let engine = builder.policy(policy).seed(config.training.seed).build()?;
    let lora = config.model.lora.as_ref();
    let format = lora.and_then(|lora| lora.quantize).map(Quantize::format);
    let dtype = weights_dtype(config);
    let model = with_parameter_dtype(dtype, || build(config, blueprint, &engine, format))?;
    if let Some(lora) = lora {
        lora.adapt(model.module())?;
    }
    Ok((engine, model))
}

/// A model, without initial values where those are read from a folder.
fn build(
    config: &RunConfig,
    blueprint: &Blueprint,
    engine: &Engine,
    format: Option<WeightFormat>,
) -> highwater::Result<Model> {
    let build = || blueprint.build(engine, format);
    match (&config.model.source, blueprint) {
        (ModelSource::Folder(_), Blueprint::Text(_)) => skip_init(build),
        _ => build(),
    }
}

/// The model as it was, if something is compared with it and nothing else is it.
fn before(
    config: &RunConfig,
    blueprint: &Blueprint,
    engine: &Engine,
    dtype: DType,
) -> Result<Option<Box<dyn CausalLm>>, Failure> {
    let has_adapters = config.model.lora.is_some();
    let needs_copy = |how: PreferenceConfig| how.needs_copy(has_adapters);
    if !config.training.preference.is_some_and(needs_copy) {
        return Ok(None);
    }
    let Model::Text(before) =
        with_parameter_dtype(dtype, || build(config, blueprint, engine, None))?
    else {
        return Ok(None);
    };
    before.requires_grad_(false);
    before.eval();
    Ok(Some(before))
}

/// Without a master weights are whole, whatever computes with them.
fn weights_dtype(config: &RunConfig) -> DType {
    match config.optimizer.master {
        Some(_) => config.training.precision.dtype(),
        // What is frozen needs no master.
        None if config.model.lora.is_some() => config.training.precision.dtype(),
        None => DType::F32,
    }
}

/// The parameters that train.
fn trained(model: &dyn Module, config: &RunConfig) -> Vec<Parameter> {
    if config.model.lora.is_none() {
        return model.parameters();
    }
    let named = model.named_parameters().into_iter();
    let adapters = named.filter(|(name, _)| is_adapter(name));
    adapters.map(|(_, parameter)| parameter).collect()
}

fn optimizer(config: &RunConfig, model: &dyn Module) -> Result<Box<dyn Optimizer>, Failure> {
    let settings = &config.optimizer;
    let master = settings.master.map(Master::option);
    let moments = settings.moments.option();
    let decays = |parameter: &Parameter| settings.decay.applies_to(parameter.dims());
    Ok(match settings.method {
        Method::Adamw { beta1, beta2, eps } => {
            let options = |weight_decay| AdamWOptions {
                lr: settings.lr,
                betas: (beta1, beta2),
                eps,
                weight_decay,
                master,
                moments,
                ..AdamWOptions::default()
            };
            let (decayed, plain) = trained(model, config).into_iter().partition(decays);
            let groups = vec![
                (decayed, options(settings.weight_decay)),
                (plain, options(0.0)),
            ];
            Box::new(AdamW::with_groups(groups)?)
        }
        Method::Sgd { momentum } => {
            let options = SgdOptions {
                lr: settings.lr,
                momentum,
                weight_decay: settings.weight_decay,
                master,
                moments,
                ..SgdOptions::default()
            };
            let (decayed, plain) = trained(model, config).into_iter().partition(decays);
            let undecayed = SgdOptions {
                weight_decay: 0.0,
                ..options.clone()
            };
            Box::new(Sgd::with_groups(vec![
                (decayed, options),
                (plain, undecayed),
            ])?)
        }
    })
}
