//! The parameters and buffers of a module as one `.safetensors` file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use highwater::nn::QuantizedLinear;
use highwater::{DType, Error, Module, Parameter, Result};
use highwater_memory::files::Draft;
use highwater_memory::{DiskFiles, Files};
use safetensors::Dtype;

use crate::files::weights::{
    TensorSpec, WeightsError, WeightsProblem, WeightsReader, WeightsSink, WeightsWriter,
    float_bytes,
};

/// Saves the parameters and buffers of a module under their names, as `safetensors.torch.save_file(model.state_dict())`:
/// all of the file or nothing. A tied parameter stands once.
///
/// # Errors
/// [`Error::Files`] if the file cannot be written; [`Error::Usage`] while an update is pending.
pub fn save<M: Module + ?Sized>(module: &M, path: impl AsRef<Path>) -> Result<()> {
    save_in(&DiskFiles, module, path.as_ref())
}

/// Loads what [`save`] wrote, or any file with just these tensors, as `load_state_dict(strict=True)`. Floats
/// of another width become those of the parameter where it holds `f32`.
///
/// # Errors
/// [`Error::Files`] for a file that cannot be read; [`Error::Saved`] for one that is damaged, or has other
/// names or shapes: nothing was loaded then; what stops the evaluation of what is pending.
/// The count of batches that PyTorch's batch norms keep as a whole number becomes a float here.
pub fn load<M: Module + ?Sized>(module: &M, path: impl AsRef<Path>) -> Result<()> {
    load_in(&DiskFiles, module, path.as_ref(), Head::Loaded)?;
    Ok(())
}

/// Parameters and buffers, by their names.
///
/// # Errors
/// [`Error::Saved`] if two of them have one name.
fn named<M: Module + ?Sized>(module: &M) -> Result<Vec<(String, Parameter)>> {
    let buffers = module.named_buffers().into_iter().map(|(name, _)| name);
    let parameters = module.named_parameters().into_iter().map(|(name, _)| name);
    let mut seen = BTreeSet::new();
    for name in parameters.chain(buffers) {
        if !seen.insert(name.clone()) {
            return Err(Error::Saved(format!(
                "the module has two parameters or buffers of the name `{name}`\n  hint: show them under different \
                 names in its `visit`"
            )));
        }
    }
    Ok(module.state_dict().into_iter().collect())
}

fn save_in<M: Module + ?Sized>(files: &dyn Files, module: &M, path: &Path) -> Result<()> {
    write_file(files, &named(module)?, path)
}

/// Writes tensors as a file: all of it or nothing.
pub(crate) fn write_file(
    files: &dyn Files,
    tensors: &[(String, Parameter)],
    path: &Path,
) -> Result<()> {
    let (draft, file) = Draft::file(files, path)?;
    let written = write_tensors(file, path, tensors)?;
    written.map_err(told)?;
    Ok(draft.persist()?)
}

