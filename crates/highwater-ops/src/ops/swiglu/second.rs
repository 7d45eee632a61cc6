//! Gradients of the gradients, from other operations.

use crate::Silu;
use crate::ops::gradients::{add_result as add, times};
use crate::ops::silu::{SiluBackward, curved};
use highwater_graph::{Backward, OpError};

/// Of `h`, the gradient of `g up silu'(gate)`, and `k`, that of `g silu(gate)`; either may be missing:
/// - in `g`: `h up silu'(gate) + k silu(gate)`
/// - in `gate`: `h g up silu''(gate) + k g silu'(gate)`
/// - in `up`: `h g silu'(gate)`
pub(super) fn emit(backward: &mut Backward<'_>) -> Result<(), OpError> {
    let [g, gate, up] = [0, 1, 2].map(|i| backward.input(i));
    if let Some(h) = backward.grad(0) {
        let by_up = times(backward, &h, &up)?;
        if backward.needs(0) {
            let grad = backward.emit_one(SiluBackward, &[by_up.clone(), gate.clone()])?;
            backward.set(0, grad);
        }
        if backward.needs(1) {
            let factor = times(backward, &by_up, &g)?;
            let grad = curved(backward, factor, gate.clone())?;
            backward.set(1, grad);
        }
        if backward.needs(2) {
            let by_g = times(backward, &h, &g)?;
            let grad = backward.emit_one(SiluBackward, &[by_g, gate.clone()])?;
            backward.set(2, grad);
        }
    }
    let Some(k) = backward.grad(1) else {
        return Ok(());
    };
    if backward.needs(0) {
        let silu = backward.emit_one(Silu, std::slice::from_ref(&gate))?;
        let grad = times(backward, &k, &silu)?;
        add(backward, 0, grad)?;
    }
    if backward.needs(1) {
        let by_g = times(backward, &k, &g)?;
        let grad = backward.emit_one(SiluBackward, &[by_g, gate])?;
        add(backward, 1, grad)?;
    }
    Ok(())
}
