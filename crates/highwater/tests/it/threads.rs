//! Threads of others, and code that runs while an engine waits for it: never a deadlock, never other numbers.

use highwater::op::{
    Args, Cost, DType, DTypes, KernelError, Op, OpError, SmallVec, Spec, smallvec,
};
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{Engine, Error, Parameter, Result, Tensor};
use rayon::prelude::*;
use std::hash::Hasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Runs `f`; stops all tests if it does not end.
fn ends<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let (done, over) = mpsc::channel();
        let run = scope.spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(f));
            done.send(()).unwrap();
            result
        });
        // A stop, not a measure: what is tested would wait for ever.
        if over.recv_timeout(Duration::from_mins(5)).is_err() {
            println!("threads wait for each other");
            std::process::abort();
        }
        let result = run.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn pool(threads: usize) -> rayon::ThreadPool {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
    builder.build().unwrap()
}

/// Enough for kernels to go on several threads, and a read.
fn item(engine: &Engine, weight: &Tensor, i: usize) -> Result<f32> {
    let x = engine.tensor(&[(i % 7) as f32; 64 * 64], [64, 64])?;
    x.matmul(weight)?.relu()?.sum()?.item()
}

#[test]
fn a_thousand_items_of_a_foreign_pool_use_one_engine() {
    ends(|| {
        let engine = Engine::builder().threads(2).build().unwrap();
        let weight = engine.tensor(&[0.5; 64 * 64], [64, 64]).unwrap();
        let sums: Vec<f32> = pool(4).install(|| {
            let items = (0..1000).into_par_iter();
            items.map(|i| item(&engine, &weight, i).unwrap()).collect()
        });
        for (i, sum) in sums.into_iter().enumerate() {
            assert_eq!(sum, (i % 7) as f32 * 0.5 * 64.0 * 64.0 * 64.0);
        }
    });
}

#[test]
fn items_of_a_foreign_pool_use_engines_of_their_own_and_of_each_other() {
    ends(|| {
        let engines: Vec<Engine> = (0..3)
            .map(|_| Engine::builder().threads(2).build().unwrap())
            .collect();
        let foreign = pool(4);
        foreign.install(|| {
            (0..200_usize).into_par_iter().for_each(|i| {
                let engine = &engines[i % 3];
                let weight = engine.tensor(&[0.5; 64 * 64], [64, 64]).unwrap();
                // Work of its own pool in the middle.
                let parts: f32 = (0..8).into_par_iter().map(|k| k as f32).sum();
                let sum = item(engine, &weight, i).unwrap();
                assert_eq!(
                    sum + parts,
                    (i % 7) as f32 * 0.5 * 64.0 * 64.0 * 64.0 + 28.0
                );
                // One is made and dropped on a thread of the pool.
                drop(Engine::builder().threads(2).build().unwrap());
            });
        });
    });
}

#[test]
fn a_foreign_pool_trains_while_closures_over_bytes_use_it() {
    ends(|| {
        let engine = Engine::builder().threads(2).build().unwrap();
        let weights: Vec<Parameter> = (0..4)
            .map(|_| Parameter::new(&engine, [64, 64], |own| own.fill(0.5)).unwrap())
            .collect();
        pool(4).install(|| {
            (0..100_usize).into_par_iter().for_each(|i| {
                let bytes = weights[i % 4].with_bytes(|bytes| {
                    let other = weights[(i + 1) % 4].with_bytes(<[u8]>::len).unwrap();
                    let sum: usize = (0..8).into_par_iter().map(|_| 1).sum();
                    // Reads are computed meanwhile; a tensor is made and dropped.
                    assert!(item(&engine, &weights[i % 4], i).is_ok());
                    bytes.len() + other + sum
                });
                assert_eq!(bytes.unwrap(), 2 * 64 * 64 * 4 + 8);
            });
        });
    });
}

/// Adds nothing, and does in the middle what a test asks for.
#[derive(Debug, Clone)]
struct Meddle {
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Infer,
    Cost,
    Backward,
    Kernel,
    Task,
}

/// The engine that they meddle with, one test at a time.
static VICTIM: Mutex<Option<Engine>> = Mutex::new(None);
static TESTS: Mutex<()> = Mutex::new(());
static ARMED: AtomicBool = AtomicBool::new(false);

impl Meddle {
    fn at(&self, at: At) {
        if self.at == at && ARMED.load(Ordering::SeqCst) {
            let victim = VICTIM.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(engine) = victim.clone() {
                drop(victim);
                engine.tensor(&[1.0], [1]).unwrap();
            }
            panic!("nobody kept it from using the engine");
        }
    }
}

