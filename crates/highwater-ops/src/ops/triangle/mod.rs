//! Triangles of matrices: `tril` and `triu`.

mod cpu;
mod reference;

use crate::kernels::checks::of_elements;
use crate::kernels::rows::rows_of_each_dtype;
use crate::ops::gradients;
use crate::table::{f32_strided, f32s, is_arity, is_dtype, is_shape};
use crate::{Entry, Fill, Reject, Sample};
use highwater_graph::{Backward, Cost, DType, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::ops::Range;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[TRIL, TRIU];

/// One side of a diagonal of the last two dimensions, and zeros on the other.
///
/// As `torch.tril` and `torch.triu`: one tensor of two dimensions or more, of any dtype but block formats
/// and of any layout; the result is row-major. The diagonal itself is kept. Gradients are cut likewise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Triangle {
    /// Whether the part above the diagonal stays (`triu`) rather than the one below (`tril`).
    pub upper: bool,
    /// Which diagonal: its elements' column less their row.
    pub diagonal: i64,
}

impl Triangle {
    /// Which columns of a row of `width` elements stay.
    fn kept(self, row: usize, width: usize) -> Range<usize> {
        let on_diagonal = (row as i64).saturating_add(self.diagonal);
        let below = |column: i64| column.clamp(0, width as i64) as usize;
        if self.upper {
            below(on_diagonal)..width
        } else {
            0..below(on_diagonal.saturating_add(1))
        }
    }
}

const TRIL: Entry = Entry {
    name: "tril",
    rows: rows_of_each_dtype!(cpu::triangle),
    reference: reference::triangle,
    samples: || samples(false),
    rejects: || rejects(false),
};

const TRIU: Entry = Entry {
    name: "triu",
    rows: rows_of_each_dtype!(cpu::triangle),
    reference: reference::triangle,
    samples: || samples(true),
    rejects: || rejects(true),
};

impl Op for Triangle {
    fn name(&self) -> &'static str {
        if self.upper { TRIU.name } else { TRIL.name }
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(self.upper.into());
        hasher.write_i64(self.diagonal);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        let dtype = of_elements(self.name(), &inputs[0])?;
        let shape = inputs[0].shape();
        if shape.rank() < 2 {
            let expected = "two dimensions or more";
            return Err(OpError::shape(self.name(), expected, shape.to_string()));
        }
        Ok(smallvec![Spec::contiguous(dtype, shape.clone())])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 0.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_grad(backward, *self)
    }
}

fn samples(upper: bool) -> Vec<Sample> {
    let of = |diagonal, shape: &[usize]| {
        Sample::new(Triangle { upper, diagonal }, &[shape]).tolerance(0.0)
    };
    let whole = |dtype| {
        let fill = Fill::Indices(if dtype == DType::Bool { 2 } else { 100 });
        of(0, &[5, 5]).input(0, Spec::contiguous(dtype, [5, 5]), fill)
    };
    let mut samples = vec![
        of(0, &[7, 7]),
        of(-2, &[37, 65]),
        of(3, &[65, 37]),
        of(1, &[130, 300]),
        of(-1, &[2, 3, 9, 9]),
        of(i64::MAX, &[4, 5]),
        of(i64::MIN, &[4, 5]),
        of(0, &[0, 5]),
        of(0, &[3, 0]),
        of(0, &[37, 65]).input(0, f32_strided([37, 65], &[1, 40], 2), Fill::Normal(1.0)),
    ];
    let dtypes = [DType::I64, DType::I16, DType::U32, DType::U8, DType::Bool];
    samples.extend(dtypes.map(whole));
    samples
}

fn rejects(upper: bool) -> Vec<Reject> {
    let reject = |inputs, error| Reject::new(Triangle { upper, diagonal: 0 }, inputs, error);
    vec![
        reject(vec![f32s([3])], is_shape),
        reject(vec![f32s([3, 3]); 2], is_arity),
        reject(
            vec![Spec::contiguous(DType::I8Block { block: 4 }, [4, 4])],
            is_dtype,
        ),
    ]
}
