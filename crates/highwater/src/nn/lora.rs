//! Low-rank adapters (Hu et al., "LoRA", 2021): what a frozen linear layer learns beside its weight.

use super::{Dropout, Mode, Module, Visitor, join};
use crate::Result;
use crate::engine::Engine;
use crate::error::usage_error;
use crate::pending::context::with_parameter_dtype;
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use highwater_graph::{DType, Location};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Settings of adapters, with the names and defaults of PEFT's `LoraConfig`.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraOptions {
    /// The rank: rows of `lora_A`, columns of `lora_B`.
    pub r: usize,
    /// What adapters answer is multiplied by `lora_alpha / r`.
    pub lora_alpha: f64,
    /// Of what `lora_A` reads, in training mode.
    pub lora_dropout: f64,
    /// The layers that get one, by the last parts of their names, such as `q_proj`; or `all-linear`: all that the
    /// module shows.
    pub target_modules: Vec<String>,
    /// Whether `lora_alpha` is divided by the root of `r` instead (Kalajdzievski, "rsLoRA", 2023).
    pub use_rslora: bool,
}

impl Default for LoraOptions {
    fn default() -> Self {
        Self {
            r: 8,
            lora_alpha: 8.0,
            lora_dropout: 0.0,
            target_modules: vec![ALL.to_owned()],
            use_rslora: false,
        }
    }
}

/// The name that stands for all layers.
const ALL: &str = "all-linear";

impl LoraOptions {
    /// What adapters answer is multiplied by.
    pub fn scaling(&self) -> f64 {
        let r = self.r as f64;
        self.lora_alpha / if self.use_rslora { r.sqrt() } else { r }
    }

    /// Whether a layer of this name gets one.
    fn targets(&self, path: &str) -> bool {
        self.target_modules
            .iter()
            .any(|target| is_named(target, path))
    }
}

/// Whether a target stands for a layer: by the last parts of its name, as in PEFT.
fn is_named(target: &str, path: &str) -> bool {
    let rest = path.strip_suffix(target);
    target == ALL || rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The adapter of one layer.
#[derive(Debug)]
pub(super) struct Adapter {
    /// `[r, in]`.
    a: Parameter,
    /// `[out, r]`.
    b: Parameter,
    scaling: f64,
    dropout: Dropout,
}

impl Adapter {
    fn new(layer: &Layer, options: &LoraOptions) -> Result<Self> {
        let (engine, [outputs, inputs]) = (&layer.engine, layer.dims);
        // As in PEFT, which makes them of `F32` beside weights in half precision.
        with_parameter_dtype(DType::F32, || {
            let bound = 1.0 / (inputs.max(1) as f32).sqrt();
            Ok(Self {
                a: Parameter::uniform(engine, [options.r, inputs], bound)?,
                b: Parameter::new(engine, [outputs, options.r], |_| {})?,
                scaling: options.scaling(),
                dropout: Dropout::new(options.lora_dropout)?,
            })
        })
    }

    /// `y` and what the adapter makes of the layer's input.
    fn add_to(&self, y: &Tensor, x: &Tensor) -> Result<Tensor> {
        let x = match x.dtype() {
            DType::F32 => x.clone(),
            _ => x.to_dtype(DType::F32)?,
        };
        let low = self.dropout.forward(&x)?.linear(&self.a, None)?;
        let own = low.linear(&self.b, None)?.mul_scalar(self.scaling)?;
        if own.dtype() == y.dtype() {
            return y.add(&own);
        }
        y.to_dtype(own.dtype())?.add(&own)?.to_dtype(y.dtype())
    }

    /// What it adds to the weight.
    fn delta(&self) -> Result<Tensor> {
        self.b.matmul(&self.a)?.mul_scalar(self.scaling)
    }
}

/// A layer's adapter, if it has one. Clones of a layer share it, as they share the weight.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot(Arc<Mutex<Option<Arc<Adapter>>>>);

impl Slot {
    fn get(&self) -> Option<Arc<Adapter>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, adapter: Option<Adapter>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = adapter.map(Arc::new);
    }

    /// Tells of an adapter, if there is one.
    pub(super) fn debug(&self, told: &mut std::fmt::DebugStruct<'_, '_>) {
        if let Some(adapter) = self.get() {
            told.field("lora_A", &adapter.a).field("lora_B", &adapter.b);
        }
    }

    /// `y`, and what an adapter makes of `x` beside it.
    pub(super) fn forward(&self, y: Tensor, x: &Tensor) -> Result<Tensor> {
        match self.get().filter(|_| !WITHOUT.get()) {
            Some(adapter) => adapter.add_to(&y, x),
            None => Ok(y),
        }
    }

    pub(super) fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        if let Some(adapter) = self.get() {
            visitor.parameter(&join(path, "lora_A.weight"), &adapter.a);
            visitor.parameter(&join(path, "lora_B.weight"), &adapter.b);
            adapter.dropout.visit(&join(path, "lora_dropout"), visitor);
        }
    }
}

