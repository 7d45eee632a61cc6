//! Updates, a block at a time: decoded, updated, put back.
//!
//! A task is a chunk of 16,384 elements, 64 blocks. A block is 256 elements, as many as share a scale: what
//! is decoded of parameter, moments and gradient is 1 KiB each on the stack, so that decoding, the update and
//! putting back go through the first cache, and memory sees the tensors as they are held, once each way. What
//! is `f32` is updated where it lies. An update of 6.3 million numbers by AdamW takes 2.8 ms in `f32`, in
//! `bf16` 3.5 with a master in `f32`, 3.1 with a split one and 4.0 by chance; with moments in bytes 8.2 to
//! 9.9, in `f16` more (BENCHMARKS.md).

#![expect(unsafe_code, reason = "tasks update their own chunks of cells")]

use super::codes::{self, BLOCK};
use super::{Draws, Formats, Master, Moments, master};
use crate::kernels::cells::CHUNK;
use crate::kernels::float::Float;
use crate::kernels::strided::widen;
use crate::{Args, Disjoint, KernelError, View};
use half::{bf16, f16};
use highwater_graph::DType;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering};

/// A parameter, and what updates are added to.
enum Weights<'a> {
    Full(Disjoint<'a, f32>),
    Bf16(Disjoint<'a, bf16>, Disjoint<'a, f32>),
    F16(Disjoint<'a, f16>, Disjoint<'a, f32>),
    Split(Disjoint<'a, bf16>, Disjoint<'a, i16>),
    Stochastic(Disjoint<'a, bf16>, Draws),
}

/// A moment, and whether it has a sign.
enum Moment<'a> {
    Full(Disjoint<'a, f32>),
    Coded {
        codes: Disjoint<'a, u8>,
        scales: Disjoint<'a, f32>,
        signed: bool,
    },
}

impl Weights<'_> {
    /// What a block's updates are added to: where it lies, or decoded to `block`.
    ///
    /// # Safety
    /// No part of `at..at + block.len()`, at most [`BLOCK`], may be in use.
    unsafe fn load<'b>(&'b self, at: usize, block: &'b mut [f32]) -> &'b mut [f32] {
        let len = block.len();
        // SAFETY: the caller's contract.
        unsafe {
            match self {
                Self::Full(all) => all.part(at, len),
                Self::Bf16(half, all) => {
                    let master = all.part(at, len);
                    master::make_current(half.part(at, len), master);
                    master
                }
                Self::F16(half, all) => {
                    let (half, master) = (half.part(at, len), all.part(at, len));
                    let mut rounded = [f16::ZERO; BLOCK];
                    f16::round(master, &mut rounded[..len]);
                    f16::widen(half, block);
                    master::make_current_f16(half, &rounded[..len], block, master);
                    master
                }
                Self::Split(high, low) => {
                    master::join(high.part(at, len), low.part(at, len), block);
                    block
                }
                Self::Stochastic(all, _) => {
                    bf16::widen(all.part(at, len), block);
                    block
                }
            }
        }
    }

    /// Puts a block back, of which `block` was decoded.
    ///
    /// # Safety
    /// As [`Weights::load`].
    unsafe fn store(&self, at: usize, block: &[f32]) {
        let len = block.len();
        // SAFETY: the caller's contract.
        unsafe {
            match self {
                Self::Full(_) => {}
                Self::Bf16(half, all) => {
                    master::round_away(all.part(at, len), half.part(at, len));
                }
                Self::F16(half, all) => f16::round(all.part(at, len), half.part(at, len)),
                Self::Split(high, low) => {
                    master::split(block, high.part(at, len), low.part(at, len));
                }
                Self::Stochastic(all, draws) => {
                    master::round_at_random(block, draws, at, all.part(at, len));
                }
            }
        }
    }
}

impl Moment<'_> {
    /// A block: where it lies, or decoded to `block`.
    ///
    /// # Safety
    /// As [`Weights::load`]; `at` is where a block starts.
    unsafe fn load<'b>(&'b self, at: usize, block: &'b mut [f32]) -> &'b mut [f32] {
        let len = block.len();
        // SAFETY: the caller's contract.
        unsafe {
            match self {
                Self::Full(all) => return all.part(at, len),
                Self::Coded {
                    codes,
                    scales,
                    signed,
                } => {
                    let (codes, scale) = (codes.part(at, len), scales.part(at / BLOCK, 1)[0]);
                    if *signed {
                        codes::decode_signed(codes, scale, block);
                    } else {
                        codes::decode_unsigned(codes, scale, block);
                    }
                }
            }
        }
        block
    }

    /// Puts a block back, of which `block` was decoded.
    ///
    /// # Safety
    /// As [`Moment::load`].
    unsafe fn store(&self, at: usize, step: u64, block: &[f32]) {
        let Self::Coded {
            codes,
            scales,
            signed,
        } = self
        else {
            return;
        };
        // SAFETY: the caller's contract.
        let (codes, scale) = unsafe { (codes.part(at, block.len()), scales.part(at / BLOCK, 1)) };
        scale[0] = if *signed {
            codes::encode_signed(block, step, codes)
        } else {
            codes::encode_unsigned(block, step, codes)
        };
    }
}

