//! The law of recordings: whatever others record, evaluate and update meanwhile, each has the bits that it has alone.
//!
//! Schedules are seeded: several recordings take turns on one thread, one call at a time.

use crate::models::Random;
use crate::share::some;
use highwater::nn::{BatchNorm1d, BatchNormOptions};
use highwater::optim::clip_grad_norm_;
use highwater::prelude::*;
use highwater::{Buffer, Policy, Recording};
use std::task::{Context, Poll, Waker};

/// A small program, call by call, and all that it saw.
struct Worker {
    recording: Recording,
    layers: Vec<Linear>,
    norm: BatchNorm1d,
    average: Buffer,
    sgd: Sgd,
    x: Tensor,
    hidden: Option<Tensor>,
    loss: Option<Tensor>,
    held: Option<Tensor>,
    seen: Vec<String>,
}

const CALLS: usize = 16;

impl Worker {
    fn new(engine: &Engine, seed: u64) -> Result<Self> {
        let recording = Recording::new();
        let make = || {
            engine.manual_seed(seed);
            let layers = vec![
                Linear::new(engine, 3, 4, true)?,
                Linear::new(engine, 4, 2, true)?,
            ];
            let options = SgdOptions {
                lr: 0.1,
                momentum: 0.9,
                ..SgdOptions::default()
            };
            Ok(Self {
                recording: recording.clone(),
                norm: BatchNorm1d::new(engine, 4, BatchNormOptions::default())?,
                average: Buffer::new(engine, [4], |own| own.fill(0.0))?,
                sgd: Sgd::new(layers.parameters(), options)?,
                x: Tensor::randn(engine, [5, 3])?.requires_grad_()?,
                layers,
                hidden: None,
                loss: None,
                held: None,
                seen: Vec::new(),
            })
        };
        recording.enter(make)
    }

    fn see(&mut self, what: &Tensor) -> Result<()> {
        let bits = what.to_vec::<f32>()?;
        let bits: Vec<u32> = bits.into_iter().map(f32::to_bits).collect();
        self.seen.push(format!("{bits:?}"));
        Ok(())
    }

    fn hidden(&self) -> Result<Tensor> {
        let hidden = self.norm.forward(&self.layers[0].forward(&self.x)?)?;
        hidden.tanh()?.dropout(0.5)
    }

    /// One call of the user's; what is not there yet is made.
    fn call(&mut self, which: usize) -> Result<()> {
        let hidden = match &self.hidden {
            Some(hidden) => hidden.clone(),
            None => self.hidden()?,
        };
        match which {
            0 | 1 => self.hidden = Some(hidden),
            2 | 3 => {
                let out = self.layers[1].forward(&hidden)?;
                self.loss = Some(out.square()?.mean()?);
            }
            4 => {
                if let Some(loss) = self.loss.clone() {
                    self.see(&loss)?;
                }
            }
            5 | 6 => {
                if let Some(loss) = self.loss.take() {
                    self.hidden = None;
                    loss.backward()?;
                }
            }
            7 | 8 => {
                let stepped = self.sgd.step()?;
                self.seen.push(format!("{stepped:?}"));
            }
            9 => {
                let bias = self.layers[0].parameters().pop().unwrap();
                bias.with_values_mut(|own| own[0] += 1.0)?;
            }
            10 => {
                let weight = self.layers[1].parameters().remove(0);
                self.see(&weight)?;
            }
            11 => {
                let out = no_grad(|| self.layers[1].forward(&hidden))?;
                self.see(&out)?;
            }
            12 => {
                let drawn = Tensor::randn(self.x.engine(), [3])?;
                self.see(&drawn)?;
            }
            13 => {
                self.average
                    .lerp_(&no_grad(|| hidden.mean_dims(&[0], false))?, 0.5)?;
                self.held = Some(hidden.square()?);
            }
            14 => {
                if let Some(held) = self.held.take() {
                    self.see(&held)?;
                }
                if let Some(grad) = self.x.grad() {
                    self.see(&grad)?;
                }
            }
            _ => {
                let norm = clip_grad_norm_(&self.layers.parameters(), 0.1)?;
                self.see(&norm)?;
                self.see(&self.average.clone())?;
            }
        }
        Ok(())
    }

    fn turn(&mut self, which: usize) {
        let recording = self.recording.clone();
        if let Err(error) = recording.enter(|| self.call(which)) {
            self.seen.push(error.to_string());
            (self.hidden, self.loss, self.held) = (None, None, None);
        }
    }
}

fn engine() -> Engine {
    let builder = Engine::builder().seed(7).threads(1);
    builder.arena(1 << 20).build().unwrap()
}

/// One that plans in no time: nothing is recomputed but what others' plans have overwritten.
fn keeping() -> Engine {
    let builder = Engine::builder().seed(7).threads(1).policy(Policy::Keep);
    builder.arena(1 << 20).build().unwrap()
}

