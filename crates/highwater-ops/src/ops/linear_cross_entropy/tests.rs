use super::{LinearCrossEntropy, default_chunk_rows};
use crate::laws::evaluate::{EvaluateError, Values};
use crate::{Array, OPS, Pool};
use highwater_graph::Location;
use highwater_graph::{Category, DType, Graph, Phase, Shape, Site, Spec};
use std::sync::Arc;

fn run(rows: usize, label: f64) -> Result<Vec<Array>, EvaluateError> {
    let op = LinearCrossEntropy {
        chunk_rows: 16,
        grad_x: true,
        grad_w: true,
        ignore_index: -100,
    };
    let site = Site {
        module: "".into(),
        location: Location::caller(),
        phase: Phase::Forward,
        checkpoint: None,
        grad_enabled: true,
    };
    let (mut graph, mut values) = (Graph::default(), Values::default());
    let inputs = [
        Array::from_fn([rows, 3], |i| i as f64),
        Array::from_fn([5, 3], |i| i as f64),
        Array::new(DType::I64, [rows], vec![label; rows]),
    ]
    .map(|array| {
        let spec = Spec::contiguous(array.dtype, array.shape.clone());
        let operand = graph.add_input(spec, Category::Input);
        values.set(&operand, &array);
        operand
    });
    let outputs = graph.add(Arc::new(op), &inputs, &site).unwrap();
    values.evaluate_kernels(&graph, OPS, &Pool::new(2).unwrap())?;
    Ok(outputs.iter().map(|output| values.get(output)).collect())
}

#[test]
fn where_no_row_counts_the_loss_is_nan_and_gradients_are_zero() {
    for (rows, label) in [(0, 0.0), (20, -100.0)] {
        let [loss, dx, dw] = &run(rows, label).unwrap()[..] else {
            panic!("three outputs")
        };
        assert!(loss.data[0].is_nan());
        assert!(dx.data.iter().chain(&dw.data).all(|g| g.abs() == 0.0));
        assert_eq!(dw.shape, Shape::from([5, 3]));
    }
}

#[test]
fn labels_out_of_range_stop_the_step() {
    for label in [5.0, -1.0] {
        let error = run(20, label).unwrap_err().to_string();
        assert!(error.contains("out of range"), "{error}");
    }
}

#[test]
fn default_chunks_are_even_and_bounded() {
    assert_eq!(default_chunk_rows(2048, 50_257), 256);
    assert_eq!(default_chunk_rows(2056, 50_257), 240);
    assert_eq!(default_chunk_rows(5, 50_257), 16);
    assert_eq!(default_chunk_rows(0, 0), 16);
    assert_eq!(default_chunk_rows(4096, 1 << 30), 16);
}
