//! The weights of a model's folder: read into a model, and what of them waits in its files.

use std::path::Path;

use highwater::nn::reset_magnitudes;
use highwater::{DType, Parameter};
use highwater_memory::files::MemoryFiles;
use highwater_memory::{DiskFiles, FilePart, Files, SharedFile};
use highwater_models::adapter::is_adapter;
use highwater_models::module_file::{file_dtype, read_quantized};
use highwater_models::{CausalLm, WeightsFolder};

use crate::error::Failure;
use crate::state;

/// The parameters that are floats: not what is held in few bits.
fn floats(model: &dyn CausalLm) -> Vec<(String, Parameter)> {
    let held = model.held();
    let mut named = model.named_parameters();
    named.retain(|(name, _)| {
        let is_held = name.rsplit_once('.').is_some_and(|(layer, part)| {
            part != "bias" && held.iter().any(|(held, _)| held == layer)
        });
        !is_held
    });
    named
}

/// Reads the weights of a model's folder, those that are held in few bits row by row. What adapters have stays, but for
/// the magnitudes of DoRA, which are those of the weights again.
///
/// # Errors
/// [`Failure`] for files that are damaged or of another model.
pub fn read(files: &dyn Files, folder: &Path, model: &dyn CausalLm) -> Result<(), Failure> {
    let prefix = model.architecture().base_prefix();
    let mut weights = WeightsFolder::open(files, folder)?;
    let (held, mut named) = (model.held(), floats(model));
    named.retain(|(name, _)| !is_adapter(name));
    state::read_tensors(&mut weights, &named, prefix)?;
    check_head(&mut weights, &named, prefix)?;
    for (layer, held) in &held {
        let name = format!("{layer}.weight");
        let name = state::stored_name(&weights, &name, prefix);
        read_quantized(weights.reader(name)?, name, held)??;
    }
    Ok(reset_magnitudes(model)?)
}

/// That a head which is the token embedding again is that in the files too, where they have it.
fn check_head(
    weights: &mut WeightsFolder<'_>,
    named: &[(String, Parameter)],
    prefix: &str,
) -> Result<(), Failure> {
    const HEAD: &str = "lm_head.weight";
    if named.iter().any(|(name, _)| name == HEAD) || !weights.has(HEAD) {
        return Ok(());
    }
    let embedding = ["model.embed_tokens.weight", "transformer.wte.weight"];
    let Some((name, table)) = named.iter().find(|(name, _)| embedding.contains(&&**name)) else {
        return Ok(());
    };
    let &[rows, width] = table.dims() else {
        return Ok(());
    };
    let own = state::stored_name(weights, name, prefix);
    let (mut one, mut other) = (vec![0.0; width], vec![0.0; width]);
    for row in 0..rows {
        weights
            .reader(HEAD)?
            .read_f32_rows(HEAD, [rows, width], row, &mut one)?;
        weights
            .reader(own)?
            .read_f32_rows(own, [rows, width], row, &mut other)?;
        if one
            .iter()
            .zip(&other)
            .any(|(a, b)| a.to_bits() != b.to_bits())
        {
            let message = format!(
                "{HEAD} is not the token embedding, though config.json has tie_word_embeddings"
            );
            return Err(Failure::usage(message)
                .id("HW1013")
                .hint("say false there, or leave the head out"));
        }
    }
    Ok(())
}

/// Has an engine that only plans know which parameters a folder's files will have: those whose weights are there in
/// the type that the model holds them in. Of a model whose weights are not there yet, what its configuration says.
///
/// # Errors
/// [`Failure`] of the engine.
pub(crate) fn foresee(folder: &Path, model: &dyn CausalLm) -> Result<(), Failure> {
    let (files, prefix) = (DiskFiles, model.architecture().base_prefix());
    let mut weights = WeightsFolder::open(&files, folder).ok();
    let said = said_dtype(&model.architecture().to_json());
    for (name, parameter) in floats(model) {
        let (trains, bytes) = (parameter.requires_grad()?, bytes(&parameter));
        let (dims, dtype) = (parameter.dims(), parameter.dtype());
        let part = match &mut weights {
            _ if trains || is_adapter(&name) => None,
            Some(weights) => {
                let name = state::stored_name(weights, &name, prefix);
                let reader = weights.reader(name).ok();
                reader.and_then(|reader| reader.part(name, dims, file_dtype(dtype)))
            }
            None if said == Some(dtype) => nothing(bytes),
            None => None,
        };
        match part {
            Some(part) => parameter.read_from(part)?,
            // As what is cast while it is read: it has memory of its own from then on.
            None => parameter.with_bytes_mut(|_| ())?,
        }
    }
    Ok(())
}

fn bytes(parameter: &Parameter) -> u64 {
    let width = parameter.dtype().element_bytes().unwrap_or(1);
    parameter.shape().numel() as u64 * width
}

/// So many bytes of a file that nobody reads.
fn nothing(bytes: u64) -> Option<FilePart> {
    let (files, path) = (MemoryFiles::new(), Path::new("/weights"));
    files.create(path).ok()?;
    let file = SharedFile::new(files.open(path).ok()?);
    Some(FilePart::new(file, 0, bytes))
}

/// The type that a configuration says its weights are in; as for `transformers`, floats of 32 bits if it says none.
fn said_dtype(json: &str) -> Option<DType> {
    let config: serde_json::Value = serde_json::from_str(json).ok()?;
    let said = config.get("dtype").or_else(|| config.get("torch_dtype"));
    let Some(said) = said else {
        return Some(DType::F32);
    };
    let all = [DType::F32, DType::BF16, DType::F16];
    all.into_iter().find(|dtype| said == dtype.name())
}
