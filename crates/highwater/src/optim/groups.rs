//! Optimizers whose updates are one operation: groups of parameters, and the state of each.

use super::direction::{Direction, directed};
use super::formats;
use super::pieces::{pieces, suffix};
use super::{
    Optimizer, Rule, Stepped, check_settings, common_engine, has_grad, names, step, zero_grad,
};
use crate::engine::Engine;
use crate::engine::lock::Locked;
use crate::error::usage_error;
use crate::pending::context::site;
use crate::tensor::parameter::Parameter;
use crate::{Error, Result};
use highwater_graph::{Location, Operand, Phase, Shape};
use highwater_ops::{Formats, Master, StateCell};
use std::collections::BTreeSet;
use std::ops::Range;

/// An optimizer over groups of parameters, each with settings of its own.
///
/// The moments of what is trained are made with the optimizer, those of what is frozen then when it first has a
/// gradient. Updates are nodes of the step's graph: each runs as soon
/// as its gradient is final, so gradients do not pile up. The moments of a parameter of more than 16 M
/// numbers lie in several tensors, each of some rows, and an update of its own belongs to each:
/// [`Builder::piece_bytes`](crate::Builder::piece_bytes).
pub struct Groups<R> {
    groups: Vec<R>,
    slots: Vec<Slot>,
}

/// A parameter and its state.
struct Slot {
    group: usize,
    parameter: Parameter,
    /// Names of the moments.
    kinds: &'static [&'static str],
    /// How parameter and moments are held.
    formats: Formats,
    /// None of a parameter that is frozen, before its first gradient.
    pieces: Vec<Piece>,
    /// Updates so far.
    steps: u64,
    /// Names and shapes of what else is kept.
    statistics: Vec<(&'static str, Shape)>,
}

/// What one node updates.
struct Piece {
    /// Rows of the parameter; all of it if `None`.
    rows: Option<Range<usize>>,
    /// What is beside the parameter, by the names of the kinds.
    cells: Vec<(String, Parameter)>,
    /// What the direction is made from.
    statistics: Vec<(String, Parameter)>,
}

/// Refuses settings of a group that cannot be meant.
fn check(rule: &impl Rule, location: Location) -> Result<()> {
    check_settings(&rule.bounds(), location)?;
    let conflict = rule.conflict();
    conflict.map_or(Ok(()), |message| Err(usage_error(message, location)))
}

/// How a parameter and its moments are held by a rule.
fn formats_of(rule: &impl Rule, parameter: &Parameter, location: Location) -> Result<Formats> {
    let (master, moments) = rule.formats();
    formats::formats(parameter.dtype(), master, moments)
        .map_err(|what| usage_error(format!("`{}`: {what}", parameter.name()), location))
}

impl<R: Rule> Groups<R> {
    /// An optimizer over one group.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that cannot be meant; [`Error::OtherEngine`] for parameters of
    /// several engines; [`Error::State`] if there is no room for the moments.
    #[track_caller]
    pub fn new(parameters: Vec<Parameter>, options: R) -> Result<Self> {
        Self::with_groups(vec![(parameters, options)])
    }

    /// An optimizer over several groups. A parameter that stands twice belongs to the first.
    ///
    /// # Errors
    /// As [`Groups::new`].
    #[track_caller]
    pub fn with_groups(groups: Vec<(Vec<Parameter>, R)>) -> Result<Self> {
        let location = Location::caller();
        let mut all = Self {
            groups: Vec::new(),
            slots: Vec::<Slot>::new(),
        };
        let parameters = groups.iter().flat_map(|(parameters, _)| parameters);
        common_engine("an optimizer", parameters, location)?;
        let mut seen = BTreeSet::new();
        for (group, (parameters, options)) in groups.into_iter().enumerate() {
            check(&options, location)?;
            for parameter in parameters {
                if seen.insert(parameter.id()) {
                    let slot = Slot::new(group, parameter, &options, location)?;
                    all.slots.push(slot);
                }
            }
            all.groups.push(options);
        }
        Ok(all)
    }

    /// The groups' settings, to be changed between steps: the next step refuses those that cannot be
    /// meant. Which moments there are is settled when the optimizer is made.
    pub fn groups_mut(&mut self) -> &mut [R] {
        &mut self.groups
    }

