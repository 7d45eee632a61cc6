//! Touches what libraries under the kernels allocate for themselves, so that it is there when the
//! process is measured.

use crate::Pool;
use crate::gemm::{Mat, MatMut, Plus, gemm};

/// Runs matrix products that are large enough for every packing buffer to have its full size.
pub fn warm_up(pool: &Pool) {
    for [rows, cols, depth] in [[2048, 64, 512], [64, 4096, 512]] {
        let (a, b) = (vec![0.0; rows * depth], vec![0.0; depth * cols]);
        let mut out = vec![0.0; rows * cols];
        gemm(
            pool,
            MatMut::dense(&mut out, rows, cols),
            Mat::dense(&a, rows, depth),
            Mat::dense(&b, depth, cols),
            Plus::Nothing,
        );
    }
}
