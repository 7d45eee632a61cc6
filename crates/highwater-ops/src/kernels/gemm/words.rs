//! What products are cut into, and how factors become words.

use super::matrix::Mat;
use super::tile::Words;
use crate::device::pool::buffers::{LARGE, SMALL};
use crate::kernels::vector::{Simd, Version};

/// Columns of a panel of the right factor: a multiple of every vector.
pub(crate) const PANEL: usize = 32;

/// Columns of the right factor that a task packs.
pub(crate) const PACK: usize = 8 * PANEL;

/// Most words of the depth that are summed in one chain. Bits depend on it.
pub(super) const DEPTH: usize = 384;

/// How many slices a depth of so many words is cut into, as equal as can be.
pub(super) fn slices(words: usize) -> usize {
    words.div_ceil(DEPTH).max(1)
}

/// Most columns of the right factor that a stage packs.
pub(super) const COLS: usize = 1024;

/// The same for a product on one thread.
pub(super) const SERIAL_COLS: usize = 256;

/// Most rows of the left factor that a task takes.
pub(super) const ROWS: usize = 84;

/// Most elements of staging: 2 MiB.
pub(super) const STAGED: usize = 1 << 19;
/// Most columns of a strip whose sums a task keeps in a buffer, beside its packed rows.
pub(super) const KEPT_COLS: usize = 768;

// The pool's buffers hold the panels that all threads read,
const _: () = assert!(COLS * DEPTH <= LARGE);
// those of a product on one thread, a block of rows and its sums,
const _: () = assert!(SERIAL_COLS * DEPTH <= SMALL && ROWS * (DEPTH + KEPT_COLS) <= SMALL);
// rows that are decoded, and the same packed,
const _: () = assert!(2 * ROWS * DEPTH <= SMALL);
// and what a task packs, decoded: a word holds as many numbers as it does in panels.
const _: () = assert!(PACK * DEPTH <= SMALL);

/// How factors of two types become words.
pub(super) trait Pack<A, B>: Words {
    /// Whether tiles read the rows of a left factor where they lie.
    fn is_ready(a: &Mat<'_, A>) -> bool;
    /// Packs a left factor whose columns are dense, row by row; any other in groups of rows
    /// ([`groups`](super::tile::groups)), the rows of a group side by side. `to` has a word for each that the rows have.
    fn rows<S: Simd, const R: usize>(s: S, from: Mat<'_, A>, to: &mut [f32]);
    /// Packs a right factor into panels of [`PANEL`] columns, each dense and step by step, the last
    /// filled up with zeros. `to` is room for just that.
    fn panels(version: Version, from: Mat<'_, B>, to: &mut [f32]);
}
