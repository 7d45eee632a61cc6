//! The `Module` trait: parameters by name, train and eval mode. Derived for structs of modules.

use super::adapter::Adaptable;
use crate::tensor::buffer::Buffer;
use crate::tensor::parameter::Parameter;
use crate::tensor::tier::Tier;
use crate::{DType, Error, Result};
use highwater_graph::{Location, Shape};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something that holds parameters, as `torch.nn.Module`. Derive it: every field must be a module
/// itself (parameters, vectors, options and boxes of modules are) or marked `#[module(skip)]`.
pub trait Module {
    /// Shows every parameter and mode inside to the visitor, in the order of the fields, with the
    /// path from here, such as `h.3.mlp.weight`.
    fn visit(&self, path: &str, visitor: &mut dyn Visitor);

    /// Parameters with their names. A tied parameter stands once, under its first name, as in a
    /// safetensors file.
    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        let mut collect = Collect::default();
        self.visit("", &mut collect);
        collect.parameters
    }

    /// Buffers with their names, in the order of the fields; one that stands twice once.
    fn named_buffers(&self) -> Vec<(String, Buffer)> {
        let mut collect = Collect::default();
        self.visit("", &mut collect);
        collect.buffers
    }

    /// Parameters in the order of the fields; tied ones once.
    fn parameters(&self) -> Vec<Parameter> {
        self.named_parameters()
            .into_iter()
            .map(|(_, parameter)| parameter)
            .collect()
    }

    /// Number of elements of all parameters.
    fn num_parameters(&self) -> usize {
        self.parameters()
            .iter()
            .map(|parameter| parameter.shape().numel())
            .sum()
    }

    /// Parameters and buffers by name, as `state_dict()`. They are the module's own, not copies.
    fn state_dict(&self) -> BTreeMap<String, Parameter> {
        let mut collect = Collect::default();
        self.visit("", &mut collect);
        let buffers = collect.buffers.into_iter();
        let buffers = buffers.map(|(name, buffer)| (name, buffer.as_parameter().clone()));
        collect.parameters.into_iter().chain(buffers).collect()
    }

    /// Moves the parameters and buffers to a tier, as `module.to(device)`: see [`Parameter::to`].
    ///
    /// # Errors
    /// As [`Parameter::to`]; those before the one that failed were moved.
    #[track_caller]
    fn to(&self, tier: Tier) -> Result<()> {
        let state = self.state_dict();
        state.values().try_for_each(|parameter| parameter.to(tier))
    }

    /// Copies values into the parameters and buffers of the same names, as `load_state_dict(strict=True)`: those
    /// of another module's [`Module::state_dict`], or vectors by name.
    ///
    /// # Errors
    /// [`Error::Saved`] for a missing or unexpected name, another shape, or another count of elements;
    /// [`Error::Usage`] while something pending uses a parameter. Nothing was loaded then.
    #[track_caller]
    fn load_state_dict(&self, values: &dyn StateValues) -> Result<()> {
        let location = Location::caller();
        let own = self.state_dict();
        let lens = values.lens();
        if let Some(name) = own.keys().find(|name| !lens.contains_key(name.as_str())) {
            let (got, expected) = (lens.len(), own.len());
            let what = format!("{name} is missing: {got} names for a module of {expected}");
            return Err(refused(&what, location));
        }
        for (name, &got) in &lens {
            let Some(parameter) = own.get(*name) else {
                let what = format!("{name} is unexpected: the module has no such name");
                return Err(refused(&what, location));
            };
            let (shape, expected) = (parameter.shape(), parameter.shape().numel());
            if let Some(other) = values.shape(name)
                && other != shape
            {
                let what = format!("{name}: expected the shape {shape}, got {other}");
                return Err(refused(&what, location));
            }
            if expected != got {
                let what =
                    format!("{name}: expected {expected} values for the shape {shape}, got {got}");
                return Err(refused(&what, location));
            }
        }
        for parameter in own.values() {
            parameter.check_idle(&mut parameter.engine().lock())?;
        }
        for (name, parameter) in &own {
            parameter.copy_from_slice(&values.values(name)?)?;
        }
        Ok(())
    }

    /// Names every parameter and buffer by its path, for messages and reports.
    fn name_parameters(&self) {
        for (name, parameter) in self.state_dict() {
            parameter.set_name(&name);
        }
    }

    /// Switches to training mode (dropout on) or evaluation mode.
    fn train(&self, training: bool) {
        self.visit("", &mut SetMode(training));
    }

    /// Switches to evaluation mode: dropout off.
    fn eval(&self) {
        self.train(false);
    }

    /// Freezes or unfreezes all parameters.
    fn requires_grad_(&self, requires_grad: bool) {
        for parameter in self.parameters() {
            parameter.set_requires_grad(requires_grad);
        }
    }
}

