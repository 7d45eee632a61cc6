//! Data as tensors, going on mid-epoch, and bytes that are set aside.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use highwater::data::{Array, Cursor, DataLoader, LoaderOptions, TensorDataset, ToTensors};
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::prelude::*;
use highwater::{DType, Error, nn::Linear};

fn loader(workers: usize) -> DataLoader<TensorDataset<2>, [Array; 2]> {
    let x: Vec<f32> = (0..120).map(|i| (i % 17) as f32 / 17.0).collect();
    let y: Vec<f32> = (0..40).map(|i| (i % 5) as f32).collect();
    let x = Array::from_slice(&x, [40, 3]).unwrap();
    let y = Array::from_slice(&y, [40, 1]).unwrap();
    let options = LoaderOptions {
        batch_size: 7,
        shuffle: true,
        seed: 3,
        workers,
        ..Default::default()
    };
    DataLoader::new(TensorDataset::new([x, y]).unwrap(), options).unwrap()
}

/// Trains some batches; answers weight and cursor.
fn train(start: Option<(Vec<f32>, Cursor)>, workers: usize, batches: usize) -> (Vec<f32>, Cursor) {
    let engine = Engine::builder()
        .threads(1)
        .arena(8 << 20)
        .seed(1)
        .build()
        .unwrap();
    let model = Linear::new(&engine, 3, 1, false).unwrap();
    let mut loader = loader(workers);
    if let Some((weight, cursor)) = start {
        model.weight.copy_from_slice(&weight).unwrap();
        loader.seek(cursor).unwrap();
    }
    let options = SgdOptions {
        lr: 0.05,
        ..Default::default()
    };
    let mut optimizer = Sgd::new(model.parameters(), options).unwrap();
    let mut trained = 0;
    while trained < batches {
        for batch in loader.epoch().take(batches - trained) {
            let [x, y] = batch.unwrap().to_tensors(&engine).unwrap();
            let off = (model.forward(&x).unwrap() - &y).unwrap();
            off.square().unwrap().mean().unwrap().backward().unwrap();
            optimizer.step().unwrap();
            trained += 1;
        }
    }
    (model.weight.to_vec::<f32>().unwrap(), loader.cursor())
}

#[test]
fn a_run_goes_on_in_the_middle_of_an_epoch_to_the_bit() {
    let (whole, cursor) = train(None, 0, 15);
    assert_eq!((cursor.epoch, cursor.batch), (2, 3));
    for stop in [3, 6, 13] {
        let half = train(None, 2, stop);
        assert_eq!(
            train(Some(half), 3, 15 - stop).0,
            whole,
            "stopped after {stop}"
        );
    }
}

#[test]
fn arrays_become_tensors_and_come_back() {
    let engine = Engine::builder().threads(1).arena(1 << 20).build().unwrap();
    let labels = Array::from_slice(&[3_i64, -1], [2]).unwrap();
    let bytes = Array::from_slice(&[1_u8, 2, 3], [3, 1]).unwrap();
    let (a, both) = (labels.clone(), vec![bytes.clone(), bytes.clone()])
        .to_tensors(&engine)
        .unwrap();
    assert_eq!((a.dtype(), a.dims()), (DType::I64, &[2][..]));
    assert_eq!(a.to_array().unwrap(), labels);
    assert_eq!(both[1].to_array().unwrap(), bytes);
    let half = Array::from_bytes(DType::BF16, [1], vec![0x80, 0x3f]).unwrap();
    let half = Tensor::from_array(&engine, &half).unwrap();
    assert_eq!(
        half.to_dtype(DType::F32).unwrap().item().unwrap().to_bits(),
        1.0_f32.to_bits()
    );
    let error: Error = highwater::data::read_npy("/nowhere.npy")
        .unwrap_err()
        .into();
    assert_eq!(error.code(), "HW0404");
}

#[test]
fn bytes_that_are_set_aside_are_the_programs() {
    let engine = Engine::builder()
        .threads(1)
        .memory(256 << 20)
        .build()
        .unwrap();
    // Takes 64 MiB beside its input.
    let step = || {
        let x = Tensor::from_slice(&engine, &[1.0_f32], [1]).unwrap();
        let x = x.expand([16 << 20]).unwrap();
        x.square().unwrap().sum().unwrap().item()
    };
    step().unwrap();
    let room = engine.set_aside(170 << 20).unwrap();
    assert_eq!(room.bytes(), 170 << 20);
    let error = step().unwrap_err();
    assert!(matches!(error, Error::OverBudget { .. }), "{error}");
    drop(room);
    step().unwrap();
    assert!(matches!(engine.set_aside(1 << 30), Err(Error::Build(_))));
    step().unwrap();
}
