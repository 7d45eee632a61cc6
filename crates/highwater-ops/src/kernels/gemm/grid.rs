//! Where columns of a product lie that are pixels: of some rows of each of some images.

use super::words::STAGED;
use std::ops::Range;

/// Where the columns of an output lie: extents and strides of three dimensions, the last one running
/// fastest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) extents: [usize; 3],
    pub(crate) strides: [usize; 3],
}

impl Grid {
    pub(super) fn columns(&self) -> usize {
        self.extents.iter().product()
    }

    /// One past the last element, from the first.
    pub(super) fn reach(&self) -> usize {
        let last = self.extents.iter().zip(self.strides);
        last.map(|(&extent, stride)| (extent - 1) * stride)
            .sum::<usize>()
            + 1
    }

    /// Where a column lies, and how many from it on lie at the last stride.
    pub(super) fn run(&self, column: usize) -> (usize, usize) {
        let [_, rows, width] = self.extents;
        let [image, line, pixel] = self.strides;
        let (row, x) = (column / width, column % width);
        (
            row / rows * image + row % rows * line + x * pixel,
            width - x,
        )
    }

    /// Hands `f` columns that lie at the last stride, and where the first of them is.
    pub(super) fn for_each_run(
        &self,
        start: usize,
        len: usize,
        mut f: impl FnMut(Range<usize>, usize),
    ) {
        let mut done = 0;
        while done < len {
            let (at, left) = self.run(start + done);
            let end = len.min(done + left);
            f(done..end, at);
            done = end;
        }
    }
}

/// Elements of staging that a product onto a grid needs.
pub(crate) fn grid_staging_len(rows: usize, cols: usize) -> usize {
    rows.saturating_mul(cols).min(STAGED)
}
