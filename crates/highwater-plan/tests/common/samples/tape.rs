//! Writes down the forward part of a step and adds its backward, its updates and its guard.

use super::{BANDWIDTH, FLOPS, Sample};
use crate::common::Builder;
use highwater_plan::*;
use std::ops::Range;

/// A parameter.
#[derive(Clone, Copy)]
pub(crate) struct Weight {
    cell: CellId,
    bytes: u64,
}

/// How a layer's gradient is made.
enum Back {
    /// A product with a weight: one node for each of both factors.
    Product { weight: Weight, flops: f64 },
    /// One node that reads the gradient and what was saved.
    Local {
        saved: Vec<ValueId>,
        seconds: f64,
        weight: Option<Weight>,
    },
    /// The gradient of the output is that of each input.
    Through,
    /// The gradient of each input is a part of that of the output.
    Parts,
}

struct Layer {
    inputs: Vec<ValueId>,
    output: ValueId,
    back: Back,
}

#[derive(Default)]
pub(crate) struct Tape {
    b: Builder,
    layers: Vec<Layer>,
    blocks: Vec<Range<usize>>,
    losses: Vec<ValueId>,
    turn: usize,
    /// Per cell: in how many places it is still to get a gradient from, and the sum so far.
    uses: Vec<(usize, Option<ValueId>)>,
    gradients: Vec<Option<ValueId>>,
}

impl Tape {
    pub(crate) fn weight(&mut self, bytes: u64) -> Weight {
        self.uses.push((0, None));
        let cell = self.b.cell();
        Weight { cell, bytes }
    }

    /// Values that no node makes.
    pub(crate) fn input(&mut self, bytes: u64) -> ValueId {
        self.b.value(bytes, Home::External)
    }

    pub(crate) fn bytes(&self, v: ValueId) -> u64 {
        self.b.problem.values[v.index()].bytes
    }

    /// What `f` adds is a block.
    pub(crate) fn block<T>(&mut self, f: impl FnOnce(&mut Tape) -> T) -> T {
        let start = self.b.problem.nodes.len();
        let result = f(self);
        self.blocks.push(start..self.b.problem.nodes.len());
        result
    }

    /// A matrix product or convolution.
    pub(crate) fn product(
        &mut self,
        x: ValueId,
        bytes: u64,
        flops: f64,
        weight: Weight,
    ) -> ValueId {
        let y = self.run(&[x], bytes, flops / FLOPS, Some(weight));
        self.push(&[x], y, Back::Product { weight, flops });
        y
    }

    /// A normalisation, which saves its input and some statistics.
    pub(crate) fn norm(&mut self, x: ValueId, statistics: u64, weight: Weight) -> ValueId {
        let seconds = self.moving(&[x, x], 0);
        let y = self.run(&[x], self.bytes(x), seconds, Some(weight));
        let statistics = self.b.arena(statistics);
        let node = self.b.problem.nodes.last_mut().expect("just added");
        node.outputs.push(statistics);
        let seconds = self.moving(&[x, x, x], 0);
        let saved = vec![x, statistics];
        let weight = Some(weight);
        self.push(
            &[x],
            y,
            Back::Local {
                saved,
                seconds,
                weight,
            },
        );
        y
    }

    /// A function of each element that saves its inputs.
    pub(crate) fn map(&mut self, inputs: &[ValueId], bytes: u64) -> ValueId {
        let y = self.run(inputs, bytes, self.moving(inputs, bytes), None);
        self.in_place(0);
        let seconds = 2.0 * self.moving(inputs, 0) + self.moving(&[], bytes);
        let saved = inputs.to_vec();
        self.push(
            inputs,
            y,
            Back::Local {
                saved,
                seconds,
                weight: None,
            },
        );
        y
    }

    /// A function of each element that saves its output.
    pub(crate) fn relu(&mut self, x: ValueId) -> ValueId {
        let y = self.run(&[x], self.bytes(x), self.moving(&[x, x], 0), None);
        self.in_place(0);
        let seconds = self.moving(&[x, x, x], 0);
        self.push(
            &[x],
            y,
            Back::Local {
                saved: vec![y],
                seconds,
                weight: None,
            },
        );
        y
    }