/// A linear layer that may have an adapter, as [`Visitor::adaptable`] is shown it.
#[derive(Debug)]
pub struct Adaptable<'a> {
    pub(super) slot: &'a Slot,
    pub(super) engine: &'a Engine,
    /// `[out, in]`.
    pub(super) dims: [usize; 2],
    /// What an adapter can be added to.
    pub(super) weight: Option<&'a Parameter>,
}

/// One of a module.
struct Layer {
    path: String,
    slot: Slot,
    engine: Engine,
    dims: [usize; 2],
    weight: Option<Parameter>,
}

/// The linear layers of a module, and whether one of its parts is in evaluation mode.
#[derive(Default)]
struct Layers(Vec<Layer>, bool);

impl Visitor for Layers {
    fn parameter(&mut self, _path: &str, _parameter: &Parameter) {}

    fn mode(&mut self, _path: &str, mode: &Mode) {
        self.1 |= !mode.is_training();
    }

    fn adaptable(&mut self, path: &str, layer: &Adaptable<'_>) {
        self.0.push(Layer {
            path: path.to_owned(),
            slot: layer.slot.clone(),
            engine: layer.engine.clone(),
            dims: layer.dims,
            weight: layer.weight.cloned(),
        });
    }
}

fn layers(module: &(impl Module + ?Sized)) -> Vec<Layer> {
    let mut layers = Layers::default();
    module.visit("", &mut layers);
    layers.0
}

/// Whether a module trains, as far as its parts say.
fn is_training(module: &(impl Module + ?Sized)) -> bool {
    let mut layers = Layers::default();
    module.visit("", &mut layers);
    !layers.1
}

/// The linear layers of a module that may have an adapter, by name, with the shapes `[out, in]` of their weights.
pub fn adaptable_layers(module: &(impl Module + ?Sized)) -> Vec<(String, [usize; 2])> {
    let layers = layers(module).into_iter();
    layers.map(|layer| (layer.path, layer.dims)).collect()
}

/// The layers of a module that adapters of these settings are for, as [`adaptable_layers`] has them.
///
/// # Errors
/// [`crate::Error::Usage`] for a rank of 0, a scale that is not finite, and a name that no layer has.
#[track_caller]
pub fn targeted(
    module: &(impl Module + ?Sized),
    options: &LoraOptions,
) -> Result<Vec<(String, [usize; 2])>> {
    let layers = wanted(module, options, Location::caller())?.into_iter();
    Ok(layers.map(|layer| (layer.path, layer.dims)).collect())
}