    fn update(&mut self, keep: bool, location: Location) -> Result<Stepped> {
        for group in &self.groups {
            check(group, location)?;
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.pieces.is_empty()) {
            if has_grad(&slot.parameter) {
                slot.make_cells()?;
            }
        }
        for slot in &self.slots {
            slot.check(&self.groups[slot.group], location)?;
        }
        let parameters = self.parameters();
        let (updated, stepped) = step(
            &parameters,
            keep,
            location,
            &mut |engine, state, at, grad| {
                let slot = &self.slots[at];
                slot.emit(engine, state, &self.groups[slot.group], grad, location)
            },
        )?;
        if stepped == Stepped::Updated {
            for (slot, updated) in self.slots.iter_mut().zip(updated) {
                slot.steps += u64::from(updated);
            }
        }
        Ok(stepped)
    }
}

impl<R: std::fmt::Debug> std::fmt::Debug for Groups<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups")
            .field("groups", &self.groups)
            .field("parameters", &self.slots.len())
            .finish_non_exhaustive()
    }
}

impl Slot {
    fn new(
        group: usize,
        parameter: Parameter,
        rule: &impl Rule,
        location: Location,
    ) -> Result<Self> {
        if let Some(why) = rule.refuses(parameter.shape()) {
            let (name, shape) = (parameter.name(), parameter.shape());
            return Err(usage_error(format!("`{name}` of {shape}: {why}"), location));
        }
        let mut slot = Self {
            group,
            kinds: rule.moments(),
            formats: formats_of(rule, &parameter, location)?,
            statistics: rule.statistics(parameter.shape()),
            parameter,
            pieces: Vec::new(),
            steps: 0,
        };
        if slot.parameter.requires_grad()? {
            slot.make_cells()?;
        }
        Ok(slot)
    }

    /// Makes what is beside the parameter.
    fn make_cells(&mut self) -> Result<()> {
        let (shape, dtype) = (self.parameter.shape(), self.parameter.dtype());
        let cells = |shape: &Shape| formats::cells(&self.formats, dtype, shape, self.kinds);
        // With nothing beside it an update needs nothing that pieces would spare.
        let all = if cells(shape).is_empty() || !self.statistics.is_empty() {
            vec![None]
        } else {
            pieces(shape, self.parameter.engine().0.piece_bytes)
        };
        let mut made = Vec::new();
        for rows in all {
            let mut dims = shape.to_vec();
            if let Some(rows) = &rows {
                dims[0] = rows.len();
            }
            let zeros = |cell: StateCell| {
                let name = self.name(&cell.kind, rows.as_ref());
                let engine = self.parameter.engine();
                let zeros = Parameter::optimizer_state(engine, &name, cell.dtype, cell.shape)?;
                Ok((cell.kind, zeros))
            };
            let statistic = |(kind, shape): &(&str, Shape)| StateCell {
                kind: (*kind).to_owned(),
                dtype: Direction::dtype(dtype),
                shape: shape.clone(),
            };
            let all = cells(&Shape::from(&dims[..])).into_iter().map(zeros);
            let cells = all.collect::<Result<_>>()?;
            let all = self.statistics.iter().map(statistic).map(zeros);
            let statistics = all.collect::<Result<_>>()?;
            made.push(Piece {
                rows,
                cells,
                statistics,
            });
        }
        self.pieces = made;
        Ok(())
    }

    /// Refuses settings that ask for another state than there is.
    fn check(&self, rule: &impl Rule, location: Location) -> Result<()> {
        let formats = formats_of(rule, &self.parameter, location)?;
        let (was, asked) = (self.kinds, rule.moments());
        if (was, self.formats) == (asked, formats) {
            return Ok(());
        }
        let message = format!(
            "the optimizer of `{}` was made with the moments {was:?} in {:?}, and its settings now ask for \
             {asked:?} in {formats:?}: make another one",
            self.parameter.name(),
            self.formats,
        );
        Err(usage_error(message, location))
    }

    fn name(&self, kind: &str, rows: Option<&Range<usize>>) -> String {
        format!("{kind}.{}{}", self.parameter.name(), suffix(rows))
    }

