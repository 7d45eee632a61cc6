//! Where pools look: the window of each place.

use crate::kernels::pointwise::one_pass;
use highwater_graph::{Cost, OpError, Spec};
use std::hash::{Hash, Hasher};

/// Windows of one size that move by steps; of rows, then of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolSettings {
    /// Rows and columns of a window; at least 1.
    pub kernel: [usize; 2],
    /// Pixels from one window to the next; at least 1.
    pub stride: [usize; 2],
    /// Pixels around an image that windows reach over, at most half a window.
    pub padding: [usize; 2],
    /// Pixels from one element of a window to the next; at least 1.
    pub dilation: [usize; 2],
    /// Whether a last window that ends behind the padding counts.
    pub ceil_mode: bool,
}

impl PoolSettings {
    /// Windows side by side.
    #[must_use]
    pub fn new(kernel: [usize; 2]) -> Self {
        Self {
            kernel,
            stride: kernel,
            padding: [0; 2],
            dilation: [1; 2],
            ceil_mode: false,
        }
    }

    /// Windows over images of one row, as sequences are: side by side.
    #[must_use]
    pub fn of_rows(kernel: usize) -> Self {
        Self::new([1, kernel])
    }
}

/// The windows of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Windows {
    /// Of one size.
    Fixed(PoolSettings),
    /// So many rows and columns, as evenly as can be, as `torch.nn.AdaptiveAvgPool2d` has them.
    Adaptive([usize; 2]),
}

/// A window in one direction: pixels from `start` to `end`, `step` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) step: usize,
    /// The place in the window of the first of them.
    pub(super) skipped: usize,
    /// How long the window is, with what of it lies in the padding.
    pub(super) padded: usize,
}

impl Window {
    pub(super) fn pixels(self) -> impl Iterator<Item = usize> + Clone {
        (self.start..self.end).step_by(self.step)
    }

    /// How many pixels there are.
    pub(super) fn len(self) -> usize {
        (self.end - self.start).div_ceil(self.step)
    }
}

impl Windows {
    /// How many places there are in one direction.
    fn places(&self, i: usize, extent: usize) -> Option<usize> {
        let settings = match self {
            Self::Adaptive(places) => return Some(places[i]),
            Self::Fixed(settings) => settings,
        };
        let [kernel, stride, padding, dilation, extent] = [
            settings.kernel[i],
            settings.stride[i],
            settings.padding[i],
            settings.dilation[i],
            extent,
        ]
        .map(|n| n as i128);
        let room = extent + 2 * padding - dilation * (kernel - 1) - 1;
        let places = if settings.ceil_mode {
            let places = (room + stride - 1).div_euclid(stride) + 1;
            // A window starts inside the image or the padding before it.
            if (places - 1) * stride >= extent + padding {
                places - 1
            } else {
                places
            }
        } else {
            room.div_euclid(stride) + 1
        };
        usize::try_from(places).ok().filter(|&places| places > 0)
    }

    /// Checks settings and an input, and answers the shape of the result.
    pub(super) fn infer(&self, op: &'static str, x: &Spec) -> Result<[usize; 4], OpError> {
        let &[n, c, h, w] = x.shape().dims() else {
            let got = x.shape().to_string();
            return Err(OpError::shape(op, "images [N, C, H, W]", got));
        };
        self.check(op)?;
        match (self.places(0, h), self.places(1, w)) {
            (Some(rows), Some(cols)) if h > 0 && w > 0 => Ok([n, c, rows, cols]),
            _ => {
                let expected = "images that windows fit into, not empty";
                Err(OpError::shape(op, expected, x.shape().to_string()))
            }
        }
    }

    fn check(&self, op: &'static str) -> Result<(), OpError> {
        let Self::Fixed(settings) = self else {
            return Ok(());
        };
        let refused = |attribute, expected: &str, got: [usize; 2]| {
            Err(OpError::Attribute {
                op,
                attribute,
                expected: expected.to_owned(),
                got: format!("{got:?}"),
            })
        };
        let at_least_1 = [
            ("kernel", settings.kernel),
            ("stride", settings.stride),
            ("dilation", settings.dilation),
        ];
        for (attribute, value) in at_least_1 {
            if value.contains(&0) {
                return refused(attribute, "at least 1", value);
            }
        }
        if (0..2).any(|i| settings.padding[i] > settings.kernel[i] / 2) {
            return refused("padding", "at most half the kernel", settings.padding);
        }
        Ok(())
    }

    /// The window at a place.
    pub(super) fn at(&self, i: usize, place: usize, extent: usize) -> Window {
        match self {
            Self::Adaptive(places) => {
                let (start, end) = (
                    place * extent / places[i],
                    ((place + 1) * extent).div_ceil(places[i]),
                );
                Window {
                    start,
                    end,
                    step: 1,
                    skipped: 0,
                    padded: end - start,
                }
            }
            Self::Fixed(settings) => {
                let (padding, step) = (settings.padding[i], settings.dilation[i]);
                let first = place * settings.stride[i];
                let skipped = padding.saturating_sub(first).div_ceil(step);
                let end = first + (settings.kernel[i] - 1) * step + 1;
                let start = (first + skipped * step - padding).min(extent);
                Window {
                    start,
                    end: end.saturating_sub(padding).clamp(start, extent),
                    step,
                    skipped,
                    padded: end.min(extent + 2 * padding) - first,
                }
            }
        }
    }

    /// The pixel under an element of the window at a place, if there is one.
    pub(super) fn pixel(
        &self,
        i: usize,
        place: usize,
        element: usize,
        extent: usize,
    ) -> Option<usize> {
        let at = match self {
            Self::Adaptive(_) => {
                let window = self.at(i, place, extent);
                return Some(window.start + element).filter(|&at| at < window.end);
            }
            Self::Fixed(settings) => {
                let at = place * settings.stride[i] + element * settings.dilation[i];
                at.checked_sub(settings.padding[i])
            }
        };
        at.filter(|&at| at < extent)
    }

    /// Most elements of a window.
    pub(super) fn most(&self, [height, width]: [usize; 2]) -> usize {
        match self {
            Self::Fixed(settings) => settings.kernel[0].saturating_mul(settings.kernel[1]),
            // Two more than evenly cut, at most.
            Self::Adaptive([rows, cols]) => {
                let most = |extent: usize, places: usize| (extent / places.max(1) + 2).min(extent);
                most(height, *rows) * most(width, *cols)
            }
        }
    }

    /// Columns of a window that it counts its elements by.
    pub(super) fn columns(&self, window: Window) -> usize {
        match self {
            Self::Fixed(settings) => settings.kernel[1],
            Self::Adaptive(_) => window.len(),
        }
    }

    pub(super) fn hash_to(&self, hasher: &mut dyn Hasher) {
        self.hash(&mut &mut *hasher);
    }
}

/// One pass, with so many operations.
pub(super) fn cost(inputs: &[Spec], outputs: &[Spec], flops: usize) -> Cost {
    one_pass(inputs, outputs, flops as f64)
}

/// Height and width.
pub(super) fn sides(shape: &[usize]) -> [usize; 2] {
    [shape[shape.len() - 2], shape[shape.len() - 1]]
}
