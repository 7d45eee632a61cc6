//! Updates in all forms, plainly: the whole of each tensor decoded, updated and put back, in `f32`, one
//! element after the other. Kernels give the same bits.

use super::{BLOCK, Draws, Formats, Master};
use crate::Array;
use crate::kernels::philox;
use half::{bf16, f16};
use highwater_graph::DType;

/// What a row of the table answers; `each` updates an element: what updates are added to, the moments,
/// of which `signed` says which have a sign, and the gradient.
pub(crate) fn update(
    formats: &Formats,
    inputs: &[Array],
    signed: &[bool],
    mut each: impl FnMut(&mut f32, &mut [f32], f32),
) -> Vec<Array> {
    let mut cells = inputs[..inputs.len() - 1].to_vec();
    let gradient = &inputs[inputs.len() - 1];
    let first = formats.written(0);
    let parts = formats.written(1) - first;
    let mut weights = load_weights(formats.master, &cells);
    let mut moments: Vec<Vec<f32>> = (signed.iter().enumerate())
        .map(|(k, &signed)| load_moment(&cells[first + k * parts..][..parts], signed))
        .collect();
    for (i, &g) in gradient.data.iter().enumerate() {
        let mut values: Vec<f32> = moments.iter().map(|moment| moment[i]).collect();
        each(&mut weights[i], &mut values, g as f32);
        for (moment, value) in moments.iter_mut().zip(values) {
            moment[i] = value;
        }
    }
    store_weights(formats.master, &weights, &mut cells);
    for (k, (moment, &signed)) in moments.iter().zip(signed).enumerate() {
        store_moment(
            moment,
            signed,
            formats.step,
            &mut cells[first + k * parts..][..parts],
        );
    }
    cells
}

fn load_weights(master: Master, cells: &[Array]) -> Vec<f32> {
    let of = |cell: &Array| cell.data.iter().map(|&x| x as f32).collect::<Vec<_>>();
    match master {
        Master::None | Master::Stochastic(_) => of(&cells[0]),
        Master::F32 => {
            let both = cells[0].data.iter().zip(&cells[1].data);
            both.map(|(&half, &master)| {
                let is_current =
                    rounded(cells[0].dtype, master as f32).to_bits() == (half as f32).to_bits();
                if is_current {
                    master as f32
                } else {
                    half as f32
                }
            })
            .collect()
        }
        Master::Split => {
            let both = cells[0].data.iter().zip(&cells[1].data);
            both.map(|(&high, &low)| {
                let high = i64::from((high as f32).to_bits());
                f32::from_bits((high + low as i64) as u32)
            })
            .collect()
        }
    }
}

fn store_weights(master: Master, weights: &[f32], cells: &mut [Array]) {
    let dtype = cells[0].dtype;
    for (i, &x) in weights.iter().enumerate() {
        cells[0].data[i] = f64::from(match master {
            Master::None => x,
            Master::F32 | Master::Split => rounded(dtype, x),
            Master::Stochastic(draws) => at_random(x, draws, i),
        });
        match master {
            Master::F32 => cells[1].data[i] = f64::from(x),
            Master::Split => {
                let bits = i64::from(x.to_bits());
                cells[1].data[i] = (bits - (bits + 0x8000) / 0x10000 * 0x10000) as f64;
            }
            Master::None | Master::Stochastic(_) => {}
        }
    }
}

/// What a master rounds to.
fn rounded(dtype: DType, master: f32) -> f32 {
    if dtype == DType::F16 {
        return f16::from_f32(master).to_f32();
    }
    f32::from_bits((master.to_bits() + 0x8000) / 0x10000 * 0x10000)
}

fn at_random(x: f32, draws: Draws, i: usize) -> f32 {
    let at = draws.start + i as u64;
    let word = philox::words(draws.seed, draws.offset, at / 4 * 4)[(at % 4) as usize];
    let bits = u64::from(x.to_bits()) + u64::from(word % 0x10000);
    bf16::from_bits((bits / 0x10000) as u16).to_f32()
}

/// How often a share is squared, and in how many steps its root is held.
fn code(signed: bool) -> (usize, f32) {
    if signed { (2, 127.0) } else { (3, 255.0) }
}

fn load_moment(parts: &[Array], signed: bool) -> Vec<f32> {
    let [codes, scales] = parts else {
        return parts[0].data.iter().map(|&x| x as f32).collect();
    };
    let (powers, steps) = code(signed);
    (codes.data.iter().enumerate())
        .map(|(i, &code)| {
            let code = if signed && code >= 128.0 {
                code - 256.0
            } else {
                code
            };
            let mut share = code as f32 / steps;
            for _ in 0..powers {
                share *= share;
            }
            let magnitude = share * scales.data[i / BLOCK] as f32;
            if code < 0.0 { -magnitude } else { magnitude }
        })
        .collect()
}

fn store_moment(moment: &[f32], signed: bool, step: u64, parts: &mut [Array]) {
    let [codes, scales] = parts else {
        parts[0].data = moment.iter().map(|&x| f64::from(x)).collect();
        return;
    };
    let (powers, steps) = code(signed);
    let power = |code: f32| (0..powers).fold(code / steps, |share, _| share * share);
    for (k, block) in moment.chunks(BLOCK).enumerate() {
        let scale = block.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        let scale = scale.min(f32::MAX);
        scales.data[k] = f64::from(scale);
        for (i, &x) in block.iter().enumerate() {
            let share = if scale == 0.0 {
                0.0
            } else {
                (x.abs() / scale).min(1.0)
            };
            let mut root = share;
            for _ in 0..powers {
                root = root.sqrt();
            }
            let below = (root * steps).floor();
            let (low, high) = (power(below), power(below + 1.0));
            let mut code = below;
            if share - low > chance(x, scale, step, i) * (high - low) {
                code += 1.0;
            }
            if signed && below == 0.0 {
                code = 0.0;
            }
            if x != 0.0 && !signed {
                code = code.max(1.0);
            }
            if x < 0.0 && code > 0.0 {
                code = 256.0 - code;
            }
            codes.data[k * BLOCK + i] = f64::from(code);
        }
    }
}

/// A number from 0 to below 1.
fn chance(x: f32, scale: f32, step: u64, i: usize) -> f32 {
    let times = |number: u64, factor| (number % (1 << 32) * factor % (1 << 32)) as u32;
    let mut bits = x.to_bits() ^ scale.to_bits().rotate_left(16);
    bits ^= times(i as u64, 0x9e37_79b9) ^ times(step, 0x85eb_ca6b);
    for factor in [0x7feb_352d_u64, 0x846c_a68b] {
        bits ^= bits / (1 << 16);
        bits = times(u64::from(bits), factor);
        bits ^= bits / (1 << 15);
    }
    (bits / 256) as f32 / 16_777_216.0
}
