//! Adapters as PEFT keeps them: a folder of `adapter_config.json` and `adapter_model.safetensors`.

mod files;
mod layers;
mod low_rank;
mod merge;
mod settings;

use std::collections::BTreeSet;
use std::path::Path;

use highwater::nn::{LoraOptions, add_adapters, is_transposed, targeted};
use highwater::{Error, Module, Parameter, Result};
use highwater_memory::Files;
use highwater_memory::saved::write_atomic;
use serde_json::json;

pub use merge::{Merge, MergeError};
use settings::Settings;

use crate::files::module_file::{read_tensor, told, write_file};
use crate::files::weights::WeightsReader;
use crate::language::config::{ConfigError, read};

/// The settings' file.
pub const CONFIG: &str = "adapter_config.json";
/// The weights' file.
pub const WEIGHTS: &str = "adapter_model.safetensors";
/// What PEFT's names of parameters begin with.
const PREFIX: &str = "base_model.model.";

/// The parameters of a module's adapters, by PEFT's names.
pub fn adapter_parameters<M: Module + ?Sized>(module: &M) -> Vec<(String, Parameter)> {
    let named = module.named_parameters().into_iter();
    let adapters = named.filter(|(name, _)| is_adapter(name));
    adapters
        .map(|(name, parameter)| (format!("{PREFIX}{name}"), parameter))
        .collect()
}

/// Whether a parameter is an adapter's, by its name in the module.
pub fn is_adapter(name: &str) -> bool {
    let parts = [".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"];
    parts.iter().any(|part| name.ends_with(part))
}

/// Writes a module's adapters as `PeftModel.save_pretrained` does: a folder that PEFT loads beside the model that
/// they were trained for, which `base` names.
///
/// # Errors
/// [`Error::Files`] if a file cannot be written; [`Error::Usage`] while an update is pending.
pub fn save_adapter<M: Module + ?Sized>(
    files: &dyn Files,
    folder: &Path,
    module: &M,
    options: &LoraOptions,
    base: Option<&str>,
) -> Result<()> {
    let config = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": options.r,
        "lora_alpha": options.lora_alpha,
        "lora_dropout": options.lora_dropout,
        "target_modules": target_modules(module),
        "use_rslora": options.use_rslora,
        "use_dora": options.use_dora,
        "bias": "none",
        "fan_in_fan_out": is_transposed(module),
        "init_lora_weights": true,
        "inference_mode": true,
        "modules_to_save": null,
    });
    files.create_dir_all(folder)?;
    write_file(files, &adapter_parameters(module), &folder.join(WEIGHTS))?;
    // A map with string keys and finite numbers always has a JSON form.
    let json = serde_json::to_string_pretty(&config).unwrap_or_default() + "\n";
    write_atomic(files, &folder.join(CONFIG), json.as_bytes())
        .map_err(|error| Error::Saved(error.to_string()))
}

/// The layers of a module that have an adapter: the last parts of their names, where those stand for no others, else
/// their whole names.
fn target_modules<M: Module + ?Sized>(module: &M) -> Vec<String> {
    let named = module.named_parameters();
    let layers = named
        .iter()
        .filter_map(|(name, _)| name.strip_suffix(".lora_A.weight"));
    let layers: Vec<String> = layers.map(str::to_owned).collect();
    let last = |path: &String| path.rsplit('.').next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = layers.iter().map(last).collect();
    names.sort_unstable();
    names.dedup();
    let options = LoraOptions {
        target_modules: names.clone(),
        ..LoraOptions::default()
    };
    let found = targeted(module, &options);
    match found {
        Ok(found) if found.len() == layers.len() => names,
        _ => layers,
    }
}

/// Reads the `adapter_config.json` of a folder.
///
/// # Errors
/// [`ConfigError`], naming the file and the field: also for adapters of another kind, of which nothing is built
/// here.
pub fn read_adapter(
    files: &dyn Files,
    folder: &Path,
) -> std::result::Result<LoraOptions, ConfigError> {
    read(files, &folder.join(CONFIG), |text| {
        Settings::of(text)?.plain()
    })
}

/// Gives a module the adapters of a folder: [`add_adapters`] by its settings, and its weights. Answers the names
/// of the layers.
///
/// # Errors
/// [`Error::Saved`] for a file that is damaged or is of another model, [`Error::Files`] for one that cannot be
/// read; else as [`add_adapters`].
pub fn load_adapter<M: Module + ?Sized>(
    files: &dyn Files,
    folder: &Path,
    module: &M,
) -> Result<Vec<String>> {
    let options = read_adapter(files, folder).map_err(|error| Error::Saved(error.to_string()))?;
    let layers = targeted(module, &options)?;
    let path = folder.join(WEIGHTS);
    let mut reader = WeightsReader::open(files, &path).map_err(told)?;
    let wrong = |problem: String| Error::Saved(format!("{}: {problem}", path.display()));
    let mut left: BTreeSet<&String> = reader.tensors().keys().collect();
    for (layer, [outputs, inputs]) in &layers {
        let parts = [
            ("A.weight", vec![options.r, *inputs]),
            ("B.weight", vec![*outputs, options.r]),
            ("magnitude_vector", vec![*outputs]),
        ];
        for (part, shape) in &parts[..if options.use_dora { 3 } else { 2 }] {
            let name = format!("{PREFIX}{layer}.lora_{part}");
            let found = reader.tensors().get(&name).map(|info| &info.shape[..]);
            if found != Some(&shape[..]) {
                let found =
                    found.map_or("missing".to_owned(), |found| format!("of shape {found:?}"));
                return Err(wrong(format!(
                    "`{name}` is {found}; the model's has the shape {shape:?}"
                )));
            }
            left.remove(&name);
        }
    }
    if let Some(name) = left.first() {
        return Err(wrong(format!(
            "`{name}` is unexpected: the model has no such adapter"
        )));
    }
    let layers = add_adapters(module, &options)?;
    for (name, parameter) in adapter_parameters(module) {
        read_tensor(&mut reader, &name, &parameter)?.map_err(told)?;
    }
    Ok(layers)
}
