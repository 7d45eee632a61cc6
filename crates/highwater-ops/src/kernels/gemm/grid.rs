//! Products whose columns are pixels: of some rows of each of some images.

#![expect(unsafe_code, reason = "tasks round blocks of one output")]

use super::product::At;
use super::round::{STAGED, Target};
use super::{Factor, PARALLEL, Sums};
use crate::Pool;
use crate::kernels::float::Float;
use crate::kernels::vector::Version;
use std::ops::Range;

/// Where the columns of an output lie: extents and strides of three dimensions, the last one running
/// fastest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) extents: [usize; 3],
    pub(crate) strides: [usize; 3],
}

impl Grid {
    fn columns(&self) -> usize {
        self.extents.iter().product()
    }

    /// One past the last element, from the first.
    fn reach(&self) -> usize {
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

/// Fills rows, `row_stride` apart, whose columns lie on a grid, with `a · b`, plus the element of its
/// own that `bias` has for each row. `staging` has [`grid_staging_len`] elements.
///
/// # Panics
/// If the extents do not fit together, or the output ends behind `out`.
pub(crate) fn gemm_on_grid<T: Float>(
    pool: &Pool,
    (out, row_stride, grid): (&mut [T], usize, Grid),
    a: Factor<'_, T>,
    b: Factor<'_, T>,
    bias: Option<&[T]>,
    staging: &mut [f32],
) {
    let ([rows, depth], cols) = (a.extents(), grid.columns());
    if rows == 0 || cols == 0 {
        return;
    }
    assert!(
        b.extents() == [depth, cols] && bias.is_none_or(|bias| bias.len() == rows),
        "the extents of a product must fit together"
    );
    assert!(
        (rows - 1) * row_stride + grid.reach() <= out.len(),
        "a matrix must end inside its data"
    );
    let parallel = pool.threads() > 1 && rows * cols * depth >= PARALLEL;
    let mut run = || {
        let target = Target {
            to: At {
                data: out.as_mut_ptr(),
                row_stride,
                col_stride: 1,
            },
            from: bias.map(|bias| At {
                data: bias.as_ptr(),
                row_stride: 1,
                col_stride: 0,
            }),
            grid: Some((grid, 0)),
        };
        let sums = Sums {
            pool,
            version: Version::Best,
            parallel,
            staging,
        };
        // SAFETY: the target is the output, which is borrowed mutably and reaches no further.
        unsafe { sums.fill(target, [rows, cols], std::iter::once((a, b))) }
    };
    if parallel {
        pool.run(run);
    } else {
        run();
    }
}
