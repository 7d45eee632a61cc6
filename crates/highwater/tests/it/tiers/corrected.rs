//! Rates of a disk that are corrected in the run: plans are made anew, and what fitted still fits.

use super::disks::Scripted;
use crate::models::Layers;
use crate::share::some;
use highwater::memory::spill::Disk;
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Builder, DiskRates, Engine, Error, Result};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

/// A disk that takes its time.
#[derive(Debug)]
struct Slow {
    disk: Arc<Scripted>,
    read: f64,
    write: f64,
}

/// Waits for as long as so many bytes take.
fn wait(bytes: usize, rate: f64) {
    std::thread::sleep(Duration::from_secs_f64(bytes as f64 / rate));
}

impl Disk for Slow {
    fn write_at(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        let bytes = self.disk.write_at(offset, parts, seen)?;
        wait(bytes, self.write);
        Ok(bytes)
    }

    fn read_at(
        &self,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        let bytes = self.disk.read_at(offset, parts, seen)?;
        wait(bytes, self.read);
        Ok(bytes)
    }

    fn backend(&self) -> &'static str {
        "a slow disk"
    }
}

fn train(engine: &Engine, steps: u64, rows: usize) -> (Vec<u32>, Option<Error>) {
    let mut bits = Vec::new();
    let mut go = || -> Result<()> {
        let model = Layers::new(engine, &[160; 7])?;
        let parameters = model.parameters();
        let mut adamw = AdamW::new(parameters, AdamWOptions::default())?;
        for step in 0..steps {
            let loss = model.loss(step, rows)?;
            loss.backward()?;
            adamw.step()?;
            bits.push(loss.item()?.to_bits());
        }
        Ok(())
    };
    let error = go().err();
    (bits, error)
}

fn rates(read: f64, write: f64) -> DiskRates {
    DiskRates {
        read,
        write,
        read_while_writing: read / 2.0,
        write_while_reading: write / 2.0,
        processor_seconds: 1e-10,
    }
}

fn floor(guess: (f64, f64), rows: usize, room: u64) -> u64 {
    let builder = Engine::builder()
        .arena(64 << 12)
        .dry_run()
        .disk("/tmp", room);
    let engine = builder
        .disk_rates(rates(guess.0, guess.1))
        .threads(1)
        .build()
        .unwrap();
    match train(&engine, 1, rows).1 {
        Some(Error::OverBudget { floor_bytes, .. }) => floor_bytes,
        other => panic!("{other:?}"),
    }
}

fn corrected(
    rows: usize,
    room: u64,
    guess: (f64, f64),
    real: (f64, f64),
    budget: u64,
) -> (Vec<u32>, Option<Error>, DiskRates) {
    let disk = Arc::new(Slow {
        disk: Arc::new(Scripted::new(room, None)),
        read: real.0,
        write: real.1,
    });
    let builder: Builder = Engine::builder().arena(budget).disk_on(disk, room);
    let builder = builder
        .disk_rates(rates(guess.0, guess.1))
        .correct_times(true);
    let engine = builder.threads(1).build().unwrap();
    let (bits, error) = train(&engine, 12, rows);
    (bits, error, engine.disk_rates().unwrap())
}

#[test]
fn what_fitted_fits_when_rates_are_corrected() {
    let (rows, real) = (2, (4e7, 4e7));
    let expected = train(&Engine::builder().threads(1).build().unwrap(), 12, rows).0;
    for guess in some([(1e6, 1e6), (2e9, 1e9)]) {
        let least = floor(guess, rows, 64 << 20);
        for budget in [least, least + (40 << 10)] {
            for room in [3 << 20, 64 << 20] {
                let (bits, error, told) = corrected(rows, room, guess, real, budget);
                let what = format!("{guess:?}, {budget} of {least}, {room}, {told:?}");
                assert!(expected.starts_with(&bits), "{what}");
                assert!(
                    bits.is_empty() || error.is_none(),
                    "{what}: {error:?} after {} steps",
                    bits.len()
                );
            }
        }
    }
}
