//! Arrays on the heap.

use crate::DataError;
use highwater_graph::{DType, Shape};
use highwater_ops::Element;
use std::fmt;

/// Elements of one type in a shape, row after row, on the heap: what samples and batches are made of.
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    dtype: DType,
    shape: Shape,
    bytes: Vec<u8>,
}

const ALL: [DType; 8] = [
    DType::F32,
    DType::F64,
    DType::BF16,
    DType::F16,
    DType::I64,
    DType::I16,
    DType::U32,
    DType::U8,
];

impl Array {
    /// An array of elements, copied.
    ///
    /// # Errors
    /// [`DataError::Usage`] if their count is not the shape's.
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>) -> Result<Self, DataError> {
        let dtype = ALL.into_iter().find(|&dtype| T::is(dtype));
        let dtype = dtype.unwrap_or(DType::U8);
        Self::from_bytes(dtype, shape, bytemuck::cast_slice(data).to_vec())
    }

    /// An array of little-endian bytes.
    ///
    /// # Errors
    /// [`DataError::Usage`] if their count is not the shape's.
    pub fn from_bytes(
        dtype: DType,
        shape: impl Into<Shape>,
        bytes: Vec<u8>,
    ) -> Result<Self, DataError> {
        let shape = shape.into();
        let checked =
            Shape::checked(&shape).filter(|shape| dtype.bytes(shape) == bytes.len() as u64);
        match checked {
            Some(shape) => Ok(Self {
                dtype,
                shape,
                bytes,
            }),
            None => Err(DataError::Usage(format!(
                "{} bytes do not make {dtype} of the shape {shape}",
                bytes.len()
            ))),
        }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Extents as a slice.
    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    /// The elements' bytes, row after row, little-endian.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements, copied.
    ///
    /// # Errors
    /// [`DataError::Usage`] for another element type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, DataError> {
        if T::is(self.dtype) {
            let elements = self.bytes.chunks_exact(size_of::<T>());
            return Ok(elements.map(bytemuck::pod_read_unaligned).collect());
        }
        let wanted = std::any::type_name::<T>();
        let message = format!("the array is of {}, not of {wanted}", self.dtype);
        Err(DataError::Usage(message))
    }

    /// The same elements in another shape.
    ///
    /// # Errors
    /// [`DataError::Usage`] for another number of elements.
    pub fn reshape(self, shape: impl Into<Shape>) -> Result<Self, DataError> {
        Self::from_bytes(self.dtype, shape, self.bytes)
    }

    /// What is at an index of the first dimension.
    ///
    /// # Errors
    /// [`DataError::Usage`] if there is nothing.
    pub fn index(&self, index: usize) -> Result<Self, DataError> {
        let none = || DataError::Usage(format!("no index {index} in {}", self.shape));
        let (&count, rest) = self.dims().split_first().ok_or_else(none)?;
        if index >= count {
            return Err(none());
        }
        let width = self.bytes.len() / count;
        Ok(Self {
            dtype: self.dtype,
            shape: rest.into(),
            bytes: self.bytes[index * width..][..width].to_vec(),
        })
    }

    /// Arrays of one type and shape along a new first dimension, as `torch.stack`.
    ///
    /// # Errors
    /// [`DataError::Usage`] for none, and for arrays that differ.
    pub fn stack(arrays: &[Self]) -> Result<Self, DataError> {
        let Some(first) = arrays.first() else {
            return Err(DataError::Usage("a stack of no arrays".to_owned()));
        };
        let like = |other: &&Self| other.dtype != first.dtype || other.shape != first.shape;
        if let Some(other) = arrays.iter().find(like) {
            return Err(DataError::Usage(format!(
                "arrays of a batch differ: {first:?} and {other:?}"
            )));
        }
        let mut bytes = Vec::with_capacity(arrays.len() * first.bytes.len());
        for array in arrays {
            bytes.extend_from_slice(&array.bytes);
        }
        let dims = [&[arrays.len()], first.dims()].concat();
        Self::from_bytes(first.dtype, &dims[..], bytes)
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.dtype, self.shape)
    }
}
