//! Touches what kernels keep beside their declared memory, so that it is there when the process is
//! measured.

use crate::Pool;

/// Makes the buffers of matrix products: at most 3 MiB, and 1.2 MiB per thread.
pub fn warm_up(pool: &Pool) {
    pool.buffers().make_all(pool.threads());
}
