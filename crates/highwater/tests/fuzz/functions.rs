//! The operations, in terms of the tape's few entries.

use crate::array::Array;
use crate::program::{Dtype, Op};
use crate::tape::{Id, Tape, Unary};

/// Not a program: shapes that do not fit, or numbers outside what is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Invalid;

type Made = Result<Id, Invalid>;

fn check(holds: bool) -> Result<(), Invalid> {
    if holds { Ok(()) } else { Err(Invalid) }
}

/// Strides of a dense row-major shape.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// Where each element of `shape` is, which steps so far along each dimension from `offset`.
fn positions(shape: &[usize], steps: &[usize], offset: usize) -> Vec<u32> {
    let mut all = vec![offset as u32];
    for (&extent, &step) in shape.iter().zip(steps) {
        all = all
            .iter()
            .flat_map(|&at| (0..extent).map(move |i| at + (i * step) as u32))
            .collect();
    }
    all
}

pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at =
        |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |k| shape[k]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (a, b) if a == b => Some(a),
            (1, b) => Some(b),
            (a, 1) => Some(a),
            _ => None,
        })
        .collect()
}

fn expand(tape: &mut Tape, x: Id, to: &[usize]) -> Made {
    let from = tape.shape(x).to_vec();
    check(broadcast(&from, to).as_deref() == Some(to))?;
    let own = strides(&from);
    let missing = to.len() - from.len();
    let step = |i: usize| match i.checked_sub(missing) {
        Some(k) if from[k] == to[i] => own[k],
        _ => 0,
    };
    let steps: Vec<usize> = (0..to.len()).map(step).collect();
    Ok(tape.gather(x, to, positions(to, &steps, 0)))
}

fn permute(tape: &mut Tape, x: Id, order: &[usize]) -> Made {
    let from = tape.shape(x).to_vec();
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    check(sorted == (0..from.len()).collect::<Vec<_>>())?;
    let own = strides(&from);
    let shape: Vec<usize> = order.iter().map(|&i| from[i]).collect();
    let steps: Vec<usize> = order.iter().map(|&i| own[i]).collect();
    Ok(tape.gather(x, &shape, positions(&shape, &steps, 0)))
}

fn reshape(tape: &mut Tape, x: Id, shape: &[usize]) -> Made {
    let count = tape.value(x).len();
    check(shape.iter().product::<usize>() == count)?;
    Ok(tape.gather(x, shape, (0..count as u32).collect()))
}

fn narrow(tape: &mut Tape, x: Id, dim: usize, start: usize, length: usize) -> Made {
    let mut shape = tape.shape(x).to_vec();
    check(dim < shape.len() && start + length <= shape[dim])?;
    let own = strides(&shape);
    shape[dim] = length;
    Ok(tape.gather(x, &shape, positions(&shape, &own, start * own[dim])))
}

fn transpose(tape: &mut Tape, x: Id, a: usize, b: usize) -> Made {
    let rank = tape.shape(x).len();
    check(a < rank && b < rank)?;
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(a, b);
    permute(tape, x, &order)
}

/// Both in the shape that they broadcast to.
fn pair(tape: &mut Tape, a: Id, b: Id) -> Result<(Id, Id), Invalid> {
    let shape = broadcast(tape.shape(a), tape.shape(b)).ok_or(Invalid)?;
    Ok((expand(tape, a, &shape)?, expand(tape, b, &shape)?))
}

fn sum(tape: &mut Tape, x: Id, dims: &[usize], keepdim: bool) -> Made {
    let from = tape.shape(x).to_vec();
    let gone = |i: usize| dims.is_empty() || dims.contains(&i);
    check(dims.iter().all(|&dim| dim < from.len()))?;
    check(
        dims.iter()
            .enumerate()
            .all(|(i, dim)| !dims[..i].contains(dim)),
    )?;
    let kept: Vec<usize> = (0..from.len())
        .map(|i| if gone(i) { 1 } else { from[i] })
        .collect();
    let own = strides(&kept);
    let steps: Vec<usize> = (0..from.len())
        .map(|i| if gone(i) { 0 } else { own[i] })
        .collect();
    let map = positions(&from, &steps, 0);
    let shape: Vec<usize> = if keepdim {
        kept
    } else {
        (0..from.len())
            .filter(|&i| !gone(i))
            .map(|i| from[i])
            .collect()
    };
    Ok(tape.sum(x, &shape, map))
}

fn mean(tape: &mut Tape, x: Id, dims: &[usize], keepdim: bool) -> Made {
    let count = tape.value(x).len();
    let sum = sum(tape, x, dims, keepdim)?;
    let ratio = count / tape.value(sum).len().max(1);
    check(ratio > 0)?;
    let over = tape.unary(sum, Unary::Over(ratio as f64));
    // One more rounding, for those who multiply by the reciprocal.
    Ok(if ratio.is_power_of_two() {
        over
    } else {
        blur(tape, over)
    })
}

