//! Kernels of a user's own: what they may declare, and what is refused when a node is made.

use highwater::op::{
    Args, Autocast, Backward, Cost, DTypes, Effect, Kernel, KernelError, Op, OpError, Pairs,
    Promotion, SharedWith, SmallVec, Spec,
};
use highwater::{DType, Engine, Error, Parameter, Tensor, autocast};
use std::hash::Hasher;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An operation of one or two inputs; without outputs if it writes the first.
#[derive(Debug, Clone, Copy)]
struct Custom {
    name: &'static str,
    writes: bool,
}

const SQUARE: Custom = Custom {
    name: "squared",
    writes: false,
};

const ADD_TRANSPOSED: Custom = Custom {
    name: "add_transposed",
    writes: true,
};

impl Op for Custom {
    fn name(&self) -> &'static str {
        self.name
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let outputs = usize::from(!self.writes);
        let dense = |input: &Spec| Spec::contiguous(input.dtype, input.shape().clone());
        Ok(inputs.iter().take(outputs).map(dense).collect())
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 1.0)
    }

    fn effect(&self) -> Effect {
        if self.writes {
            Effect::WritesCell
        } else {
            Effect::Pure
        }
    }

    fn writes(&self) -> SmallVec<[usize; 4]> {
        (0..usize::from(self.writes)).collect()
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let unknown = Custom {
            name: "squared_backward",
            ..*self
        };
        let grad = backward.grad(0).expect("of the only output");
        let grad = backward.emit_one(unknown, &[grad])?;
        backward.set(0, grad);
        Ok(())
    }
}

/// Squares, and says that it may work in place; whether it knows what that means, a flag tells.
struct Square {
    minds: bool,
}

impl Kernel for Square {
    fn in_place(&self, _op: &dyn Op, _inputs: &[Spec], _outputs: &[Spec]) -> Pairs {
        // Some of these do not exist.
        [(0, 0), (7, 0), (0, 7)].into_iter().collect()
    }

    fn launch(&self, _op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let out = args.outputs[0].slice_mut::<f32>()?;
        if !(self.minds && args.inputs[0].is_overwritten()) {
            // Both slices are in hand now: they must never be the same memory.
            out.copy_from_slice(args.inputs[0].slice()?);
        }
        for x in out {
            *x *= *x;
        }
        Ok(())
    }
}

/// `w <- w + v` for a square cell, of which `v` may be a view.
struct AddTransposed;

impl Kernel for AddTransposed {
    fn may_overlap(&self, read: usize, written: usize) -> bool {
        (read, written) == (1, 0)
    }

    fn launch(&self, _op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let [w, v] = args.inputs else {
            unreachable!("two inputs")
        };
        let from = match v.shared_with() {
            Some(SharedWith::Input(0)) => w.storage::<f32>()?,
            _ => v.storage::<f32>()?,
        };
        let added: Vec<f32> = v.layout().positions().map(|at| from[at]).collect();
        let cell = w.slice_mut::<f32>()?;
        cell.iter_mut().zip(added).for_each(|(x, y)| *x += y);
        Ok(())
    }
}

fn add_plain(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    AddTransposed.launch(op, args)
}

fn numbers(engine: &Engine) -> Tensor {
    engine.tensor(&[1.0, -2.0, 3.0, 4.0], [2, 2]).unwrap()
}

/// 1, 2, 3, ..
fn weight<const N: usize>(engine: &Engine, shape: [usize; N]) -> Parameter {
    let count = |data: &mut [f32]| (1_u8..).zip(data).for_each(|(i, x)| *x = f32::from(i));
    Parameter::new(engine, shape, count).unwrap()
}

#[test]
fn what_no_kernel_takes_is_refused_when_the_node_is_made() {
    let engine = Engine::builder().build().unwrap();
    let pending = numbers(&engine).add_scalar(1.0).unwrap();
    let half = pending.to_dtype(DType::BF16).unwrap();
    let square = Square { minds: true };
    let narrow = Engine::builder().kernel("squared", DTypes::F32, square);
    let narrow = narrow.build().unwrap();
    let other = numbers(&narrow).to_dtype(DType::BF16).unwrap();
    let error = Tensor::apply_one(SQUARE, &[&other]).unwrap_err();
    let text = "squared has no cpu kernel for bfloat16; it has float32";
    assert!(matches!(error, Error::Op { .. }), "{error}");
    assert!(error.to_string().contains(text), "{error}");
    let unknown = Tensor::apply_one(SQUARE, &[&pending]).unwrap_err();
    assert!(
        unknown.to_string().contains("Engine::builder().kernel(..)"),
        "{unknown}"
    );
    // Nothing of what was pending is lost.
    assert_eq!(pending.to_vec::<f32>().unwrap(), [2.0, -1.0, 4.0, 5.0]);
    let back = half.to_dtype(DType::F32).unwrap();
    assert_eq!(back.to_vec::<f32>().unwrap(), [2.0, -1.0, 4.0, 5.0]);
}

