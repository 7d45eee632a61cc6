//! Channels that become pixels, and pixels that become channels.

use super::{Forward, Module};
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::{self as highwater, Result};
use highwater_graph::Location;

macro_rules! shuffle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Module)]
        pub struct $name {
            #[module(skip)]
            factor: usize,
        }

        impl $name {
            /// By this factor, of rows and of columns.
            #[must_use]
            pub fn new(factor: usize) -> Self {
                Self { factor }
            }
        }

        impl Forward for $name {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                $name::forward(self, x)
            }
        }
    };
}

shuffle! {
    /// `[.., C r^2, H, W]` to `[.., C, H r, W r]`, as `torch.nn.PixelShuffle(r)`: an image that is larger by a factor,
    /// of channels (Shi et al., 2016). Of the channels of a result, the first has the upper left pixel of each block.
    ///
    /// ```
    /// use highwater::nn::{PixelShuffle, PixelUnshuffle};
    /// use highwater::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let engine = Engine::builder().arena(1 << 20).build()?;
    /// let x = Tensor::randn(&engine, [2, 12, 4, 5])?;
    /// let larger = PixelShuffle::new(2).forward(&x)?;
    /// assert_eq!(larger.dims(), [2, 3, 8, 10]);
    /// let back = PixelUnshuffle::new(2).forward(&larger)?;
    /// assert_eq!(back.to_vec::<f32>()?, x.to_vec::<f32>()?);
    /// # Ok(())
    /// # }
    /// ```
    PixelShuffle
}

shuffle! {
    /// `[.., C, H r, W r]` to `[.., C r^2, H, W]`, as `torch.nn.PixelUnshuffle(r)`: the inverse of [`PixelShuffle`].
    PixelUnshuffle
}

impl PixelShuffle {
    /// `[.., C r^2, H, W]` to `[.., C, H r, W r]`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for less than three dimensions, or channels that `r^2` does not divide.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (r, location) = (self.factor, Location::caller());
        let (batch, [channels, height, width]) = split(x, "pixel_shuffle", location)?;
        if r == 0 || channels % (r * r) != 0 {
            let message = format!(
                "pixel_shuffle by {r}: {channels} channels are no multiple of {}",
                r * r
            );
            return Err(usage_error(message, location));
        }
        let channels = channels / (r * r);
        location.at(|| {
            let blocks = x.reshape([&batch[..], &[channels, r, r, height, width]].concat())?;
            let blocks = blocks.permute(&order(batch.len(), [0, 3, 1, 4, 2]))?;
            blocks.reshape([&batch[..], &[channels, height * r, width * r]].concat())
        })
    }
}

impl PixelUnshuffle {
    /// `[.., C, H r, W r]` to `[.., C r^2, H, W]`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for less than three dimensions, or rows or columns that `r` does not divide.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (r, location) = (self.factor, Location::caller());
        let (batch, [channels, height, width]) = split(x, "pixel_unshuffle", location)?;
        if r == 0 || height % r != 0 || width % r != 0 {
            let message = format!(
                "pixel_unshuffle by {r}: images of {height} x {width} are no multiple of it"
            );
            return Err(usage_error(message, location));
        }
        let (height, width) = (height / r, width / r);
        location.at(|| {
            let blocks = x.reshape([&batch[..], &[channels, height, r, width, r]].concat())?;
            let blocks = blocks.permute(&order(batch.len(), [0, 2, 4, 1, 3]))?;
            blocks.reshape([&batch[..], &[channels * r * r, height, width]].concat())
        })
    }
}

/// Extents before the last three, and these.
fn split(x: &Tensor, what: &str, location: Location) -> Result<(Vec<usize>, [usize; 3])> {
    let [batch @ .., channels, height, width] = x.dims() else {
        let message = format!("{what} takes [.., C, H, W], got {}", x.shape());
        return Err(usage_error(message, location));
    };
    Ok((batch.to_vec(), [*channels, *height, *width]))
}

/// Dimensions behind those of a batch in another order.
fn order(batch: usize, last: [usize; 5]) -> Vec<usize> {
    (0..batch).chain(last.map(|dim| batch + dim)).collect()
}
