//! Evaluating a graph node by node, with the plain references or with the fast kernels: slow and
//! simple, for laws and tests. Every number is an `f64` between nodes; those of values of `BF16` and
//! `F16` are rounded to that.

use crate::laws::data::{decode, gather, round, scatter};
use crate::laws::trial::{self, Setup};
use crate::{Array, Entry, Pool};
use highwater_graph::{DType, Graph, Node, Operand, Source, Spec};
use std::collections::BTreeMap;

/// What values and cells of a graph hold.
#[derive(Clone, Default)]
pub struct Values {
    storages: BTreeMap<Source, Vec<f64>>,
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lens = self
            .storages
            .iter()
            .map(|(source, data)| (source, data.len()));
        f.debug_map().entries(lens).finish()
    }
}

/// Why a graph cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{op}: {reason}")]
pub struct EvaluateError {
    /// The operation that it stopped at.
    pub op: &'static str,
    /// What is missing or went wrong.
    pub reason: String,
}

impl Values {
    /// Fills the whole storage of a value or cell, in storage order.
    pub fn set_storage(&mut self, source: Source, storage: Vec<f64>) {
        self.storages.insert(source, storage);
    }

    /// Fills what an operand sees; what it leaves out of its storage is NaN.
    pub fn set(&mut self, operand: &Operand, array: &Array) {
        let layout = &operand.spec.layout;
        let mut storage = vec![f64::NAN; layout.end()];
        scatter(layout, &array.data, &mut storage);
        self.storages.insert(operand.source, storage);
    }

    /// What an operand sees.
    ///
    /// # Panics
    /// If nothing filled it.
    pub fn get(&self, operand: &Operand) -> Array {
        gather(&operand.spec, &self.storages[&operand.source])
    }

    /// Evaluates every node with the plain references of a table.
    ///
    /// # Errors
    /// If an operation or an input is missing.
    pub fn evaluate_references(
        &mut self,
        graph: &Graph,
        table: &[Entry],
    ) -> Result<(), EvaluateError> {
        self.evaluate(graph, |node, inputs, outputs| {
            let entry = find(table, node)?;
            let arrays: Vec<Array> = (inputs.iter())
                .map(|(spec, storage)| gather(spec, storage))
                .collect();
            let mut results = (entry.reference)(node.op.as_ref(), &arrays).into_iter();
            let cells: Vec<Vec<f64>> = (results.by_ref().take(node.writes.len()))
                .map(|array| array.data)
                .collect();
            let filled = results.zip(outputs).map(|(array, spec)| {
                let mut storage = vec![f64::NAN; spec.layout.end()];
                scatter(&spec.layout, &array.data, &mut storage);
                if matches!(spec.dtype, DType::BF16 | DType::F16) {
                    for x in &mut storage {
                        *x = round(spec.dtype, *x);
                    }
                }
                storage
            });
            Ok(cells.into_iter().chain(filled).collect())
        })
    }

    /// Evaluates every node with the kernels of a table.
    ///
    /// # Errors
    /// If an operation or an input is missing; what a kernel answers.
    pub fn evaluate_kernels(
        &mut self,
        graph: &Graph,
        table: &[Entry],
        pool: &Pool,
    ) -> Result<(), EvaluateError> {
        self.evaluate(graph, |node, inputs, outputs| {
            let op = node.op.as_ref();
            let failed = |reason: String| EvaluateError {
                op: op.name(),
                reason,
            };
            let specs: Vec<Spec> = inputs.iter().map(|&(spec, _)| spec.clone()).collect();
            let kernel = find(table, node)?.kernel(&specs, outputs);
            let kernel =
                kernel.ok_or_else(|| failed("has no kernel for these dtypes".to_owned()))?;
            let bytes = trial::run(&kernel, op, inputs, outputs, Setup::new(pool));
            let bytes = bytes.map_err(|fault| failed(fault.to_string()))?;
            let cells = op.writes().into_iter().map(|i| inputs[i].0.dtype);
            let dtypes = cells.chain(outputs.iter().map(|spec| spec.dtype));
            Ok(dtypes.zip(bytes).map(|(d, b)| decode(d, &b)).collect())
        })
    }

    /// Runs every node; `run` answers the storages of written cells, then of outputs.
    fn evaluate(
        &mut self,
        graph: &Graph,
        run: impl Fn(&Node, &[(&Spec, &[f64])], &[Spec]) -> Result<Vec<Vec<f64>>, EvaluateError>,
    ) -> Result<(), EvaluateError> {
        for node in graph.nodes() {
            let input = |(i, operand): (usize, &'_ Operand)| {
                let storage = self.storages.get(&operand.source);
                storage.map(Vec::as_slice).ok_or_else(|| EvaluateError {
                    op: node.op.name(),
                    reason: format!("nothing fills input {i}"),
                })
            };
            let storages: Vec<&[f64]> =
                (node.inputs.iter().enumerate().map(input)).collect::<Result<_, _>>()?;
            let inputs: Vec<(&Spec, &[f64])> = (node
                .inputs
                .iter()
                .map(|operand| &operand.spec)
                .zip(storages))
            .collect();
            let values = node.outputs.iter().map(|&id| Source::Value(id));
            let outputs: Vec<Spec> = (node.outputs.iter())
                .map(|&id| graph.value(id).spec.clone())
                .collect();
            let results = run(node, &inputs, &outputs)?;
            let cells = (node.writes.iter()).map(|&(id, version)| Source::Cell(id, version.next()));
            self.storages.extend(cells.chain(values).zip(results));
        }
        Ok(())
    }
}

fn find<'a>(table: &'a [Entry], node: &Node) -> Result<&'a Entry, EvaluateError> {
    let op = node.op.name();
    let found = table.iter().find(|entry| entry.name == op);
    found.ok_or_else(|| EvaluateError {
        op,
        reason: "is not in the table".to_owned(),
    })
}
