//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Conv2d, ConvSettings, ConvTranspose2d};

impl Tensor {
    /// Convolution of images, as `torch.nn.functional.conv2d`: `[N, C, H, W]` or `[C, H, W]`, weight
    /// `[O, C / groups, KH, KW]`, bias `[O]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if shapes, steps or groups do not fit.
    #[track_caller]
    pub fn conv2d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        settings: ConvSettings,
    ) -> Result<Self> {
        let op = Conv2d {
            settings,
            bias: bias.is_some(),
        };
        let x = self.batched(4)?;
        let y = match bias {
            Some(bias) => Self::apply_one(op, &[&x, weight, bias])?,
            None => Self::apply_one(op, &[&x, weight])?,
        };
        y.unbatched(self)
    }

    /// Convolution of sequences, as `torch.nn.functional.conv1d`: `[N, C, L]` or `[C, L]`, weight
    /// `[O, C / groups, K]`, bias `[O]`.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`].
    #[track_caller]
    pub fn conv1d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        settings: ConvSettings<1>,
    ) -> Result<Self> {
        let (x, weight) = (self.batched(3)?.with_row()?, weight.with_row()?);
        let y = x.conv2d(&weight, bias, settings.of_rows())?;
        y.without_row()?.unbatched(self)
    }

    /// Transposed convolution of images, as `torch.nn.functional.conv_transpose2d`: `[N, C, H, W]` or
    /// `[C, H, W]`, weight `[C, O / groups, KH, KW]`, bias `[O]`; `output_padding` rows and columns more
    /// below and on the right.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if shapes, steps or groups do not fit.
    #[track_caller]
    pub fn conv_transpose2d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        settings: ConvSettings,
        output_padding: [usize; 2],
    ) -> Result<Self> {
        let op = ConvTranspose2d {
            settings,
            output_padding,
            bias: bias.is_some(),
        };
        let x = self.batched(4)?;
        let y = match bias {
            Some(bias) => Self::apply_one(op, &[&x, weight, bias])?,
            None => Self::apply_one(op, &[&x, weight])?,
        };
        y.unbatched(self)
    }

    /// Transposed convolution of sequences, as `torch.nn.functional.conv_transpose1d`: `[N, C, L]` or
    /// `[C, L]`, weight `[C, O / groups, K]`, bias `[O]`.
    ///
    /// # Errors
    /// As [`Tensor::conv_transpose2d`].
    #[track_caller]
    pub fn conv_transpose1d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        settings: ConvSettings<1>,
        output_padding: usize,
    ) -> Result<Self> {
        let (x, weight) = (self.batched(3)?.with_row()?, weight.with_row()?);
        let y = x.conv_transpose2d(&weight, bias, settings.of_rows(), [0, output_padding])?;
        y.without_row()?.unbatched(self)
    }

    /// One of a batch by itself as a batch of one: what lacks the first of so many dimensions has it.
    #[track_caller]
    pub(crate) fn batched(&self, rank: usize) -> Result<Self> {
        if self.shape().rank() + 1 != rank {
            return Ok(self.clone());
        }
        let shape: Vec<usize> = std::iter::once(1)
            .chain(self.dims().iter().copied())
            .collect();
        self.reshape(shape)
    }

    /// A batch of one without its first dimension, if `like` has as many dimensions as are left.
    #[track_caller]
    pub(crate) fn unbatched(self, like: &Self) -> Result<Self> {
        if self.shape().rank() == like.shape().rank() {
            return Ok(self);
        }
        self.reshape(&self.dims()[1..])
    }

    /// `[.., L]` as `[.., 1, L]`.
    #[track_caller]
    pub(crate) fn with_row(&self) -> Result<Self> {
        let mut shape = self.dims().to_vec();
        shape.insert(shape.len().saturating_sub(1), 1);
        self.reshape(shape)
    }

    /// `[.., 1, L]` as `[.., L]`.
    #[track_caller]
    pub(crate) fn without_row(&self) -> Result<Self> {
        let mut shape = self.dims().to_vec();
        shape.remove(shape.len() - 2);
        self.reshape(shape)
    }
}
