//! A loader with workers, a schedule with warm-up, averaged weights, and going on from a cursor.
//!
//! `cargo run --release -p highwater --example batches`

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::data::{Array, DataLoader, LoaderOptions, TensorDataset, ToTensors};
use highwater::optim::lr_scheduler::{CosineAnnealingLr, LinearLr, LrScheduler, SequentialLr};
use highwater::optim::{AdamW, AdamWOptions, Ema, Optimizer, clip_grad_norm_};
use highwater::{Engine, Result, Tensor, nn::Linear, nn::Module};

#[derive(Module)]
struct Net {
    hidden: Linear,
    out: Linear,
}

impl Net {
    /// Scores of two classes.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.out.forward(&self.hidden.forward(x)?.tanh()?)
    }
}

/// Points in a square, and whether they lie in a disc.
fn points(count: usize) -> Result<TensorDataset<2>> {
    let (mut xy, mut labels) = (Vec::new(), Vec::new());
    for i in 0..count {
        let at = |stride: usize| (i * stride % 997) as f32 / 498.5 - 1.0;
        let (x, y) = (at(31), at(617));
        xy.extend([x, y]);
        labels.push(i64::from(x.hypot(y) < 0.7));
    }
    let xy = Array::from_slice(&xy, [count, 2])?;
    Ok(TensorDataset::new([
        xy,
        Array::from_slice(&labels, [count])?,
    ])?)
}

fn main() -> Result<()> {
    let engine = Engine::builder().memory(256 << 20).seed(1).build()?;
    let options = LoaderOptions {
        batch_size: 64,
        shuffle: true,
        seed: 1,
        workers: 2,
        prefetch_bytes: 4 << 20,
        ..LoaderOptions::default()
    };
    let mut loader = DataLoader::new(points(960)?, options)?;
    let _room = engine.set_aside(loader.options().prefetch_bytes)?;

    let hidden = Linear::new(&engine, 2, 64, true)?;
    let out = Linear::new(&engine, 64, 2, true)?;
    let model = Net { hidden, out };
    let options = AdamWOptions {
        lr: 0.02,
        ..AdamWOptions::default()
    };
    let mut optimizer = AdamW::new(model.parameters(), options)?;
    let epochs = 40;
    let steps = epochs * loader.len();
    let warm_up = LinearLr {
        start_factor: 0.1,
        end_factor: 1.0,
        total_iters: 30,
    };
    let cosine = CosineAnnealingLr {
        t_max: steps - 30,
        eta_min: 0.0,
    };
    let schedule = SequentialLr::new(vec![Box::new(warm_up), Box::new(cosine)], vec![30])?;
    let mut scheduler = LrScheduler::new(schedule, &mut optimizer)?;
    let mut ema = Ema::new(model.parameters(), 0.98)?;
    for epoch in 0..epochs {
        let mut total = 0.0;
        for batch in loader.epoch() {
            let [xy, labels] = batch?.to_tensors(&engine)?;
            let loss = model.forward(&xy)?.cross_entropy(&labels)?;
            loss.backward()?;
            clip_grad_norm_(&model.parameters(), 1.0)?;
            optimizer.step()?;
            scheduler.step(&mut optimizer)?;
            ema.update()?;
            total += loss.item()?;
        }
        if epoch % 10 == 9 {
            // With weights, moments and counts, this is what a run is saved with.
            let (mean, cursor) = (total / loader.len() as f32, loader.cursor());
            println!("epoch {epoch:2}  loss {mean:.4}  next {cursor:?}");
        }
    }
    let held_out = DataLoader::new(
        points(997)?,
        LoaderOptions {
            batch_size: 997,
            ..LoaderOptions::default()
        },
    )?
    .next_batch()?;
    let Some(batch) = held_out else {
        return Ok(());
    };
    let [xy, labels] = batch.to_tensors(&engine)?;
    let loss = ema.with_averaged(|| model.forward(&xy)?.cross_entropy(&labels)?.item())?;
    println!("averaged weights: loss {loss:.4}");
    assert!(loss < 0.2, "the disc was not found");
    Ok(())
}
