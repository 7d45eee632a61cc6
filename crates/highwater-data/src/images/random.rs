//! What is done to pictures at random: a function of seed, epoch and index of the sample.

use super::picture::Picture;
use super::resize::resized;
use super::transforms::Transform;
use crate::{DataError, Draws};

/// A part of a picture, of this height and width, wherever, as `torchvision.transforms.RandomCrop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomCrop {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Black pixels that are put around the picture before.
    pub padding: usize,
}

impl RandomCrop {
    /// A square, without padding.
    pub fn new(size: usize) -> Self {
        Self {
            height: size,
            width: size,
            padding: 0,
        }
    }

    /// The same with padding.
    #[must_use]
    pub fn padding(mut self, padding: usize) -> Self {
        self.padding = padding;
        self
    }
}

impl Transform for RandomCrop {
    fn apply(&self, picture: Picture, draws: &mut Draws) -> Result<Picture, DataError> {
        let pixels = picture.into_pixels("RandomCrop")?;
        let height = pixels.height() + 2 * self.padding;
        let width = pixels.width() + 2 * self.padding;
        if height < self.height || width < self.width {
            return Err(DataError::Usage(format!(
                "RandomCrop: {} by {} of a picture of {height} by {width} with its padding",
                self.height, self.width
            )));
        }
        let mut start = |over: usize| draws.below(over + 1) as isize - self.padding as isize;
        let top = start(height - self.height);
        let left = start(width - self.width);
        Ok(Picture::Pixels(pixels.part(
            left,
            top,
            self.width,
            self.height,
        )))
    }
}

/// A part of a picture of a random area and shape, scaled to a square, as
/// `torchvision.transforms.RandomResizedCrop`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomResizedCrop {
    /// Rows and columns.
    pub size: usize,
    /// The least and the largest share of the picture's area.
    pub scale: (f32, f32),
    /// The least and the largest width over height.
    pub ratio: (f32, f32),
}

impl RandomResizedCrop {
    /// A square, with torchvision's defaults.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            scale: (0.08, 1.0),
            ratio: (3.0 / 4.0, 4.0 / 3.0),
        }
    }

    /// Left, top, width and height of a part.
    fn part(&self, width: usize, height: usize, draws: &mut Draws) -> (usize, usize, usize, usize) {
        let area = (width * height) as f32;
        for _ in 0..10 {
            let target = area * draws.uniform(self.scale.0, self.scale.1);
            let ratio = draws.uniform(self.ratio.0.ln(), self.ratio.1.ln()).exp();
            let w = (target * ratio).sqrt().round_ties_even() as usize;
            let h = (target / ratio).sqrt().round_ties_even() as usize;
            if (1..=width).contains(&w) && (1..=height).contains(&h) {
                let top = draws.below(height - h + 1);
                let left = draws.below(width - w + 1);
                return (left, top, w, h);
            }
        }
        // The middle, as much as the ratios allow.
        let own = width as f32 / height as f32;
        let (w, h) = if own < self.ratio.0 {
            (
                width,
                (width as f32 / self.ratio.0).round_ties_even() as usize,
            )
        } else if own > self.ratio.1 {
            (
                (height as f32 * self.ratio.1).round_ties_even() as usize,
                height,
            )
        } else {
            (width, height)
        };
        let (w, h) = (w.clamp(1, width), h.clamp(1, height));
        ((width - w) / 2, (height - h) / 2, w, h)
    }
}

impl Transform for RandomResizedCrop {
    fn apply(&self, picture: Picture, draws: &mut Draws) -> Result<Picture, DataError> {
        let pixels = picture.into_pixels("RandomResizedCrop")?;
        if pixels.width() == 0 || pixels.height() == 0 {
            let message = "RandomResizedCrop: a picture without pixels".to_owned();
            return Err(DataError::Usage(message));
        }
        let (left, top, width, height) = self.part(pixels.width(), pixels.height(), draws);
        let part = pixels.part(left as isize, top as isize, width, height);
        Ok(Picture::Pixels(resized(part, self.size, self.size)?))
    }
}

/// Exchanges left and right, with a probability, as `torchvision.transforms.RandomHorizontalFlip`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomHorizontalFlip(pub f64);

impl Default for RandomHorizontalFlip {
    /// Every other time.
    fn default() -> Self {
        Self(0.5)
    }
}

impl Transform for RandomHorizontalFlip {
    fn apply(&self, picture: Picture, draws: &mut Draws) -> Result<Picture, DataError> {
        let pixels = picture.into_pixels("RandomHorizontalFlip")?;
        let mirror = draws.chance(self.0);
        let pixels = if mirror { pixels.mirrored() } else { pixels };
        Ok(Picture::Pixels(pixels))
    }
}
