//! In which pieces a parameter is updated.
//!
//! An update needs the parameter, its gradient and its moments at once. For GPT-2's token embedding
//! that is four times 154 MB, so a large parameter is updated some rows at a time, and the moments of
//! each piece are tensors of their own. Updates go element by element: no bit depends on the pieces, but where
//! moments are held in bytes, whose blocks begin with each piece.

use highwater_graph::{DType, Shape};
use std::ops::Range;

/// The rows of each piece of a parameter of `F32`s, of sizes as equal as can be; `None` stands for all
/// of it, which is what a parameter of up to two pieces' bytes stays. A function of the shape: what is
/// saved of a run must fit whatever budget it goes on in.
pub(super) fn pieces(shape: &Shape, piece_bytes: u64) -> Vec<Option<Range<usize>>> {
    let bytes = DType::F32.bytes(shape);
    let rows = shape.first().copied().unwrap_or(1);
    if bytes <= piece_bytes.saturating_mul(2) || rows < 2 {
        return vec![None];
    }
    let row_bytes = bytes / rows as u64;
    let most = (piece_bytes / row_bytes).clamp(1, rows as u64) as usize;
    let count = rows.div_ceil(most);
    // Equal shares, of which the first ones take what is left over.
    let (share, more) = (rows / count, rows % count);
    let start = |piece: usize| piece * share + piece.min(more);
    (0..count)
        .map(|piece| Some(start(piece)..start(piece + 1)))
        .collect()
}

/// What a piece's moments add to the name of their parameter: nothing, or the rows as a slice.
pub(super) fn suffix(rows: Option<&Range<usize>>) -> String {
    rows.map_or_else(String::new, |rows| format!("[{}:{}]", rows.start, rows.end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::builder::PIECE_BYTES;

    #[test]
    fn parameters_of_up_to_64_mib_stay_whole() {
        let limit: [&[usize]; 6] = [
            &[],
            &[0, 5],
            &[768, 3072],
            &[1 << 24],
            &[1, 1 << 25],
            &[2, 1 << 23],
        ];
        for dims in limit {
            assert_eq!(pieces(&Shape::from(dims), PIECE_BYTES), [None], "{dims:?}");
        }
        assert_eq!(pieces(&Shape::from([(1 << 24) + 1]), PIECE_BYTES).len(), 3);
    }

    #[test]
    fn larger_ones_fall_into_equal_pieces_of_whole_rows() {
        let found = pieces(&Shape::from([50_257, 768]), PIECE_BYTES);
        let rows = [0..10_052, 10_052..20_104, 20_104..30_155];
        assert_eq!(found[..3], rows.map(Some));
        assert_eq!(found[3..], [30_155..40_206, 40_206..50_257].map(Some));
        for dims in [[50_257, 1600], [7, 100], [100, 7], [2, 1000], [1000, 2]] {
            let found = pieces(&Shape::from(dims), 300);
            let mut next = 0;
            for rows in found.into_iter().map(|rows| rows.expect("large")) {
                assert!(rows.start == next && rows.end > next, "{dims:?}");
                let bytes = rows.len() * dims[1] * 4;
                assert!(bytes <= 300 || rows.len() == 1, "{dims:?}: {rows:?}");
                next = rows.end;
            }
            assert_eq!(next, dims[0]);
        }
    }
}