fn alone(engine: &Engine, seed: u64, calls: &[usize]) -> Vec<String> {
    let mut worker = Worker::new(engine, seed).unwrap();
    for &which in calls {
        worker.turn(which);
    }
    worker.seen
}

/// All take turns as `order` says.
fn together(engine: &Engine, programs: &[(u64, Vec<usize>)], order: &[usize]) -> Vec<Vec<String>> {
    let workers = programs.iter().map(|(seed, _)| Worker::new(engine, *seed));
    let mut workers: Vec<Worker> = workers.map(Result::unwrap).collect();
    let mut next = vec![0; programs.len()];
    for &who in order {
        workers[who].turn(programs[who].1[next[who]]);
        next[who] += 1;
    }
    workers.into_iter().map(|worker| worker.seen).collect()
}

#[test]
fn any_schedule_gives_each_recording_what_it_has_alone() {
    // What came before is one more thing that must not matter.
    let (shared, apart) = (keeping(), keeping());
    for seed in some(0..10_000) {
        let mut random = Random(seed as u64);
        let mut below = |n: usize| random.below(n);
        let mut programs = Vec::new();
        let mut order = Vec::new();
        for who in 0..2 + below(2) {
            let calls: Vec<usize> = (0..6 + below(9)).map(|_| below(CALLS)).collect();
            order.extend(calls.iter().map(|_| who));
            programs.push((below(3) as u64, calls));
        }
        for i in (1..order.len()).rev() {
            order.swap(i, below(i + 1));
        }
        let found = together(&shared, &programs, &order);
        for ((seed_of, calls), found) in programs.iter().zip(found) {
            assert_eq!(
                found,
                alone(&apart, *seed_of, calls),
                "schedule {seed}: {calls:?}"
            );
        }
    }
}

/// Every interleaving of two training steps, each with a read in the middle.
#[test]
fn all_interleavings_of_two_steps_give_each_what_it_has_alone() {
    let calls = vec![0, 2, 4, 5, 7, 10];
    let programs = [(1, calls.clone()), (2, calls.clone())];
    let (shared, apart) = (engine(), engine());
    let expected = [alone(&apart, 1, &calls), alone(&apart, 2, &calls)];
    let masks =
        (0..1_u32 << (2 * calls.len())).filter(|mask| mask.count_ones() as usize == calls.len());
    for mask in some(masks) {
        let order: Vec<usize> = (0..2 * calls.len())
            .map(|i| usize::from(mask >> i & 1 == 1))
            .collect();
        assert_eq!(together(&shared, &programs, &order), expected, "{order:?}");
    }
}

/// Who reads the parameters of a trainer sees each result as it is before an update or after it.
#[test]
fn a_reader_sees_one_version_of_all_parameters() {
    let outputs = |interleaved: Option<u64>| {
        let engine = engine();
        let mut trainer = Worker::new(&engine, 1).unwrap();
        let reader = Recording::new();
        let x = engine.tensor(&[0.5; 6], [2, 3]).unwrap();
        let forward = |layers: &[Linear]| {
            let hidden = layers[0].forward(&x)?.tanh()?;
            layers[1].forward(&hidden)
        };
        let mut random = Random(interleaved.unwrap_or(0));
        let (mut found, mut pending) = (Vec::new(), None);
        for call in [0, 2, 5, 7, 0, 2, 4, 5, 7, 2, 5, 8, 11, 2, 5, 7] {
            trainer.turn(call);
            if interleaved.is_none() || random.below(2) == 0 {
                let forward = || no_grad(|| forward(&trainer.layers));
                pending = Some(reader.enter(forward).unwrap());
            }
            if (interleaved.is_none() || random.below(3) == 0)
                && let Some(pending) = pending.take()
            {
                found.push(reader.enter(|| pending.to_vec::<f32>()).unwrap());
            }
        }
        (found, trainer.seen)
    };
    let (versions, alone) = outputs(None);
    for seed in some(1..400) {
        let (found, seen) = outputs(Some(seed));
        assert_eq!(seen, alone);
        for found in found {
            assert!(versions.contains(&found), "{seed}: {found:?}");
        }
    }
}

