//! Changing the element type.

mod cpu;

use crate::pointwise::held_bytes;
use crate::{Array, Entry, Fill, Reject, Sample};
use highwater_graph::{Backward, Cost, DType, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// The same numbers in another element type, rounded to nearest, ties to even.
///
/// As `Tensor.to(dtype)`: between `F32`, `F64`, `BF16` and `F16`, and from `I64` and `U32` to `F32`.
/// Too large numbers become infinite. One tensor of any shape and layout; one pass. Backward casts
/// the gradient back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cast {
    /// The element type of the result.
    pub dtype: DType,
}

impl Cast {
    const NAME: &'static str = "cast";

    fn takes(self, from: DType) -> bool {
        let plain = |dtype| matches!(dtype, DType::F32 | DType::F64 | DType::BF16 | DType::F16);
        let whole = matches!(from, DType::I64 | DType::U32) && self.dtype == DType::F32;
        whole || (plain(from) && plain(self.dtype))
    }
}

impl Op for Cast {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        std::hash::Hash::hash(&self.dtype, &mut { hasher });
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(Self::NAME, inputs, 1)?;
        let input = &inputs[0];
        if !self.takes(input.dtype) {
            return Err(OpError::DType {
                op: Self::NAME,
                expected: format!("one that converts to {}", self.dtype),
                got: input.dtype,
            });
        }
        let layout = if input.layout.covers(input.layout.numel()) {
            input.layout.clone()
        } else {
            Layout::contiguous(input.shape().clone())
        };
        Ok(smallvec![Spec {
            dtype: self.dtype,
            layout
        }])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost {
            vector_flops: outputs[0].layout.numel() as f64,
            read_bytes: held_bytes(&inputs[0]),
            written_bytes: outputs[0].bytes(),
            ..Cost::default()
        }
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) {
            let dtype = backward.input(0).spec.dtype;
            let grad = backward.emit_one(Self { dtype }, &[grad])?;
            backward.set(0, grad);
        }
        Ok(())
    }
}

const ENTRY: Entry = Entry {
    name: Cast::NAME,
    rows: cpu::ROWS,
    reference,
    samples,
    rejects,
};

/// The plain reference: the same numbers.
fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Cast = op.downcast().expect("cast");
    let input = inputs[0].clone();
    vec![Array::new(op.dtype, input.shape, input.data)]
}

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::BF16, DType::F16];

/// The largest relative error of rounding to an element type.
fn half_ulp(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2.0_f64.powi(-8),
        DType::F16 => 2.0_f64.powi(-11),
        DType::F32 => 2.0_f64.powi(-24),
        _ => 0.0,
    }
}

fn samples() -> Vec<Sample> {
    let sample = |from, to, layout: &Layout, fill| Sample {
        op: Arc::new(Cast { dtype: to }),
        inputs: vec![(
            Spec {
                dtype: from,
                layout: layout.clone(),
            },
            fill,
        )],
        tolerance: [from, to].map(half_ulp).into_iter().fold(0.0, f64::max),
    };
    let dense = Layout::contiguous([3, 5, 37]);
    let mut samples = Vec::new();
    for (from, to) in FLOATS.iter().flat_map(|&a| FLOATS.map(|b| (a, b))) {
        samples.push(sample(from, to, &dense, Fill::Normal(100.0)));
    }
    let layouts = [
        Layout::contiguous([130, 257]),
        Layout::strided([37, 130], &[1, 37], 0),
        Layout::strided([9, 65], &[130, 2], 3),
        Layout::contiguous([0, 5]),
        Layout::contiguous([]),
    ];
    for layout in &layouts {
        samples.push(sample(DType::F32, DType::BF16, layout, Fill::Normal(1.0)));
        samples.push(sample(DType::BF16, DType::F32, layout, Fill::Normal(1.0)));
    }
    for from in [DType::I64, DType::U32] {
        samples.push(sample(from, DType::F32, &dense, Fill::Indices(1 << 30)));
    }
    samples
}

fn rejects() -> Vec<Reject> {
    let reject = |dtype, inputs, error| Reject {
        op: Arc::new(Cast { dtype }),
        inputs,
        error,
    };
    let spec = |dtype| Spec::contiguous(dtype, [3]);
    let wrong: fn(&OpError) -> bool = |error| matches!(error, OpError::DType { .. });
    vec![
        reject(DType::I64, vec![spec(DType::F32)], wrong),
        reject(DType::BF16, vec![spec(DType::I64)], wrong),
        reject(DType::F32, vec![spec(DType::Bool)], wrong),
        reject(DType::F32, vec![spec(DType::F64); 2], |error| {
            matches!(error, OpError::Arity { .. })
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cpu::Convert;
    use half::{bf16, f16};

    #[test]
    fn rounding_is_to_nearest_even_and_special_values_stay() {
        let mut x = vec![
            1.0 + 1.0 / 256.0,
            1.0 + 3.0 / 256.0,
            65519.0,
            65520.0,
            3.4e38,
            -0.0,
        ];
        x.extend([
            6e-8,
            1e-8,
            1e-40,
            -1e-40,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
        ]);
        x.extend((0..4000_u32).map(|i| f32::from_bits(i.wrapping_mul(0x0132_4567))));
        x.retain(|x| !x.is_nan());
        let (mut b, mut h) = (vec![bf16::ZERO; x.len()], vec![f16::ZERO; x.len()]);
        f32::convert(&x, &mut b);
        f32::convert(&x, &mut h);
        for ((&x, b), h) in x.iter().zip(b).zip(h) {
            assert_eq!(b.to_bits(), bf16::from_f32(x).to_bits(), "{x}");
            assert_eq!(h.to_bits(), f16::from_f32(x).to_bits(), "{x}");
        }
        let mut b = [bf16::ZERO];
        f32::convert(&[f32::from_bits(0x7f80_0001)], &mut b);
        assert!(b[0].is_nan());
    }

    #[test]
    fn doubles_are_rounded_once() {
        // Just above and below the middle of two neighbours, and nearer to it than f32 can tell.
        let (middle, next) = (1.0 + 2.0_f64.powi(-8), 1.0 + 2.0_f64.powi(-7));
        let tiny = 2.0_f64.powi(-40);
        let x = [
            middle - tiny,
            middle,
            middle + tiny,
            -middle - tiny,
            1e300,
            f64::NAN,
        ];
        let mut b = [bf16::ZERO; 6];
        f64::convert(&x, &mut b);
        let bits = |x: f64| bf16::from_f64(x).to_bits();
        let want = [1.0, 1.0, next, -next, f64::INFINITY].map(bits);
        assert_eq!(b[..5].iter().map(|b| b.to_bits()).collect::<Vec<_>>(), want);
        assert!(b[5].is_nan());
        let mut h = [f16::ZERO; 6];
        f64::convert(&[1.0 + 2.0_f64.powi(-11) + tiny; 6], &mut h);
        assert_eq!(h[0].to_bits(), f16::ONE.to_bits() + 1);
    }

    #[test]
    fn widening_is_exact() {
        let b: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        let (mut wide, mut back) = (vec![0.0_f32; b.len()], vec![bf16::ZERO; b.len()]);
        bf16::convert(&b, &mut wide);
        f32::convert(&wide, &mut back);
        for ((b, wide), back) in b.iter().zip(wide).zip(back) {
            let same = wide.to_bits() == b.to_f32().to_bits() && back.to_bits() == b.to_bits();
            assert!(same || (b.is_nan() && wide.is_nan() && back.is_nan()));
        }
    }
}