/// What becomes of a model's last layer, whose parameters' names begin so.
#[derive(Clone, Copy)]
pub(crate) enum Head<'a> {
    /// It is loaded as all else is.
    Loaded,
    /// Parameters that the file does not have, or has in another shape, keep their values.
    IfSame(&'a str),
    /// All of its parameters keep their values.
    Kept(&'a str),
}

/// Loads a file. Names of the last layer that kept their values are returned.
pub(crate) fn load_in<M: Module + ?Sized>(
    files: &dyn Files,
    module: &M,
    path: &Path,
    head: Head<'_>,
) -> Result<Vec<String>> {
    let mut named = named(module)?;
    let mut reader = WeightsReader::open(files, path).map_err(told)?;
    let names: Vec<&String> = named.iter().map(|(name, _)| name).collect();
    let wrong = |problem: String| Error::Saved(format!("{}: {problem}", path.display()));
    if let Some(name) = reader.tensors().keys().find(|name| !names.contains(name)) {
        return Err(wrong(format!(
            "`{name}` is unexpected: the model has no such parameter"
        )));
    }
    let mut left = Vec::new();
    named.retain(|(name, parameter)| {
        let found = reader.tensors().get(name);
        // Files of PyTorch before 0.4.1 lack it, and PyTorch loads them: it is as it was then.
        if found.is_none() && name.ends_with(".num_batches_tracked") {
            return false;
        }
        let same = found.is_some_and(|info| info.shape == parameter.dims());
        let own = match head {
            Head::Loaded => false,
            Head::IfSame(head) => !same && name.starts_with(head),
            Head::Kept(head) => name.starts_with(head),
        };
        left.extend(own.then(|| name.clone()));
        !own
    });
    for (name, parameter) in &named {
        let Some(info) = reader.tensors().get(name) else {
            return Err(wrong(format!("`{name}` is missing")));
        };
        let shape = parameter.shape();
        if info.shape != parameter.dims() {
            return Err(wrong(format!(
                "`{name}` has the shape {:?}, not {shape}",
                info.shape
            )));
        }
        let dtype = parameter.dtype();
        let fits = if dtype.is_float() {
            float_bytes(info.dtype).is_some() || is_count(info.dtype, parameter)
        } else {
            info.dtype == file_dtype(dtype)
        };
        if !fits {
            return Err(wrong(format!(
                "`{name}` holds {:?}, not {dtype}",
                info.dtype
            )));
        }
    }
    for (name, parameter) in &named {
        read_tensor(&mut reader, name, parameter)?.map_err(told)?;
    }
    Ok(left)
}

/// Reads a tensor of a file straight to where it lies: floats of any kind as what the parameter holds, rounded to
/// nearest even, whole numbers as they are. Errors of the file are the inner ones.
///
/// # Errors
/// what stops the evaluation of what is pending; [`WeightsError`] for a tensor that is missing, of
/// another shape, or of whole numbers where floats are needed.
pub fn read_tensor(
    reader: &mut WeightsReader,
    name: &str,
    parameter: &Parameter,
) -> Result<Result<(), WeightsError>> {
    let (dtype, dims) = (file_dtype(parameter.dtype()), parameter.dims());
    let stored = reader.tensors().get(name).map(|info| info.dtype);
    if stored.is_some_and(|stored| is_count(stored, parameter)) {
        let mut count = [0; 8];
        let read = reader.read_bytes(name, &mut count);
        parameter.with_values_mut(|own| own.fill(i64::from_le_bytes(count) as f32))?;
        return Ok(read);
    }
    if !parameter.requires_grad()?
        && let Some(part) = reader.part(name, dims, dtype)
    {
        return parameter.read_from(part).map(Ok);
    }
    if parameter.dtype().is_float() {
        parameter.with_bytes_mut(|own| reader.read_floats(name, dims, dtype, own))
    } else {
        parameter.with_bytes_mut(|own| reader.read_bytes(name, own))
    }
}

/// Reads a weight that a layer holds in few bits, a row at a time. Errors of the file are the inner ones.
///
/// # Errors
/// As [`read_tensor`].
pub fn read_quantized(
    reader: &mut WeightsReader,
    name: &str,
    layer: &QuantizedLinear,
) -> Result<Result<(), WeightsError>> {
    let (shape, mut read) = (layer.weight_shape(), Ok(()));
    layer.fill(|row, values| {
        if read.is_ok() {
            read = reader.read_f32_rows(name, shape, row, values);
        }
    })?;
    Ok(read)
}

/// Whether a file has a whole number where the module has a single float: the batches that PyTorch's batch norms
/// count, `num_batches_tracked`.
fn is_count(stored: Dtype, parameter: &Parameter) -> bool {
    stored == Dtype::I64 && parameter.dtype() == DType::F32 && parameter.shape().rank() == 0
}

/// Writes tensors as a safetensors file that is open already, one after the other without a copy. Errors of
/// the file, the inner ones, name it `path`.
///
/// # Errors
/// [`Error::Usage`] while an update is pending; [`WeightsError`] if the file cannot be written.
pub fn write_tensors<W: WeightsSink>(
    file: W,
    path: &Path,
    tensors: &[(String, Parameter)],
) -> Result<Result<(), WeightsError>> {
    let spec = |(name, parameter): &(String, Parameter)| TensorSpec {
        name: name.clone(),
        dtype: file_dtype(parameter.dtype()),
        shape: parameter.dims().to_vec(),
    };
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let specs = tensors.iter().map(spec).collect();
    let mut writer = match WeightsWriter::begin(file, path, specs, &metadata) {
        Ok(writer) => writer,
        Err(error) => return Ok(Err(error)),
    };
    for (name, parameter) in tensors {
        if let Err(error) = parameter.with_bytes(|bytes| writer.write_bytes(name, bytes))? {
            return Ok(Err(error));
        }
    }
    Ok(writer.finish())
}

/// What a parameter's elements are called in a file.
pub fn file_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::BF16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        DType::I64 => Dtype::I64,
        DType::I16 => Dtype::I16,
        DType::U32 => Dtype::U32,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
        _ => Dtype::F32,
    }
}