/// As [`targeted`].
fn wanted(
    module: &(impl Module + ?Sized),
    options: &LoraOptions,
    location: Location,
) -> Result<Vec<Layer>> {
    let refused = |message: String| Err(usage_error(message, location));
    if options.r == 0 || !options.scaling().is_finite() {
        let (r, alpha) = (options.r, options.lora_alpha);
        return refused(format!(
            "lora: r must be 1 or more, and lora_alpha finite, not {r} and {alpha}"
        ));
    }
    Dropout::new(options.lora_dropout)?;
    let all = layers(module);
    let is_idle = |target: &&String| !all.iter().any(|layer| is_named(target, &layer.path));
    let idle = options.target_modules.iter().filter(is_idle);
    let idle: Vec<&str> = idle.map(|target| &**target).collect();
    let names = || {
        let names = all.iter().filter_map(|layer| layer.path.rsplit('.').next());
        let names: BTreeSet<&str> = names.collect();
        let names: Vec<&str> = names.into_iter().collect();
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    if !idle.is_empty() || options.target_modules.is_empty() {
        let (idle, names) = (idle.join(", "), names());
        return refused(format!(
            "lora: no linear layer is called {idle}; there are {names}"
        ));
    }
    Ok(all
        .into_iter()
        .filter(|layer| options.targets(&layer.path))
        .collect())
}

/// Freezes a module and gives its linear layers adapters, which train, as PEFT's `get_peft_model`: each answers
/// `weight x + lora_B lora_A dropout(x) lora_alpha / r`. `lora_A` is drawn as PyTorch's linear layers are, `lora_B`
/// is zero, so that nothing changes at first. Adapters are parameters of the module from then on, under the names
/// `lora_A.weight` and `lora_B.weight` of the layer. Answers the names of the layers.
///
/// ```
/// use highwater::nn::{Linear, LoraOptions, add_adapters};
/// use highwater::prelude::*;
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let model = vec![Linear::new(&engine, 64, 64, true)?];
/// let options = LoraOptions { r: 4, ..LoraOptions::default() };
/// assert_eq!(add_adapters(&model, &options)?, ["0"]);
/// let trained = model.parameters().into_iter().filter(|p| p.requires_grad().unwrap_or(false));
/// assert_eq!(trained.map(|p| p.shape().numel()).sum::<usize>(), 2 * 4 * 64);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::Usage`] for a rank of 0, a dropout that is no probability, and where no layer has one of the names or
/// one has an adapter: nothing has changed then. [`crate::Error::State`] if there is no room.
#[track_caller]
pub fn add_adapters(module: &(impl Module + ?Sized), options: &LoraOptions) -> Result<Vec<String>> {
    let location = Location::caller();
    let wanted = wanted(module, options, location)?;
    if let Some(layer) = wanted.iter().find(|layer| layer.slot.get().is_some()) {
        let message = format!("lora: {} has an adapter already", layer.path);
        return Err(usage_error(message, location));
    }
    let adapters = wanted.iter().map(|layer| Adapter::new(layer, options));
    let adapters = adapters.collect::<Result<Vec<_>>>()?;
    module.requires_grad_(false);
    if !is_training(module) {
        for adapter in &adapters {
            adapter.dropout.eval();
        }
    }
    for (layer, adapter) in wanted.iter().zip(adapters) {
        layer.slot.set(Some(adapter));
    }
    module.name_parameters();
    Ok(wanted.into_iter().map(|layer| layer.path).collect())
}

thread_local! {
    /// Whether layers answer as if they had no adapters.
    static WITHOUT: Cell<bool> = const { Cell::new(false) };
}

/// Has layers of this thread answer as if they had no adapters while `f` runs, as PEFT's `disable_adapter()`: the
/// model that adapters were added to is still there.
pub fn without_adapters<R>(f: impl FnOnce() -> R) -> R {
    /// Puts back what was so before, also through a panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            WITHOUT.set(self.0);
        }
    }
    let _restore = Restore(WITHOUT.replace(true));
    f()
}

/// Adds what adapters learnt to the weights, rounded to what those hold, and takes the adapters away, as PEFT's
/// `merge_and_unload`. Weights stay frozen. Answers how many layers had one.
///
/// # Errors
/// [`crate::Error::Usage`] while something pending uses a weight, and for weights in few bits; [`crate::Error::State`] if there is no room for a weight in
/// `F32` beside it. Layers before the one that failed are merged.
#[track_caller]
pub fn merge_adapters(module: &(impl Module + ?Sized)) -> Result<usize> {
    let location = Location::caller();
    let mut merged = 0;
    for layer in layers(module) {
        let Some(adapter) = layer.slot.get() else {
            continue;
        };
        let Some(weight) = &layer.weight else {
            let message = format!(
                "lora: the weight of {} is in few bits, to which nothing is added: merge with what it was made of",
                layer.path
            );
            return Err(usage_error(message, location));
        };
        let sum = crate::no_grad(|| {
            let sum = weight.to_dtype(DType::F32)?.add(&adapter.delta()?)?;
            sum.to_vec::<f32>()
        })?;
        weight.copy_from_slice(&sum)?;
        layer.slot.set(None);
        merged += 1;
    }
    Ok(merged)
}
