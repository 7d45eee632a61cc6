//! Steps and sides of convolutions: what fits together, and what comes of it.

use super::ConvTranspose2d;
use highwater_graph::{OpError, Spec};

/// Of rows, then of columns.
pub(super) type Sides = [usize; 2];

/// How a convolution moves over its images: of rows, then of columns; over sequences, of one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConvSettings<const D: usize = 2> {
    /// Pixels from one place of the kernel to the next; at least 1.
    pub stride: [usize; D],
    /// Zeros on each side of an image.
    pub padding: [usize; D],
    /// Pixels from one element of the kernel to the next; at least 1.
    pub dilation: [usize; D],
    /// Groups of channels that know nothing of each other; at least 1.
    pub groups: usize,
}

impl<const D: usize> Default for ConvSettings<D> {
    fn default() -> Self {
        Self {
            stride: [1; D],
            padding: [0; D],
            dilation: [1; D],
            groups: 1,
        }
    }
}

impl<const D: usize> ConvSettings<D> {
    /// Those by which a kernel of odd sides makes images as large as they were: PyTorch's
    /// `padding="same"`. Of even sides, one pixel more is made; PyTorch then pads one side less.
    #[must_use]
    pub fn same(kernel: [usize; D]) -> Self {
        Self {
            padding: kernel.map(|side| side / 2),
            ..Self::default()
        }
    }
}

impl ConvSettings<1> {
    /// Those of images of one row.
    #[must_use]
    pub fn of_rows(self) -> ConvSettings {
        ConvSettings {
            stride: [1, self.stride[0]],
            padding: [0, self.padding[0]],
            dilation: [1, self.dilation[0]],
            groups: self.groups,
        }
    }
}

/// What a tensor of images holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Images {
    pub(super) count: usize,
    pub(super) channels: usize,
    pub(super) sides: Sides,
}

/// What a weight holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weight {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) sides: Sides,
}

pub(super) fn images(op: &'static str, spec: &Spec) -> Result<Images, OpError> {
    let [count, channels, height, width] = *spec.shape().dims() else {
        let got = spec.shape().to_string();
        return Err(OpError::shape(op, "images [N, C, H, W]", got));
    };
    Ok(Images {
        count,
        channels,
        sides: [height, width],
    })
}

pub(super) fn check_weight(op: &'static str, spec: &Spec) -> Result<Weight, OpError> {
    match *spec.shape().dims() {
        [rows, columns, height, width] if height > 0 && width > 0 => Ok(Weight {
            rows,
            columns,
            sides: [height, width],
        }),
        _ => {
            let got = spec.shape().to_string();
            Err(OpError::shape(
                op,
                "a weight of four dimensions, not empty",
                got,
            ))
        }
    }
}

impl ConvSettings {
    pub(super) fn check(&self, op: &'static str) -> Result<(), OpError> {
        let refused = |attribute, got: String| {
            let expected = "at least 1".to_owned();
            Err(OpError::Attribute {
                op,
                attribute,
                expected,
                got,
            })
        };
        if self.stride.contains(&0) {
            return refused("stride", format!("{:?}", self.stride));
        }
        if self.dilation.contains(&0) {
            return refused("dilation", format!("{:?}", self.dilation));
        }
        if self.groups == 0 {
            return refused("groups", self.groups.to_string());
        }
        Ok(())
    }

    /// Checks that channels are made of groups.
    pub(super) fn check_groups(&self, op: &'static str, channels: usize) -> Result<(), OpError> {
        if channels.is_multiple_of(self.groups) {
            return Ok(());
        }
        Err(OpError::Attribute {
            op,
            attribute: "groups",
            expected: format!("a divisor of {channels} channels"),
            got: self.groups.to_string(),
        })
    }

    /// Checks that a weight has a column for each channel of a group.
    pub(super) fn check_channels(
        &self,
        op: &'static str,
        channels: usize,
        columns: usize,
    ) -> Result<(), OpError> {
        self.check_groups(op, channels)?;
        let wanted = channels / self.groups;
        if columns == wanted {
            return Ok(());
        }
        let expected = format!("a weight [O, {wanted}, ..] for {channels} channels");
        Err(OpError::shape(op, expected, format!("[O, {columns}, ..]")))
    }

    /// Sides of what a convolution makes of images.
    pub(super) fn shrunk(
        &self,
        op: &'static str,
        sides: Sides,
        kernel: Sides,
    ) -> Result<Sides, OpError> {
        let mut shrunk = [0; 2];
        for (i, side) in sides.into_iter().enumerate() {
            let padded = self.padding[i].saturating_mul(2).saturating_add(side);
            let Some(room) = padded.checked_sub(self.reach(kernel, i)) else {
                let expected = format!(
                    "images at least as large as the kernel, with {:?} zeros around",
                    self.padding
                );
                let got = format!(
                    "{sides:?} for a kernel {kernel:?}, dilated by {:?}",
                    self.dilation
                );
                return Err(OpError::shape(op, expected, got));
            };
            shrunk[i] = room / self.stride[i] + 1;
        }
        Ok(shrunk)
    }

    /// Pixels that a kernel reaches over.
    fn reach(&self, kernel: Sides, i: usize) -> usize {
        let steps = kernel[i].saturating_sub(1).saturating_mul(self.dilation[i]);
        if kernel[i] == 0 {
            usize::MAX
        } else {
            steps.saturating_add(1)
        }
    }

    /// Sides of what a transposed convolution makes of images.
    pub(super) fn grown(
        &self,
        op: &'static str,
        sides: Sides,
        kernel: Sides,
        more: Sides,
    ) -> Result<Sides, OpError> {
        let mut grown = [0; 2];
        for (i, side) in sides.into_iter().enumerate() {
            if more[i] >= self.stride[i].max(self.dilation[i]) {
                return Err(OpError::Attribute {
                    op,
                    attribute: "output_padding",
                    expected: "below the stride or the dilation".to_owned(),
                    got: format!("{more:?}"),
                });
            }
            let full = side.checked_sub(1).and_then(|steps| {
                let steps = steps.checked_mul(self.stride[i])?;
                steps
                    .checked_add(self.reach(kernel, i))?
                    .checked_add(more[i])
            });
            let left = full.and_then(|full| full.checked_sub(self.padding[i].checked_mul(2)?));
            let Some(left) = left.filter(|&left| left > 0) else {
                let expected = "images that leave something within the padding";
                let got = format!("{sides:?} with a padding of {:?}", self.padding);
                return Err(OpError::shape(op, expected, got));
            };
            grown[i] = left;
        }
        Ok(grown)
    }

    /// Of what a transposed convolution makes, the sides of what any of its pixels reaches, or could
    /// without another step.
    pub(super) fn seen(&self, sides: Sides, kernel: Sides, more: Sides) -> Sides {
        std::array::from_fn(|i| {
            let full = (sides[i] - 1) * self.stride[i] + self.reach(kernel, i);
            full + more[i].min(self.stride[i] - 1) - 2 * self.padding[i]
        })
    }

    /// The gradient of images of these sides.
    pub(super) fn transpose(&self, sides: Sides, kernel: Sides) -> ConvTranspose2d {
        let rest = |i: usize| {
            let room = sides[i] + 2 * self.padding[i] - self.reach(kernel, i);
            room % self.stride[i]
        };
        ConvTranspose2d {
            settings: *self,
            output_padding: [rest(0), rest(1)],
            bias: false,
        }
    }
}
