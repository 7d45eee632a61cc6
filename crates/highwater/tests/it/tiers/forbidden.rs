//! Gradients that add up beside a disk that plans may not write to.

use super::WIDTHS;
use crate::models::Layers;
use crate::share::some;
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Error, Result};

fn train(engine: &Engine) -> Result<Vec<u32>> {
    let model = Layers::new(engine, &WIDTHS)?;
    let parameters = model.parameters();
    let mut adamw = AdamW::new(parameters, AdamWOptions::default())?;
    let mut bits = Vec::new();
    for step in 0..3 {
        for micro in 0..2 {
            let loss = model.loss(2 * step + micro, 2)?;
            loss.backward()?;
            bits.push(loss.item()?.to_bits());
        }
        adamw.step()?;
    }
    Ok(bits)
}

#[test]
fn gradients_add_up_where_plans_may_not_write() {
    let folder = tempfile::tempdir().unwrap();
    let expected = train(&Engine::builder().build().unwrap()).unwrap();
    let mut fitted = 0;
    for kib in some((400..3600).step_by(160)) {
        let builder = Engine::builder()
            .arena(kib << 10)
            .disk(folder.path(), 64 << 20);
        let engine = builder.forbid_disk_writes().threads(1).build().unwrap();
        match train(&engine) {
            Ok(bits) => {
                assert_eq!(bits, expected);
                fitted += 1;
            }
            Err(Error::OverBudget { .. }) => {}
            Err(error) => panic!("{kib} KiB: {error}"),
        }
    }
    assert!(fitted > 0);
}
