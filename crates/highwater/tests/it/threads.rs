//! Threads of others, and code that runs while an engine waits for it: never a deadlock, never other numbers.

use highwater::nn::{Linear, Module, Sequential};
use highwater::op::{
    Args, Cost, DType, DTypes, KernelError, Op, OpError, SmallVec, Spec, smallvec,
};
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{Engine, Error, Parameter, Result, Tensor, no_grad};
use rayon::prelude::*;
use std::hash::Hasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError, mpsc};
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

/// A few layers whose results are too large to be kept unasked.
fn layers(engine: &Engine) -> Result<Sequential> {
    let mut layers = Sequential::new().then(Linear::new(engine, 16, 256, true)?);
    for _ in 0..3 {
        layers = layers
            .then_fn(Tensor::tanh)
            .then(Linear::new(engine, 256, 256, true)?);
    }
    Ok(layers)
}

fn sgd(layers: &Sequential) -> Result<Sgd> {
    let options = SgdOptions {
        lr: 0.05,
        momentum: 0.9,
        ..SgdOptions::default()
    };
    Sgd::new(layers.parameters(), options)
}

fn input(engine: &Engine) -> Result<Tensor> {
    let values: Vec<f32> = (0..96 * 16).map(|i| (i % 13) as f32 / 13.0).collect();
    engine.tensor(&values, [96, 16])
}

/// Some steps on a model of its own; the losses, and the parameters in the end.
fn train(engine: &Engine, seed: u64, steps: usize) -> Result<Vec<f32>> {
    engine.manual_seed(seed);
    let (layers, x) = (layers(engine)?, input(engine)?);
    let mut sgd = sgd(&layers)?;
    let mut seen = Vec::new();
    for i in 0..steps {
        let loss = layers.forward(&x)?.dropout(0.1)?.square()?.mean()?;
        if i % 3 == 0 {
            seen.push(loss.item()?);
        }
        loss.backward()?;
        sgd.step()?;
        seen.push(loss.item()?);
    }
    for parameter in layers.parameters() {
        seen.extend(parameter.to_vec::<f32>()?);
    }
    Ok(seen)
}

