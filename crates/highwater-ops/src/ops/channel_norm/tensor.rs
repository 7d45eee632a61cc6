//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{BatchNorm, BatchNormInference, GroupNorm, InPlaceAbn, Invertible};

impl Tensor {
    /// Batch normalisation by the statistics of the batch itself (Ioffe and Szegedy 2015), as
    /// `torch.nn.functional.batch_norm` in training: `[N, C, ..]`, weight and bias `[C]`. Answers the
    /// result, and the mean and the biased variance of each channel, through which no gradient flows.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit, and where a channel has no more than one element.
    #[track_caller]
    pub fn batch_norm(&self, affine: Option<(&Self, &Self)>, eps: f64) -> Result<[Self; 3]> {
        let op = BatchNorm {
            eps,
            affine: affine.is_some(),
        };
        let outputs = match affine {
            Some((weight, bias)) => Self::apply(op, &[self, weight, bias])?,
            None => Self::apply(op, &[self])?,
        };
        with_statistics(&outputs)
    }

    /// [`Tensor::batch_norm`] and an activation, of which backward keeps the result alone (Rota Bulò et al.
    /// 2018): `[N, C, ..]`, weight and bias `[C]`. No weight may be 0, which [`crate::nn::InPlaceAbn`] sees to.
    /// Answers the result, and the mean and the biased variance of each channel, through which no gradient flows.
    /// The gradient has no gradient.
    ///
    /// # Errors
    /// As [`Tensor::batch_norm`], and for an activation that cannot be turned back.
    #[track_caller]
    pub fn inplace_abn(
        &self,
        affine: Option<(&Self, &Self)>,
        eps: f64,
        activation: Invertible,
    ) -> Result<[Self; 3]> {
        let op = InPlaceAbn {
            eps,
            affine: affine.is_some(),
            activation,
        };
        let outputs = match affine {
            Some((weight, bias)) => Self::apply(op, &[self, weight, bias])?,
            None => Self::apply(op, &[self])?,
        };
        with_statistics(&outputs)
    }

    /// Batch normalisation by given statistics `[C]`, as `torch.nn.functional.batch_norm` in evaluation:
    /// `[N, C, ..]`, weight and bias `[C]`. No gradient flows to mean and variance.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit.
    #[track_caller]
    pub fn batch_norm_inference(
        &self,
        (mean, var): (&Self, &Self),
        affine: Option<(&Self, &Self)>,
        eps: f64,
    ) -> Result<Self> {
        let op = BatchNormInference {
            eps,
            affine: affine.is_some(),
        };
        match affine {
            Some((weight, bias)) => Self::apply_one(op, &[self, mean, var, weight, bias]),
            None => Self::apply_one(op, &[self, mean, var]),
        }
    }

    /// Normalisation of each of so many groups of channels of a sample (Wu and He 2018), as
    /// `torch.nn.functional.group_norm`: `[N, C, ..]`, weight and bias `[C]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit.
    #[track_caller]
    pub fn group_norm(
        &self,
        groups: usize,
        affine: Option<(&Self, &Self)>,
        eps: f64,
    ) -> Result<Self> {
        let op = GroupNorm {
            groups,
            eps,
            affine: affine.is_some(),
        };
        match affine {
            Some((weight, bias)) => Self::apply_one(op, &[self, weight, bias]),
            None => Self::apply_one(op, &[self]),
        }
    }

    /// Normalisation of each channel of a sample (Ulyanov et al. 2016), as
    /// `torch.nn.functional.instance_norm`: `[N, C, ..]`, weight and bias `[C]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit.
    #[track_caller]
    pub fn instance_norm(&self, affine: Option<(&Self, &Self)>, eps: f64) -> Result<Self> {
        let channels = self.dims().get(1).copied().unwrap_or(0);
        self.group_norm(channels, affine, eps)
    }
}

/// The result of a norm, and the mean and the variance that come with it.
#[track_caller]
fn with_statistics(outputs: &[Tensor]) -> Result<[Tensor; 3]> {
    let [y, mean, _, var] = outputs else {
        let location = highwater_graph::Location::caller();
        let message = "batch_norm: an operation of another kind";
        return Err(crate::error::usage_error(message, location));
    };
    Ok([y.clone(), mean.detach()?, var.detach()?])
}
