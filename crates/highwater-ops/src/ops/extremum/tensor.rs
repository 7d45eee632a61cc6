//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::{Extremum, ExtremumAt};

/// A method that finds an extremum, whose direction is the last argument.
macro_rules! methods {
    ($largest:literal, $what:literal: $all:ident, $over:ident, $at:ident, $place:ident, $place_at:ident) => {
        impl Tensor {
            #[doc = concat!("The ", $what, " element of all, as `torch.", stringify!($all), "(x)`: NaN if there is one. The")]
            /// gradient is shared evenly among those that are equal to it.
            ///
            /// # Errors
            /// [`crate::Error::Op`] for no elements, or a dtype other than floats, `I64`, `U8` and `Bool`.
            #[track_caller]
            pub fn $all(&self) -> Result<Self> {
                let (largest, dims, keepdim) = ($largest, Vec::new(), false);
                Self::apply_one(Extremum { largest, dims, keepdim }, &[self])
            }

            #[doc = concat!("The ", $what, " elements over dimensions (all if none is given), as `torch.", stringify!($over), "`. The")]
            /// gradient is shared evenly among those that are equal to one.
            ///
            /// # Errors
            #[doc = concat!("As [`Tensor::", stringify!($all), "`];")]
            /// [`crate::Error::Usage`] for a dimension that is not there, or is named twice.
            #[track_caller]
            pub fn $over<D: Dim>(&self, dims: &[D], keepdim: bool) -> Result<Self> {
                let dims = self.dims_of(stringify!($over), dims)?.to_vec();
                let largest = $largest;
                Self::apply_one(Extremum { largest, dims, keepdim }, &[self])
            }

            #[doc = concat!("The ", $what, " elements along a dimension, and their indices (I64) there: the first of several. As")]
            #[doc = concat!("`torch.", stringify!($all), "(x, dim, keepdim)`; the gradient goes to that element.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Tensor::", stringify!($over), "`].")]
            #[track_caller]
            pub fn $at(&self, dim: impl Dim, keepdim: bool) -> Result<(Self, Self)> {
                let (largest, dims) = ($largest, vec![self.dim(stringify!($all), dim)?]);
                self.with_places(ExtremumAt { largest, dims, keepdim })
            }

            #[doc = concat!("The index (I64) of the ", $what, " element of all in row-major order: the first of several. As")]
            #[doc = concat!("`torch.", stringify!($place), "(x)`.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Tensor::", stringify!($all), "`].")]
            #[track_caller]
            pub fn $place(&self) -> Result<Self> {
                let (largest, dims, keepdim) = ($largest, Vec::new(), false);
                Ok(self.with_places(ExtremumAt { largest, dims, keepdim })?.1)
            }

            #[doc = concat!("The indices (I64) of the ", $what, " elements along a dimension: the first of several. As")]
            #[doc = concat!("`torch.", stringify!($place), "(x, dim, keepdim)`.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Tensor::", stringify!($over), "`].")]
            #[track_caller]
            pub fn $place_at(&self, dim: impl Dim, keepdim: bool) -> Result<Self> {
                Ok(self.$at(dim, keepdim)?.1)
            }
        }
    };
}
methods!(true, "largest": max, amax, max_dim, argmax, argmax_dim);
methods!(false, "smallest": min, amin, min_dim, argmin, argmin_dim);

impl Tensor {
    /// The two outputs of an operation.
    #[track_caller]
    pub(crate) fn with_places(&self, op: impl highwater_graph::Op) -> Result<(Self, Self)> {
        let mut outputs = Self::apply(op, &[self])?.into_iter();
        let missing = || crate::Error::Internal("an operation has two outputs".into());
        let value = outputs.next().ok_or_else(missing)?;
        Ok((value, outputs.next().ok_or_else(missing)?))
    }
}