/// The same numbers, of which nobody says the last bit.
fn blur(tape: &mut Tape, x: Id) -> Id {
    let zero = tape
        .value(x)
        .map(|v, _| (0.0, crate::array::UNIT * v.abs()));
    let zero = tape.leaf(zero, None);
    tape.add(x, zero)
}

fn matmul(tape: &mut Tape, a: Id, b: Id) -> Made {
    let (sa, sb) = (tape.shape(a).to_vec(), tape.shape(b).to_vec());
    let ([lead_a @ .., m, k], [lead_b @ .., k_b, n]) = (&sa[..], &sb[..]) else {
        return Err(Invalid);
    };
    check(k == k_b)?;
    let lead = broadcast(lead_a, lead_b).ok_or(Invalid)?;
    let whole = |rows: usize, columns: usize| [&lead[..], &[rows, columns]].concat();
    let a = expand(tape, a, &whole(*m, *k))?;
    let b = expand(tape, b, &whole(*k, *n))?;
    let extents = [lead.iter().product(), *m, *k, *n];
    Ok(tape.matmul(a, b, extents, &whole(*m, *n)))
}

fn linear(tape: &mut Tape, x: Id, weight: Id, bias: Option<Id>) -> Made {
    let (sx, sw) = (tape.shape(x).to_vec(), tape.shape(weight).to_vec());
    check(sw.len() == 2 && sx.last() == Some(&sw[1]))?;
    let rows = sx[..sx.len() - 1].iter().product();
    let flat = reshape(tape, x, &[rows, sw[1]])?;
    let turned = transpose(tape, weight, 0, 1)?;
    let mut y = matmul(tape, flat, turned)?;
    let mut shape = sx;
    *shape.last_mut().ok_or(Invalid)? = sw[0];
    if let Some(bias) = bias {
        check(tape.shape(bias) == [sw[0]])?;
        let (wide, bias) = pair(tape, y, bias)?;
        let sum = tape.add(wide, bias);
        // A kernel may start its sum from the bias.
        y = blur(tape, sum);
    }
    reshape(tape, y, &shape)
}

