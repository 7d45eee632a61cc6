//! The cases of PyTorch's own tests of `torch.utils.checkpoint`, for this API: each runs plainly and through
//! checkpoints, and all that comes out, gradients and the random numbers that follow included, has the same
//! bits. In brackets the tests of `test/test_utils.py` and `test/test_autograd.py` that a case stands for.
//!
//! What has no counterpart here: warnings about arguments that are not there (`use_reentrant`, deprecated
//! forms), several devices, hooks that pack saved tensors.

use highwater::nn::{Linear, Module};
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{
    CheckpointPolicy, Engine, GradOptions, Parameter, Result, Tensor, autocast, checkpoint,
    checkpoint_sequential, checkpoint_with, grad, grad_with, no_grad,
};
use std::cell::Cell;

/// All numbers that came out, as bits.
type Bits = Vec<u32>;

/// What a case makes of an input and a layer; told whether to use checkpoints.
struct Case {
    engine: Engine,
    x: Tensor,
    layer: Linear,
    second: Linear,
    checkpointed: bool,
}

impl Case {
    fn run(&self, f: impl FnOnce(&Tensor) -> Result<Tensor>, x: &Tensor) -> Result<Tensor> {
        if self.checkpointed {
            checkpoint(f, x)
        } else {
            f(x)
        }
    }

    /// Two layers and a function that backward wants the result of.
    fn body(&self, x: &Tensor) -> Result<Tensor> {
        self.second
            .forward(&self.layer.forward(x)?.tanh()?)?
            .sigmoid()
    }

    /// The gradients that there are.
    fn gradients(&self) -> Result<Bits> {
        let mut bits = Bits::new();
        let parameters = self
            .layer
            .parameters()
            .into_iter()
            .chain(self.second.parameters());
        let grads = parameters.filter_map(|parameter| parameter.grad());
        for grad in grads.chain(self.x.grad()) {
            bits.extend(bits_of(&grad)?);
        }
        Ok(bits)
    }
}

fn bits_of(tensor: &Tensor) -> Result<Bits> {
    Ok(tensor
        .to_vec::<f32>()?
        .iter()
        .map(|x| x.to_bits())
        .collect())
}

/// Runs a case both ways, with a budget that keeps everything and without one that does.
fn check(case: impl Fn(&Case) -> Result<Bits>) {
    let run = |checkpointed: bool, arena: Option<u64>| {
        let builder = match arena {
            Some(bytes) => Engine::builder().arena(bytes),
            None => Engine::builder(),
        };
        let engine = builder.seed(9).build().unwrap();
        let x: Vec<f32> = (0..48).map(|i| (i as f32 * 0.7).sin()).collect();
        let of = Case {
            x: engine.tensor(&x, [6, 8]).unwrap().requires_grad_().unwrap(),
            layer: Linear::new(&engine, 8, 8, true).unwrap(),
            second: Linear::new(&engine, 8, 8, true).unwrap(),
            engine: engine.clone(),
            checkpointed,
        };
        let bits = case(&of).unwrap();
        // Whatever follows draws the same numbers.
        let next = bits_of(&Tensor::randn(&engine, [4]).unwrap()).unwrap();
        [bits, next].concat()
    };
    let plain = run(false, None);
    assert!(plain.len() > 4);
    assert_eq!(run(true, None), plain);
    assert_eq!(run(true, Some(1 << 30)), plain);
    assert_eq!(run(true, Some(32 << 10)), plain);
}

/// [`test_checkpoint`, `test_checkpointing_without_reentrant_correct_grad`]
#[test]
fn gradients_are_those_of_the_plain_run() {
    check(|case| {
        case.run(|x| case.body(x), &case.x)?.sum()?.backward()?;
        case.gradients()
    });
}

/// [`test_checkpoint_trigger`] The function is called once, not once more for backward.
#[test]
fn the_function_is_called_once() {
    let calls = Cell::new(0);
    check(|case| {
        calls.set(0);
        let counted = |x: &Tensor| {
            calls.set(calls.get() + 1);
            case.body(x)
        };
        case.run(counted, &case.x)?.sum()?.backward()?;
        let bits = case.gradients()?;
        assert_eq!(calls.get(), 1);
        Ok(bits)
    });
}

