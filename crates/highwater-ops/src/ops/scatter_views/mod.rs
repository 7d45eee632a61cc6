//! The gradient of views.

mod cpu;
mod reference;

use crate::kernels::checks::one_float_dtype;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::table::{f32_strided, f32s, is_arity, is_attribute, is_dtype, is_shape};
use crate::{Copy, Entry, Fill, Reject, Sample};
use highwater_graph::{Backward, Cost, DType, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// The gradient of a storage from the gradients of views of it: zeros, then
/// `out[layouts[i].position(j)] += g_i[j]` in order of `i`, then of `j`.
///
/// Inputs: for each view its gradient, all of one float dtype, of the view's shape, in any layout.
/// Output: the storage as `[numel]`. Views may overlap, themselves included (a broadcast dimension has
/// stride 0). Each task fills its own part of the output, of a fixed size, so every element's sum
/// has the order given above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScatterViews {
    /// How each view lies in the storage.
    pub layouts: Vec<Layout>,
    /// Elements of the storage.
    pub numel: usize,
}

impl ScatterViews {
    /// Name in the registry.
    pub const NAME: &'static str = "scatter_views";
}

impl Op for ScatterViews {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn hash_attributes(&self, mut hasher: &mut dyn Hasher) {
        self.layouts.hash(&mut hasher);
        self.numel.hash(&mut hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(Self::NAME, inputs, self.layouts.len())?;
        let all: SmallVec<[&Spec; 4]> = inputs.iter().collect();
        let dtype = one_float_dtype(Self::NAME, &all)?;
        for (i, (spec, layout)) in inputs.iter().zip(&self.layouts).enumerate() {
            if spec.shape() != layout.shape() {
                let expected = format!("the shape {} of view {i}", layout.shape());
                let got = spec.shape().to_string();
                return Err(OpError::shape(Self::NAME, expected, got));
            }
            if layout.end() > self.numel {
                return Err(OpError::Attribute {
                    op: Self::NAME,
                    attribute: "layouts",
                    expected: format!("views of a storage of {} elements", self.numel),
                    got: format!("{layout:?}"),
                });
            }
        }
        Ok(smallvec![Spec::contiguous(dtype, [self.numel])])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let elements: usize = inputs.iter().map(|spec| spec.layout.numel()).sum();
        Cost {
            vector_flops: elements as f64,
            ..Cost::elementwise(inputs, outputs, 0.0)
        }
    }

    /// What each view sees of the gradient.
    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(mut grad) = backward.grad(0) else {
            return Ok(());
        };
        if !grad.spec.layout.is_contiguous() {
            grad = backward.emit_one(Copy, &[grad])?;
        }
        for (i, layout) in self.layouts.iter().enumerate() {
            if backward.needs(i) {
                let offset = layout.offset().saturating_add(grad.spec.layout.offset());
                let layout = Layout::strided(layout.shape().clone(), layout.strides(), offset);
                backward.set(i, grad.with_layout(layout));
            }
        }
        Ok(())
    }
}

const ENTRY: Entry = Entry {
    name: ScatterViews::NAME,
    rows: rows_of_floats! { T: [T] -> [T]; cpu::kernel::<T>; Precise::new(reference::reference) },
    reference: reference::reference,
    samples,
    rejects,
};

fn sample(layouts: Vec<Layout>, numel: usize) -> Sample {
    let input = |layout: &Layout| {
        let spec = f32s(layout.shape().clone());
        (spec, Fill::Normal(1.0))
    };
    Sample {
        inputs: layouts.iter().map(input).collect(),
        op: Arc::new(ScatterViews { layouts, numel }),
        tolerance: 1e-6,
    }
}

/// Queries, keys and values as heads `[batch, heads, length, width]` of one packed projection.
fn packed_heads(batch: usize, length: usize, heads: usize, width: usize) -> Vec<Layout> {
    let row = 3 * heads * width;
    let part = |part| {
        let strides = [length * row, width, row, 1];
        Layout::strided(
            [batch, heads, length, width],
            &strides,
            part * heads * width,
        )
    };
    (0..3).map(part).collect()
}

fn samples() -> Vec<Sample> {
    let transposed = f32_strided([37, 130], &[1, 40], 5);
    vec![
        sample(packed_heads(2, 65, 3, 8), 2 * 65 * 72),
        sample(packed_heads(1, 130, 2, 64), 130 * 384),
        sample(vec![Layout::contiguous([130, 131])], 130 * 131),
        sample(vec![Layout::strided([37, 130], &[1, 37], 0)], 37 * 130),
        sample(vec![Layout::strided([37, 130], &[130, 1], 3)], 37 * 130 + 9).input(
            0,
            transposed,
            Fill::Normal(1.0),
        ),
        // A broadcast, a window that overlaps itself, and a scalar over both.
        sample(
            vec![
                Layout::strided([65, 37], &[0, 1], 0),
                Layout::strided([37, 5], &[1, 1], 0),
                Layout::strided([], &[], 2),
            ],
            41,
        )
        .tolerance(1e-5),
        sample(vec![Layout::strided([3, 1, 2, 2], &[100, 9, 3, 7], 1)], 400),
        sample(vec![Layout::contiguous([0, 5])], 7),
        sample(vec![Layout::contiguous([0, 5])], 0),
        sample(Vec::new(), 37),
    ]
}

fn rejects() -> Vec<Reject> {
    let of = |dtype, shape: &[usize]| Spec::contiguous(dtype, shape);
    let reject = |inputs, error| {
        Reject::new(
            ScatterViews {
                layouts: vec![Layout::contiguous([3, 5])],
                numel: 15,
            },
            inputs,
            error,
        )
    };
    let mut rejects = vec![
        reject(Vec::new(), is_arity),
        reject(vec![of(DType::F32, &[5, 3])], is_shape),
        reject(vec![of(DType::I64, &[3, 5])], is_dtype),
    ];
    rejects.push(Reject::new(
        ScatterViews {
            layouts: vec![Layout::strided([3, 5], &[5, 1], 1)],
            numel: 15,
        },
        vec![of(DType::F32, &[3, 5])],
        is_attribute,
    ));
    rejects
}
