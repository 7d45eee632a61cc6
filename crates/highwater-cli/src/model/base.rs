//! The weights of a model's folder: read into a model, and what of them waits in its files.

use std::path::{Path, PathBuf};

use highwater::nn::reset_magnitudes;
use highwater::{DType, Parameter};
use highwater_memory::files::MemoryFiles;
use highwater_memory::{DiskFiles, FilePart, Files, SharedFile};
use highwater_models::adapter::is_adapter;
use highwater_models::module_file::{file_dtype, read_quantized, read_tensor};
use highwater_models::{CausalLm, Layout, WeightsFolder};

use crate::error::{Code, Failure};
use crate::folder::model_folder;

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

/// The tensors that a model's folder is to have, by name and shape.
fn expected(model: &dyn CausalLm) -> Vec<(String, Vec<usize>)> {
    let mut floats = floats(model);
    floats.retain(|(name, _)| !is_adapter(name));
    let floats = floats.into_iter();
    let floats = floats.map(|(name, parameter)| (name, parameter.dims().to_vec()));
    let held = model.held().into_iter();
    let held = held.map(|(name, held)| (format!("{name}.weight"), held.weight_shape().to_vec()));
    floats.chain(held).collect()
}

/// Finds a model's tensors in its folder, by the headers of the files.
fn layout(weights: &mut WeightsFolder<'_>, model: &dyn CausalLm) -> Result<Layout, Failure> {
    Ok(Layout::of(weights, model.architecture(), &expected(model))?)
}

/// Reads the weights of a model's folder, those that are held in few bits row by row. What adapters have stays, but for
/// the magnitudes of DoRA, which are those of the weights again. Returns a note on tensors that the model has no place
/// for, if there are some.
///
/// # Errors
/// [`Failure`] for files that are damaged or of another model.
pub fn read(
    files: &dyn Files,
    folder: &Path,
    model: &dyn CausalLm,
) -> Result<Option<String>, Failure> {
    let mut weights = WeightsFolder::open(files, folder)?;
    let layout = layout(&mut weights, model)?;
    layout.check_tied(&mut weights)?;
    for (name, parameter) in floats(model) {
        if !is_adapter(&name) {
            let name = layout.stored(&name);
            read_tensor(weights.reader(name)?, name, &parameter)??;
        }
    }
    for (layer, held) in &model.held() {
        let name = format!("{layer}.weight");
        let name = layout.stored(&name);
        read_quantized(weights.reader(name)?, name, held)??;
    }
    reset_magnitudes(model)?;
    Ok(layout.note())
}

/// Says what numbers that are not finite come from, where the weights that a model was read from have such: `failure`
/// as it is otherwise.
pub fn explain(files: &dyn Files, weights: &[PathBuf], failure: Failure) -> Failure {
    if failure.code() != Code::NonFinite as u8 {
        return failure;
    }
    let found = weights.iter().find_map(|path| {
        let is_dir = files.metadata(path).ok()??.is_dir;
        let opened = if is_dir {
            WeightsFolder::open(files, path)
        } else {
            WeightsFolder::of_file(files, path)
        };
        opened.ok()?.not_finite().ok()?
    });
    match found {
        Some(found) => Failure::new(Code::NonFinite, found.to_string())
            .id("HW1013")
            .hint(
                "download or train the weights again: with these, all results are NaN or infinite",
            ),
        None => failure,
    }
}

/// Has an engine that only plans know which parameters a folder's files will have: those whose weights are there in
/// the type that the model holds them in. Of a model whose weights are not there yet, what its configuration says.
///
/// # Errors
/// [`Failure`] of the engine, and for weights that are not this model's: before anything is loaded.
pub(crate) fn foresee(folder: &Path, model: &dyn CausalLm) -> Result<(), Failure> {
    let files = DiskFiles;
    let mut weights = open_complete(&files, folder)?;
    let layout = weights.as_mut().map(|weights| layout(weights, model));
    let layout = layout.transpose()?.unwrap_or_default();
    let said = said_dtype(&model.architecture().to_json());
    for (name, parameter) in floats(model) {
        let (trains, bytes) = (parameter.requires_grad()?, bytes(&parameter));
        let (dims, dtype) = (parameter.dims(), parameter.dtype());
        let part = match &mut weights {
            _ if trains || is_adapter(&name) => None,
            Some(weights) => {
                let name = layout.stored(&name);
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

/// Checks by the headers of a folder's files that they have a model's weights, as far as they are there.
///
/// # Errors
/// [`Failure`] for files that are damaged or of another model.
pub(crate) fn check(folder: &Path, model: &dyn CausalLm) -> Result<(), Failure> {
    let files = DiskFiles;
    let weights = open_complete(&files, folder)?;
    weights.map_or(Ok(()), |mut weights| layout(&mut weights, model).map(drop))
}

/// The weights of a folder, if all of their files are there: others may be on their way.
fn open_complete<'a>(
    files: &'a dyn Files,
    folder: &Path,
) -> Result<Option<WeightsFolder<'a>>, Failure> {
    let is_dir = files.metadata(folder)?.is_some_and(|found| found.is_dir);
    if !(is_dir && model_folder::has_weights(files, folder)?) {
        return Ok(None);
    }
    let weights = WeightsFolder::open(files, folder)?;
    for path in weights.paths() {
        if files.metadata(&path)?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(weights))
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
