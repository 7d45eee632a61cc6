//! From samples to batches.

use crate::{Array, DataError};
use highwater_graph::Shape;

/// What a loader answers at once: it says how many bytes it holds, for they are counted.
pub trait Batch: Send + 'static {
    /// Bytes on the heap, about.
    fn bytes(&self) -> u64;
}

/// What samples become a batch by, as `torch.utils.data.default_collate`: arrays are stacked along a new first
/// dimension, numbers become arrays, and tuples, arrays and vectors of them are taken field by field.
pub trait Collate: Sized + Send {
    /// The batch.
    type Batch: Batch;

    /// Puts samples into a batch, in their order.
    ///
    /// # Errors
    /// [`DataError::Usage`] for samples that differ in shape or type.
    fn collate(samples: Vec<Self>) -> Result<Self::Batch, DataError>;
}

impl Batch for Array {
    fn bytes(&self) -> u64 {
        self.as_bytes().len() as u64
    }
}

impl Collate for Array {
    type Batch = Self;

    fn collate(samples: Vec<Self>) -> Result<Self, DataError> {
        Self::stack(&samples)
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Collate for $type {
            type Batch = Array;

            fn collate(samples: Vec<Self>) -> Result<Array, DataError> {
                Array::from_slice(&samples, Shape::from([samples.len()]))
            }
        }
    )*};
}
numbers!(f32, f64, i64, i16, u32, u8);

macro_rules! tuples {
    ($($name:ident: $field:tt),*) => {
        impl<$($name: Batch),*> Batch for ($($name,)*) {
            fn bytes(&self) -> u64 {
                0 $(+ self.$field.bytes())*
            }
        }

        impl<$($name: Collate),*> Collate for ($($name,)*) {
            type Batch = ($($name::Batch,)*);

            fn collate(samples: Vec<Self>) -> Result<Self::Batch, DataError> {
                let mut fields = ($(Vec::<$name>::with_capacity(samples.len()),)*);
                for sample in samples {
                    $(fields.$field.push(sample.$field);)*
                }
                Ok(($($name::collate(fields.$field)?,)*))
            }
        }
    };
}
tuples!(A: 0, B: 1);
tuples!(A: 0, B: 1, C: 2);
tuples!(A: 0, B: 1, C: 2, D: 3);

impl<B: Batch> Batch for Vec<B> {
    fn bytes(&self) -> u64 {
        self.iter().map(Batch::bytes).sum()
    }
}

impl<C: Collate> Collate for Vec<C> {
    type Batch = Vec<C::Batch>;

    fn collate(samples: Vec<Self>) -> Result<Self::Batch, DataError> {
        let count = samples.first().map_or(0, Vec::len);
        let mut fields: Vec<Vec<C>> = (0..count).map(|_| Vec::new()).collect();
        for sample in samples {
            if sample.len() != count {
                let message = format!("samples of {count} and of {} fields", sample.len());
                return Err(DataError::Usage(message));
            }
            fields
                .iter_mut()
                .zip(sample)
                .for_each(|(field, value)| field.push(value));
        }
        fields.into_iter().map(C::collate).collect()
    }
}

impl<B: Batch, const N: usize> Batch for [B; N] {
    fn bytes(&self) -> u64 {
        self.iter().map(Batch::bytes).sum()
    }
}

impl<C: Collate, const N: usize> Collate for [C; N] {
    type Batch = [C::Batch; N];

    fn collate(samples: Vec<Self>) -> Result<Self::Batch, DataError> {
        let mut fields: [Vec<C>; N] = std::array::from_fn(|_| Vec::new());
        for sample in samples {
            fields
                .iter_mut()
                .zip(sample)
                .for_each(|(field, value)| field.push(value));
        }
        let batches: Vec<C::Batch> = fields
            .into_iter()
            .map(C::collate)
            .collect::<Result<_, _>>()?;
        let other = |_| DataError::Usage("fields of a batch".to_owned());
        batches.try_into().map_err(other)
    }
}
