//! Low-rank adapters (Hu et al., "LoRA", 2021): what a frozen linear layer learns beside its weight.

use super::adapter::{Adaptable, Adapter, Base, LoraOptions};
use super::{Dropout, Mode, Module, Visitor};
use crate::Result;
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use highwater_graph::{DType, Location};
use std::collections::BTreeSet;

/// The name that stands for all layers.
const ALL: &str = "all-linear";

/// Whether a layer of this name gets an adapter.
fn is_targeted(options: &LoraOptions, path: &str) -> bool {
    let mut targets = options.target_modules.iter();
    targets.any(|target| is_named(target, path))
}

/// Whether a target stands for a layer: by the last parts of its name, as in PEFT.
fn is_named(target: &str, path: &str) -> bool {
    let rest = path.strip_suffix(target);
    target == ALL || rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// One of a module.
struct Layer {
    path: String,
    base: Box<dyn Base>,
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
            base: layer.0.handle(),
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

/// Whether linear layers of a module hold their weights as `[in, out]`: PEFT's `fan_in_fan_out`.
pub fn is_transposed(module: &(impl Module + ?Sized)) -> bool {
    let layers = layers(module);
    layers
        .iter()
        .any(|layer| layer.base.dense().is_some_and(|(_, transposed)| transposed))
}

/// The layers of a module that adapters of these settings are for, by name, with the shapes `[out, in]` of their
/// weights.
///
/// # Errors
/// [`crate::Error::Usage`] for a rank of 0, a scale that is not finite, and a name that no layer has.
#[track_caller]
pub fn targeted(
    module: &(impl Module + ?Sized),
    options: &LoraOptions,
) -> Result<Vec<(String, [usize; 2])>> {
    let layers = wanted(module, options, Location::caller())?.into_iter();
    Ok(layers
        .map(|layer| (layer.path, layer.base.dims()))
        .collect())
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
            "the model has no linear layer called {idle}; it has {names}"
        ));
    }
    Ok(all
        .into_iter()
        .filter(|layer| is_targeted(options, &layer.path))
        .collect())
}

/// Freezes a module and gives its linear layers adapters, which train, as PEFT's `get_peft_model`: each answers
/// `weight x + lora_B lora_A dropout(x) lora_alpha / r`. `lora_A` is drawn as PyTorch's linear layers are, `lora_B`
/// is zero, so that nothing changes at first; with `use_dora` the rows of the sum are brought to trained lengths,
/// `lora_magnitude_vector`, at first those of the weight as it is now ([`reset_magnitudes`] where it is loaded
/// later). Adapters are parameters of the module from then on, under the names
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
    if let Some(layer) = wanted
        .iter()
        .find(|layer| layer.base.slot().get().is_some())
    {
        let message = format!("lora: {} has an adapter already", layer.path);
        return Err(usage_error(message, location));
    }
    let adapters = wanted
        .iter()
        .map(|layer| Adapter::new(&*layer.base, options));
    let adapters = adapters.collect::<Result<Vec<_>>>()?;
    module.requires_grad_(false);
    if !is_training(module) {
        for adapter in &adapters {
            adapter.dropout.eval();
        }
    }
    for (layer, adapter) in wanted.iter().zip(adapters) {
        layer.base.slot().set(Some(adapter));
    }
    module.name_parameters();
    Ok(wanted.into_iter().map(|layer| layer.path).collect())
}

/// Has the adapters of a module know its weights as they are now, where those were loaded after the adapters were
/// made: what `use_dora` trains is the lengths of their rows again. Others have nothing of the weights.
///
/// # Errors
/// As [`Parameter::with_bytes_mut`](crate::Parameter::with_bytes_mut).
#[track_caller]
pub fn reset_magnitudes(module: &(impl Module + ?Sized)) -> Result<()> {
    for layer in layers(module) {
        if let Some(adapter) = layer.base.slot().get() {
            adapter.measure(&*layer.base)?;
        }
    }
    Ok(())
}

/// Adds what adapters learnt to the weights, rounded to what those hold, and takes the adapters away, as PEFT's
/// `merge_and_unload`. Weights stay frozen. Answers how many layers had one.
///
/// # Errors
/// [`crate::Error::Usage`] for weights in few bits; [`crate::Error::State`] if there is no room for a weight in
/// `F32` beside it. Layers before the one that failed are merged.
#[track_caller]
pub fn merge_adapters(module: &(impl Module + ?Sized)) -> Result<usize> {
    let location = Location::caller();
    let mut merged = 0;
    for layer in layers(module) {
        let base = &*layer.base;
        let Some(adapter) = base.slot().get() else {
            continue;
        };
        let Some((weight, is_transposed)) = base.dense() else {
            let message = format!(
                "lora: the weight of {} is in few bits, to which nothing is added: merge with what it was made of",
                layer.path
            );
            return Err(usage_error(message, location));
        };
        let turned = |weight: &Tensor| {
            if is_transposed {
                return weight.transpose(0, 1);
            }
            Ok(weight.clone())
        };
        let sum = crate::no_grad(|| {
            let whole = turned(&weight.to_dtype(DType::F32)?)?;
            turned(&adapter.merged(&whole, base)?)?.to_vec::<f32>()
        })?;
        weight.copy_from_slice(&sum)?;
        base.slot().set(None);
        merged += 1;
    }
    Ok(merged)
}
