//! The logarithm of a sum of exponentials.

mod cpu;

use crate::kernels::fold::{self, Fold, FoldKernel, State, Turn, fold_op};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::{Entry, Exp, Fill, Mul, Sub};
use highwater_graph::{Autocast, Backward, OpError};
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// `log sum exp(x)` over dimensions, as `torch.logsumexp`; nothing overflows on the way.
///
/// One float tensor of any layout; the result is row-major. Exponentials are of differences from the
/// largest element so far, in `f32`; their sums are in `f64`. That of nothing is minus infinity. The
/// gradient is `g exp(x - y)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSumExp {
    /// Which dimensions, each at most once; none for all.
    pub dims: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

impl Fold for LogSumExp {
    const FLOPS: f64 = 14.0;
    const AUTOCAST: Autocast = Autocast::Full;

    fn over(&self) -> (&[usize], bool) {
        (&self.dims, self.keepdim)
    }

    /// The largest element, and the sum of exponentials of differences from it.
    fn start(&self) -> State {
        [f64::NEG_INFINITY, 0.0, 0.0]
    }

    fn row(&self, state: State, _at: usize, x: &[f32]) -> State {
        self.join(state, cpu::row(x))
    }

    fn column(&self, [largest, sums, _]: [&mut [f64]; 3], _at: usize, x: &[f32]) {
        cpu::column(largest, sums, x);
    }

    #[expect(clippy::float_cmp, reason = "infinities have no difference")]
    fn join(&self, [a, sum, _]: State, [b, behind, _]: State) -> State {
        let (largest, large, small) = if b > a {
            (b, behind, sum)
        } else {
            (a, sum, behind)
        };
        let scale = if a == b { 1.0 } else { (-(a - b).abs()).exp() };
        [largest, large + small * scale, 0.0]
    }

    fn value(&self, [largest, sum, _]: State, _count: usize) -> [f64; 2] {
        [largest + sum.ln(), 0.0]
    }

    fn exact(&self, x: &[f64]) -> [f64; 2] {
        let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let pivot = if largest.is_infinite() { 0.0 } else { largest };
        let sum: f64 = x.iter().map(|x| (x - pivot).exp()).sum();
        [pivot + sum.ln(), 0.0]
    }
}

fold_op!(LogSumExp: |_op| ENTRY.name, |_op, _hasher| (), |op, backward| op.emit(backward));

impl LogSumExp {
    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(Turn { x, y, g }) = Turn::of(self, backward)? else {
            return Ok(());
        };
        let difference = backward.emit_one(Sub, &[x, y])?;
        let share = backward.emit_one(Exp, &[difference])?;
        let grad = backward.emit_one(Mul, &[share, g])?;
        backward.set(0, grad);
        Ok(())
    }
}

const ENTRY: Entry = Entry {
    name: "logsumexp",
    rows: rows_of_floats! {
        T: [T] -> [T];
        FoldKernel::<LogSumExp, T>(PhantomData);
        Precise::new(fold::reference::<LogSumExp>)
    },
    reference: fold::reference::<LogSumExp>,
    samples: || {
        let op = |dims, keepdim| LogSumExp { dims, keepdim };
        let mut samples = fold::samples(op, Fill::Normal(2.0));
        // Of nothing it is minus infinity, from which no tolerance measures.
        samples.retain(|sample| sample.inputs[0].0.layout.numel() > 0);
        samples
    },
    rejects: || fold::rejects(|dims, keepdim| LogSumExp { dims, keepdim }),
};
