//! Contents of tensors: numbers of samples, and their encoding in bytes.

use crate::{Array, Fill};
use half::{bf16, f16};
use highwater_graph::{DType, Layout, Spec};

/// Random numbers: splitmix64.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A normal deviate, by Box and Muller.
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    fn draw(&mut self, fill: Fill) -> f64 {
        match fill {
            Fill::Normal(scale) => self.normal() * scale,
            Fill::Uniform(low, high) => low + (high - low) * self.uniform(),
            Fill::Labels(_) if self.next().is_multiple_of(4) => -100.0,
            Fill::Indices(below) | Fill::Labels(below) => {
                (self.next() % below.max(1) as u64) as f64
            }
            Fill::Constant(value) => value,
        }
    }
}

/// The storage of an input, exactly as long as its layout reaches. What the layout leaves out is
/// NaN, or for whole numbers one that no operation takes.
pub(super) fn storage(spec: &Spec, fill: Fill, numbers: &mut Numbers) -> Vec<f64> {
    let canary = match spec.dtype {
        DType::I64 => -1e15,
        DType::I16 => -32768.0,
        dtype if dtype.is_float() => f64::NAN,
        _ => 255.0,
    };
    let mut storage = vec![canary; spec.layout.end()];
    for position in spec.layout.positions() {
        storage[position] = round(spec.dtype, numbers.draw(fill));
    }
    storage
}

/// The elements that a layout sees, in logical order.
pub(crate) fn gather(spec: &Spec, storage: &[f64]) -> Array {
    let data = spec.layout.positions().map(|p| storage[p]).collect();
    Array::new(spec.dtype, spec.shape().clone(), data)
}

/// Puts elements in logical order where a layout has them.
pub(crate) fn scatter(layout: &Layout, data: &[f64], storage: &mut [f64]) {
    for (position, &x) in layout.positions().zip(data) {
        storage[position] = x;
    }
}

/// The number as a dtype holds it.
pub(crate) fn round(dtype: DType, x: f64) -> f64 {
    decode(dtype, &encode(dtype, &[x]))[0]
}

/// Numbers as bytes of a dtype.
pub(crate) fn encode(dtype: DType, data: &[f64]) -> Vec<u8> {
    fn bytes<const N: usize>(data: &[f64], f: impl Fn(f64) -> [u8; N]) -> Vec<u8> {
        data.iter().flat_map(|&x| f(x)).collect()
    }
    match dtype {
        DType::F32 => bytes(data, |x| (x as f32).to_ne_bytes()),
        DType::F64 => bytes(data, f64::to_ne_bytes),
        DType::BF16 => bytes(data, |x| bf16::from_f64(x).to_ne_bytes()),
        DType::F16 => bytes(data, |x| f16::from_f64(x).to_ne_bytes()),
        DType::I64 => bytes(data, |x| (x as i64).to_ne_bytes()),
        DType::I16 => bytes(data, |x| (x as i16).to_ne_bytes()),
        DType::U32 => bytes(data, |x| (x as u32).to_ne_bytes()),
        DType::U8 | DType::Bool => bytes(data, |x| [x as u8]),
        _ => panic!("the laws cannot fill tensors of {dtype}"),
    }
}

/// Bytes of a dtype as numbers.
pub(crate) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn numbers<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        let (words, _) = bytes.as_chunks::<N>();
        words.iter().map(|&word| f(word)).collect()
    }
    match dtype {
        DType::F32 => numbers(bytes, |x| f64::from(f32::from_ne_bytes(x))),
        DType::F64 => numbers(bytes, f64::from_ne_bytes),
        DType::BF16 => numbers(bytes, |x| bf16::from_ne_bytes(x).to_f64()),
        DType::F16 => numbers(bytes, |x| f16::from_ne_bytes(x).to_f64()),
        DType::I64 => numbers(bytes, |x| i64::from_ne_bytes(x) as f64),
        DType::I16 => numbers(bytes, |x| f64::from(i16::from_ne_bytes(x))),
        DType::U32 => numbers(bytes, |x| f64::from(u32::from_ne_bytes(x))),
        DType::U8 | DType::Bool => numbers(bytes, |[x]| f64::from(x)),
        _ => panic!("the laws cannot read tensors of {dtype}"),
    }
}
