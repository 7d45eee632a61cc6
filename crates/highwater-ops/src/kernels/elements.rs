//! Kernels of which each element of the output is a function of one element of each input.
//!
//! Each is one loop over slices, compiled for every instruction set; tasks, pieces and copies are those of
//! `blocks.rs`.

use crate::device::in_place;
use crate::kernels::blocks::{self, BLOCK, Stage};
use crate::{Args, Element, Kernel, KernelError, Pairs, Piece, View, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Such a function, of slices of one length: of `N` inputs of one type.
pub(crate) trait Elements<const N: usize>: 'static {
    /// The operation.
    type Op: Op;
    /// What the inputs are made of.
    type From: Element;
    /// What the output is made of.
    type To: Element;

    /// Fills the output. What it computes for an element must not depend on the slice that it is in.
    fn fill(op: &Self::Op, x: [&[Self::From]; N], y: &mut [Self::To], stage: Stage<'_, N>);
}

/// The kernel of such a function: for inputs of any layouts, which broadcast. Any input like the output may
/// be overwritten.
pub(crate) struct Map<K, const N: usize>(PhantomData<fn() -> K>);

impl<K: Elements<N>, const N: usize> Map<K, N> {
    /// The kernel.
    pub(crate) const NEW: Self = Self(PhantomData);
}

impl<K: Elements<N>, const N: usize> Kernel for Map<K, N> {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(inputs, outputs)
    }

    fn piece(&self, op: &dyn Op) -> Option<Piece> {
        op.downcast::<K::Op>()?;
        Some(|op, inputs, y, stage| {
            let (wide, results) = stage.split_at_mut(N);
            let stage = wide.first_chunk_mut().zip(results.first_mut());
            if let Some((op, stage)) = op.downcast().zip(stage) {
                let x = std::array::from_fn(|i| bytemuck::cast_slice(inputs[i]));
                K::fill(op, x, bytemuck::cast_slice_mut(y), stage);
            }
        })
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op: &K::Op = op_as(op)?;
        let inputs: [&View<'_>; N] = std::array::from_fn(|i| &args.inputs[i]);
        blocks::map::<K::From, K::To, N>(args.pool, inputs, &mut args.outputs[0], &|_, x, y| {
            let mut stage = ([[0.0; BLOCK]; N], [0.0; BLOCK]);
            K::fill(op, x, y, (&mut stage.0, &mut stage.1));
        })
    }
}
