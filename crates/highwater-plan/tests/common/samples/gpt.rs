//! GPT-2: fused attention, fused head and loss, early updates, tied embedding.

use super::{BANDWIDTH, FLOPS, Sample};
use crate::common::Builder;
use highwater_plan::*;

/// Builds the step.
struct Gpt {
    b: Builder,
    tokens: u64,
    length: u64,
    width: u64,
    unit: u64,
}

struct Saved {
    x: ValueId,
    h: [ValueId; 3],
    qkv: ValueId,
    a: [ValueId; 2],
    x1: ValueId,
    h2: [ValueId; 3],
    f: ValueId,
    g: ValueId,
    w: [CellId; 6],
}

impl Gpt {
    fn attention_seconds(&self, products: f64) -> f64 {
        products * self.unit as f64 / 4.0 * self.length as f64 / FLOPS
    }

    fn matmul(&mut self, i: &[ValueId], bytes: u64, k: u64, cell: Option<CellId>) -> ValueId {
        let o = self.b.arena(bytes);
        let flops = 2.0 * bytes as f64 / 4.0 * k as f64;
        let node = self.b.node(i, &[o], flops / FLOPS);
        node.reads.extend(cell.map(|c| (c, 0)));
        o
    }

    fn map(&mut self, i: &[ValueId], out: &[u64], cell: Option<CellId>) -> Vec<ValueId> {
        let outs: Vec<ValueId> = out.iter().map(|&n| self.b.arena(n)).collect();
        let values = &self.b.problem.values;
        let moved: u64 = i
            .iter()
            .chain(&outs)
            .map(|&v| values[v.index()].bytes)
            .sum();
        let node = self.b.node(i, &outs, moved as f64 / BANDWIDTH);
        node.reads.extend(cell.map(|c| (c, 0)));
        outs
    }

    fn in_place(&mut self, input: u32) {
        self.b
            .problem
            .nodes
            .last_mut()
            .expect("there is one")
            .in_place
            .push((input, 0));
    }

    fn update(&mut self, gradient: ValueId, cell: CellId) {
        let bytes = self.b.problem.values[gradient.index()].bytes;
        self.b
            .update(&[gradient], cell, 7.0 * bytes as f64 / BANDWIDTH);
    }

    fn forward(&mut self, x: ValueId) -> (Saved, ValueId) {
        let (u, c, row) = (self.unit, self.width, self.tokens * 4);
        let seconds = self.attention_seconds(4.0);
        let w = [(); 6].map(|()| self.b.cell());
        let h = self.map(&[x], &[u, row, row], Some(w[0]));
        let qkv = self.matmul(&[h[0]], 3 * u, c, Some(w[1]));
        let a = [self.b.arena(u), self.b.arena(row * c / 64)];
        self.b.node(&[qkv], &a, seconds);
        let p = self.matmul(&[a[0]], u, c, Some(w[2]));
        let x1 = self.map(&[x, p], &[u], None)[0];
        self.in_place(1);
        let h2 = self.map(&[x1], &[u, row, row], Some(w[3]));
        let f = self.matmul(&[h2[0]], 4 * u, c, Some(w[4]));
        let g = self.map(&[f], &[4 * u], None)[0];
        self.in_place(0);
        let m = self.matmul(&[g], u, 4 * c, Some(w[5]));
        let x2 = self.map(&[x1, m], &[u], None)[0];
        self.in_place(1);
        let (h, h2) = ([h[0], h[1], h[2]], [h2[0], h2[1], h2[2]]);
        (
            Saved {
                x,
                h,
                qkv,
                a,
                x1,
                h2,
                f,
                g,
                w,
            },
            x2,
        )
    }

    fn linear_backward(
        &mut self,
        x: ValueId,
        dy: ValueId,
        cell: CellId,
        wide: (u64, u64),
    ) -> ValueId {
        let (k, n) = wide;
        let dw = self.matmul(&[x, dy], 4 * k * n, self.tokens, None);
        let dx = self.matmul(&[dy], 4 * k * self.tokens, n, Some(cell));
        self.update(dw, cell);
        dx
    }