#[test]
fn what_backward_emits_without_a_kernel_is_refused_by_backward() {
    let square = Square { minds: true };
    let engine = Engine::builder().kernel("squared", DTypes::F32, square);
    let engine = engine.build().unwrap();
    let w = weight(&engine, [2]);
    let loss = Tensor::apply_one(SQUARE, &[&w]).unwrap().sum().unwrap();
    let error = loss.backward().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("squared_backward has no cpu kernel"),
        "{error}"
    );
    assert_eq!(loss.item().unwrap(), 5.0);
}

#[test]
fn a_kernel_that_works_in_place_finds_its_input_in_its_output() {
    for minds in [true, false] {
        let engine = Engine::builder().kernel("squared", DTypes::F32, Square { minds });
        let engine = engine.build().unwrap();
        // What is asked for has memory of its own; what is on the way there has not.
        let square = |x: &Tensor| Tensor::apply_one(SQUARE, &[x]);
        let made = square(&numbers(&engine).add_scalar(1.0).unwrap()).unwrap();
        let asked = made.mul_scalar(1.0).unwrap();
        drop(made);
        let answer = asked.to_vec::<f32>();
        if minds {
            assert_eq!(answer.unwrap(), [4.0, 1.0, 16.0, 25.0]);
        } else {
            let error = answer.unwrap_err();
            assert!(
                matches!(error, Error::Kernel { op: "squared", .. }),
                "{error}"
            );
            assert!(error.to_string().contains("memory of its own"), "{error}");
        }
        // Where it does not work in place, both are right.
        let kept = numbers(&engine);
        let square = square(&kept).unwrap();
        assert_eq!(square.to_vec::<f32>().unwrap(), [1.0, 4.0, 9.0, 16.0]);
        assert_eq!(kept.to_vec::<f32>().unwrap(), [1.0, -2.0, 3.0, 4.0]);
    }
}

#[test]
fn a_second_operand_on_a_written_cell_needs_a_kernel_that_takes_it() {
    let name = ADD_TRANSPOSED.name;
    let engines = [
        Engine::builder().kernel(name, DTypes::F32, AddTransposed),
        Engine::builder().kernel(name, DTypes::F32, add_plain),
    ];
    for (takes, engine) in [true, false].into_iter().zip(engines) {
        let engine = engine.build().unwrap();
        let w = weight(&engine, [2, 2]);
        let transposed = w.detach().unwrap().transpose(0, 1).unwrap();
        let answer = Tensor::apply(ADD_TRANSPOSED, &[&w, &transposed]);
        if takes {
            answer.unwrap();
            assert_eq!(w.to_vec::<f32>().unwrap(), [2.0, 5.0, 5.0, 8.0]);
        } else {
            let error = answer.unwrap_err();
            let text = "add_transposed: input 1 reads ";
            assert!(error.to_string().contains(text), "{error}");
            assert_eq!(w.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
        }
        // Another tensor is no second operand on the cell.
        let before = w.to_vec::<f32>().unwrap();
        Tensor::apply(ADD_TRANSPOSED, &[&w, &numbers(&engine)]).unwrap();
        let after = w.to_vec::<f32>().unwrap();
        let grown: Vec<f32> = before
            .iter()
            .zip([1.0, -2.0, 3.0, 4.0])
            .map(|(x, y)| x + y)
            .collect();
        assert_eq!(after, grown);
    }
}

#[test]
fn a_quotient_by_a_number_is_that_by_a_tensor_of_it() {
    let engine = Engine::builder().build().unwrap();
    let values: Vec<f32> = (0..1999_u16).map(|i| f32::from(i) * 0.37 - 300.0).collect();
    let x = engine.tensor(&values, [1999]).unwrap();
    for number in [3.0_f32, 7.0, 0.1, -1e30] {
        let divisor = engine.tensor(&[number], [1]).unwrap();
        let by_tensor = x.div(&divisor).unwrap().to_vec::<f32>().unwrap();
        let by_number = x
            .div_scalar(f64::from(number))
            .unwrap()
            .to_vec::<f32>()
            .unwrap();
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&by_number), bits(&by_tensor));
    }
}