/// The parameter's parts, which come first; and what follows them.
fn weights<'s, 'a>(
    formats: &Formats,
    inputs: &'s mut [View<'a>],
    wrong: &KernelError,
) -> Result<(Weights<'s>, &'s mut [View<'a>]), KernelError> {
    let wrong = || wrong.clone();
    let (parameter, rest) = inputs.split_first_mut().ok_or_else(wrong)?;
    if let Master::F32 | Master::Split = formats.master {
        let (beside, rest) = rest.split_first_mut().ok_or_else(wrong)?;
        let weights = match (formats.master, parameter.spec().dtype) {
            (Master::Split, _) => Weights::Split(
                Disjoint::new(parameter.slice_mut()?),
                Disjoint::new(beside.slice_mut()?),
            ),
            (_, DType::F16) => Weights::F16(
                Disjoint::new(parameter.slice_mut()?),
                Disjoint::new(beside.slice_mut()?),
            ),
            _ => Weights::Bf16(
                Disjoint::new(parameter.slice_mut()?),
                Disjoint::new(beside.slice_mut()?),
            ),
        };
        return Ok((weights, rest));
    }
    let weights = match formats.master {
        Master::Stochastic(draws) => {
            Weights::Stochastic(Disjoint::new(parameter.slice_mut()?), draws)
        }
        _ => Weights::Full(Disjoint::new(parameter.slice_mut()?)),
    };
    Ok((weights, rest))
}

/// A moment's parts, which come first; and what follows them.
fn moment<'s, 'a>(
    formats: &Formats,
    signed: bool,
    inputs: &'s mut [View<'a>],
    wrong: &KernelError,
) -> Result<(Moment<'s>, &'s mut [View<'a>]), KernelError> {
    let wrong = || wrong.clone();
    let (first, rest) = inputs.split_first_mut().ok_or_else(wrong)?;
    match formats.moments {
        Moments::Float => {
            let all = Disjoint::new(first.slice_mut()?);
            Ok((Moment::Full(all), rest))
        }
        Moments::Int8 => {
            let (scales, rest) = rest.split_first_mut().ok_or_else(wrong)?;
            let coded = Moment::Coded {
                codes: Disjoint::new(first.slice_mut()?),
                scales: Disjoint::new(scales.slice_mut()?),
                signed,
            };
            Ok((coded, rest))
        }
    }
}

/// Updates a piece of the parameter and of each moment by a piece of the gradient. Returns whether that is finite.
pub(crate) type Each<'f, const N: usize> =
    &'f (dyn Fn(&mut [f32], [&mut [f32]; N], &[f32]) -> bool + Sync);

/// Updates a parameter: hands `each` a block of the numbers that updates are added to, of each moment
/// (`signed` says which have a sign), and of the gradient. It answers whether the gradient is finite.
pub(crate) fn update<const N: usize>(
    op: &'static str,
    args: &mut Args<'_>,
    formats: &Formats,
    signed: [bool; N],
    each: Each<'_, N>,
) -> Result<(), KernelError> {
    match args.inputs.last().map(|gradient| gradient.spec().dtype) {
        Some(DType::BF16) => update_by::<bf16, N>(op, args, formats, signed, each),
        Some(DType::F16) => update_by::<f16, N>(op, args, formats, signed, each),
        _ => update_by::<f32, N>(op, args, formats, signed, each),
    }
}

/// [`update`] by a gradient of `G`.
fn update_by<G: Float, const N: usize>(
    op: &'static str,
    args: &mut Args<'_>,
    formats: &Formats,
    signed: [bool; N],
    each: Each<'_, N>,
) -> Result<(), KernelError> {
    let wrong = KernelError::WrongOp { op };
    let (gradient, cells) = args.inputs.split_last_mut().ok_or_else(|| wrong.clone())?;
    let (gradient, layout) = (gradient.storage::<G>()?, gradient.layout());
    let len = cells.first().map_or(0, View::numel);
    let (weights, mut rest) = weights(formats, cells, &wrong)?;
    let mut moments = SmallVec::<[Moment<'_>; 2]>::new();
    for signed in signed {
        let (moment, more) = moment(formats, signed, rest, &wrong)?;
        moments.push(moment);
        rest = more;
    }
    let finite = AtomicBool::new(true);
    args.pool.for_each(len.div_ceil(CHUNK), |task| {
        let mut blocks = [[0.0; BLOCK]; N];
        let (mut p, mut g) = ([0.0; BLOCK], [0.0; BLOCK]);
        let end = len.min((task + 1) * CHUNK);
        for at in (task * CHUNK..end).step_by(BLOCK) {
            let len = BLOCK.min(end - at);
            let (p, g) = (&mut p[..len], &mut g[..len]);
            widen(gradient, layout, at, g);
            let mut blocks = blocks.each_mut().map(|block| &mut block[..len]);
            // SAFETY: chunks of different tasks do not overlap, and neither do the blocks in one; a
            // chunk is whole blocks.
            unsafe {
                let mut each_block = moments.iter().zip(&mut blocks);
                let moved = std::array::from_fn(|_| match each_block.next() {
                    Some((moment, block)) => moment.load(at, block),
                    None => &mut [],
                });
                if !each(weights.load(at, p), moved, g) {
                    finite.store(false, Ordering::Relaxed);
                }
            }
            // SAFETY: as above.
            unsafe {
                weights.store(at, p);
                for (moment, block) in moments.iter().zip(&blocks) {
                    moment.store(at, formats.step, block);
                }
            }
        }
    });
    if finite.into_inner() {
        Ok(())
    } else {
        Err(KernelError::NonFinite { what: "gradient" })
    }
}

const _: () = assert!(CHUNK.is_multiple_of(BLOCK));
