//! The rows of the table that most operations have: for all dtypes of floats, of numbers, or of all elements.
//!
//! Those for `F64`, with which gradients are checked, are the plain references ([`Precise`]).

use crate::{Args, Array, Element, Kernel, KernelError, ReferenceFn, View};
use highwater_graph::{DType, Op};

/// The rows of an operation for `F32`, `BF16`, `F16` and `F64`.
///
/// A signature names the dtypes of inputs and outputs, as in [`DTypes`](crate::DTypes), where the
/// given name stands for each of the four, and `Sums` for [`sums_in`](crate::kernels::float::sums_in) of it. The first kernel may name
/// the element type by the same name; the second is that for `F64`.
///
/// ```text
/// rows_of_floats! { T: [T, I64] -> [T], [T, U32] -> [T]; cpu::embedding::<T>; Precise::new(reference) }
/// ```
macro_rules! rows_of_floats {
    (
        $t:ident: $([$($in:ident),*] -> [$($out:ident),*]),+; $kernel:expr; $precise:expr
    ) => {
        &[$(
            $crate::kernels::rows::rows_of_floats!(@ $t F32 f32 [$($in),*] [$($out),*] $kernel),
            $crate::kernels::rows::rows_of_floats!(@ $t BF16 half::bf16 [$($in),*] [$($out),*] $kernel),
            $crate::kernels::rows::rows_of_floats!(@ $t F16 half::f16 [$($in),*] [$($out),*] $kernel),
            $crate::kernels::rows::rows_of_floats!(@ $t F64 f64 [$($in),*] [$($out),*] $precise),
        )+]
    };
    (
        @ $t:ident $dtype:ident $type:ty [$($in:ident),*] [$($out:ident),*] $kernel:expr
    ) => {{
        #[allow(non_upper_case_globals, dead_code, reason = "a signature may not need it")]
        const $t: highwater_graph::DType = highwater_graph::DType::$dtype;
        #[allow(non_upper_case_globals, dead_code, reason = "as above")]
        const Sums: highwater_graph::DType = $crate::kernels::float::sums_in($t);
        #[allow(dead_code, reason = "a kernel may not need it")]
        type $t = $type;
        $crate::Row::cpu(
            $crate::DTypes::new(&[$($in),*], &[$($out),*]),
            || std::sync::Arc::new($kernel),
        )
    }};
}
pub(crate) use rows_of_floats;

/// As [`rows_of_floats!`] of one signature, and rows for whole numbers of `I64`, `U8` and `Bool`, whose signature
/// and kernel follow; both may name the dtype, and the type, by `$t`.
macro_rules! rows_of_numbers {
    (
        $t:ident: [$($in:ident),*] -> [$($out:ident),*]; $kernel:expr; $precise:expr;
        [$($from:ident),*] -> [$($to:ident),*]; $whole:expr
    ) => {{
        use $crate::kernels::rows::rows_of_floats as row;
        &[
            row!(@ $t F32 f32 [$($in),*] [$($out),*] $kernel),
            row!(@ $t BF16 half::bf16 [$($in),*] [$($out),*] $kernel),
            row!(@ $t F16 half::f16 [$($in),*] [$($out),*] $kernel),
            row!(@ $t F64 f64 [$($in),*] [$($out),*] $precise),
            row!(@ $t I64 i64 [$($from),*] [$($to),*] $whole),
            row!(@ $t U8 u8 [$($from),*] [$($to),*] $whole),
            row!(@ $t Bool u8 [$($from),*] [$($to),*] $whole),
        ]
    }};
}
pub(crate) use rows_of_numbers;

/// A row for each dtype whose elements have addresses, of a kernel that is generic over
/// [`Element`](crate::Element) and whose inputs and outputs are all of one dtype.
macro_rules! rows_of_each_dtype {
    ($module:ident::$kernel:ident) => {{
        use half::{bf16, f16};
        $crate::kernels::rows::rows_of_each_dtype! {
            F32: $module::$kernel::<f32>,
            F64: $module::$kernel::<f64>,
            BF16: $module::$kernel::<bf16>,
            F16: $module::$kernel::<f16>,
            I64: $module::$kernel::<i64>,
            I16: $module::$kernel::<i16>,
            U32: $module::$kernel::<u32>,
            U8: $module::$kernel::<u8>,
            Bool: $module::$kernel::<u8>,
        }
    }};
    ($($dtype:ident: $kernel:expr,)*) => {
        &[$($crate::Row::cpu(
            $crate::DTypes::new(
                &[highwater_graph::DType::$dtype],
                &[highwater_graph::DType::$dtype],
            ),
            || std::sync::Arc::new($kernel),
        )),*]
    };
}
pub(crate) use rows_of_each_dtype;

/// The plain reference as a kernel, for tensors of `F64`: to check gradients with, not to train with.
/// It asks the heap for copies of its inputs and for its results, which no plan counts.
pub(crate) struct Precise {
    reference: ReferenceFn,
    check: Check,
}

/// What must hold of inputs before a reference may see them.
type Check = fn(&dyn Op, &[View<'_>]) -> Result<(), KernelError>;

impl Precise {
    /// The reference, which takes any numbers.
    pub(crate) fn new(reference: ReferenceFn) -> Self {
        let check: Check = |_, _| Ok(());
        Self { reference, check }
    }

    /// The reference, after a check of the inputs.
    pub(crate) fn checked(reference: ReferenceFn, check: Check) -> Self {
        Self { reference, check }
    }
}

impl Kernel for Precise {
    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        (self.check)(op, args.inputs)?;
        let inputs: Vec<Array> = (args.inputs.iter().map(array)).collect::<Result<_, _>>()?;
        let mut results = (self.reference)(op, &inputs).into_iter();
        for i in op.writes() {
            fill(&mut args.inputs[i], results.next())?;
        }
        for output in args.outputs.iter_mut() {
            fill(output, results.next())?;
        }
        Ok(())
    }
}

/// What a reference is given of a tensor.
fn array(view: &View<'_>) -> Result<Array, KernelError> {
    fn numbers<T: Element>(
        view: &View<'_>,
        number: impl Fn(T) -> f64,
    ) -> Result<Vec<f64>, KernelError> {
        let storage = view.storage::<T>()?;
        let positions = view.layout().positions();
        Ok(positions.map(|at| number(storage[at])).collect())
    }
    let dtype = view.spec().dtype;
    let data = match dtype {
        DType::F32 => numbers(view, |x: f32| f64::from(x)),
        DType::I64 => numbers(view, |x: i64| x as f64),
        DType::U32 => numbers(view, |x: u32| f64::from(x)),
        DType::U8 => numbers(view, |x: u8| f64::from(x)),
        _ => numbers(view, |x: f64| x),
    };
    Ok(Array::new(dtype, view.spec().shape().clone(), data?))
}

/// Writes what a reference answered.
fn fill(view: &mut View<'_>, array: Option<Array>) -> Result<(), KernelError> {
    fn write<T: Element>(
        view: &mut View<'_>,
        array: Option<Array>,
        element: impl Fn(f64) -> T,
    ) -> Result<(), KernelError> {
        let layout = view.layout();
        let storage = view.storage_mut::<T>()?;
        let data = array.into_iter().flat_map(|array| array.data);
        for (at, x) in layout.positions().zip(data) {
            storage[at] = element(x);
        }
        Ok(())
    }
    match view.spec().dtype {
        DType::I64 => write(view, array, |x| x as i64),
        DType::U8 => write(view, array, |x| x as u8),
        _ => write(view, array, |x: f64| x),
    }
}