    /// Adds the updates of all pieces, each of which makes the parameter's next version.
    fn emit<'e>(
        &self,
        engine: &'e Engine,
        mut locked: Locked<'e>,
        rule: &impl Rule,
        mut by: Operand,
        location: Location,
    ) -> Result<Locked<'e>> {
        if !rule.goes_by_gradient() {
            let statistics = self.pieces.first().map_or(&[][..], |of| &of.statistics);
            let of = (&self.parameter, statistics, self.steps + 1);
            (locked, by) = directed(engine, locked, rule, of, &by, location)?;
        }
        let (state, site) = (&mut *locked, site(location, Phase::Update));
        let draws = match self.formats.master {
            Master::Stochastic(_) => state.next_random(),
            _ => (0, 0),
        };
        for piece in &self.pieces {
            let mut inputs = vec![piece.of(&self.parameter.operand(state)?)?];
            for (_, cell) in &piece.cells {
                inputs.push(cell.operand(state)?);
            }
            inputs.push(piece.of(&by)?);
            let start = inputs[0].spec.layout.offset();
            let formats = formats::drawing(self.formats, self.steps, draws, start);
            engine.apply(state, rule.update(self.steps, formats), &inputs, &site)?;
        }
        Ok(locked)
    }
}

impl Piece {
    /// The rows of this piece of the parameter or its gradient.
    fn of(&self, whole: &Operand) -> Result<Operand> {
        let Some(rows) = &self.rows else {
            return Ok(whole.clone());
        };
        let layout = whole.spec.layout.narrow(0, rows.start, rows.len());
        let layout = layout.ok_or_else(|| {
            Error::Internal(format!("{} has not the rows {rows:?}", whole.shape()))
        })?;
        Ok(whole.with_layout(layout))
    }
}

impl<R: Rule> Optimizer for Groups<R> {
    #[track_caller]
    fn step(&mut self) -> Result<Stepped> {
        self.update(false, Location::caller())
    }

    #[track_caller]
    fn step_keep_grads(&mut self) -> Result<Stepped> {
        self.update(true, Location::caller())
    }

    fn zero_grad(&mut self) {
        zero_grad(&self.parameters());
    }

    fn parameters(&self) -> Vec<Parameter> {
        let parameters = self.slots.iter().map(|slot| &slot.parameter);
        parameters.cloned().collect()
    }

    #[track_caller]
    fn set_lr(&mut self, lr: f64) -> Result<()> {
        check_settings(&[("lr", lr, f64::INFINITY)], Location::caller())?;
        self.groups.iter_mut().for_each(|group| group.set_lr(lr));
        Ok(())
    }

    fn lrs(&self) -> Vec<f64> {
        self.groups.iter().map(Rule::lr).collect()
    }

    #[track_caller]
    fn set_lrs(&mut self, lrs: &[f64]) -> Result<()> {
        let location = Location::caller();
        if lrs.len() != self.groups.len() {
            let (got, expected) = (lrs.len(), self.groups.len());
            let message = format!("set_lrs: {got} rates for {expected} groups");
            return Err(usage_error(message, location));
        }
        for &lr in lrs {
            check_settings(&[("lr", lr, f64::INFINITY)], location)?;
        }
        let groups = self.groups.iter_mut().zip(lrs);
        groups.for_each(|(group, &lr)| group.set_lr(lr));
        Ok(())
    }

    #[track_caller]
    fn set_momentum(&mut self, momentum: f64) -> Result<()> {
        check_settings(&[("momentum", momentum, 1.0)], Location::caller())?;
        let groups = self.groups.iter_mut();
        groups.for_each(|group| group.set_momentum(momentum));
        Ok(())
    }

    fn state_dict(&self) -> Vec<(String, Parameter)> {
        let names = names(self.slots.iter().map(|slot| &slot.parameter));
        let mut named = Vec::new();
        for (slot, name) in self.slots.iter().zip(names) {
            for piece in &slot.pieces {
                let rows = suffix(piece.rows.as_ref());
                for (kind, cell) in piece.cells.iter().chain(&piece.statistics) {
                    named.push((format!("{kind}.{name}{rows}"), cell.clone()));
                }
            }
        }
        named
    }

    fn step_counts(&self) -> Vec<u64> {
        self.slots.iter().map(|slot| slot.steps).collect()
    }

    #[track_caller]
    fn set_step_counts(&mut self, counts: &[u64]) -> Result<()> {
        let (got, expected) = (counts.len(), self.slots.len());
        if got != expected {
            let message = format!(
                "set_step_counts: {got} counts for {expected} parameters: give one for each of parameters(), \
                 in that order"
            );
            return Err(usage_error(message, Location::caller()));
        }
        for (slot, &steps) in self.slots.iter_mut().zip(counts) {
            if steps > 0 && slot.pieces.is_empty() {
                slot.make_cells()?;
            }
        }
        for (slot, &steps) in self.slots.iter_mut().zip(counts) {
            slot.steps = steps;
        }
        Ok(())
    }
}
