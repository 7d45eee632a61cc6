//! Data: what the crate `highwater-data` has (datasets, a loader with workers, arrays in files, folders of
//! pictures), and what makes tensors of it.
//!
//! ```
//! use highwater::data::{Array, DataLoader, LoaderOptions, TensorDataset, ToTensors};
//! use highwater::optim::{Sgd, SgdOptions};
//! use highwater::{nn::Linear, prelude::*};
//!
//! # fn main() -> Result<()> {
//! let engine = Engine::builder().memory(256 << 20).seed(1).build()?;
//! let x: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
//! let y: Vec<f32> = x.iter().map(|x| 2.0 * x + 1.0).collect();
//! let dataset = TensorDataset::new([Array::from_slice(&x, [64, 1])?, Array::from_slice(&y, [64, 1])?])?;
//! let options = LoaderOptions {
//!     batch_size: 16,
//!     shuffle: true,
//!     workers: 2,
//!     prefetch_bytes: 8 << 20,
//!     ..Default::default()
//! };
//! let mut loader = DataLoader::new(dataset, options)?;
//! // What is loaded ahead is memory of the process: plans leave it room from the start.
//! let _room = engine.set_aside(loader.options().prefetch_bytes)?;
//!
//! let model = Linear::new(&engine, 1, 1, true)?;
//! let mut optimizer = Sgd::new(model.parameters(), SgdOptions { lr: 0.1, ..Default::default() })?;
//! for _ in 0..3 {
//!     for batch in loader.epoch() {
//!         let [x, y] = batch?.to_tensors(&engine)?;
//!         let loss = (model.forward(&x)? - &y)?.square()?.mean()?;
//!         loss.backward()?;
//!         optimizer.step()?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Going on
//!
//! [`DataLoader::cursor`] says which batch comes next: saved beside weights and moments, and given to
//! [`DataLoader::seek`], it makes a run go on with the same batches.
//!
//! # Memory
//!
//! A batch lies on the heap until it is a tensor, and is dropped then. What workers load ahead is bounded by
//! [`LoaderOptions::prefetch_bytes`]. An engine whose process is bounded notices such memory when the next step
//! starts, as all that a program allocates, and then plans anew; [`Engine::set_aside`] leaves it room before.

pub use highwater_data::*;

use crate::engine::Engine;
use crate::tensor::Tensor;
use crate::{Error, Result};
use highwater_graph::{Location, Spec};

impl Tensor {
    /// A tensor of what an array holds, copied. Category: input.
    ///
    /// # Errors
    /// [`Error::State`] if there is no room.
    #[track_caller]
    pub fn from_array(engine: &Engine, array: &Array) -> Result<Self> {
        let spec = Spec::contiguous(array.dtype(), array.shape().clone());
        Self::filled(engine, spec, Location::caller(), |own| {
            own.copy_from_slice(array.as_bytes());
        })
    }

    /// What a tensor holds, as an array on the heap, computed now: as `tensor.numpy()`.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    #[track_caller]
    pub fn to_array(&self) -> Result<Array> {
        use highwater_graph::DType;
        let shape = self.shape().clone();
        let array = match self.dtype() {
            DType::F32 => Array::from_slice(&self.to_vec::<f32>()?, shape),
            DType::F64 => Array::from_slice(&self.to_vec::<f64>()?, shape),
            DType::BF16 => Array::from_slice(&self.to_vec::<half::bf16>()?, shape),
            DType::F16 => Array::from_slice(&self.to_vec::<half::f16>()?, shape),
            DType::I64 => Array::from_slice(&self.to_vec::<i64>()?, shape),
            DType::I16 => Array::from_slice(&self.to_vec::<i16>()?, shape),
            DType::U32 => Array::from_slice(&self.to_vec::<u32>()?, shape),
            _ => Array::from_slice(&self.to_vec::<u8>()?, shape),
        };
        Ok(array?)
    }
}

/// What tensors can be made of: arrays, and tuples, arrays and vectors of them, as batches are.
pub trait ToTensors {
    /// A tensor, or as many.
    type Tensors;

    /// Copies everything into tensors of an engine. Category: input.
    ///
    /// # Errors
    /// [`Error::State`] if there is no room.
    fn to_tensors(&self, engine: &Engine) -> Result<Self::Tensors>;
}

impl ToTensors for Array {
    type Tensors = Tensor;

    #[track_caller]
    fn to_tensors(&self, engine: &Engine) -> Result<Tensor> {
        Tensor::from_array(engine, self)
    }
}

impl<T: ToTensors> ToTensors for Vec<T> {
    type Tensors = Vec<T::Tensors>;

    #[track_caller]
    fn to_tensors(&self, engine: &Engine) -> Result<Self::Tensors> {
        self.iter().map(|field| field.to_tensors(engine)).collect()
    }
}

impl<T: ToTensors, const N: usize> ToTensors for [T; N] {
    type Tensors = [T::Tensors; N];

    #[track_caller]
    fn to_tensors(&self, engine: &Engine) -> Result<Self::Tensors> {
        let fields = self.iter().map(|field| field.to_tensors(engine));
        let fields: Vec<T::Tensors> = fields.collect::<Result<_>>()?;
        let other = |_| Error::Internal("fields of a batch".into());
        fields.try_into().map_err(other)
    }
}

macro_rules! tuples {
    ($($name:ident: $field:tt),*) => {
        impl<$($name: ToTensors),*> ToTensors for ($($name,)*) {
            type Tensors = ($($name::Tensors,)*);

            #[track_caller]
            fn to_tensors(&self, engine: &Engine) -> Result<Self::Tensors> {
                Ok(($(self.$field.to_tensors(engine)?,)*))
            }
        }
    };
}
tuples!(A: 0, B: 1);
tuples!(A: 0, B: 1, C: 2);
tuples!(A: 0, B: 1, C: 2, D: 3);