pub(crate) fn told(error: WeightsError) -> Error {
    match error.problem {
        WeightsProblem::Files(error) => Error::Files(error),
        _ => Error::Saved(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater::Engine;
    use highwater::nn::Linear;
    use highwater_memory::files::MemoryFiles;

    fn linear(inputs: usize, seed: u64) -> Linear {
        let engine = Engine::builder().threads(1).arena(1 << 20).seed(seed);
        Linear::new(&engine.build().unwrap(), inputs, 3, true).unwrap()
    }

    fn values(linear: &Linear) -> Vec<f32> {
        let parameters = linear.parameters();
        parameters
            .iter()
            .flat_map(|p| p.to_vec::<f32>().unwrap())
            .collect()
    }

    struct Twice(Linear, Linear);

    impl Module for Twice {
        fn visit(&self, path: &str, visitor: &mut dyn highwater::nn::Visitor) {
            self.0.visit(path, visitor);
            self.1.visit(path, visitor);
        }
    }

    #[test]
    fn a_name_that_is_there_twice_is_refused() {
        let (files, path) = (MemoryFiles::new(), Path::new("/a.safetensors"));
        let refused = |result: Result<()>| {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("of the name `weight`"), "{error}");
        };
        let twice = Twice(linear(2, 1), linear(2, 2));
        refused(save_in(&files, &twice, path));
        assert!(files.metadata(path).unwrap().is_none());
        save_in(&files, &twice.0, path).unwrap();
        refused(load_in(&files, &twice, path, Head::Loaded).map(drop));
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let (files, path) = (MemoryFiles::new(), Path::new("/a.safetensors"));
        let (one, other) = (linear(4, 1), linear(4, 2));
        save_in(&files, &one, path).unwrap();
        assert_ne!(values(&one), values(&other));
        load_in(&files, &other, path, Head::Loaded).unwrap();
        assert_eq!(values(&one), values(&other));
        assert_eq!(files.list_dir(Path::new("/")).unwrap().len(), 1);
    }

    #[test]
    fn another_model_is_refused_and_keeps_its_values() {
        let (files, path) = (MemoryFiles::new(), Path::new("/a.safetensors"));
        save_in(&files, &linear(4, 1), path).unwrap();
        let wide = linear(5, 2);
        let before = values(&wide);
        let refused = load_in(&files, &wide, path, Head::Loaded)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("/a.safetensors: `weight` has the shape [3, 4], not [3, 5]"),
            "{refused}"
        );
        assert_eq!(values(&wide), before);
        let both = vec![linear(4, 1), linear(4, 2)];
        let refused = load_in(&files, &both, path, Head::Loaded)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("is unexpected"), "{refused}");
        save_in(&files, &both, path).unwrap();
        let missing = vec![linear(4, 1), linear(4, 2), linear(4, 3)];
        let refused = load_in(&files, &missing, path, Head::Loaded)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("`2.bias` is missing"), "{refused}");
        let nowhere = load_in(&files, &wide, Path::new("/none"), Head::Loaded).unwrap_err();
        assert!(matches!(nowhere, Error::Files(_)), "{nowhere}");
    }
}