/// Values that do not belong to a module.
fn refused(what: &str, location: Location) -> Error {
    Error::Saved(format!(
        "load_state_dict: {what}; nothing was loaded\n  at {location}\n  hint: load what the same module's \
         state_dict() has; state_dict().keys() lists the names"
    ))
}

/// What [`Module::load_state_dict`] reads: values in `f32`, in the order of their elements, by name.
pub trait StateValues {
    /// How many values there are of each name.
    fn lens(&self) -> BTreeMap<&str, usize>;

    /// The shape of a name, which is there, if it is known.
    fn shape(&self, _name: &str) -> Option<&Shape> {
        None
    }

    /// The values of a name, which is there.
    ///
    /// # Errors
    /// [`Error`] where they cannot be read.
    fn values(&self, name: &str) -> Result<Cow<'_, [f32]>>;
}

impl StateValues for BTreeMap<String, Vec<f32>> {
    fn lens(&self) -> BTreeMap<&str, usize> {
        let lens = self.iter().map(|(name, values)| (&**name, values.len()));
        lens.collect()
    }

    fn values(&self, name: &str) -> Result<Cow<'_, [f32]>> {
        Ok(Cow::Borrowed(&self[name]))
    }
}

/// Of another module, which may be on another engine.
impl StateValues for BTreeMap<String, Parameter> {
    fn lens(&self) -> BTreeMap<&str, usize> {
        let len = |parameter: &Parameter| parameter.shape().numel();
        let lens = self
            .iter()
            .map(|(name, parameter)| (&**name, len(parameter)));
        lens.collect()
    }

    fn shape(&self, name: &str) -> Option<&Shape> {
        Some(self[name].shape())
    }

    fn values(&self, name: &str) -> Result<Cow<'_, [f32]>> {
        let values = self[name].to_dtype(DType::F32)?.to_vec()?;
        Ok(Cow::Owned(values))
    }
}

/// What [`Module::visit`] shows things to.
pub trait Visitor {
    /// A parameter.
    fn parameter(&mut self, path: &str, parameter: &Parameter);
    /// A buffer.
    fn buffer(&mut self, _path: &str, _buffer: &Buffer) {}
    /// A linear layer, whose parameters were shown.
    fn adaptable(&mut self, _path: &str, _layer: &Adaptable<'_>) {}
    /// The training mode of a layer that has one.
    fn mode(&mut self, path: &str, mode: &Mode);
}

/// Whether a layer is in training mode. Clones are the same switch.
#[derive(Clone)]
pub struct Mode(Arc<AtomicBool>);

impl Default for Mode {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl std::fmt::Debug for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.is_training() {
            "training"
        } else {
            "evaluation"
        };
        write!(f, "Mode({name})")
    }
}

impl Mode {
    /// Whether it is training mode.
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_training(&self, training: bool) {
        self.0.store(training, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Collect {
    parameters: Vec<(String, Parameter)>,
    buffers: Vec<(String, Buffer)>,
    /// Those that were met, by their addresses: all of them are held, so that each has its own.
    met: BTreeSet<usize>,
}

impl Visitor for Collect {
    fn parameter(&mut self, path: &str, parameter: &Parameter) {
        if self.met.insert(parameter.address()) {
            self.parameters.push((path.to_owned(), parameter.clone()));
        }
    }

    fn buffer(&mut self, path: &str, buffer: &Buffer) {
        if self.met.insert(buffer.as_parameter().address()) {
            self.buffers.push((path.to_owned(), buffer.clone()));
        }
    }

    fn mode(&mut self, _path: &str, _mode: &Mode) {}
}

struct SetMode(bool);

impl Visitor for SetMode {
    fn parameter(&mut self, _path: &str, _parameter: &Parameter) {}

    fn mode(&mut self, _path: &str, mode: &Mode) {
        mode.set_training(self.0);
    }
}

impl Module for Parameter {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        visitor.parameter(path, self);
    }
}

impl Module for Buffer {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        visitor.buffer(path, self);
    }
}

impl Module for Mode {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        visitor.mode(path, self);
    }
}

impl<M: Module> Module for Vec<M> {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        for (i, module) in self.iter().enumerate() {
            module.visit(&join(path, &i.to_string()), visitor);
        }
    }
}

impl<M: Module> Module for Option<M> {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        if let Some(module) = self {
            module.visit(path, visitor);
        }
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        (**self).visit(path, visitor);
    }
}

/// Joins a path and a name by a dot; a part without a name stands at the path itself. What the derive calls.
#[doc(hidden)]
pub fn join(path: &str, name: &str) -> String {
    let dot = if path.is_empty() || name.is_empty() {
        ""
    } else {
        "."
    };
    format!("{path}{dot}{name}")
}
