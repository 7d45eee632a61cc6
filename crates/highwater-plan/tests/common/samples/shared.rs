//! A transformer whose blocks share one set of weights, whose embedding is its classifier, and
//! whose middle has a loss of its own.

use super::Sample;
use super::tape::{Tape, Weight};
use highwater_plan::ValueId;

const TOKENS: u64 = 2048;
const WIDTH: u64 = 768;
const VOCABULARY: u64 = 30000;

struct Weights {
    norms: [Weight; 2],
    qkv: Weight,
    proj: Weight,
    up: Weight,
    down: Weight,
}

fn linear(t: &mut Tape, x: ValueId, to: u64, weight: Weight) -> ValueId {
    let from = t.bytes(x) / TOKENS;
    t.product(x, TOKENS * to * 4, (TOKENS * from * to / 2) as f64, weight)
}

fn block(t: &mut Tape, x: ValueId, w: &Weights) -> ValueId {
    let h = t.norm(x, TOKENS * 8, w.norms[0]);
    let qkv = linear(t, h, 3 * WIDTH, w.qkv);
    let flops = (4 * TOKENS * 512 * WIDTH) as f64;
    let a = t.attention(&[qkv], TOKENS * WIDTH * 4, TOKENS * 12 * 4, flops);
    let p = linear(t, a, WIDTH, w.proj);
    let x = t.add(x, p);
    let h = t.norm(x, TOKENS * 8, w.norms[1]);
    let f = linear(t, h, 4 * WIDTH, w.up);
    let g = t.map(&[f], TOKENS * WIDTH * 16);
    let m = linear(t, g, WIDTH, w.down);
    t.add(x, m)
}

/// A step on 4 times 512 tokens through twelve blocks.
pub(crate) fn shared() -> Sample {
    let mut t = Tape::default();
    let mut matrix = |from: u64, to: u64| t.weight(from * to * 4);
    let table = matrix(VOCABULARY, WIDTH);
    let w = Weights {
        qkv: matrix(WIDTH, 3 * WIDTH),
        proj: matrix(WIDTH, WIDTH),
        up: matrix(WIDTH, 4 * WIDTH),
        down: matrix(4 * WIDTH, WIDTH),
        norms: [matrix(WIDTH, 2), matrix(WIDTH, 2)],
    };
    let ids = t.input(TOKENS * 4);
    let mut x = t.embedding(ids, TOKENS * WIDTH * 4, table);
    let flops = (2 * TOKENS * WIDTH * VOCABULARY) as f64;
    for i in 0..12 {
        x = t.block(|t| block(t, x, &w));
        if i == 5 || i == 11 {
            t.loss(x, flops, table, 256 * 4 * VOCABULARY);
        }
    }
    t.finish("Shared and tied weights, two losses, 12 blocks")
}
