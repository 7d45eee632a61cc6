//! The fast kernel.
//!
//! Both are read and one is selected, element by element, so that nothing branches on the condition and the
//! loop is vectors. `blocks.rs` cuts; the condition, of another type, is copied 1,024 at a time where it does
//! not lie as the output does.

use crate::device::in_place;
use crate::kernels::blocks::{self, BLOCK, Reader};
use crate::kernels::simd::multiversion;
use crate::{Args, DTypes, Element, Kernel, KernelError, Pairs, Piece, Row};
use half::{bf16, f16};
use highwater_graph::{DType, Op, Spec};
use std::marker::PhantomData;
use std::sync::Arc;

macro_rules! rows {
    ($($dtype:ident: $type:ty,)*) => {
        &[$(Row::cpu(
            DTypes::new(&[DType::Bool, DType::$dtype], &[DType::$dtype]),
            || Arc::new(WhereKernel::<$type>(PhantomData)),
        )),*]
    };
}

pub(super) const ROWS: &[Row] = rows! {
    F32: f32,
    BF16: bf16,
    F16: f16,
    F64: f64,
    I64: i64,
    I16: i16,
    U32: u32,
    U8: u8,
    Bool: u8,
};

/// May overwrite what it chooses from.
struct WhereKernel<T>(PhantomData<fn() -> T>);

impl<T: Element> Kernel for WhereKernel<T> {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        let mut pairs = in_place(inputs, outputs);
        pairs.retain(|&mut (i, _)| i > 0);
        pairs
    }

    fn piece(&self, _op: &dyn Op) -> Option<Piece> {
        Some(|_, inputs, y, _| {
            let [a, b] = [1, 2].map(|i| bytemuck::cast_slice::<u8, T>(inputs[i]));
            choose(inputs[0], a, b, bytemuck::cast_slice_mut(y));
        })
    }

    fn launch(&self, _op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let output = &mut args.outputs[0];
        let condition = Reader::<u8>::in_order_of(&args.inputs[0], output.layout())?;
        let inputs = [&args.inputs[1], &args.inputs[2]];
        blocks::map::<T, T, 2>(args.pool, inputs, output, &|start, [a, b], y| {
            let mut buffer = [0; BLOCK];
            for (i, y) in y.chunks_mut(BLOCK).enumerate() {
                let (at, len) = (i * BLOCK, y.len());
                let condition = condition.piece(start + at, &mut buffer[..len]);
                choose(condition, &a[at..at + len], &b[at..at + len], y);
            }
        })
    }
}

multiversion! {
    fn choose[I, T: Element](condition: &[u8], a: &[T], b: &[T], y: &mut [T]) {
        for (((y, &condition), &a), &b) in y.iter_mut().zip(condition).zip(a).zip(b) {
            *y = if condition == 0 { b } else { a };
        }
    }
}
