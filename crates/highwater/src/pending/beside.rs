//! What users hold of a pass besides its gradients: losses, sums of them, accuracies. It is computed with the pass.

use super::Pending;
use crate::store::memory::Storages;
use highwater_graph::{Node, NodeId, Operand, ValueId};
use std::collections::BTreeSet;

impl Pending {
    /// Those of `kept` that come of nodes that run now, and of none that a backward of `future` is yet to run: later
    /// all that they come of would run once more for them. Nothing of what pending writes write.
    pub(crate) fn beside(
        &self,
        runs: &[bool],
        kept: Vec<ValueId>,
        future: Option<&Operand>,
        storages: &Storages,
    ) -> Vec<ValueId> {
        let producer = |id: ValueId| self.graph.value(id).producer.map(|(node, _)| node);
        let is_run = |id: ValueId| producer(id).is_some_and(|node| runs[node.index()]);
        let ends = |id: ValueId| storages.contains_key(&id) || is_run(id);
        let more = |id: ValueId| self.graph.reachable(&BTreeSet::from([id]), |_| false, ends);
        let left = kept.into_iter().filter(|&id| !ends(id));
        let left: Vec<(ValueId, NodeId)> =
            left.filter_map(|id| Some((id, producer(id)?))).collect();
        if left.is_empty() {
            return Vec::new();
        }
        let awaiting = self.awaiting(storages);
        let later = future.and_then(Operand::value).map(more);
        let is_later = |node: usize| later.as_ref().is_some_and(|later| later[node]);
        let comes_of_runs = |node: &Node| node.inputs.iter().filter_map(Operand::value).any(is_run);
        let is_beside = |&(id, made_by): &(ValueId, NodeId)| {
            let more = more(id);
            let mut more = (0..more.len()).filter(|&node| more[node]);
            !awaiting[made_by.index()]
                && more
                    .clone()
                    .any(|node| comes_of_runs(&self.graph.nodes()[node]))
                && !more.any(is_later)
        };
        let found = left.into_iter().filter(is_beside);
        found.map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::prelude::*;

    /// What is held of each micro-batch, the numbers in the end, and how many nodes were pending before each backward.
    fn step(
        micro_batches: usize,
        hold: impl Fn(&Tensor, &Tensor) -> Result<Vec<Tensor>>,
    ) -> Result<(Vec<f32>, Vec<usize>)> {
        let engine = Engine::builder().seed(3).memory(64 << 20).build()?;
        let layers = vec![
            Linear::new(&engine, 8, 8, true)?,
            Linear::new(&engine, 8, 8, true)?,
        ];
        let mut sgd = Sgd::new(layers.parameters(), SgdOptions::default())?;
        let (mut held, mut nodes) = (Vec::new(), Vec::new());
        for micro in 0..micro_batches {
            let x: Vec<f32> = (0..32).map(|i| ((i * 7 + micro) % 11) as f32).collect();
            let x = engine.tensor(&x, [4, 8])?;
            let hidden = layers[0].forward(&x)?.tanh()?;
            let out = layers[1].forward(&hidden)?;
            let loss = out.square()?.mean()?;
            held.extend(hold(&loss, &out)?);
            nodes.push(engine.lock().pending.graph.nodes().len());
            loss.backward()?;
        }
        sgd.step()?;
        let numbers: Result<Vec<f32>> = held.iter().map(Tensor::item).collect();
        Ok((numbers?, nodes))
    }

    fn accuracy(out: &Tensor) -> Result<Tensor> {
        no_grad(|| out.softmax()?.mul(out)?.sum())
    }

    #[test]
    fn what_is_held_is_computed_with_its_pass() {
        let hold = |loss: &Tensor, out: &Tensor| {
            Ok(vec![
                loss.detach()?,
                loss.detach()?.mul_scalar(2.0)?,
                accuracy(out)?,
            ])
        };
        let (numbers, nodes) = step(12, hold).unwrap();
        // However many there are, those of one pass are pending.
        assert!(
            nodes[3..].iter().all(|&count| count == nodes[2]),
            "{nodes:?}"
        );
        // As it is where each is read at once.
        let read = |loss: &Tensor, out: &Tensor| {
            let held = hold(loss, out)?;
            for tensor in &held {
                tensor.item()?;
            }
            Ok(held)
        };
        assert_eq!(step(12, read).unwrap().0, numbers);
    }
}
