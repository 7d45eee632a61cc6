//! One adapter: what a layer answers with it, and what it comes to as a weight.

use super::{Dropout, Module, Visitor, join};
use crate::Result;
use crate::engine::Engine;
use crate::pending::context::{autocast, no_grad, with_parameter_dtype};
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use highwater_graph::DType;
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

/// Settings of adapters, with the names and defaults of PEFT's `LoraConfig`.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraOptions {
    /// The rank: rows of `lora_A`, columns of `lora_B`.
    pub r: usize,
    /// What adapters answer is multiplied by `lora_alpha / r`.
    pub lora_alpha: f64,
    /// Of what `lora_A` reads, in training mode.
    pub lora_dropout: f64,
    /// The layers that get one, by the last parts of their names, such as `q_proj`; or `all-linear`: all that the
    /// module shows.
    pub target_modules: Vec<String>,
    /// Whether `lora_alpha` is divided by the root of `r` instead (Kalajdzievski, "rsLoRA", 2023).
    pub use_rslora: bool,
    /// Whether the lengths of the rows of a weight and its adapter train too, by themselves (Liu et al., "DoRA",
    /// 2024).
    pub use_dora: bool,
}

impl Default for LoraOptions {
    fn default() -> Self {
        Self {
            r: 8,
            lora_alpha: 8.0,
            lora_dropout: 0.0,
            target_modules: vec!["all-linear".to_owned()],
            use_rslora: false,
            use_dora: false,
        }
    }
}

impl LoraOptions {
    /// What adapters answer is multiplied by.
    pub fn scaling(&self) -> f64 {
        let r = self.r as f64;
        self.lora_alpha / if self.use_rslora { r.sqrt() } else { r }
    }
}

/// A linear layer that may have an adapter, as [`Visitor::adaptable`] is shown it.
pub struct Adaptable<'a>(pub(super) &'a dyn Base);

impl std::fmt::Debug for Adaptable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Adaptable").field(&self.0.dims()).finish()
    }
}

/// A linear layer that may have an adapter.
pub(super) trait Base {
    fn slot(&self) -> &Slot;

    fn engine(&self) -> &Engine;

    /// `[out, in]`, also where the weight is held the other way.
    fn dims(&self) -> [usize; 2];

    fn bias(&self) -> Option<&Parameter>;

    /// `x weightᵀ`, without bias and adapter.
    fn product(&self, x: &Tensor) -> Result<Tensor>;

    /// The same in `F32` throughout, for `x` of that.
    fn exact_product(&self, x: &Tensor) -> Result<Tensor>;

    /// For each output the sum of the squares of its weights.
    fn squares(&self) -> Result<Vec<f32>>;

    /// What an adapter can be added to, and whether it is held as `[in, out]`.
    fn dense(&self) -> Option<(&Parameter, bool)>;

    /// Another handle of the same layer.
    fn handle(&self) -> Box<dyn Base>;
}

/// The adapter of one layer.
#[derive(Debug)]
pub(super) struct Adapter {
    /// `[r, in]`.
    a: Parameter,
    /// `[out, r]`.
    b: Parameter,
    scaling: f64,
    pub(super) dropout: Dropout,
    magnitude: Option<Magnitude>,
}

/// What DoRA trains beside them: how long each row of the sum of weight and adapter is.
#[derive(Debug)]
struct Magnitude {
    /// `[out]`.
    vector: Parameter,
    /// `[out]`: the sums of squares of the frozen weight's rows.
    squares: Parameter,
}

impl Adapter {
    pub(super) fn new(layer: &dyn Base, options: &LoraOptions) -> Result<Self> {
        let (engine, [outputs, inputs]) = (layer.engine(), layer.dims());
        // As in PEFT, which makes them of `F32` beside weights in half precision.
        with_parameter_dtype(DType::F32, || {
            let bound = 1.0 / (inputs.max(1) as f32).sqrt();
            let magnitude = || {
                Ok::<_, crate::Error>(Magnitude {
                    vector: Parameter::new(engine, [outputs], |_| {})?,
                    squares: Parameter::frozen(engine, DType::F32, [outputs], |_| {})?,
                })
            };
            let adapter = Self {
                a: Parameter::uniform(engine, [options.r, inputs], bound)?,
                b: Parameter::new(engine, [outputs, options.r], |_| {})?,
                scaling: options.scaling(),
                dropout: Dropout::new(options.lora_dropout)?,
                magnitude: options.use_dora.then(magnitude).transpose()?,
            };
            adapter.measure(layer)?;
            Ok(adapter)
        })
    }

    /// Takes the magnitudes of the weight as it is now.
    pub(super) fn measure(&self, layer: &dyn Base) -> Result<()> {
        let Some(magnitude) = self
            .magnitude
            .as_ref()
            .filter(|_| !layer.engine().is_dry_run())
        else {
            return Ok(());
        };
        let squares = layer.squares()?;
        magnitude.squares.copy_from_slice(&squares)?;
        let roots: Vec<f32> = squares.into_iter().map(f32::sqrt).collect();
        magnitude.vector.copy_from_slice(&roots)
    }