/// [`test_checkpoint_module_list`]
#[test]
fn modules_one_after_the_other() {
    check(|case| {
        let layers = [&case.layer, &case.second, &case.layer];
        let functions = || {
            layers
                .iter()
                .map(|layer| |x: &Tensor| layer.forward(x)?.tanh())
        };
        let y = if case.checkpointed {
            checkpoint_sequential(functions(), 2, &case.x)?
        } else {
            functions().try_fold(case.x.clone(), |x, f| f(&x))?
        };
        y.sum()?.backward()?;
        case.gradients()
    });
}

/// [`test_checkpoint_rng_cpu`, `test_checkpoint_not_preserve_rng_state_and_without_reentrant`]
#[test]
fn dropout_draws_the_same_numbers() {
    check(|case| {
        let y = case.run(|x| case.body(&x.dropout(0.5)?)?.dropout(0.3), &case.x)?;
        y.dropout(0.2)?.sum()?.backward()?;
        case.gradients()
    });
}

/// [`test_checkpoint_non_tensor`, `test_checkpoint_non_tensor_inputs_outputs`,
/// `test_checkpointing_without_reentrant_arbitrary_input_output`, `test_nested_checkpoint_kwargs`]
#[test]
fn anything_goes_in_and_out() {
    struct Both {
        tensors: Vec<Tensor>,
        note: &'static str,
    }
    check(|case| {
        let (scale, others) = (1.5_f64, vec![case.x.square()?, case.x.detach()?]);
        let body = |x: &Tensor| {
            let first = case.body(&others[0])?.mul_scalar(scale)?;
            Ok(Both {
                tensors: vec![first, x.mul(&others[1])?],
                note: "kept",
            })
        };
        let both = if case.checkpointed {
            checkpoint(body, &case.x)?
        } else {
            body(&case.x)?
        };
        assert_eq!(both.note, "kept");
        both.tensors[0]
            .sum()?
            .add(&both.tensors[1].sum()?)?
            .backward()?;
        case.gradients()
    });
}

/// [`test_checkpoint_no_tensors`, `test_checkpointing_without_reentrant_input_requires_grad_False`] Parameters
/// get gradients although no input wants one.
#[test]
fn no_input_wants_a_gradient() {
    check(|case| {
        let x = case.x.detach()?;
        case.run(|x| case.body(x), &x)?.sum()?.backward()?;
        case.gradients()
    });
}

/// [`test_checkpoint_partial_grad`] A part of what comes out wants gradients, or is used.
#[test]
fn a_part_of_the_outputs_is_used() {
    check(|case| {
        let body = |x: &Tensor| {
            let y = case.body(x)?;
            Ok((y.exp()?, no_grad(|| y.square())?, y.tanh()?))
        };
        let (used, constant, _unused) = if case.checkpointed {
            checkpoint(body, &case.x)?
        } else {
            body(&case.x)?
        };
        assert!(!constant.requires_grad()?);
        used.mul(&constant)?.sum()?.backward()?;
        case.gradients()
    });
}

/// [`test_checkpointing_without_reentrant_early_free`] What is read between forward and backward stays right.
#[test]
fn reads_in_between() {
    check(|case| {
        let y = case.run(|x| case.body(x), &case.x)?;
        let mut bits = bits_of(&y)?;
        let loss = y.sum()?;
        bits.extend(bits_of(&loss)?);
        drop(y);
        loss.backward()?;
        bits.extend(case.gradients()?);
        Ok(bits)
    });
}

/// [`test_checkpointing_without_reentrant_parameter_used_in_an_out`]
#[test]
fn a_parameter_is_used_inside_and_outside() {
    check(|case| {
        let y = case.run(|x| case.body(x), &case.x)?;
        let outside = y.matmul(&case.layer.weight)?.sum()?;
        outside
            .add(&case.second.weight.square()?.sum()?)?
            .backward()?;
        case.gradients()
    });
}

/// [`test_checkpointing_without_reentrant_detached_tensor_use_reentrant`]
#[test]
fn a_detached_tensor_inside() {
    check(|case| {
        let y = case.run(|x| case.body(&x.detach()?)?.mul(x), &case.x)?;
        y.sum()?.backward()?;
        case.gradients()
    });
}

/// [`test_nested_checkpoint`, `test_nested_checkpoint_non_tensor_inputs_and_outputs`]
#[test]
fn checkpoints_inside_checkpoints() {
    check(|case| {
        let innermost = |x: &Tensor| case.run(|x| case.body(x)?.dropout(0.1), x);
        let inner = |x: &Tensor| case.run(|x| innermost(&x.exp()?)?.square(), x);
        case.run(|x| inner(&x.tanh()?)?.sin(), &case.x)?
            .sum()?
            .backward()?;
        case.gradients()
    });
}

