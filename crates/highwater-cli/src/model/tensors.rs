//! Tensors of files, read straight to where they lie.

use highwater::Parameter;
use highwater_models::WeightsFolder;
use highwater_models::module_file::read_tensor;

use crate::error::Failure;

/// Reads tensors straight to where they lie.
///
/// # Errors
/// [`Failure`] if the file is damaged or its tensors are not these.
pub fn read_tensors(
    weights: &mut WeightsFolder<'_>,
    tensors: &[(String, Parameter)],
    base_prefix: &str,
) -> Result<(), Failure> {
    for (name, parameter) in tensors {
        // Hugging Face's base models leave out the prefix.
        let short = name.strip_prefix(base_prefix).unwrap_or(name);
        let name: &str = if weights.has(name) { name } else { short };
        read_tensor(weights.reader(name)?, name, parameter)??;
    }
    Ok(())
}