    fn norm_backward(
        &mut self,
        x: ValueId,
        h: [ValueId; 3],
        dy: ValueId,
        add: ValueId,
        cell: CellId,
    ) -> ValueId {
        let d = self.map(
            &[dy, x, h[1], h[2]],
            &[self.unit, self.width * 8],
            Some(cell),
        );
        self.in_place(0);
        self.update(d[1], cell);
        let dx = self.map(&[add, d[0]], &[self.unit], None)[0];
        self.in_place(0);
        dx
    }

    fn backward(&mut self, s: &Saved, dy: ValueId) -> ValueId {
        let (u, c) = (self.unit, self.width);
        let dg = self.linear_backward(s.g, dy, s.w[5], (4 * c, c));
        let df = self.map(&[dg, s.f], &[4 * u], None)[0];
        self.in_place(0);
        let dh2 = self.linear_backward(s.h2[0], df, s.w[4], (c, 4 * c));
        let dx1 = self.norm_backward(s.x1, s.h2, dh2, dy, s.w[3]);
        let da = self.linear_backward(s.a[0], dx1, s.w[2], (c, c));
        let dqkv = self.b.arena(3 * u);
        let inputs = [s.qkv, s.a[0], s.a[1], da];
        let seconds = self.attention_seconds(10.0);
        self.b.node(&inputs, &[dqkv], seconds);
        let dh = self.linear_backward(s.h[0], dqkv, s.w[1], (c, 3 * c));
        self.norm_backward(s.x, s.h, dh, dx1, s.w[0])
    }
}

/// What sizes a model.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) blocks: usize,
    pub(crate) width: u64,
    pub(crate) batch: u64,
    pub(crate) length: u64,
}

/// Batch 4 of 512 tokens of GPT-2 small's width, with this many blocks.
pub(crate) fn gpt2(blocks: usize) -> Problem {
    let (width, batch, length) = (768, 4, 512);
    let shape = Shape {
        blocks,
        width,
        batch,
        length,
    };
    gpt("GPT-2", shape).problem
}

/// A step of a model with GPT-2's vocabulary.
pub(crate) fn gpt(name: &'static str, shape: Shape) -> Sample {
    let (tokens, width, vocabulary) = (shape.batch * shape.length, shape.width, 50257);
    let mut g = Gpt {
        b: Builder::default(),
        tokens,
        length: shape.length,
        width,
        unit: tokens * width * 4,
    };
    let (u, wte) = (g.unit, g.b.cell());
    let ids = g.b.value(tokens * 4, Home::External);
    let mut x = g.map(&[ids], &[u], Some(wte))[0];
    let (mut saved, mut blocks) = (Vec::new(), Vec::new());
    for _ in 0..shape.blocks {
        let start = g.b.problem.nodes.len();
        let (s, y) = g.forward(x);
        blocks.push(start..g.b.problem.nodes.len());
        saved.push(s);
        x = y;
    }
    let last = g.b.cell();
    let h = g.map(&[x], &[u, tokens * 4, tokens * 4], Some(last));
    let turn = g.b.problem.nodes.len();
    let loss = g.b.value(4, Home::External);
    g.b.problem.values[loss.index()].wanted = true;
    let (dh, dw) = (g.b.arena(u), g.b.arena(4 * width * vocabulary));
    let flops = 6.0 * (tokens * width * vocabulary) as f64;
    let node = g.b.node(&[h[0], ids], &[loss, dh, dw], flops / FLOPS);
    node.reads.push((wte, 0));
    node.scratch_bytes = 256 * 4 * vocabulary;
    node.optional = vec![(1, flops / FLOPS / 3.0), (2, flops / FLOPS / 3.0)];
    g.b.guard(&[loss]);
    let d = g.map(&[dh, x, h[1], h[2]], &[u, width * 8], Some(last));
    g.in_place(0);
    g.update(d[1], last);
    let mut dy = d[0];
    for s in saved.iter().rev() {
        dy = g.backward(s, dy);
    }
    let total = g.b.arena(4 * width * vocabulary);
    let node =
        g.b.node(&[dw, dy, ids], &[total], 2.0 * u as f64 / BANDWIDTH);
    node.in_place.push((0, 0));
    g.update(total, wte);
    Sample::new(name, g.b.problem, blocks, turn)
}
