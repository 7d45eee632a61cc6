//! Element types and how many bytes a tensor of one takes.

use crate::Shape;

/// Element type of a tensor. The size of a tensor is always [`DType::bytes`], never
/// `numel * size`, so that block formats have their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// Brain float: the upper half of an `F32`.
    BF16,
    /// IEEE 754 half precision.
    F16,
    /// Signed 64-bit integer.
    I64,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned byte.
    U8,
    /// Truth value, one byte.
    Bool,
    /// Blocks of signed bytes along the flattened tensor, one `F32` scale per block.
    I8Block {
        /// Elements per block.
        block: u32,
    },
}

impl DType {
    /// Bytes that a tensor of `shape` takes: `numel` times the element's size, or for block
    /// formats whole blocks with their scales. Saturates at `u64::MAX`.
    pub fn bytes(self, shape: &Shape) -> u64 {
        let numel = shape.numel() as u64;
        match self {
            Self::I8Block { block } => {
                let block = u64::from(block.max(1));
                numel.div_ceil(block).saturating_mul(block + 4)
            }
            _ => numel.saturating_mul(self.element_bytes().unwrap_or(1)),
        }
    }

    /// Bytes of one element; `None` for block formats, whose elements have no address.
    pub const fn element_bytes(self) -> Option<u64> {
        match self {
            Self::F64 | Self::I64 => Some(8),
            Self::F32 | Self::U32 => Some(4),
            Self::BF16 | Self::F16 | Self::I16 => Some(2),
            Self::U8 | Self::Bool => Some(1),
            Self::I8Block { .. } => None,
        }
    }

    /// Whether gradients can flow through tensors of this type.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::BF16 | Self::F16)
    }

    /// PyTorch's short name: `float32`, `bfloat16`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::BF16 => "bfloat16",
            Self::F16 => "float16",
            Self::I64 => "int64",
            Self::I16 => "int16",
            Self::U32 => "uint32",
            Self::U8 => "uint8",
            Self::Bool => "bool",
            Self::I8Block { .. } => "int8_block",
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_formats_count_whole_blocks_and_scales() {
        let shape = Shape::from([3, 33]);
        assert_eq!(DType::F32.bytes(&shape), 396);
        assert_eq!(DType::BF16.bytes(&shape), 198);
        assert_eq!(DType::I8Block { block: 32 }.bytes(&shape), 4 * 36);
        assert_eq!(DType::F32.bytes(&Shape::from([0, 5])), 0);
        assert_eq!(DType::F32.bytes(&Shape::scalar()), 4);
    }
}
