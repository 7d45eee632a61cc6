//! Random graphs.

use super::{LENGTH, Model, Random, Sample, WIDTH, sample, square_mean, values};
use highwater::{Engine, Parameter, Result, Tensor};

/// Makes a graph of some 35 nodes that a seed determines.
pub(crate) fn random_graph(seed: u64) -> impl Fn(&Engine) -> Result<Box<dyn Model>> {
    move |e| Ok(Box::new(RandomGraph::new(e, seed, 30)?))
}

pub(crate) const LARGE_RANDOM_GRAPH: Sample = sample("random graph of 200 nodes", true, |e| {
    Ok(Box::new(RandomGraph::new(e, 200, 200)?))
});

/// A graph drawn at random: any value may be used again by anything later.
struct RandomGraph {
    seed: u64,
    nodes: usize,
    weights: Vec<Parameter>,
}

impl RandomGraph {
    fn new(e: &Engine, seed: u64, nodes: usize) -> Result<Self> {
        let weight = |_| Parameter::normal(e, [WIDTH, WIDTH], 0.2);
        Ok(Self {
            seed,
            nodes,
            weights: (0..4).map(weight).collect::<Result<_>>()?,
        })
    }

    fn node(&self, random: &mut Random, values: &[Tensor]) -> Result<Tensor> {
        // The newest value half of the time, so that there is depth; else any.
        let pick = |random: &mut Random| match random.below(2) {
            0 => values[values.len() - 1].clone(),
            _ => values[random.below(values.len())].clone(),
        };
        let (x, y) = (pick(random), pick(random));
        match random.below(13) {
            0 | 1 => x.linear(&self.weights[random.below(self.weights.len())], None),
            2 => x.add(&y),
            3 => x.mul(&y)?.tanh(),
            4 => x.sub(&y)?.gelu(),
            5 => x.layer_norm(None, 1e-5),
            6 => x.dropout(0.25),
            7 => x.softmax(),
            8 => x.mul_scalar(0.7)?.relu(),
            9 => {
                let halves = x.chunk(2, 2)?;
                let sum = halves[0].mul(&halves[1])?.sum_dims(&[2], true)?;
                y.add(&sum.tanh()?)
            }
            10 => {
                let swapped = y
                    .reshape([y.dims()[0], LENGTH, 2, WIDTH / 2])?
                    .transpose(2, 3)?;
                x.mul(&swapped.reshape(x.shape().clone())?)?.sigmoid()
            }
            11 => {
                let (first, second) = (x.chunk(2, 2)?, y.chunk(2, 2)?);
                Tensor::cat(&[&second[1], &first[0]], 2)
            }
            _ => {
                let first = x.narrow(1, 0, 1)?.expand(x.shape().clone())?;
                y.add(&first)
            }
        }
    }
}

impl Model for RandomGraph {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        // The same graph for every batch.
        let mut random = Random(self.seed);
        let mut all = vec![values(self.weights[0].engine(), index, rows)?];
        for weight in &self.weights {
            all.push(all[0].linear(weight, None)?);
        }
        for _ in 0..self.nodes {
            all.push(self.node(&mut random, &all)?);
        }
        let last = all.iter().rev().take(3);
        let means = last.map(square_mean).collect::<Result<Vec<_>>>()?;
        Ok(vec![means[0].add(&means[1])?.add(&means[2])?])
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.weights.clone()]
    }
}