    /// A function that saves nothing but where its maxima were, if it looks for any.
    pub(crate) fn pool(&mut self, x: ValueId, bytes: u64, index: u64) -> ValueId {
        let seconds = self.moving(&[x], bytes + index);
        let y = self.run(&[x], bytes, seconds, None);
        let saved = if index > 0 {
            vec![self.b.arena(index)]
        } else {
            Vec::new()
        };
        let node = self.b.problem.nodes.last_mut().expect("just added");
        node.outputs.extend(&saved);
        self.push(
            &[x],
            y,
            Back::Local {
                saved,
                seconds,
                weight: None,
            },
        );
        y
    }

    /// Fused attention, which saves its input, its output and some statistics.
    pub(crate) fn attention(
        &mut self,
        qkv: &[ValueId],
        bytes: u64,
        statistics: u64,
        flops: f64,
    ) -> ValueId {
        let y = self.run(qkv, bytes, flops / FLOPS, None);
        let statistics = self.b.arena(statistics);
        let node = self.b.problem.nodes.last_mut().expect("just added");
        node.outputs.push(statistics);
        let saved = qkv.iter().copied().chain([y, statistics]).collect();
        let seconds = 2.5 * flops / FLOPS;
        self.push(
            qkv,
            y,
            Back::Local {
                saved,
                seconds,
                weight: None,
            },
        );
        y
    }

    pub(crate) fn add(&mut self, x: ValueId, y: ValueId) -> ValueId {
        let sum = self.run(&[x, y], self.bytes(x), self.moving(&[x, x, y], 0), None);
        self.in_place(1);
        self.push(&[x, y], sum, Back::Through);
        sum
    }

    pub(crate) fn cat(&mut self, inputs: &[ValueId]) -> ValueId {
        let bytes = inputs.iter().map(|&v| self.bytes(v)).sum();
        let y = self.run(inputs, bytes, self.moving(inputs, bytes), None);
        self.push(inputs, y, Back::Parts);
        y
    }

    /// Looks rows of a table up.
    pub(crate) fn embedding(&mut self, ids: ValueId, bytes: u64, weight: Weight) -> ValueId {
        let y = self.run(&[ids], bytes, self.moving(&[], 2 * bytes), Some(weight));
        let seconds = self.moving(&[], 2 * bytes);
        self.push(
            &[],
            y,
            Back::Local {
                saved: vec![ids],
                seconds,
                weight: Some(weight),
            },
        );
        y
    }

    /// A classifier and its loss, whose gradients are made in the same pass.
    pub(crate) fn loss(&mut self, x: ValueId, flops: f64, weight: Weight, scratch: u64) {
        self.turn = self.b.problem.nodes.len();
        let loss = self.b.value(4, Home::External);
        self.b.problem.values[loss.index()].wanted = true;
        let (dx, dw) = (self.b.arena(self.bytes(x)), self.b.arena(weight.bytes));
        let node = self.b.node(&[x], &[loss, dx, dw], 3.0 * flops / FLOPS);
        node.reads.push((weight.cell, 0));
        node.scratch_bytes = scratch;
        self.losses.push(loss);
        self.contribute(x, dx);
        self.uses[weight.cell.index()].0 += 1;
        self.learn(weight, dw);
    }

    /// Adds the backward part.
    pub(crate) fn finish(mut self, name: &'static str) -> Sample {
        self.b.guard(&self.losses.clone());
        for layer in std::mem::take(&mut self.layers).into_iter().rev() {
            let at = layer.output.index();
            if let Some(dy) = self.gradients.get(at).copied().flatten() {
                self.back(&layer, dy);
            }
        }
        Sample::new(name, self.b.problem, self.blocks, self.turn)
    }

