//! Programs, and where they come from.

use highwater::op::{DType, Layout, Op, Spec};
use highwater_ops::{Entry, Fill, OPS, ReferenceFn, Sample};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Elements that an operation's inputs have at most, all of them together.
const MOST: usize = 3000;

/// Numbers that depend on a seed alone (SplitMix64).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// From 0 to below 1, of few bits.
    pub(crate) fn unit(&mut self) -> f64 {
        self.below(1 << 12) as f64 / f64::from(1 << 12)
    }
}

/// Where an input's numbers come from.
#[derive(Debug, Clone)]
pub(crate) enum From {
    /// The first elements of a leaf, as they are.
    Leaf(usize),
    /// The first elements of what a step made, brought into a range: `(step, output)`.
    Step(usize, usize),
}

/// How an input's elements lie in what it is made of.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct View {
    /// Elements that are left out in front.
    pub(crate) start: usize,
    /// Whether the last two dimensions lie the other way round.
    pub(crate) is_transposed: bool,
    /// A dimension of which there is one element, repeated.
    pub(crate) expanded: Option<usize>,
}

/// One input of a step.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) from: From,
    pub(crate) view: View,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    pub(crate) fill: Fill,
}

impl Input {
    /// The shape before anything is repeated.
    pub(crate) fn narrow_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if let Some(dim) = self.view.expanded {
            shape[dim] = 1;
        }
        shape
    }

    /// The shape in which elements lie.
    pub(crate) fn stored_shape(&self) -> Vec<usize> {
        let mut shape = self.narrow_shape();
        if let [.., a, b] = &mut shape[..]
            && self.view.is_transposed
        {
            std::mem::swap(a, b);
        }
        shape
    }
}

/// One operation.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) op: Arc<dyn Op>,
    pub(crate) reference: ReferenceFn,
    pub(crate) inputs: Vec<Input>,
    /// Dtype and shape of what it makes.
    pub(crate) outputs: Vec<(DType, Vec<usize>)>,
    pub(crate) tolerance: f64,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {:#?}", self.op, self.inputs)
    }
}

/// Numbers that a program begins with.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    pub(crate) dtype: DType,
    pub(crate) data: Vec<f64>,
}

#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) steps: Vec<Step>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.steps).finish()
    }
}

/// Whether a sample can be a step: it writes nothing, answers floats of one dtype, and is small.
fn is_step(sample: &Sample) -> bool {
    let specs: Vec<_> = sample.inputs.iter().map(|(spec, _)| spec.clone()).collect();
    let numel = |spec: &Spec| spec.layout.numel();
    let fits = |dtype: DType| match dtype {
        DType::F32 | DType::I64 | DType::U32 | DType::I16 | DType::U8 | DType::Bool => true,
        // No tensor of them is made of a slice.
        _ => false,
    };
    sample.op.effect().is_repeatable()
        && sample.op.writes().is_empty()
        && !specs.is_empty()
        && specs.iter().map(numel).sum::<usize>() <= MOST
        && specs
            .iter()
            .all(|spec| fits(spec.dtype) && spec.dtype.element_bytes().is_some())
        && sample.op.infer(&specs).is_ok_and(|outputs| {
            outputs.iter().map(numel).sum::<usize>() <= 4 * MOST
                && outputs
                    .iter()
                    .all(|spec| !spec.dtype.is_float() || fits(spec.dtype))
        })
}

/// Every operation that has a sample which can be a step.
fn steps() -> Vec<(&'static Entry, Vec<Sample>)> {
    let entries = OPS.iter().map(|entry| {
        let samples = (entry.samples)().into_iter();
        (entry, samples.filter(is_step).collect::<Vec<_>>())
    });
    entries.filter(|(_, samples)| !samples.is_empty()).collect()
}

thread_local! {
    static STEPS: Vec<(&'static Entry, Vec<Sample>)> = steps();
}

/// The operations that programs are made of.
pub(crate) fn names() -> BTreeSet<&'static str> {
    STEPS.with(|steps| steps.iter().map(|(entry, _)| entry.name).collect())
}

impl Program {
    pub(crate) fn random(numbers: &mut Numbers) -> Self {
        let mut program = Self {
            leaves: Vec::new(),
            steps: Vec::new(),
        };
        for _ in 0..2 + numbers.below(4) {
            STEPS.with(|steps| {
                let (entry, samples) = &steps[numbers.below(steps.len())];
                program.push(entry, &samples[numbers.below(samples.len())], numbers);
            });
        }
        program
    }

