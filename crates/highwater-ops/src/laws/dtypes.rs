//! Samples of `F32` in the other float dtypes that an operation has kernels for.

use crate::{Entry, Fill, Row, Sample};
use highwater_graph::{DType, Spec};

/// Largest difference in `F64`, whose kernels are as precise as references.
const PRECISE: f64 = 1e-12;

/// Whether a dtype holds less than `F32`.
pub(super) fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::BF16 | DType::F16)
}

/// The samples, as the entry's other rows take them.
pub(super) fn variants(entry: &Entry, samples: &[Sample]) -> Vec<Sample> {
    let mut variants = Vec::new();
    for sample in samples {
        let mut seen = vec![dtypes(&sample.inputs)];
        for variant in entry.rows.iter().filter_map(|row| variant(row, sample)) {
            let dtypes = dtypes(&variant.inputs);
            if !seen.contains(&dtypes) {
                seen.push(dtypes);
                variants.push(variant);
            }
        }
    }
    variants
}

fn dtypes(inputs: &[(Spec, Fill)]) -> Vec<DType> {
    inputs.iter().map(|(spec, _)| spec.dtype).collect()
}

/// Whether a row is for a sample.
pub(super) fn is_of(row: &Row, sample: &Sample) -> bool {
    let specs: Vec<Spec> = sample.inputs.iter().map(|(spec, _)| spec.clone()).collect();
    let outputs = sample.op.infer(&specs);
    outputs.is_ok_and(|outputs| row.takes(&specs, &outputs))
}

/// A sample whose floats are `F32`, with floats as a row takes them.
fn variant(row: &Row, sample: &Sample) -> Option<Sample> {
    let mut variant = sample.clone();
    let mut floats = Vec::new();
    for ((spec, _), dtype) in variant.inputs.iter_mut().zip(row.input_dtypes()) {
        match spec.dtype {
            DType::F32 if dtype.is_float() => {
                floats.push(dtype);
                spec.dtype = dtype;
            }
            other if other != dtype => return None,
            _ => {}
        }
    }
    if !is_of(row, &variant) {
        return None;
    }
    floats.extend_from_slice(row.output_dtypes());
    if floats.iter().all(|&dtype| dtype == DType::F64) {
        variant.tolerance = PRECISE;
    }
    Some(variant)
}
