//! Layers, directions and steps, whatever a step computes.

use super::RecurrentOptions;
use super::cells::Cell;
use crate::Result;
use crate::engine::Engine;
use crate::error::usage_error;
use crate::nn::{Dropout, Module, PackedSequence, Visitor, join};
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use highwater_graph::Location;

/// Weights of one layer in one direction.
#[derive(Debug, Clone)]
struct Weights {
    ih: Parameter,
    hh: Parameter,
    biases: Option<[Parameter; 2]>,
}

/// What the three layers share: weights by PyTorch's names, and the walk over layers, directions and steps.
#[derive(Debug, Clone)]
pub(super) struct Stack {
    /// Layer after layer, the reverse direction behind the forward one.
    weights: Vec<Weights>,
    hidden: usize,
    directions: usize,
    dropout: Dropout,
}

impl Module for Stack {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        for (i, weights) in self.weights.iter().enumerate() {
            let (layer, reverse) = (i / self.directions, i % self.directions == 1);
            let suffix = if reverse { "_reverse" } else { "" };
            let mut show = |name: &str, parameter: &Parameter| {
                parameter.visit(&join(path, &format!("{name}_l{layer}{suffix}")), visitor);
            };
            show("weight_ih", &weights.ih);
            show("weight_hh", &weights.hh);
            if let Some([ih, hh]) = &weights.biases {
                show("bias_ih", ih);
                show("bias_hh", hh);
            }
        }
        self.dropout.visit(path, visitor);
    }
}

impl Stack {
    /// All weights uniform within `1 / sqrt(hidden)`, as in PyTorch.
    #[track_caller]
    pub(super) fn new(
        engine: &Engine,
        [inputs, hidden, gates]: [usize; 3],
        options: RecurrentOptions,
    ) -> Result<Self> {
        if hidden == 0 || inputs == 0 || options.num_layers == 0 {
            let message = format!(
                "a recurrent layer needs a width, hidden elements and layers, not {inputs}, {hidden} and {}",
                options.num_layers
            );
            return Err(usage_error(message, Location::caller()));
        }
        let dropout = Dropout::new(options.dropout)?;
        let directions = 1 + usize::from(options.bidirectional);
        let bound = 1.0 / (hidden as f32).sqrt();
        let mut weights = Vec::with_capacity(options.num_layers * directions);
        for i in 0..options.num_layers * directions {
            let width = if i < directions {
                inputs
            } else {
                hidden * directions
            };
            let ih = Parameter::uniform(engine, [gates * hidden, width], bound)?;
            let hh = Parameter::uniform(engine, [gates * hidden, hidden], bound)?;
            let bias = || Parameter::uniform(engine, [gates * hidden], bound);
            let biases = if options.bias {
                Some([bias()?, bias()?])
            } else {
                None
            };
            weights.push(Weights { ih, hh, biases });
        }
        Ok(Self {
            weights,
            hidden,
            directions,
            dropout,
        })
    }

    /// [`Stack::run`] of a cell that carries nothing but its hidden state.
    pub(super) fn run_hidden<C: Cell>(
        &self,
        cell: C,
        input: &PackedSequence,
        first: Option<&Tensor>,
    ) -> Result<(PackedSequence, Tensor)> {
        let first = first.as_ref().map(std::slice::from_ref);
        let (output, mut last) = self.run(cell, input, first)?;
        Ok((output, last.remove(0)))
    }

    /// The output of the last layer and, in the order of `weights`, each one's last states, in the order of
    /// the sequences as they were before packing: `[layers * directions, B, hidden]`.
    pub(super) fn run<C: Cell>(
        &self,
        cell: C,
        input: &PackedSequence,
        first: Option<&[&Tensor]>,
    ) -> Result<(PackedSequence, Vec<Tensor>)> {
        let batch = input.sorted_indices.len();
        let mut first = self.first::<C>(input, first)?;
        let mut data = input.data.clone();
        let mut last: Vec<Vec<Tensor>> = vec![Vec::new(); C::STATES];
        for (layer, weights) in self.weights.chunks(self.directions).enumerate() {
            if layer > 0 {
                data = self.dropout.forward(&data)?;
            }
            let mut outputs = Vec::with_capacity(self.directions);
            for (direction, weights) in weights.iter().enumerate() {
                let states = first.remove(0);
                let sizes = &input.batch_sizes;
                let (output, ends) = weights.run(cell, &data, sizes, states, direction == 1)?;
                outputs.push(output);
                for (last, end) in last.iter_mut().zip(ends) {
                    last.push(end.reshape([1, batch, self.hidden])?);
                }
            }
            data = match &outputs[..] {
                [one] => one.clone(),
                both => Tensor::cat(both, 1)?,
            };
        }
        let places = inverse(&input.sorted_indices);
        let back = |states: Vec<Tensor>| reorder(&Tensor::cat(&states, 0)?, &places);
        let last: Result<Vec<Tensor>> = last.into_iter().map(back).collect();
        Ok((input.with_data(data), last?))
    }

