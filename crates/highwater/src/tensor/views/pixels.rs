//! Channels as pixels, and pixels as channels.

use crate::Result;
use crate::error::usage_error;
use crate::tensor::Tensor;
use highwater_graph::Location;

impl Tensor {
    /// Images `[.., C r r, H, W]` of `r` times the height and width, `[.., C, H r, W r]`, whose pixels are the channels,
    /// as `torch.nn.functional.pixel_shuffle(x, r)`: a copy.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for fewer than three dimensions, or channels that are no multiple of `r r`.
    #[track_caller]
    pub fn pixel_shuffle(&self, r: usize) -> Result<Self> {
        let (batch, [channels, rows, columns]) = self.images("pixel_shuffle", r)?;
        if channels % (r * r) != 0 {
            let message = format!(
                "pixel_shuffle by {r} of {channels} channels: expected a multiple of {}",
                r * r
            );
            return Err(usage_error(message, Location::caller()));
        }
        let channels = channels / (r * r);
        let apart = self.reshape([batch, channels, r, r, rows, columns])?;
        let among = apart.permute(&[0, 1, 4, 2, 5, 3])?;
        self.with_images(&among, [channels, rows * r, columns * r])
    }

    /// Images `[.., C, H r, W r]` of a part of the height and width, `[.., C r r, H, W]`, whose channels are the pixels,
    /// as `torch.nn.functional.pixel_unshuffle(x, r)`: a copy.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for fewer than three dimensions, or a height or width that is no multiple of `r`.
    #[track_caller]
    pub fn pixel_unshuffle(&self, r: usize) -> Result<Self> {
        let (batch, [channels, rows, columns]) = self.images("pixel_unshuffle", r)?;
        if rows % r != 0 || columns % r != 0 {
            let message = format!(
                "pixel_unshuffle by {r} of {rows} by {columns} pixels: expected multiples of {r}"
            );
            return Err(usage_error(message, Location::caller()));
        }
        let (rows, columns) = (rows / r, columns / r);
        let apart = self.reshape([batch, channels, rows, r, columns, r])?;
        let together = apart.permute(&[0, 1, 3, 5, 2, 4])?;
        self.with_images(&together, [channels * r * r, rows, columns])
    }

    /// How many images there are, and their extents.
    #[track_caller]
    fn images(&self, what: &str, r: usize) -> Result<(usize, [usize; 3])> {
        match self.dims().split_last_chunk::<3>() {
            Some((batch, &image)) if r > 0 => Ok((batch.iter().product(), image)),
            _ => {
                let message = format!(
                    "{what} by {r}: expected images [.., C, H, W] and a factor of 1 or more, got {}",
                    self.shape()
                );
                Err(usage_error(message, Location::caller()))
            }
        }
    }

    /// As many images as this tensor has, of other extents.
    #[track_caller]
    fn with_images(&self, pixels: &Self, image: [usize; 3]) -> Result<Self> {
        let batch = self.dims().len() - image.len();
        let shape: Vec<usize> = self.dims()[..batch].iter().chain(&image).copied().collect();
        pixels.reshape(shape)
    }
}
