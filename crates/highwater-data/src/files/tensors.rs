//! Safetensors files.

use crate::{Array, DataError};
use highwater_graph::DType;
use highwater_memory::{DiskFiles, Files};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::Path;

/// Reads all tensors of a `.safetensors` file, by their names: floats of 16, 32 and 64 bits, `U8`, `BOOL`
/// (bytes of 0 and 1), `U32`, `I16` and `I64`, and `I32`, which becomes 64 bits wide. The file is in memory
/// twice meanwhile.
///
/// # Errors
/// [`DataError::Files`] for a file that cannot be read; [`DataError::Format`] for one that is no such file, and
/// for other types in it.
pub fn read_safetensors(path: impl AsRef<Path>) -> Result<BTreeMap<String, Array>, DataError> {
    read_safetensors_in(&DiskFiles, path.as_ref())
}

/// As [`read_safetensors`], through other files than those of the system.
///
/// # Errors
/// As [`read_safetensors`].
pub fn read_safetensors_in(
    files: &dyn Files,
    path: &Path,
) -> Result<BTreeMap<String, Array>, DataError> {
    let wrong = |problem: String| DataError::format(path, problem);
    let mut file = files.open(path)?;
    let mut bytes = vec![0; file.bytes() as usize];
    file.read_exact_at(0, &mut bytes)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| wrong(error.to_string()))?;
    let mut arrays = BTreeMap::new();
    for (name, view) in tensors.iter() {
        let dtype = match view.dtype() {
            Dtype::F64 => DType::F64,
            Dtype::F32 => DType::F32,
            Dtype::BF16 => DType::BF16,
            Dtype::F16 => DType::F16,
            Dtype::I64 | Dtype::I32 => DType::I64,
            Dtype::I16 => DType::I16,
            Dtype::U32 => DType::U32,
            Dtype::U8 | Dtype::BOOL => DType::U8,
            other => return Err(wrong(format!("{name} is of {other:?}, which is not read"))),
        };
        let data = match view.dtype() {
            Dtype::I32 => {
                let elements = view.data().as_chunks().0.iter();
                let wide = elements.map(|&e| i64::from(i32::from_le_bytes(e)).to_le_bytes());
                wide.flatten().collect()
            }
            _ => view.data().to_vec(),
        };
        let array = Array::from_bytes(dtype, view.shape(), data);
        let array = array.map_err(|error| wrong(format!("{name}: {error}")))?;
        arrays.insert(name.to_owned(), array);
    }
    Ok(arrays)
}