impl Op for Meddle {
    fn name(&self) -> &'static str {
        "meddle"
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(self.at as u8);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        self.at(At::Infer);
        let shape = inputs[0].shape().clone();
        Ok(smallvec![Spec::contiguous(DType::F32, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        self.at(At::Cost);
        Cost::elementwise(inputs, outputs, 1.0)
    }

    fn backward(&self, backward: &mut highwater::op::Backward<'_>) -> Result<(), OpError> {
        self.at(At::Backward);
        if let Some(grad) = backward.grad(0) {
            backward.set(0, grad);
        }
        Ok(())
    }
}

fn kernel(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let meddle: &Meddle = highwater::op::op_as(op)?;
    meddle.at(At::Kernel);
    args.pool.for_each(4, |_| meddle.at(At::Task));
    let x = args.inputs[0].slice::<f32>()?;
    args.outputs[0].slice_mut::<f32>()?.copy_from_slice(x);
    Ok(())
}

fn engine() -> Engine {
    let builder = Engine::builder().threads(2);
    builder
        .kernel("meddle", DTypes::F32, kernel)
        .build()
        .unwrap()
}

/// A step through the operation; the loss before it.
fn step(engine: &Engine, weight: &Parameter, sgd: &mut Sgd, at: At) -> Result<f32> {
    let x = engine.tensor(&[1.0, 2.0, 3.0, 4.0], [4])?;
    let y = Tensor::apply_one(Meddle { at }, &[&weight.mul(&x)?])?;
    let loss = y.mul(&y)?.sum()?;
    loss.backward()?;
    let before = loss.item()?;
    sgd.step()?;
    Ok(before)
}

/// Code of an operation that uses its own engine, or another that is waited for, stops; afterwards the
/// engine goes on as if nothing had been.
#[test]
fn code_that_an_engine_waits_for_cannot_wait_for_an_engine() {
    let _one = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let train = |own: bool, at: At, meddles: bool| {
        let (engine, other) = (engine(), engine());
        let weight = Parameter::new(&engine, [4], |own| own.fill(1.0)).unwrap();
        let options = SgdOptions {
            lr: 0.01,
            ..SgdOptions::default()
        };
        let mut sgd = Sgd::new(vec![weight.clone()], options).unwrap();
        let victim = if own { engine.clone() } else { other };
        *VICTIM.lock().unwrap_or_else(PoisonError::into_inner) = Some(victim);
        let mut losses = vec![step(&engine, &weight, &mut sgd, at).unwrap()];
        if meddles {
            ARMED.store(true, Ordering::SeqCst);
            let run = || step(&engine, &weight, &mut sgd, at);
            let stopped = ends(|| catch_unwind(AssertUnwindSafe(run)));
            ARMED.store(false, Ordering::SeqCst);
            let message = match stopped {
                Ok(Err(error @ Error::Panic { .. })) => error.to_string(),
                Ok(other) => panic!("{at:?}: {other:?}"),
                Err(panic) => {
                    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                    text.or(panic.downcast_ref().cloned()).unwrap()
                }
            };
            let kernel = matches!(at, At::Kernel | At::Task);
            assert_eq!(message.starts_with("meddle: the kernel panicked"), kernel);
            assert!(message.contains("an engine is used inside"), "{message}");
        }
        losses.push(step(&engine, &weight, &mut sgd, at).unwrap());
        losses.extend(weight.to_vec::<f32>().unwrap());
        losses
    };
    for at in [At::Infer, At::Cost, At::Backward, At::Kernel, At::Task] {
        for own in [true, false] {
            assert_eq!(train(own, at, true), train(own, at, false), "{at:?} {own}");
        }
    }
    *VICTIM.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Who looks at a plan panics before it runs: what was to be computed is not taken to be there.
#[test]
fn values_that_a_panic_kept_from_being_computed_are_not_zeros() {
    static PANICS: AtomicBool = AtomicBool::new(true);
    let engine = Engine::builder()
        .threads(1)
        .on_plan(|_, _| assert!(!PANICS.swap(false, Ordering::SeqCst), "a look at a plan"))
        .build()
        .unwrap();
    let x = engine.tensor(&[1.0, 2.0], [2]).unwrap();
    let sum = x.sum().unwrap();
    let read = catch_unwind(AssertUnwindSafe(|| sum.item()));
    assert!(read.is_err());
    match sum.item() {
        Ok(sum) => assert_eq!(sum, 3.0),
        Err(error) => assert!(matches!(error, Error::Expired { .. }), "{error}"),
    }
    assert_eq!(x.sum().unwrap().item().unwrap(), 3.0);
}