    pub(crate) fn operations(&self) -> impl Iterator<Item = &'static str> {
        self.steps.iter().map(|step| step.op.name())
    }

    fn push(&mut self, entry: &Entry, sample: &Sample, numbers: &mut Numbers) {
        let mut inputs = Vec::new();
        let views = views(sample, numbers);
        for ((spec, fill), view) in sample.inputs.iter().zip(views) {
            let (shape, dtype) = (spec.shape().to_vec(), spec.dtype);
            let mut input = Input {
                from: From::Leaf(0),
                view,
                shape,
                dtype,
                fill: *fill,
            };
            let count = input.stored_shape().iter().product();
            let made = self.made(dtype, count);
            if let Some(&(step, output)) = made.get(numbers.below(made.len() + 1)) {
                let there = &self.steps[step].outputs[output].1;
                let most = there.iter().product::<usize>() - count;
                input.view.start = numbers.below(most.min(8) + 1);
                input.from = From::Step(step, output);
            } else {
                input.view.start = numbers.below(3);
                input.from = self.leaf(dtype, *fill, input.view.start + count, numbers);
            }
            inputs.push(input);
        }
        let specs: Vec<_> = inputs
            .iter()
            .map(|input| Spec::contiguous(input.dtype, &input.shape[..]))
            .collect();
        // Some operations are for views alone.
        let Ok(outputs) = sample.op.infer(&specs) else {
            return;
        };
        self.steps.push(Step {
            op: Arc::clone(&sample.op),
            reference: entry.reference,
            inputs,
            outputs: outputs
                .iter()
                .map(|spec| (spec.dtype, spec.shape().to_vec()))
                .collect(),
            tolerance: sample.tolerance,
        });
    }

    /// What steps made that has so many elements, or more; floats only, as their range can be changed.
    fn made(&self, dtype: DType, count: usize) -> Vec<(usize, usize)> {
        let steps = self.steps.iter().enumerate();
        let outputs = steps.flat_map(|(step, made)| {
            let outputs = made.outputs.iter().enumerate();
            outputs.map(move |(output, of)| (step, output, of))
        });
        outputs
            .filter(|(.., (of, shape))| {
                dtype.is_float() && *of == dtype && shape.iter().product::<usize>() >= count.max(1)
            })
            .map(|(step, output, _)| (step, output))
            .collect()
    }

    fn leaf(&mut self, dtype: DType, fill: Fill, count: usize, numbers: &mut Numbers) -> From {
        let data = (0..count).map(|_| draw(fill, numbers)).collect();
        self.leaves.push(Leaf { dtype, data });
        From::Leaf(self.leaves.len() - 1)
    }
}

/// Ways for the inputs of a sample to lie: dense ones, where the operation takes no others.
fn views(sample: &Sample, numbers: &mut Numbers) -> Vec<View> {
    let inputs = sample.inputs.iter();
    let seen = |(spec, _): &(Spec, Fill)| {
        let shape = spec.shape();
        let view = view(shape, numbers);
        let mut narrow = shape.to_vec();
        if let Some(dim) = view.expanded {
            narrow[dim] = 1;
        }
        let mut order: Vec<usize> = (0..shape.rank()).collect();
        if let [.., a, b] = &mut order[..]
            && view.is_transposed
        {
            std::mem::swap(a, b);
        }
        let stored: Vec<usize> = order.iter().map(|&dim| narrow[dim]).collect();
        let layout = Layout::contiguous(&stored[..]).permute(&order);
        let layout = layout.and_then(|layout| layout.expand(shape));
        let layout = layout.expect("a view of the shape");
        (
            view,
            Spec {
                dtype: spec.dtype,
                layout,
            },
        )
    };
    let (views, specs): (Vec<View>, Vec<Spec>) = inputs.map(seen).unzip();
    if sample.op.infer(&specs).is_ok() {
        return views;
    }
    vec![View::default(); specs.len()]
}

/// A way for a tensor of a shape to lie.
fn view(shape: &[usize], numbers: &mut Numbers) -> View {
    let has_elements = shape.iter().all(|&extent| extent > 0);
    let is_expanded = numbers.below(6) == 0 && has_elements && !shape.is_empty();
    View {
        start: 0,
        is_transposed: numbers.below(4) == 0 && shape.len() > 1,
        expanded: is_expanded.then(|| numbers.below(shape.len())),
    }
}

/// A number as a sample wants it, exact in `f32`.
fn draw(fill: Fill, numbers: &mut Numbers) -> f64 {
    let exact = |value: f64| f64::from(value as f32);
    match fill {
        Fill::Normal(scale) => {
            let sum: f64 = (0..4).map(|_| numbers.unit() - 0.5).sum();
            exact(sum * 1.7 * scale)
        }
        Fill::Uniform(low, high) => exact(low + (high - low) * (0.02 + 0.96 * numbers.unit())),
        Fill::Labels(_) if numbers.below(4) == 0 => -100.0,
        Fill::Indices(below) | Fill::Labels(below) => numbers.below(below) as f64,
        Fill::Constant(value) => value,
    }
}

/// How numbers of any size are brought into a range: `low + (high - low) sigmoid(x)`, or `scale tanh(x)`.
pub(crate) enum Range {
    Between(f64, f64),
    Around(f64),
    Is(f64),
}

impl Range {
    pub(crate) fn of(fill: Fill) -> Self {
        match fill {
            Fill::Normal(scale) => Self::Around(2.0 * scale),
            Fill::Uniform(low, high) => Self::Between(low, high),
            Fill::Constant(value) => Self::Is(value),
            Fill::Indices(_) | Fill::Labels(_) => Self::Is(0.0),
        }
    }
}
