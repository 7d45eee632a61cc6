//! Updates, a block at a time: decoded, updated, put back.

#![expect(unsafe_code, reason = "tasks update their own chunks of cells")]

use super::codes::{self, BLOCK};
use super::{Draws, Formats, Master, Moments, master};
use crate::cell::CHUNK;
use crate::float::Float;
use crate::strided::widen;
use crate::{Args, Disjoint, KernelError, View};
use half::{bf16, f16};
use highwater_graph::DType;
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
    /// # Safety
    /// No part of `at..at + to.len()`, at most a block, may be in use.
    unsafe fn load(&self, at: usize, to: &mut [f32]) {
        let len = to.len();
        // SAFETY: the caller's contract.
        unsafe {
            match self {
                Self::Full(all) => to.copy_from_slice(all.part(at, len)),
                Self::Bf16(half, all) => master::current(half.part(at, len), all.part(at, len), to),
                Self::F16(half, all) => {
                    to.copy_from_slice(all.part(at, len));
                    let half = half.part(at, len);
                    let (mut rounded, mut wide) = ([f16::ZERO; BLOCK], [0.0; BLOCK]);
                    f16::round(to, &mut rounded[..len]);
                    f16::widen(half, &mut wide[..len]);
                    master::current_f16(half, &rounded[..len], &wide[..len], to);
                }
                Self::Split(high, low) => master::join(high.part(at, len), low.part(at, len), to),
                Self::Stochastic(all, _) => bf16::widen(all.part(at, len), to),
            }
        }
    }

    /// # Safety
    /// As [`Weights::load`].
    unsafe fn store(&self, at: usize, from: &[f32]) {
        let len = from.len();
        // SAFETY: the caller's contract.
        unsafe {
            match self {
                Self::Full(all) => all.part(at, len).copy_from_slice(from),
                Self::Bf16(half, all) => {
                    all.part(at, len).copy_from_slice(from);
                    master::round_away(from, half.part(at, len));
                }
                Self::F16(half, all) => {
                    all.part(at, len).copy_from_slice(from);
                    f16::round(from, half.part(at, len));
                }
                Self::Split(high, low) => {
                    master::split(from, high.part(at, len), low.part(at, len));
                }
                Self::Stochastic(all, draws) => {
                    master::round_at_random(from, draws, at, all.part(at, len));
                }
            }
        }
    }
}

impl Moment<'_> {
    /// # Safety
    /// As [`Weights::load`]; `at` is where a block starts.
    unsafe fn load(&self, at: usize, to: &mut [f32]) {
        let len = to.len();
        // SAFETY: the caller's contract.
        unsafe {
            match self {
                Self::Full(all) => to.copy_from_slice(all.part(at, len)),
                Self::Coded {
                    codes,
                    scales,
                    signed,
                } => {
                    let (codes, scale) = (codes.part(at, len), scales.part(at / BLOCK, 1)[0]);
                    if *signed {
                        codes::decode_signed(codes, scale, to);
                    } else {
                        codes::decode_unsigned(codes, scale, to);
                    }
                }
            }
        }
    }

    /// # Safety
    /// As [`Moment::load`].
    unsafe fn store(&self, at: usize, step: u64, from: &[f32]) {
        let len = from.len();
        // SAFETY: the caller's contract.
        unsafe {
            match self {
                Self::Full(all) => all.part(at, len).copy_from_slice(from),
                Self::Coded {
                    codes,
                    scales,
                    signed,
                } => {
                    let (codes, scale) = (codes.part(at, len), scales.part(at / BLOCK, 1));
                    scale[0] = if *signed {
                        codes::encode_signed(from, step, codes)
                    } else {
                        codes::encode_unsigned(from, step, codes)
                    };
                }
            }
        }
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

/// Updates a parameter: hands `each` a block of the numbers that updates are added to, of each moment
/// (`signed` says which have a sign), and of the gradient. It answers whether the gradient is finite.
pub(crate) fn update<const N: usize>(
    op: &'static str,
    args: &mut Args<'_>,
    formats: &Formats,
    signed: [bool; N],
    each: impl Fn(&mut [f32], [&mut [f32]; N], &[f32]) -> bool + Sync,
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
    each: impl Fn(&mut [f32], [&mut [f32]; N], &[f32]) -> bool + Sync,
) -> Result<(), KernelError> {
    let wrong = KernelError::WrongOp { op };
    let (gradient, cells) = args.inputs.split_last_mut().ok_or_else(|| wrong.clone())?;
    let (gradient, layout) = (gradient.storage::<G>()?, gradient.layout());
    let len = cells.first().map_or(0, View::numel);
    let (weights, mut rest) = weights(formats, cells, &wrong)?;
    let mut moments: [Option<Moment<'_>>; N] = [const { None }; N];
    for (to, signed) in moments.iter_mut().zip(signed) {
        let (moment, more) = moment(formats, signed, rest, &wrong)?;
        *to = Some(moment);
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
            let mut moved = blocks.each_mut().map(|block| &mut block[..len]);
            // SAFETY: chunks of different tasks do not overlap, and neither do the blocks in one; a
            // chunk is whole blocks.
            unsafe {
                weights.load(at, p);
                for (moment, to) in moments.iter().flatten().zip(&mut moved) {
                    moment.load(at, to);
                }
            }
            if !each(p, moved, g) {
                finite.store(false, Ordering::Relaxed);
            }
            // SAFETY: as above.
            unsafe {
                weights.store(at, p);
                for (moment, from) in moments.iter().flatten().zip(&blocks) {
                    moment.store(at, formats.step, &from[..len]);
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