/// Says some times that it writes its first input, and ever after that it writes the second.
#[derive(Debug)]
struct Fickle {
    times: AtomicUsize,
}

impl Op for Fickle {
    fn name(&self) -> &'static str {
        "fickle"
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, _inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        Ok(SmallVec::new())
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 1.0)
    }

    fn effect(&self) -> Effect {
        Effect::WritesCell
    }

    fn writes(&self) -> SmallVec<[usize; 4]> {
        let less = |times: usize| times.checked_sub(1);
        let before = (self.times).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        std::iter::once(usize::from(before.is_err())).collect()
    }
}

/// Fills with sevens what it may write.
fn fill(_: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    for input in &mut *args.inputs {
        if let Ok(numbers) = input.slice_mut::<f32>() {
            numbers.fill(7.0);
        }
    }
    for output in &mut *args.outputs {
        output.slice_mut::<f32>()?.fill(7.0);
    }
    Ok(())
}

#[test]
fn an_operation_is_taken_at_its_first_word() {
    for times in 1..6 {
        let engine = Engine::builder().kernel("fickle", DTypes::F32, fill);
        let engine = engine.build().unwrap();
        let (a, b) = (weight(&engine, [3]), weight(&engine, [3]));
        let times = AtomicUsize::new(times);
        Tensor::apply(Fickle { times }, &[&a, &b]).unwrap();
        assert_eq!(b.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
        assert_eq!(a.to_vec::<f32>().unwrap(), [7.0; 3]);
    }
}

#[test]
fn no_kernel_takes_the_place_of_the_one_for_merged_nodes() {
    let run = |engine: &Engine| {
        let x = numbers(engine).add_scalar(1.0).unwrap();
        x.mul_scalar(3.0).unwrap().relu().unwrap().to_vec::<f32>()
    };
    let expected = run(&Engine::builder().build().unwrap()).unwrap();
    for dtypes in [DTypes::F32, DTypes::new(&[], &[])] {
        let engine = Engine::builder().kernel("fused", dtypes, fill);
        assert_eq!(run(&engine.build().unwrap()).unwrap(), expected);
    }
}

/// An operation of two tensors of one dtype, and what it says of their dtypes.
macro_rules! of_two {
    ($type:ident $($says:tt)*) => {
        #[derive(Debug)]
        struct $type;

        impl Op for $type {
            fn name(&self) -> &'static str {
                "of_two"
            }

            fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

            fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
                OpError::check_dtype(self.name(), &inputs[1], inputs[0].dtype)?;
                Ok(inputs.iter().take(1).cloned().collect())
            }

            fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
                Cost::elementwise(inputs, outputs, 1.0)
            }

            $($says)*
        }
    };
}

of_two! { SaysNothing }
of_two! {
    SaysMuch

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }

    fn promotion(&self) -> Option<Promotion> {
        Some(Promotion::ALL)
    }
}

#[test]
fn an_operation_may_say_what_becomes_of_its_inputs() {
    let half = DTypes::new(&[DType::BF16], &[DType::BF16]);
    let engine = Engine::builder()
        .kernel("of_two", DTypes::F32, fill)
        .kernel("of_two", half, fill);
    let engine = engine.build().unwrap();
    let (full, low) = (numbers(&engine), numbers(&engine));
    let low = low.to_dtype(DType::BF16).unwrap();
    let dtype = |result: highwater::Result<Tensor>| result.map(|y| y.dtype()).ok();
    let nothing = |a, b| dtype(Tensor::apply_one(SaysNothing, &[a, b]));
    let much = |a, b| dtype(Tensor::apply_one(SaysMuch, &[a, b]));
    let (f32, bf16) = (Some(DType::F32), Some(DType::BF16));
    assert_eq!([nothing(&full, &full), nothing(&full, &low)], [f32, None]);
    assert_eq!([much(&full, &full), much(&full, &low)], [f32, f32]);
    autocast(DType::BF16, || {
        // What is refused becomes the widest.
        assert_eq!([nothing(&full, &full), nothing(&low, &low)], [f32, bf16]);
        assert_eq!(nothing(&full, &low), f32);
        assert_eq!([much(&full, &full), much(&full, &low)], [bf16, bf16]);
    });
}
