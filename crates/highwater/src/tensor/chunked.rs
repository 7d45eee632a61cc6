//! Functions of inputs that are too large to be worked on at once.

use crate::Result;
use crate::error::usage_error;
use crate::tensor::Tensor;
use highwater_graph::Location;

/// Applies `f` to `chunks` parts of `x` along a dimension and puts the results together along the same: what
/// `f` makes on the way is needed for one part at a time. The parts are nodes of the graph like others, through
/// which gradients flow, and `f` is called once for each. Fewer parts where there are fewer elements, as
/// `torch.chunk`.
///
/// For functions that treat elements along `dim` independently, such as a feed-forward part along the tokens.
///
/// ```
/// use highwater::{chunked, prelude::*};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let (wide, back) = (Linear::new(&engine, 8, 64, true)?, Linear::new(&engine, 64, 8, true)?);
/// let x = Tensor::randn(&engine, [10, 8])?;
/// let feed_forward = |x: &Tensor| back.forward(&wide.forward(x)?.gelu()?);
/// let whole = feed_forward(&x)?.to_vec::<f32>()?;
/// assert_eq!(chunked(feed_forward, &x, 0, 4)?.to_vec::<f32>()?, whole);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::Usage`] for no chunks; those of `f`, and of results that do not fit together.
#[track_caller]
pub fn chunked(
    mut f: impl FnMut(&Tensor) -> Result<Tensor>,
    x: &Tensor,
    dim: usize,
    chunks: usize,
) -> Result<Tensor> {
    if chunks == 0 {
        let message = "chunked: there must be at least one chunk";
        return Err(usage_error(message, Location::caller()));
    }
    let extent = x.dims().get(dim).copied().unwrap_or(1);
    let size = extent.div_ceil(chunks).max(1);
    if extent <= size {
        return f(x);
    }
    let mut parts = Vec::with_capacity(chunks);
    for start in (0..extent).step_by(size) {
        parts.push(f(&x.narrow(dim, start, size.min(extent - start))?)?);
    }
    Tensor::cat(&parts, dim)
}
