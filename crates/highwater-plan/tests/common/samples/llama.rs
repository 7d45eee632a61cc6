//! A Llama of 1.1 billion parameters: RMS norm, rotary positions, grouped queries, SwiGLU.

use super::Sample;
use super::tape::Tape;
use highwater_plan::ValueId;

const TOKENS: u64 = 2048;
const WIDTH: u64 = 2048;
const KEYS: u64 = 256;
const HIDDEN: u64 = 5632;
const VOCABULARY: u64 = 32000;

fn linear(t: &mut Tape, x: ValueId, from: u64, to: u64) -> ValueId {
    let weight = t.weight(from * to * 4);
    t.product(x, TOKENS * to * 4, (2 * TOKENS * from * to) as f64, weight)
}

fn norm(t: &mut Tape, x: ValueId) -> ValueId {
    let weight = t.weight(WIDTH * 4);
    t.norm(x, TOKENS * 4, weight)
}

fn block(t: &mut Tape, x: ValueId) -> ValueId {
    let h = norm(t, x);
    let [q, k, v] = [WIDTH, KEYS, KEYS].map(|to| linear(t, h, WIDTH, to));
    let [q, k] = [q, k].map(|x| t.pool(x, t.bytes(x), 0));
    let flops = (4 * TOKENS * TOKENS * WIDTH) as f64;
    let a = t.attention(&[q, k, v], TOKENS * WIDTH * 4, TOKENS * 32 * 4, flops);
    let p = linear(t, a, WIDTH, WIDTH);
    let x = t.add(x, p);
    let h = norm(t, x);
    let gate = linear(t, h, WIDTH, HIDDEN);
    let up = linear(t, h, WIDTH, HIDDEN);
    let f = t.map(&[gate, up], TOKENS * HIDDEN * 4);
    let m = linear(t, f, HIDDEN, WIDTH);
    t.add(x, m)
}

/// A step on 2,048 tokens.
pub(crate) fn llama() -> Sample {
    let mut t = Tape::default();
    let ids = t.input(TOKENS * 4);
    let table = t.weight(VOCABULARY * WIDTH * 4);
    let mut x = t.embedding(ids, TOKENS * WIDTH * 4, table);
    for _ in 0..22 {
        x = t.block(|t| block(t, x));
    }
    let h = norm(&mut t, x);
    let head = t.weight(VOCABULARY * WIDTH * 4);
    let flops = (2 * TOKENS * WIDTH * VOCABULARY) as f64;
    t.loss(h, flops, head, 256 * 4 * VOCABULARY);
    t.finish("Llama-like 1.1B, 1 x 2048")
}
