//! What is done to pictures alike.

use super::picture::{Picture, Pixels};
use super::resize::resized;
use crate::{Array, DataError, Draws};

/// What is done to a picture.
pub trait Transform: Send + Sync + std::fmt::Debug {
    /// Does it. What is random comes from `draws`.
    ///
    /// # Errors
    /// [`DataError::Usage`] for a picture that it cannot be done to.
    fn apply(&self, picture: Picture, draws: &mut Draws) -> Result<Picture, DataError>;
}

/// Transforms one after the other, as `torchvision.transforms.Compose`.
#[derive(Debug, Default)]
pub struct Compose(Vec<Box<dyn Transform>>);

impl Compose {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// These, and another one.
    #[must_use]
    pub fn then(mut self, transform: impl Transform + 'static) -> Self {
        self.0.push(Box::new(transform));
        self
    }
}

impl Transform for Compose {
    fn apply(&self, picture: Picture, draws: &mut Draws) -> Result<Picture, DataError> {
        let mut each = self.0.iter();
        each.try_fold(picture, |picture, transform| {
            transform.apply(picture, draws)
        })
    }
}

/// The size that [`Resize`] gives pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Of the shorter side; the longer one follows, rounded down.
    Shorter(usize),
    /// Height and width.
    Exact(usize, usize),
}

/// Scales a picture, bilinear and antialiased, as `torchvision.transforms.Resize` of a PIL image:
/// bytes differ by 1 at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize(pub Size);

impl Resize {
    /// Height and width of a picture then.
    fn size(self, pixels: &Pixels) -> (usize, usize) {
        let (height, width) = (pixels.height(), pixels.width());
        let long = |size: usize, long: usize, short: usize| {
            (size as f64 * long as f64 / short.max(1) as f64) as usize
        };
        match self.0 {
            Size::Exact(height, width) => (height, width),
            Size::Shorter(size) if width <= height => (long(size, height, width), size),
            Size::Shorter(size) => (size, long(size, width, height)),
        }
    }
}

impl Transform for Resize {
    fn apply(&self, picture: Picture, _draws: &mut Draws) -> Result<Picture, DataError> {
        let pixels = picture.into_pixels("Resize")?;
        let (height, width) = self.size(&pixels);
        Ok(Picture::Pixels(resized(pixels, height, width)?))
    }
}

/// The middle of a picture, of this height and width, as `torchvision.transforms.CenterCrop`: what a smaller
/// picture has not is black.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CenterCrop {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl CenterCrop {
    /// A square.
    pub fn new(size: usize) -> Self {
        Self {
            height: size,
            width: size,
        }
    }
}

impl Transform for CenterCrop {
    fn apply(&self, picture: Picture, _draws: &mut Draws) -> Result<Picture, DataError> {
        let pixels = picture.into_pixels("CenterCrop")?;
        // Half of what is over is rounded to even; half of what is missing, down.
        let start = |has: usize, wants: usize| {
            if has >= wants {
                ((has - wants) as f64 / 2.0).round_ties_even() as isize
            } else {
                -(((wants - has) / 2) as isize)
            }
        };
        let left = start(pixels.width(), self.width);
        let top = start(pixels.height(), self.height);
        Ok(Picture::Pixels(pixels.part(
            left,
            top,
            self.width,
            self.height,
        )))
    }
}

/// `F32`s from 0 to 1, `[3, height, width]`, as `torchvision.transforms.ToTensor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToTensor;

impl Transform for ToTensor {
    fn apply(&self, picture: Picture, _draws: &mut Draws) -> Result<Picture, DataError> {
        Ok(Picture::Tensor(picture.into_tensor()))
    }
}

/// Takes a mean from each channel and divides by a standard deviation, as `torchvision.transforms.Normalize`;
/// makes numbers of what still is bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalize {
    mean: [f32; 3],
    std: [f32; 3],
}

impl Normalize {
    /// Of means and standard deviations for red, green and blue.
    ///
    /// # Errors
    /// [`DataError::Usage`] for a standard deviation of 0, or one that is no number.
    pub fn new(mean: [f32; 3], std: [f32; 3]) -> Result<Self, DataError> {
        if std.iter().any(|&std| std == 0.0 || std.is_nan()) {
            let message = format!("Normalize: no standard deviations: {std:?}");
            return Err(DataError::Usage(message));
        }
        Ok(Self { mean, std })
    }
}

impl Transform for Normalize {
    fn apply(&self, picture: Picture, _draws: &mut Draws) -> Result<Picture, DataError> {
        let array = picture.into_tensor();
        let mut numbers: Vec<f32> = array.to_vec()?;
        let plane = numbers.len() / 3;
        if plane > 0 {
            let planes = numbers
                .chunks_mut(plane)
                .zip(self.mean.iter().zip(&self.std));
            for (plane, (mean, std)) in planes {
                for x in plane {
                    *x = (*x - mean) / std;
                }
            }
        }
        let array = Array::from_slice(&numbers, array.shape().clone())?;
        Ok(Picture::Tensor(array))
    }
}