#[test]
fn trainers_of_one_engine_have_what_each_has_alone() {
    ends(|| {
        let engine = || Engine::builder().memory(256 << 20).build().unwrap();
        let alone: Vec<_> = (0..3)
            .map(|seed| train(&engine(), seed, 20).unwrap())
            .collect();
        let engine = engine();
        let together: Vec<_> = std::thread::scope(|scope| {
            let engine = &engine;
            let spawn = move |seed| scope.spawn(move || train(engine, seed, 20).unwrap());
            let threads: Vec<_> = (0..3).map(spawn).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(alone == together);
    });
}

/// Requests beside a trainer are answered by one version of its parameters, and none is refused.
#[test]
fn requests_beside_a_trainer_are_answered() {
    const STEPS: usize = 40;
    let run = |threads: usize| {
        let engine = Engine::builder().memory(256 << 20).build()?;
        engine.manual_seed(3);
        let (layers, x) = (layers(&engine)?, input(&engine)?);
        let mut sgd = sgd(&layers)?;
        let answer = || -> Result<Vec<u32>> {
            let out = no_grad(|| layers.forward(&x))?;
            let rows = out.to_vec::<f32>()?;
            Ok(rows.into_iter().step_by(97).map(f32::to_bits).collect())
        };
        let over = AtomicBool::new(false);
        let mut versions = vec![answer()?];
        let answers = std::thread::scope(|scope| {
            let serve = || {
                let mut answers = Vec::new();
                while !over.load(Ordering::SeqCst) {
                    answers.push(answer()?);
                }
                Ok::<_, Error>(answers)
            };
            let servers: Vec<_> = (0..threads).map(|_| scope.spawn(serve)).collect();
            let mut train = || {
                for _ in 0..STEPS {
                    layers.forward(&x)?.square()?.mean()?.backward()?;
                    sgd.step()?;
                    if threads == 0 {
                        versions.push(answer()?);
                    }
                }
                Ok::<_, Error>(())
            };
            let trained = train();
            over.store(true, Ordering::SeqCst);
            let answers = servers.into_iter().map(|server| server.join().unwrap());
            let answers: Result<Vec<_>> = answers.collect();
            trained.and(answers)
        })?;
        let last = answer()?;
        Ok::<_, Error>((versions, answers.concat(), last))
    };
    ends(|| {
        let (versions, _, last) = run(0).unwrap();
        let (_, answers, beside) = run(3).unwrap();
        assert_eq!(last, beside);
        println!("{} requests", answers.len());
        assert!(!answers.is_empty());
        assert!(answers.iter().all(|answer| versions.contains(answer)));
    });
}

/// What one thread records waits while others step, and each loss is trained by whoever has it.
#[test]
fn steps_fall_between_two_lines_of_another_thread() {
    ends(|| {
        let engine = Engine::builder().memory(256 << 20).build().unwrap();
        let x = input(&engine).unwrap();
        let (a, b) = (layers(&engine).unwrap(), layers(&engine).unwrap());
        let (mut of_a, mut of_b) = (sgd(&a).unwrap(), sgd(&b).unwrap());
        let turn = Barrier::new(2);
        let mut step = || {
            let loss = a.forward(&x).unwrap().square().unwrap().mean().unwrap();
            loss.backward().unwrap();
            of_a.step().unwrap();
        };
        std::thread::scope(|scope| {
            let infer = || {
                let y = no_grad(|| b.forward(&x)).unwrap();
                turn.wait();
                turn.wait();
                y.to_vec::<f32>().unwrap()
            };
            let thread = scope.spawn(infer);
            turn.wait();
            step();
            turn.wait();
            let expected = no_grad(|| b.forward(&x)).unwrap().to_vec::<f32>().unwrap();
            assert_eq!(thread.join().unwrap(), expected);
        });
        std::thread::scope(|scope| {
            let train = || {
                let loss = b.forward(&x).unwrap().square().unwrap().mean().unwrap();
                turn.wait();
                turn.wait();
                // On the main thread, which steps.
                loss
            };
            let thread = scope.spawn(train);
            turn.wait();
            step();
            turn.wait();
            let loss = thread.join().unwrap();
            loss.backward().unwrap();
            let before = b.parameters()[0].to_vec::<f32>().unwrap();
            of_b.step().unwrap();
            assert_ne!(b.parameters()[0].to_vec::<f32>().unwrap(), before);
            assert!(loss.item().unwrap() > 0.0);
        });
    });
}

/// Closures over bytes are in nobody's way but those who need these bytes, and these wait.
#[test]
fn steps_wait_for_closures_over_what_they_need() {
    ends(|| {
        let engine = Engine::builder().threads(1).build().unwrap();
        let parameter = || Parameter::new(&engine, [4], |own| own.fill(1.0)).unwrap();
        let (p, q) = (parameter(), parameter());
        let options = SgdOptions {
            lr: 1.0,
            ..SgdOptions::default()
        };
        let mut sgd = Sgd::new(vec![p.clone()], options).unwrap();
        let turn = Barrier::new(2);
        // Nothing needs it.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let write = |own: &mut [f32]| {
                    turn.wait();
                    own.fill(2.0);
                    turn.wait();
                };
                q.with_values_mut(write).unwrap();
            });
            turn.wait();
            p.sum().unwrap().backward().unwrap();
            sgd.step().unwrap();
            turn.wait();
        });
        assert_eq!(p.to_vec::<f32>().unwrap(), [0.0; 4]);
        assert_eq!(q.to_vec::<f32>().unwrap(), [2.0; 4]);
        // The step needs it: in whichever order, no one is refused.
        for read in [true, false] {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let hold = || {
                        turn.wait();
                        std::thread::sleep(Duration::from_millis(50));
                    };
                    if read {
                        p.with_bytes(|_| hold()).unwrap();
                    } else {
                        p.with_values_mut(|own| {
                            hold();
                            own.fill(8.0);
                        })
                        .unwrap();
                    }
                });
                turn.wait();
                p.sum().unwrap().backward().unwrap();
                sgd.step().unwrap();
            });
        }
        assert_eq!(p.to_vec::<f32>().unwrap(), [7.0; 4]);
        // A thread would wait for itself.
        let inside = p.with_bytes(|_| {
            p.sum().unwrap().backward().unwrap();
            sgd.step()
        });
        let message = inside.unwrap().unwrap_err().to_string();
        assert!(message.contains("in use by a closure"), "{message}");
        sgd.step().unwrap();
        // Two threads would wait for each other: one is refused, and then the other goes on.
        let crossed = |mine: &Parameter, other: &Parameter| {
            mine.with_values_mut(|_| {
                turn.wait();
                other.with_values_mut(|own| own.fill(3.0)).is_ok()
            })
            .unwrap()
        };
        let (first, second) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| crossed(&p, &q));
            let first = crossed(&q, &p);
            (first, thread.join().unwrap())
        });
        assert_ne!(first, second);
    });
}