    /// `y`, the layer's answer to `x`, with the adapter.
    fn add_to(&self, y: &Tensor, x: &Tensor, layer: &dyn Base) -> Result<Tensor> {
        let read = self.dropout.forward(&cast(x, DType::F32)?)?;
        let low = read.linear(&self.a, None)?;
        let own = low.linear(&self.b, None)?.mul_scalar(self.scaling)?;
        let Some(magnitude) = &self.magnitude else {
            return cast(&cast(y, own.dtype())?.add(&own)?, y.dtype());
        };
        let scale = magnitude.over(&self.norms(&magnitude.squares, layer)?)?;
        let (y32, own) = (cast(y, DType::F32)?, cast(&own, DType::F32)?);
        let answer = if self.dropout.is_idle() {
            let bias = layer
                .bias()
                .map(|bias| cast(bias, DType::F32))
                .transpose()?;
            let whole = match &bias {
                Some(bias) => y32.sub(bias)?.add(&own)?,
                None => y32.add(&own)?,
            };
            let scaled = whole.mul(&scale)?;
            match &bias {
                Some(bias) => scaled.add(bias)?,
                None => scaled,
            }
        } else {
            // As in PEFT what is dropped is not there for the weight's part either.
            let base = cast(&layer.product(&cast(&read, x.dtype())?)?, DType::F32)?;
            let more = base.mul(&scale.add_scalar(-1.0)?)?;
            y32.add(&more)?.add(&own.mul(&scale)?)?
        };
        cast(&answer, y.dtype())
    }

    /// How long the rows of `weight + scaling B A` are, `[out]`: from `squares`, without that matrix. A constant
    /// to gradients (Liu et al., "DoRA", 2024, section 4.3).
    fn norms(&self, squares: &Tensor, layer: &dyn Base) -> Result<Tensor> {
        let sums = || {
            let (a, b) = (&self.a, &self.b);
            let crossed = layer.exact_product(a)?.transpose(0, 1)?.mul(b)?;
            let own = b.matmul(&a.matmul(&a.transpose(0, 1)?)?)?.mul(b)?;
            let more = crossed
                .mul_scalar(2.0 * self.scaling)?
                .add(&own.mul_scalar(self.scaling * self.scaling)?)?;
            let sums = more.sum_dims(&[1], false)?.add(squares)?;
            // Where an adapter undoes a row but for a thousandth, what is left is rounding. A row of zeros has no
            // direction, and stays one of zeros.
            let sums = sums.maximum(&squares.mul_scalar(1e-6)?)?;
            sums.clamp_min(f64::from(f32::MIN_POSITIVE))?.sqrt()
        };
        no_grad(|| autocast(DType::F32, sums))
    }

    /// The weight `[out, in]` with the adapter in it, of the frozen one in `F32`.
    pub(super) fn merged(&self, weight: &Tensor, layer: &dyn Base) -> Result<Tensor> {
        let sum = weight.add(&self.b.matmul(&self.a)?.mul_scalar(self.scaling)?)?;
        let Some(magnitude) = &self.magnitude else {
            return Ok(sum);
        };
        let scale = magnitude.over(&self.norms(&magnitude.squares, layer)?)?;
        sum.mul(&scale.unsqueeze(1)?)
    }

    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        visitor.parameter(&join(path, "lora_A.weight"), &self.a);
        visitor.parameter(&join(path, "lora_B.weight"), &self.b);
        if let Some(magnitude) = &self.magnitude {
            visitor.parameter(&join(path, "lora_magnitude_vector"), &magnitude.vector);
        }
        self.dropout.visit(&join(path, "lora_dropout"), visitor);
    }
}

impl Magnitude {
    /// What rows of these lengths are multiplied by.
    fn over(&self, norms: &Tensor) -> Result<Tensor> {
        self.vector.div(norms)
    }
}

fn cast(x: &Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    x.to_dtype(dtype)
}

/// A layer's adapter, if it has one. Clones of a layer share it, as they share the weight.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot(Arc<Mutex<Option<Arc<Adapter>>>>);

impl Slot {
    pub(super) fn get(&self) -> Option<Arc<Adapter>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn set(&self, adapter: Option<Adapter>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = adapter.map(Arc::new);
    }

    /// Tells of an adapter, if there is one.
    pub(super) fn debug(&self, told: &mut std::fmt::DebugStruct<'_, '_>) {
        if let Some(adapter) = self.get() {
            told.field("lora_A", &adapter.a).field("lora_B", &adapter.b);
        }
    }

    /// `y`, and what an adapter makes of `x` beside it.
    pub(super) fn forward(&self, y: Tensor, x: &Tensor, layer: &dyn Base) -> Result<Tensor> {
        match self.get().filter(|_| !WITHOUT.get()) {
            Some(adapter) => adapter.add_to(&y, x, layer),
            None => Ok(y),
        }
    }

    pub(super) fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        if let Some(adapter) = self.get() {
            adapter.visit(path, visitor);
        }
    }
}

thread_local! {
    /// Whether layers answer as if they had no adapters.
    static WITHOUT: Cell<bool> = const { Cell::new(false) };
}

/// Has layers of this thread answer as if they had no adapters while `f` runs, as PEFT's `disable_adapter()`: the
/// model that adapters were added to is still there.
pub fn without_adapters<R>(f: impl FnOnce() -> R) -> R {
    /// Puts back what was so before, also through a panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            WITHOUT.set(self.0);
        }
    }
    let _restore = Restore(WITHOUT.replace(true));
    f()
}