/// The largest of each row, as a constant.
fn row_max(tape: &mut Tape, x: Id) -> Made {
    let shape = tape.shape(x).to_vec();
    let width = *shape.last().ok_or(Invalid)?;
    check(width > 0)?;
    let rows = tape.value(x).value.chunks(width);
    let most = rows.map(|row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    let value: Vec<f64> = most.collect();
    let mut kept = shape.clone();
    kept[shape.len() - 1] = 1;
    let most = tape.leaf(Array::exact(&kept, value), None);
    expand(tape, most, &shape)
}

/// `exp(x - max)` and its sum over the last dimension; where `mask` is given, of those elements alone.
fn exponentials(tape: &mut Tape, x: Id, mask: Option<Id>) -> Result<(Id, Id, Id), Invalid> {
    let last = tape.shape(x).len().checked_sub(1).ok_or(Invalid)?;
    let most = row_max(tape, x)?;
    let minus = tape.unary(most, Unary::Neg);
    let below = tape.add(x, minus);
    let mut powers = tape.unary(below, Unary::Exp);
    if let Some(mask) = mask {
        powers = tape.mul(powers, mask);
    }
    let total = sum(tape, powers, &[last], true)?;
    Ok((powers, total, most))
}

fn softmax(tape: &mut Tape, x: Id, mask: Option<Id>) -> Made {
    let (powers, total, _) = exponentials(tape, x, mask)?;
    let (powers, total) = pair(tape, powers, total)?;
    let y = tape.div(powers, total);
    Ok(blur(tape, y))
}

fn layer_norm(tape: &mut Tape, x: Id, affine: Option<(Id, Id)>, eps: f64) -> Made {
    let shape = tape.shape(x).to_vec();
    let last = shape.len().checked_sub(1).ok_or(Invalid)?;
    check(shape[last] > 0)?;
    let middle = mean(tape, x, &[last], true)?;
    let minus = tape.unary(middle, Unary::Neg);
    let (x, minus) = pair(tape, x, minus)?;
    let apart = tape.add(x, minus);
    let square = tape.mul(apart, apart);
    let variance = mean(tape, square, &[last], true)?;
    let above = tape.unary(variance, Unary::Offset(eps));
    let root = tape.unary(above, Unary::Sqrt);
    let (apart, root) = pair(tape, apart, root)?;
    let quotient = tape.div(apart, root);
    let mut y = blur(tape, quotient);
    if let Some((weight, bias)) = affine {
        check(tape.shape(weight) == [shape[last]] && tape.shape(bias) == [shape[last]])?;
        let (wide, weight) = pair(tape, y, weight)?;
        let scaled = tape.mul(wide, weight);
        let (wide, bias) = pair(tape, scaled, bias)?;
        let sum = tape.add(wide, bias);
        y = blur(tape, sum);
    }
    Ok(y)
}

fn attention(tape: &mut Tape, q: Id, k: Id, v: Id, causal: bool) -> Made {
    let (sq, sk, sv) = (
        tape.shape(q).to_vec(),
        tape.shape(k).to_vec(),
        tape.shape(v).to_vec(),
    );
    check(sq.len() == 4 && sk.len() == 4 && sk == sv)?;
    check(sq[..2] == sk[..2] && sq[3] == sk[3] && (!causal || sq[2] == sk[2]))?;
    let turned = transpose(tape, k, 2, 3)?;
    let product = matmul(tape, q, turned)?;
    let scale = 1.0 / (sq[3] as f64).sqrt();
    let scores = tape.unary(product, Unary::Scale(scale));
    let scores = blur(tape, scores);
    let shape = tape.shape(scores).to_vec();
    let mask = causal.then(|| {
        let (rows, columns) = (shape[2], shape[3]);
        let sees = |i: usize| f64::from(u8::from(i % columns <= i / columns % rows));
        let count = shape.iter().product();
        tape.leaf(Array::exact(&shape, (0..count).map(sees).collect()), None)
    });
    let weights = softmax(tape, scores, mask)?;
    matmul(tape, weights, v)
}

fn cross_entropy(tape: &mut Tape, x: Id, (labels, of): (&[i64], &[usize])) -> Made {
    let shape = tape.shape(x).to_vec();
    let (&width, lead) = shape.split_last().ok_or(Invalid)?;
    check(lead == of)?;
    check(
        labels
            .iter()
            .all(|&label| label == -100 || (0..width as i64).contains(&label)),
    )?;
    let counted: Vec<usize> = (0..labels.len())
        .filter(|&row| labels[row] != -100)
        .collect();
    check(!counted.is_empty())?;
    let (_, total, most) = exponentials(tape, x, None)?;
    let log = tape.unary(total, Unary::Log);
    let rows: Vec<u32> = counted.iter().map(|&row| row as u32).collect();
    let at: Vec<u32> = counted
        .iter()
        .map(|&row| (row * width) as u32 + labels[row] as u32)
        .collect();
    let log = tape.gather(log, &[rows.len()], rows);
    let chosen = tape.gather(x, &[at.len()], at.clone());
    let most = tape.gather(most, &[at.len()], at);
    let minus = tape.unary(chosen, Unary::Neg);
    let near = tape.add(most, minus);
    let losses = tape.add(log, near);
    mean(tape, losses, &[], false)
}

fn embedding(tape: &mut Tape, weight: Id, indices: &[i64], shape: &[usize]) -> Made {
    let sw = tape.shape(weight).to_vec();
    check(sw.len() == 2 && indices.iter().all(|i| (0..sw[0] as i64).contains(i)))?;
    let width = sw[1];
    let row = |&i: &i64| (0..width).map(move |c| (i as usize * width + c) as u32);
    let map: Vec<u32> = indices.iter().flat_map(row).collect();
    Ok(tape.gather(weight, &[shape, &[sw[1]]].concat(), map))
}

fn cat(tape: &mut Tape, parts: &[Id], dim: usize) -> Made {
    let mut shape = tape.shape(*parts.first().ok_or(Invalid)?).to_vec();
    check(dim < shape.len())?;
    let extents: Vec<usize> = parts
        .iter()
        .filter_map(|&p| tape.shape(p).get(dim).copied())
        .collect();
    for &part in parts {
        let mut other = tape.shape(part).to_vec();
        check(other.len() == shape.len())?;
        other[dim] = shape[dim];
        check(other == shape)?;
    }
    shape[dim] = extents.iter().sum();
    let outer: usize = shape[..dim].iter().product();
    let inner: usize = shape[dim + 1..].iter().product();
    let (mut part, mut index) = (Vec::new(), Vec::new());
    for row in 0..outer {
        for (number, extent) in extents.iter().enumerate() {
            let block = extent * inner;
            part.extend(std::iter::repeat_n(number as u32, block));
            index.extend((row * block..(row + 1) * block).map(|i| i as u32));
        }
    }
    Ok(tape.gather_of(parts.to_vec(), &shape, part, index))
}

/// Bits of a significand.
pub(crate) fn bits(dtype: Dtype) -> i32 {
    match dtype {
        Dtype::F32 => 24,
        Dtype::Bf16 => 8,
        Dtype::F16 => 11,
    }
}

fn unary_of(op: &Op) -> Option<Unary> {
    let f32 = |value: f64| f64::from(value as f32);
    Some(match *op {
        Op::AddScalar(by) => Unary::Offset(f32(by)),
        Op::SubScalar(by) => Unary::Offset(-f32(by)),
        Op::MulScalar(by) => Unary::Scale(f32(by)),
        Op::DivScalar(by) => Unary::Over(f32(by)),
        Op::Neg => Unary::Neg,
        Op::Relu => Unary::Relu,
        Op::Tanh => Unary::Tanh,
        Op::Sigmoid => Unary::Sigmoid,
        Op::Exp => Unary::Exp,
        Op::Log => Unary::Log,
        Op::Sqrt => Unary::Sqrt,
        Op::Gelu => Unary::Gelu,
        Op::GeluTanh => Unary::GeluTanh,
        Op::Round(dtype) => Unary::Round(bits(dtype)),
        _ => return None,
    })
}

fn view(tape: &mut Tape, op: &Op, x: Id) -> Option<Made> {
    Some(match op {
        Op::Transpose(a, b) => transpose(tape, x, *a, *b),
        Op::Permute(order) => permute(tape, x, order),
        Op::Narrow { dim, start, length } => narrow(tape, x, *dim, *start, *length),
        Op::Chunk { chunks, dim, index } => {
            let extent = tape.shape(x).get(*dim).copied().unwrap_or(0);
            if *chunks == 0 || extent % chunks != 0 || index >= chunks {
                return Some(Err(Invalid));
            }
            let length = extent / chunks;
            narrow(tape, x, *dim, index * length, length)
        }
        Op::Expand(shape) => expand(tape, x, shape),
        Op::Reshape(shape) => reshape(tape, x, shape),
        // A leaf lies in order, and is that itself.
        Op::Contiguous if tape.is_leaf(x) => Ok(x),
        Op::Contiguous | Op::ToF32 => {
            let shape = tape.shape(x).to_vec();
            reshape(tape, x, &shape)
        }
        Op::Detach => Ok(tape.detach(x)),
        _ => return None,
    })
}

/// Applies an operation; `labels` are its last operand where that is whole numbers, with their shape.
pub(crate) fn apply(
    tape: &mut Tape,
    op: &Op,
    on: &[Id],
    labels: Option<(&[i64], &[usize])>,
) -> Made {
    let labels = || labels.ok_or(Invalid);
    if let (Some(f), [x]) = (unary_of(op), on) {
        return Ok(tape.unary(*x, f));
    }
    if let [x] = on
        && let Some(made) = view(tape, op, *x)
    {
        return made;
    }
    match (op, on) {
        (Op::Add | Op::Sub | Op::Mul | Op::Div, &[a, b]) => {
            let (a, b) = pair(tape, a, b)?;
            Ok(match op {
                Op::Add => tape.add(a, b),
                Op::Sub => {
                    let minus = tape.unary(b, Unary::Neg);
                    tape.add(a, minus)
                }
                Op::Mul => tape.mul(a, b),
                _ => tape.div(a, b),
            })
        }
        (Op::Softmax, &[x]) => softmax(tape, x, None),
        (Op::LayerNorm { affine: false, eps }, &[x]) => layer_norm(tape, x, None, *eps),
        (Op::LayerNorm { affine: true, eps }, &[x, w, b]) => {
            layer_norm(tape, x, Some((w, b)), *eps)
        }
        (Op::MatMul, &[a, b]) => matmul(tape, a, b),
        (Op::Linear { bias: false }, &[x, w]) => linear(tape, x, w, None),
        (Op::Linear { bias: true }, &[x, w, b]) => linear(tape, x, w, Some(b)),
        (Op::Embedding, &[w]) => embedding(tape, w, labels()?.0, labels()?.1),
        (Op::Attention { causal }, &[q, k, v]) => attention(tape, q, k, v, *causal),
        (Op::CrossEntropy, &[x]) => cross_entropy(tape, x, labels()?),
        (Op::LinearCrossEntropy, &[x, w]) => {
            let logits = linear(tape, x, w, None)?;
            cross_entropy(tape, logits, labels()?)
        }
        (Op::Sum { dims, keepdim }, &[x]) => sum(tape, x, dims, *keepdim),
        (Op::Mean { dims, keepdim }, &[x]) => mean(tape, x, dims, *keepdim),
        (Op::Cat { dim }, parts) => cat(tape, parts, *dim),
        _ => Err(Invalid),
    }
}