/// Tensors that cross bring their graph along, with gradients, hooks and inputs that both use.
#[test]
fn a_tensor_that_crosses_brings_its_graph_along() {
    let run = |crossing: [usize; 4]| {
        let engine = engine();
        let places = [Recording::new(), Recording::new(), Recording::new()];
        let at = |i: usize| &places[crossing[i]];
        let w = Parameter::new(&engine, [4], |own| own.copy_from_slice(&[1., 2., 3., 4.]))?;
        let x = engine
            .tensor(&[0.1, 0.2, 0.3, 0.4], [4])?
            .requires_grad_()?;
        let options = SgdOptions {
            lr: 0.5,
            ..SgdOptions::default()
        };
        let mut sgd = Sgd::new(vec![w.clone()], options)?;
        let mut seen = Vec::new();
        for _ in 0..3 {
            let a = at(0).enter(|| w.mul(&x)?.tanh())?;
            at(0).enter(|| a.register_hook(|grad| grad.mul_scalar(3.0).map(Some)))?;
            let b = at(1).enter(|| w.add(&x)?.square())?;
            let loss = at(2).enter(|| a.mul(&b)?.add(&x)?.sum())?;
            let doubled = at(1).enter(|| loss.mul_scalar(2.0))?;
            at(3).enter(|| loss.backward())?;
            seen.push(at(0).enter(|| doubled.item())?);
            at(1).enter(|| sgd.step())?;
            seen.extend(at(2).enter(|| w.to_vec::<f32>())?);
            let grad = x.grad().unwrap();
            seen.extend(at(3).enter(|| grad.to_vec::<f32>())?);
        }
        Ok::<_, highwater::Error>(seen)
    };
    let one = run([0; 4]).unwrap();
    for code in 0..81 {
        let places = [code % 3, code / 3 % 3, code / 9 % 3, code / 27];
        assert_eq!(run(places).unwrap(), one, "{places:?}");
    }
}

/// Gradients of one parameter that several recordings have left pending are added.
#[test]
fn a_step_takes_the_gradients_of_all_recordings() {
    for held in [false, true] {
        let engine = engine();
        let w = Parameter::new(&engine, [2], |own| own.fill(1.0)).unwrap();
        let mut sgd = Sgd::new(
            vec![w.clone()],
            SgdOptions {
                lr: 1.0,
                ..Default::default()
            },
        )
        .unwrap();
        let mut losses = Vec::new();
        for factor in [1.0, 2.0, 4.0] {
            Recording::new().enter(|| {
                let loss = w.mul_scalar(factor).unwrap().sum().unwrap();
                loss.backward().unwrap();
                losses.extend(held.then_some(loss));
            });
        }
        sgd.step().unwrap();
        assert_eq!(w.to_vec::<f32>().unwrap(), [-6.0, -6.0]);
        assert!(w.grad().is_none());
        for (loss, expected) in losses.iter().zip([2.0, 4.0, 8.0]) {
            assert_eq!(loss.item().unwrap(), expected);
        }
        sgd.zero_grad();
        Recording::new().enter(|| w.sum().unwrap().backward().unwrap());
        sgd.zero_grad();
        assert!(w.grad().is_none());
    }
}

/// What nobody can come back to is not kept: neither graphs, nor what they hold.
#[test]
fn recordings_that_ended_hold_nothing() {
    let engine = Engine::builder().arena(8 << 20).threads(1).build().unwrap();
    let before = engine.state_bytes();
    for i in 0..200 {
        Recording::new().enter(|| {
            let x = engine.tensor(&vec![i as f32; 1 << 18], [1 << 18]).unwrap();
            let y = x.square().unwrap();
            if i % 2 == 0 {
                y.sum().unwrap().item().unwrap();
            }
        });
    }
    engine.tensor(&vec![1.0; 1 << 20], [1 << 20]).unwrap();
    let x = engine.tensor(&[1.0], [1]).unwrap();
    assert_eq!(x.item().unwrap(), 1.0);
    assert!(engine.state_bytes() < before + (1 << 20));
}

/// A future records in one place, whatever is polled between.
#[test]
fn futures_record_in_their_own_place() {
    struct Once(bool);
    impl Future for Once {
        type Output = ();
        fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }
    }
    let task = async |engine: Engine, seed: u64, calls: Vec<usize>| {
        let mut worker = Worker::new(&engine, seed).unwrap();
        worker.recording = Recording::current();
        engine.manual_seed(seed + 100);
        for call in calls {
            worker.turn(call);
            Once(false).await;
        }
        worker.seen
    };
    let calls = [vec![0, 2, 4, 5, 7, 10], vec![12, 0, 2, 5, 8, 11, 10, 12]];
    let poll_all = |engine: &Engine, which: &[usize]| {
        let wrapped = which.iter().map(|&i| {
            let future = task(engine.clone(), i as u64, calls[i].clone());
            Some(Box::pin(Recording::new().wrap(future)))
        });
        let mut futures: Vec<_> = wrapped.collect();
        let mut seen = vec![Vec::new(); which.len()];
        while futures.iter().any(Option::is_some) {
            for (slot, seen) in futures.iter_mut().zip(&mut seen) {
                let Some(mut future) = slot.take() else {
                    continue;
                };
                // Each poll on another thread.
                let poll = || {
                    let poll = future
                        .as_mut()
                        .poll(&mut Context::from_waker(Waker::noop()));
                    (poll, future)
                };
                let (poll, future) = std::thread::scope(|scope| scope.spawn(poll).join().unwrap());
                match poll {
                    Poll::Ready(found) => *seen = found,
                    Poll::Pending => *slot = Some(future),
                }
            }
        }
        seen
    };
    let both = poll_all(&engine(), &[0, 1]);
    for (i, found) in both.iter().enumerate() {
        assert_eq!(*found, poll_all(&engine(), &[i])[0]);
    }
}
