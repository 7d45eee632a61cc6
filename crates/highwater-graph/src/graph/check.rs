//! What a node must be like to be added: everything that can be refused, before anything changes.

use super::{CellId, Graph, KernelId, Operand, Site, Source, Version, Writes};
use crate::{Backend, Effect, Op, OpError, RANK_MAX, Shape, Spec, Traits};
use smallvec::SmallVec;

impl Graph {
    /// The outputs of a node, once its inputs are found to be there. Leaves the inputs' specs in
    /// `self.specs`.
    pub(super) fn infer(
        &mut self,
        (op, traits): (&dyn Op, &Traits),
        inputs: &[Operand],
        site: &Site,
    ) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let name = op.name();
        for (i, operand) in inputs.iter().enumerate() {
            self.check_operand(name, i, operand, site)?;
        }
        self.specs.clear();
        self.specs
            .extend(inputs.iter().map(|input| input.spec.clone()));
        let outputs = op.infer(&self.specs)?;
        if !outputs.is_empty() && !traits.effect.is_repeatable() {
            let got = format!("{} outputs", outputs.len());
            let expected = "a node without outputs, as it has an effect";
            return Err(OpError::shape(op.name(), expected, got));
        }
        for output in &outputs {
            let refused = |what| {
                Err(OpError::shape(
                    op.name(),
                    what,
                    format!("result {output:?}"),
                ))
            };
            let Some(shape) = Shape::checked(output.shape()) else {
                let most =
                    format!("a result of at most {RANK_MAX} dimensions that a memory could hold");
                return refused(most);
            };
            if !output.layout.covers(shape.numel()) {
                return refused("results that cover their storage".to_owned());
            }
        }
        Ok(outputs)
    }

    /// That an operand sees nothing but elements of its source, and those as what they are; of a cell,
    /// that they are not overwritten.
    fn check_operand(
        &self,
        op: &'static str,
        i: usize,
        operand: &Operand,
        site: &Site,
    ) -> Result<(), OpError> {
        let whole = match operand.source {
            Source::Value(id) => self.values.get(id.index()).map(|value| &value.spec),
            Source::Cell(id, wanted) => {
                if !self.is_fresh(id, wanted) {
                    return Err(self.stale(op, id, wanted, site));
                }
                self.cell(id).map(|cell| &cell.spec)
            }
        };
        let Spec { dtype, layout } = &operand.spec;
        match whole {
            Some(whole) if whole.dtype == *dtype && layout.end() <= whole.layout.numel() => Ok(()),
            Some(whole) => {
                let expected = format!("input {i} to be a view of {whole}");
                Err(OpError::shape(op, expected, format!("{:?}", operand.spec)))
            }
            None => {
                let expected = format!("input {i} to be of this graph");
                Err(OpError::shape(
                    op,
                    expected,
                    format!("{:?}", operand.source),
                ))
            }
        }
    }

    /// That the version of a cell which an operand reads was not overwritten.
    ///
    /// # Errors
    /// [`OpError::StaleCell`].
    pub fn check_fresh(
        &self,
        op: &'static str,
        operand: &Operand,
        site: &Site,
    ) -> Result<(), OpError> {
        let Source::Cell(id, wanted) = operand.source else {
            return Ok(());
        };
        if self.is_fresh(id, wanted) {
            Ok(())
        } else {
            Err(self.stale(op, id, wanted, site))
        }
    }

    /// The cells that a node writes: each once, in its current version, by a node that runs once.
    pub(super) fn writes(
        &self,
        op: &'static str,
        traits: &Traits,
        inputs: &[Operand],
    ) -> Result<Writes, OpError> {
        let refused = |expected: &str, got| Err(OpError::shape(op, expected, got));
        let mut writes = Writes::new();
        for &position in &traits.writes {
            let Some((id, version)) = self.current_cell(inputs, position) else {
                let got = format!("something else at input {position}");
                return refused("the current version of a cell", got);
            };
            if writes.iter().any(|&(written, _)| written == id) {
                let got = format!("one more at input {position}");
                return refused("each cell to be written through one input", got);
            }
            writes.push((id, version));
        }
        let once = matches!(traits.effect, Effect::WritesCell | Effect::Collective);
        if !writes.is_empty() && !once {
            let got = format!("the effect {:?}", traits.effect);
            return refused("an operation that writes cells to say so", got);
        }
        Ok(writes)
    }

    fn current_cell(&self, inputs: &[Operand], position: usize) -> Option<(CellId, Version)> {
        let Source::Cell(id, version) = inputs.get(position)?.source else {
            return None;
        };
        self.cell(id)?;
        (self.version(id) == version).then_some((id, version))
    }

    /// The kernel that takes the node, and every other operand on a cell that it writes.
    pub(super) fn kernel(
        &self,
        (op, traits): (&dyn Op, &Traits),
        inputs: &[Operand],
        outputs: &[Spec],
        writes: &Writes,
    ) -> Result<Option<KernelId>, OpError> {
        let backend = self.backend.as_deref();
        let find = |backend: &dyn Backend| backend.find(op, &self.specs, outputs);
        let kernel = backend.map(find).transpose()?;
        if writes.is_empty() {
            return Ok(kernel);
        }
        for (read, operand) in inputs.iter().enumerate() {
            let Source::Cell(id, _) = operand.source else {
                continue;
            };
            let Some(at) = writes.iter().position(|&(written, _)| written == id) else {
                continue;
            };
            let written = traits.writes[at];
            let both = backend.zip(kernel);
            let may =
                |(backend, kernel): (&dyn Backend, _)| backend.may_overlap(kernel, read, written);
            if read != written && !both.is_some_and(may) {
                let cell = self.cell(id).map(|cell| cell.name.to_string());
                return Err(OpError::Overlap {
                    op: op.name(),
                    cell: cell.unwrap_or_default(),
                    read,
                    written,
                });
            }
        }
        Ok(kernel)
    }

    fn is_fresh(&self, id: CellId, wanted: Version) -> bool {
        self.cell(id).is_some() && wanted >= self.evaluated(id)
    }

    /// The error of an operand whose cell is gone, or was overwritten.
    fn stale(&self, op: &'static str, id: CellId, wanted: Version, site: &Site) -> OpError {
        let unknown = || "an unknown place".to_owned();
        let cell = self.cell(id);
        OpError::StaleCell {
            op,
            cell: cell.map_or_else(|| "a dropped cell".to_owned(), |cell| cell.name.to_string()),
            wanted,
            current: self.evaluated(id),
            read_at: site.location,
            written_at: self
                .written_at(id)
                .map_or_else(unknown, |location| location.to_string()),
        }
    }
}