    fn back(&mut self, layer: &Layer, dy: ValueId) {
        match &layer.back {
            Back::Product { weight, flops } => {
                let dw = self.run(&[layer.inputs[0], dy], weight.bytes, flops / FLOPS, None);
                if self.differentiable(layer.inputs[0]) {
                    let bytes = self.bytes(layer.inputs[0]);
                    let dx = self.run(&[dy], bytes, flops / FLOPS, Some(*weight));
                    self.contribute(layer.inputs[0], dx);
                }
                self.learn(*weight, dw);
            }
            Back::Local {
                saved,
                seconds,
                weight,
            } => {
                let read: Vec<ValueId> = [dy].into_iter().chain(saved.iter().copied()).collect();
                let into: Vec<ValueId> = layer
                    .inputs
                    .iter()
                    .copied()
                    .filter(|&v| self.differentiable(v))
                    .collect();
                let sizes: Vec<u64> = into
                    .iter()
                    .map(|&v| self.bytes(v))
                    .chain(weight.map(|w| w.bytes))
                    .collect();
                let outputs: Vec<ValueId> = sizes.into_iter().map(|n| self.b.arena(n)).collect();
                let node = self.b.node(&read, &outputs, *seconds);
                node.reads.extend(weight.map(|w| (w.cell, 0)));
                node.in_place.push((0, 0));
                for (&v, &d) in into.iter().zip(&outputs) {
                    self.contribute(v, d);
                }
                if let Some(weight) = weight {
                    self.learn(*weight, *outputs.last().expect("one for the weight"));
                }
            }
            Back::Through => layer.inputs.iter().for_each(|&v| self.contribute(v, dy)),
            Back::Parts => {
                for &v in &layer.inputs {
                    self.part(v, dy);
                }
            }
        }
    }

    fn differentiable(&self, v: ValueId) -> bool {
        self.b.problem.values[v.index()].home == Home::Arena
    }

    fn gradient(&mut self, v: ValueId) -> &mut Option<ValueId> {
        let more = (v.index() + 1).saturating_sub(self.gradients.len());
        self.gradients.extend(vec![None; more]);
        &mut self.gradients[v.index()]
    }

    fn contribute(&mut self, v: ValueId, new: ValueId) {
        let sum = match *self.gradient(v) {
            Some(old) => self.sum(old, new),
            None => new,
        };
        *self.gradient(v) = Some(sum);
    }

    fn sum(&mut self, old: ValueId, new: ValueId) -> ValueId {
        let bytes = self.bytes(old);
        let sum = self.run(&[old, new], bytes, self.moving(&[old, old, old], 0), None);
        self.in_place(0);
        self.in_place(1);
        sum
    }

    /// Adds a part of a gradient, or copies it where it is the first.
    fn part(&mut self, v: ValueId, dy: ValueId) {
        let bytes = self.bytes(v);
        let old = *self.gradient(v);
        let inputs: Vec<ValueId> = old.into_iter().chain([dy]).collect();
        let seconds = self.moving(&[], bytes * (inputs.len() as u64 + 1));
        let sum = self.run(&inputs, bytes, seconds, None);
        if old.is_some() {
            self.in_place(0);
        }
        *self.gradient(v) = Some(sum);
    }

    /// Adds a gradient to a weight's, and updates it where it was the last.
    fn learn(&mut self, weight: Weight, new: ValueId) {
        let (left, old) = self.uses[weight.cell.index()];
        let sum = old.map_or(new, |old| self.sum(old, new));
        self.uses[weight.cell.index()] = (left - 1, Some(sum));
        if left == 1 {
            let seconds = 7.0 * self.moving(&[sum], 0);
            self.b.update(&[sum], weight.cell, seconds);
        }
    }

    /// Adds a node with one output.
    fn run(
        &mut self,
        inputs: &[ValueId],
        bytes: u64,
        seconds: f64,
        weight: Option<Weight>,
    ) -> ValueId {
        let y = self.b.arena(bytes);
        let node = self.b.node(inputs, &[y], seconds);
        node.reads.extend(weight.map(|w| (w.cell, 0)));
        y
    }

    fn push(&mut self, inputs: &[ValueId], output: ValueId, back: Back) {
        let weight = match &back {
            Back::Product { weight, .. } => Some(weight),
            Back::Local { weight, .. } => weight.as_ref(),
            Back::Through | Back::Parts => None,
        };
        if let Some(weight) = weight {
            self.uses[weight.cell.index()].0 += 1;
        }
        self.layers.push(Layer {
            inputs: inputs.to_vec(),
            output,
            back,
        });
    }

    fn in_place(&mut self, input: u32) {
        let node = self.b.problem.nodes.last_mut().expect("one was added");
        node.in_place.push((input, 0));
    }

    /// Seconds to move values and so many bytes.
    fn moving(&self, values: &[ValueId], bytes: u64) -> f64 {
        let sum: u64 = values.iter().map(|&v| self.bytes(v)).sum();
        (sum + bytes) as f64 / BANDWIDTH
    }
}
