//! One thread asks for more than there is while another trains from host memory.

use crate::models::Layers;
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Parameter, Result};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

fn train(engine: &Engine, steps: u64, rows: usize) -> Result<Vec<u32>> {
    let model = Layers::new(engine, &[128; 7])?;
    let parameters = model.parameters();
    let mut adamw = AdamW::new(parameters, AdamWOptions::default())?;
    let mut bits = Vec::new();
    for step in 0..steps {
        let loss = model.loss(step, rows)?;
        loss.backward()?;
        adamw.step()?;
        bits.push(loss.item()?.to_bits());
    }
    Ok(bits)
}

#[test]
fn a_parameter_that_is_too_large_leaves_a_running_plan_alone() {
    let (steps, rows) = (60, 600);
    let expected = train(&Engine::builder().threads(1).build().unwrap(), steps, rows).unwrap();
    let engine = Engine::builder()
        .device_memory(1600 << 10)
        .host_memory(4 << 20);
    let engine = engine.threads(1).build().unwrap();
    let over = AtomicBool::new(false);
    let asked = AtomicU32::new(0);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                // 64 MiB, of which there is none anywhere.
                let error = Parameter::new(&engine, [16 << 20], |_| ());
                assert!(error.is_err());
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        let seen = train(&engine, steps, rows);
        over.store(true, Ordering::Release);
        seen
    });
    assert!(asked.load(Ordering::Relaxed) > 0 && engine.totals().host_io.bytes_read > 0);
    assert_eq!(seen.unwrap(), expected);
}
