//! Whether elements are true: `any` and `all`.

mod cpu;

use crate::kernels::checks::of_elements;
use crate::kernels::pointwise::one_pass;
use crate::kernels::reduction::{Mask, plan_dims};
use crate::table::{is_arity, is_attribute, is_dtype};
use crate::{Array, DTypes, Entry, Fill, Reject, Row, Sample};
use highwater_graph::{Cost, DType, Layout, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ANY, ALL];

/// Whether any, or every, element over dimensions is other than 0, as `torch.any` and `torch.all`.
///
/// One tensor of any dtype but block formats and of any layout; NaN is other than 0. The result is
/// `Bool`, row-major. Of nothing, none is and every one is. No gradient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Any {
    /// Whether every element has to be (`all`) rather than one (`any`).
    pub every: bool,
    /// Which dimensions, each at most once; none for all.
    pub dims: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

impl Any {
    fn plan(&self, input: &Shape) -> Result<(Mask, Shape), OpError> {
        plan_dims(self.name(), &self.dims, self.keepdim, input)
    }
}

impl Op for Any {
    fn name(&self) -> &'static str {
        if self.every { ALL.name } else { ANY.name }
    }

    fn hash_attributes(&self, mut hasher: &mut dyn Hasher) {
        self.every.hash(&mut hasher);
        self.dims.hash(&mut hasher);
        self.keepdim.hash(&mut hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        of_elements(self.name(), &inputs[0])?;
        let (_, shape) = self.plan(inputs[0].shape())?;
        Ok(smallvec![Spec::contiguous(DType::Bool, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, inputs[0].layout.numel() as f64)
    }
}

macro_rules! rows {
    ($($dtype:ident: $type:ty),* $(,)?) => {
        &[$(Row::cpu(DTypes::new(&[DType::$dtype], &[DType::Bool]), || Arc::new(cpu::any::<$type>))),*]
    };
}

const ROWS: &[Row] = rows! {
    F32: f32,
    F64: f64,
    BF16: half::bf16,
    F16: half::f16,
    I64: i64,
    I16: i16,
    U32: u32,
    U8: u8,
    Bool: u8,
};

const ANY: Entry = Entry {
    name: "any",
    rows: ROWS,
    reference,
    samples: || samples(false),
    rejects: || rejects(false),
};

const ALL: Entry = Entry {
    name: "all",
    rows: ROWS,
    reference,
    samples: || samples(true),
    rejects: || rejects(true),
};

/// The plain reference.
fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Any = op.downcast().expect("the reference of this operation");
    let input = &inputs[0];
    let (mask, shape) = op.plan(&input.shape).expect("dimensions of the input");
    let extents = input.shape.iter().zip(&mask);
    let kept: Shape = extents
        .map(|(&extent, &goes)| if goes { 1 } else { extent })
        .collect();
    let targets = Layout::contiguous(kept).expand(&input.shape);
    let every = f64::from(u8::from(op.every));
    let mut data = vec![every; shape.numel()];
    for (target, &x) in targets.expect("a broadcast").positions().zip(&input.data) {
        if (x != 0.0) != op.every {
            data[target] = 1.0 - every;
        }
    }
    vec![Array::new(DType::Bool, shape, data)]
}

fn samples(every: bool) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (i, (layout, dims)) in crate::kernels::reduction::cases().into_iter().enumerate() {
        // Of many elements, few are what decides.
        let few = Fill::Indices(if every { 1000 } else { 2 });
        for (dtype, fill) in [
            (DType::Bool, Fill::Indices(2)),
            (DType::I64, Fill::Constant(f64::from(u8::from(every)))),
            (DType::F32, few),
        ] {
            let op = Any {
                every,
                dims: dims.clone(),
                keepdim: i % 2 == 0,
            };
            let layout = layout.clone();
            samples.push(Sample {
                op: Arc::new(op),
                inputs: vec![(Spec { dtype, layout }, fill)],
                tolerance: 0.0,
            });
        }
    }
    let dtypes = [
        DType::U8,
        DType::I16,
        DType::U32,
        DType::F64,
        DType::BF16,
        DType::F16,
    ];
    samples.extend(dtypes.map(|dtype| {
        let op = Any {
            every,
            dims: vec![1],
            keepdim: false,
        };
        let spec = Spec::contiguous(dtype, [40, 3]);
        Sample::new(op, &[&[]])
            .input(0, spec, Fill::Indices(2))
            .tolerance(0.0)
    }));
    samples
}

fn rejects(every: bool) -> Vec<Reject> {
    let reject = |dims: &[usize], inputs, error| {
        let (dims, keepdim) = (dims.to_vec(), false);
        Reject::new(
            Any {
                every,
                dims,
                keepdim,
            },
            inputs,
            error,
        )
    };
    let of = |dtype| vec![Spec::contiguous(dtype, [4, 4])];
    vec![
        reject(&[2], of(DType::Bool), is_attribute),
        reject(&[0], of(DType::I8Block { block: 4 }), is_dtype),
        reject(&[], vec![], is_arity),
    ]
}