/// [`test_nested_checkpoint_two_children`, `test_nested_checkpoint_same_graph`]
#[test]
fn two_checkpoints_inside_one() {
    check(|case| {
        let child = |x: &Tensor| case.run(|x| case.body(x), x);
        let y = case.run(|x| child(&x.sin()?)?.add(&child(&x.cos()?)?), &case.x)?;
        y.mul(&child(&case.x)?)?.sum()?.backward()?;
        case.gradients()
    });
}

/// [`test_checkpointing_without_reentrant_saved_object_identity`, several backwards: `retain_graph=True`]
#[test]
fn several_backwards() {
    check(|case| {
        let y = case.run(|x| case.body(x), &case.x)?;
        let (a, b) = (y.sum()?, y.square()?.mean()?);
        a.backward()?;
        let mut bits = case.gradients()?;
        b.backward()?;
        a.backward()?;
        bits.extend(case.gradients()?);
        Ok(bits)
    });
}

/// [`test_nested_checkpoint_reentrant_backwards`, `test_checkpoint_graph_execution_group`] A gradient is taken
/// inside, and of that in turn.
#[test]
fn gradients_inside() {
    check(|case| {
        let create = GradOptions {
            create_graph: true,
            ..GradOptions::default()
        };
        let body = |x: &Tensor| {
            let score = case.body(x)?.sum()?;
            let slope = grad_with(&[&score], &[x], create)?.remove(0);
            slope.square()?.sum()?.add(&score)
        };
        let loss = case.run(body, &case.x)?;
        let mut bits = bits_of(&grad(&loss, &[&case.x])?[0])?;
        loss.backward()?;
        bits.extend(case.gradients()?);
        Ok(bits)
    });
}

/// [`test_checkpointing_without_reentrant_with_context_fn`, `test_checkpoint_policy` and those of
/// `TestSelectiveActivationCheckpoint`] Every policy gives the same bits.
#[test]
fn policies() {
    const POLICIES: [CheckpointPolicy; 4] = [
        CheckpointPolicy::MustSave,
        CheckpointPolicy::PreferSave,
        CheckpointPolicy::MustRecompute,
        CheckpointPolicy::PreferRecompute,
    ];
    check(|case| {
        let seen = Cell::new(0);
        let policy = |_: &highwater::CheckpointedOp| {
            seen.set(seen.get() + 1);
            POLICIES[seen.get() % POLICIES.len()]
        };
        let body = |x: &Tensor| case.body(&x.dropout(0.2)?)?.square();
        let y = if case.checkpointed {
            checkpoint_with(policy, body, &case.x)?
        } else {
            body(&case.x)?
        };
        y.sum()?.backward()?;
        case.gradients()
    });
}

/// [`test_checkpointing_without_reentrant_autocast`, `test_checkpoint_autocast`] Casts are part of what is
/// computed again.
#[test]
fn casts_are_the_same() {
    check(|case| {
        let dtype = highwater::DType::BF16;
        let y = autocast(dtype, || case.run(|x| case.body(x), &case.x))?;
        y.to_dtype(highwater::DType::F32)?.sum()?.backward()?;
        case.gradients()
    });
}

/// [`test_checkpointing_without_reentrant_custom_function_works`, in steps] Updates of weights that a checkpoint
/// reads come after it has been computed again.
#[test]
fn steps_between_checkpoints() {
    check(|case| {
        let parameters: Vec<Parameter> = [&case.layer, &case.second]
            .into_iter()
            .flat_map(Module::parameters)
            .collect();
        let mut optimizer = Sgd::new(parameters.clone(), SgdOptions::default())?;
        let mut bits = Bits::new();
        for _ in 0..3 {
            let x = Tensor::randn(&case.engine, [6, 8])?;
            let loss = case
                .run(|x| case.body(&x.dropout(0.1)?), &x)?
                .square()?
                .mean()?;
            loss.backward()?;
            optimizer.step()?;
            bits.extend(bits_of(&loss)?);
        }
        for parameter in parameters {
            bits.extend(bits_of(&parameter)?);
        }
        Ok(bits)
    });
}
