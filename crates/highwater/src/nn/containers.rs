//! Modules of modules: `Sequential`, and what holds several of a kind.

use super::{
    AdaptiveAvgPool2d, AvgPool2d, BatchNorm1d, BatchNorm2d, CausalSelfAttention, Conv1d, Conv2d,
    ConvTranspose1d, ConvTranspose2d, Dropout, Embedding, GroupNorm, InstanceNorm2d, LayerNorm,
    Linear, MaxPool2d, Module, QuantizedLinear, RmsNorm, Upsample, Visitor, join,
};
use crate::Result;
use crate::tensor::Tensor;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A module that makes one tensor of one: what [`Sequential`] holds. Implement it for your own modules to
/// use them there.
///
/// ```
/// use highwater::nn::{Forward, Sequential};
/// use highwater::prelude::*;
///
/// #[derive(Module)]
/// struct Residual(Linear);
///
/// impl Forward for Residual {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         x.add(&self.0.forward(x)?.relu()?)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let model = Sequential::new()
///     .then(Linear::new(&engine, 8, 16, true)?)
///     .then_fn(Tensor::relu)
///     .then(Residual(Linear::new(&engine, 16, 16, true)?));
/// let y = model.forward(&Tensor::randn(&engine, [2, 8])?)?;
/// assert_eq!(y.dims(), [2, 16]);
/// // Numbered as in PyTorch, where a function is a module too.
/// assert_eq!(model.named_parameters()[2].0, "2.0.weight");
/// # Ok(())
/// # }
/// ```
pub trait Forward: Module {
    /// The module's result.
    ///
    /// # Errors
    /// What its operations refuse.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
}

macro_rules! forward {
    ($($module:ty),* $(,)?) => {$(
        impl Forward for $module {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                <$module>::forward(self, x)
            }
        }
    )*};
}

forward!(
    AdaptiveAvgPool2d,
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    CausalSelfAttention,
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
    Dropout,
    Embedding,
    GroupNorm,
    InstanceNorm2d,
    LayerNorm,
    Linear,
    MaxPool2d,
    QuantizedLinear,
    RmsNorm,
    Sequential,
    Upsample,
);

type Function = dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync;

/// One step of a [`Sequential`].
enum Step {
    Module(Box<dyn Forward + Send + Sync>),
    Function(Box<Function>),
}

/// Modules and functions one after the other, as `torch.nn.Sequential`: names of parameters begin with the
/// number of their step.
#[derive(Default)]
pub struct Sequential {
    steps: Vec<Step>,
}

impl Sequential {
    /// One without steps, which answers what it is given.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With a module behind.
    #[must_use]
    pub fn then(mut self, module: impl Forward + Send + Sync + 'static) -> Self {
        self.steps.push(Step::Module(Box::new(module)));
        self
    }

    /// With a function behind, which takes a number like a module: `Tensor::relu`, or a closure.
    #[must_use]
    pub fn then_fn(
        mut self,
        function: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Self {
        self.steps.push(Step::Function(Box::new(function)));
        self
    }

    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// What the last step makes of what the one before made, and so on.
    ///
    /// # Errors
    /// Of the step that refuses.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for step in &self.steps {
            x = match step {
                Step::Module(module) => module.forward(&x)?,
                Step::Function(function) => function(&x)?,
            };
        }
        Ok(x)
    }
}

impl Module for Sequential {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        for (i, step) in self.steps.iter().enumerate() {
            if let Step::Module(module) = step {
                module.visit(&join(path, &i.to_string()), visitor);
            }
        }
    }
}

impl std::fmt::Debug for Sequential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.named_parameters();
        f.debug_list()
            .entries(names.iter().map(|(name, _)| name))
            .finish()
    }
}

/// By name, as `torch.nn.ModuleDict`. A vector of modules is `torch.nn.ModuleList`.
impl<M: Module> Module for BTreeMap<String, M> {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        for (name, module) in self {
            module.visit(&join(path, name), visitor);
        }
    }
}

impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        for (i, module) in self.iter().enumerate() {
            module.visit(&join(path, &i.to_string()), visitor);
        }
    }
}

impl<M: Module + ?Sized> Module for Arc<M> {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        (**self).visit(path, visitor);
    }
}