    /// The first states of each layer and direction, longest sequence first; zeros if none are given.
    fn first<C: Cell>(
        &self,
        input: &PackedSequence,
        given: Option<&[&Tensor]>,
    ) -> Result<Vec<Vec<Tensor>>> {
        let (batch, count) = (input.sorted_indices.len(), self.weights.len());
        let Some(given) = given else {
            let engine = input.data.engine();
            let zeros = engine.tensor(&vec![0.0; batch * self.hidden], [batch, self.hidden])?;
            let zeros = zeros.to_dtype(input.data.dtype())?;
            return Ok(vec![vec![zeros; C::STATES]; count]);
        };
        let mut all = vec![Vec::new(); count];
        for states in given {
            let shape = [count, batch, self.hidden];
            if states.dims() != shape {
                let message = format!(
                    "states {} are given to a recurrent layer that wants [{count}, {batch}, {}]",
                    states.shape(),
                    self.hidden
                );
                return Err(usage_error(message, Location::caller()));
            }
            let sorted = reorder(states, &input.sorted_indices)?;
            for (i, all) in all.iter_mut().enumerate() {
                let one = sorted.narrow(0, i, 1)?;
                all.push(one.reshape([batch, self.hidden])?);
            }
        }
        Ok(all)
    }
}

impl Weights {
    /// All steps in one direction: the hidden states in the order of the steps, and the states at the end of
    /// each sequence.
    fn run<C: Cell>(
        &self,
        cell: C,
        data: &Tensor,
        sizes: &[usize],
        first: Vec<Tensor>,
        reverse: bool,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let [ih, hh] = match &self.biases {
            Some([ih, hh]) => [Some(&**ih), Some(&**hh)],
            None => [None, None],
        };
        let projected = data.linear(&self.ih, ih)?;
        let mut starts = Vec::with_capacity(sizes.len());
        starts.extend(sizes.iter().scan(0, |row, &size| {
            *row += size;
            Some(*row - size)
        }));
        let step = |states: &[Tensor], t: usize| {
            let input = projected.narrow(0, starts[t], sizes[t])?;
            let hidden = states[0].linear(&self.hh, hh)?;
            cell.step(&input, &hidden, states)
        };
        if reverse {
            backwards(sizes, &first, step)
        } else {
            forwards(sizes, first, step)
        }
    }
}

/// The first `count` rows; the tensor itself if it has no more.
fn rows(states: &Tensor, count: usize) -> Result<Tensor> {
    if states.dims()[0] == count {
        return Ok(states.clone());
    }
    states.narrow(0, 0, count)
}

/// From the first step on: sequences that have ended drop out.
fn forwards(
    sizes: &[usize],
    mut states: Vec<Tensor>,
    step: impl Fn(&[Tensor], usize) -> Result<Vec<Tensor>>,
) -> Result<(Tensor, Vec<Tensor>)> {
    let mut outputs = Vec::with_capacity(sizes.len());
    let mut ended: Vec<Vec<Tensor>> = vec![Vec::new(); states.len()];
    for (t, &size) in sizes.iter().enumerate() {
        let count = states[0].dims()[0];
        if size < count {
            for (ended, state) in ended.iter_mut().zip(&mut states) {
                ended.push(state.narrow(0, size, count - size)?);
                *state = rows(state, size)?;
            }
        }
        states = step(&states, t)?;
        outputs.push(states[0].clone());
    }
    let ends = states.into_iter().zip(ended).map(|(state, mut ended)| {
        ended.push(state);
        ended.reverse();
        Tensor::cat(&ended, 0)
    });
    Ok((Tensor::cat(&outputs, 0)?, ends.collect::<Result<_>>()?))
}

/// From the last step back: sequences join at their own last step, with their first states.
fn backwards(
    sizes: &[usize],
    first: &[Tensor],
    step: impl Fn(&[Tensor], usize) -> Result<Vec<Tensor>>,
) -> Result<(Tensor, Vec<Tensor>)> {
    let last = sizes.last().copied().unwrap_or(0);
    let mut states = Vec::with_capacity(first.len());
    for first in first {
        states.push(rows(first, last)?);
    }
    let mut outputs = Vec::with_capacity(sizes.len());
    for (t, &size) in sizes.iter().enumerate().rev() {
        let count = states[0].dims()[0];
        if size > count {
            for (state, first) in states.iter_mut().zip(first) {
                let joining = first.narrow(0, count, size - count)?;
                *state = Tensor::cat(&[&*state, &joining], 0)?;
            }
        }
        states = step(&states, t)?;
        outputs.push(states[0].clone());
    }
    outputs.reverse();
    Ok((Tensor::cat(&outputs, 0)?, states))
}

/// Where each number of a permutation stands.
fn inverse(order: &[usize]) -> Vec<usize> {
    let mut places = vec![0; order.len()];
    for (place, &i) in order.iter().enumerate() {
        places[i] = place;
    }
    places
}

/// `[N, B, C]` with the middle dimension in another order.
fn reorder(states: &Tensor, order: &[usize]) -> Result<Tensor> {
    if order.is_sorted() {
        return Ok(states.clone());
    }
    let &[layers, batch, width] = states.dims() else {
        return Ok(states.clone());
    };
    let layer = |layer: usize| order.iter().map(move |&i| (layer * batch + i) as u32);
    let rows: Vec<u32> = (0..layers).flat_map(layer).collect();
    let rows = states.engine().indices(&rows, [layers, batch])?;
    states.reshape([layers * batch, width])?.embedding(&rows)
}
