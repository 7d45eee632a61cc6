//! Reductions over dimensions: what goes, and how the work is cut.
//!
//! Where neighbours in memory belong to one result, elements are taken along rows; where they belong to different
//! results, rows of results are taken side by side. A row is cut into segments of 65,536 elements; of shorter
//! ones a task takes as many as come to 32,768. Columns are cut into at most 64 segments of 64 rows or more, and
//! 1,024 columns. So one long reduction has work for all threads. All of it follows from shape, strides and
//! dimensions.

use crate::kernels::blocks::BLOCK;
use highwater_graph::{Layout, OpError, RANK_MAX, Shape};
use smallvec::SmallVec;

/// Whether each dimension of the input is summed over.
pub(crate) type Mask = SmallVec<[bool; RANK_MAX]>;

/// Which dimensions go, and the shape of what stays.
pub(crate) fn plan_dims(
    op: &'static str,
    dims: &[usize],
    keepdim: bool,
    input: &Shape,
) -> Result<(Mask, Shape), OpError> {
    let mut mask = Mask::from_elem(dims.is_empty(), input.rank());
    if input.rank() == 0 && dims == [0] {
        // As PyTorch has it, a scalar may be asked for its first dimension.
        return Ok((mask, input.clone()));
    }
    for &dim in dims {
        let seen = mask.get_mut(dim).map(|seen| std::mem::replace(seen, true));
        if seen != Some(false) {
            return Err(OpError::Attribute {
                op,
                attribute: "dims",
                expected: format!("different dimensions below {}", input.rank()),
                got: format!("{dims:?}"),
            });
        }
    }
    let extents = input.iter().zip(&mask);
    let shape = extents.filter_map(|(&extent, &summed)| match (summed, keepdim) {
        (false, _) => Some(extent),
        (true, true) => Some(1),
        (true, false) => None,
    });
    let shape = shape.collect();
    Ok((mask, shape))
}

/// Elements of one sum that one task adds along a row.
const ROW_SEGMENT: usize = 64 * BLOCK;
/// Rows that one task adds at least, and the most pieces that they are cut into.
const COLUMN_SEGMENT: usize = 64;
const SEGMENTS_MAX: usize = 64;
/// Elements that one task should add at least.
pub(crate) const TASK: usize = 32 * BLOCK;
/// Fewer sums than this are made along rows, however they lie.
const COLUMNS_MIN: usize = 16;

/// How a reduction runs: a function of the layout and the dimensions alone.
pub(crate) struct Plan {
    /// The input with dimensions reordered: kept ones first for rows, summed ones for columns.
    pub(crate) layout: Layout,
    pub(crate) columns: bool,
    /// Number of sums.
    pub(crate) sums: usize,
    /// Elements of each.
    pub(crate) count: usize,
    /// Elements of one sum that one task adds.
    segment: usize,
}

impl Plan {
    /// How to reduce the dimensions that `mask` names.
    pub(crate) fn new(layout: &Layout, mask: &[bool]) -> Self {
        let shape = layout.shape();
        let dims = |summed: bool| (0..shape.rank()).filter(move |&i| mask[i] == summed);
        let nearest = |summed| {
            let strides = dims(summed).filter(|&i| shape[i] > 1 && layout.strides()[i] > 0);
            strides.map(|i| layout.strides()[i]).min()
        };
        let product = |summed| dims(summed).map(|i| shape[i]).product();
        let (sums, count): (usize, usize) = (product(false), product(true));
        let columns = sums >= COLUMNS_MIN
            && nearest(false).is_some_and(|kept| nearest(true).is_none_or(|summed| kept < summed));
        let order: SmallVec<[usize; RANK_MAX]> = dims(columns).chain(dims(!columns)).collect();
        let layout = layout.permute(&order).expect("a permutation");
        let segment = if columns {
            COLUMN_SEGMENT * count.div_ceil(COLUMN_SEGMENT * SEGMENTS_MAX).max(1)
        } else {
            ROW_SEGMENT
        };
        Self {
            layout,
            columns,
            sums,
            count,
            segment,
        }
    }

    /// Number of parts that each reduction is cut into.
    pub(crate) fn segments(&self) -> usize {
        self.count.div_ceil(self.segment).max(1)
    }

    /// Bytes for the sums of segments, if there is more than one.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        match self.segments() {
            1 => 0,
            segments => (segments * self.sums * size_of::<f64>()) as u64,
        }
    }

    /// Elements of the `i`-th segment of each sum.
    pub(crate) fn range(&self, segment: usize) -> std::ops::Range<usize> {
        let start = segment * self.segment;
        start..self.count.min(start + self.segment)
    }
}

/// Layouts and dimensions: few and many results, rows and columns, cut and uncut, empty.
pub(crate) fn cases() -> Vec<(Layout, Vec<usize>)> {
    let view = Layout::contiguous([70, 9, 40]).permute(&[2, 0, 1]);
    let view = view
        .expect("a permutation")
        .narrow(0, 3, 33)
        .expect("a part");
    vec![
        (Layout::contiguous([5, 37]), vec![]),
        (Layout::contiguous([5, 37]), vec![0]),
        (Layout::contiguous([5, 37]), vec![1]),
        (Layout::contiguous([3, 5, 130]), vec![0, 2]),
        (Layout::contiguous([6, 37, 65]), vec![1]),
        (Layout::contiguous([2, 66_000]), vec![1]),
        (Layout::contiguous([140_001]), vec![]),
        (Layout::contiguous([150, 1030]), vec![0]),
        (Layout::contiguous([700, 3]), vec![0]),
        (Layout::strided([130, 40], &[1, 130], 0), vec![1]),
        (Layout::strided([130, 40], &[1, 130], 0), vec![0]),
        (Layout::strided([65, 37, 20], &[40, 0, 2], 1), vec![1, 2]),
        (Layout::strided([200, 30], &[0, 0], 3), vec![0]),
        (view.clone(), vec![0]),
        (view, vec![1, 2]),
        (Layout::contiguous(Shape::scalar()), vec![]),
        (Layout::contiguous([0, 5]), vec![1]),
        (Layout::contiguous([0, 5]), vec![0]),
    ]
}
