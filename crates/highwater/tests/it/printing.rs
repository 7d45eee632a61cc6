//! What `{}` prints of tensors: PyTorch's text (`fixtures/make_printing.py`), and a word where there is nothing to
//! print.

use highwater::nn::Linear;
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::prelude::*;
use highwater::{Buffer, DType, skip_init};
use serde_json::Value;

fn engine() -> Engine {
    Engine::builder()
        .threads(1)
        .arena(64 << 20)
        .build()
        .unwrap()
}

/// The elements of a case.
fn elements(case: &Value, count: usize) -> Vec<f64> {
    let one = |element: &Value| match element.as_str() {
        Some("inf") => f64::INFINITY,
        Some("-inf") => f64::NEG_INFINITY,
        Some(_) => f64::NAN,
        None => element.as_f64().unwrap(),
    };
    match &case["data"] {
        Value::Array(data) => data.iter().map(one).collect(),
        scale => {
            let scale = scale.as_f64().unwrap();
            let element = |i: usize| ((i * 37 % 101) as f64 - 50.0) * scale;
            (0..count).map(element).collect()
        }
    }
}

fn tensor(engine: &Engine, case: &Value) -> Result<Tensor> {
    let shape: Vec<usize> = serde_json::from_value(case["shape"].clone()).unwrap();
    let elements = elements(case, shape.iter().product());
    let whole = || elements.iter().map(|&x| x as i64);
    let shape = &shape[..];
    match case["dtype"].as_str().unwrap() {
        "F32" => {
            let elements: Vec<f32> = elements.iter().map(|&x| x as f32).collect();
            Tensor::from_slice(engine, &elements, shape)
        }
        "F64" => Tensor::from_slice(engine, &elements, shape),
        "BF16" => Tensor::from_slice(engine, &elements, shape)?.to_dtype(DType::BF16),
        "F16" => Tensor::from_slice(engine, &elements, shape)?.to_dtype(DType::F16),
        "I64" => Tensor::from_slice(engine, &whole().collect::<Vec<i64>>(), shape),
        "I16" => Tensor::from_slice(
            engine,
            &whole().map(|x| x as i16).collect::<Vec<_>>(),
            shape,
        ),
        "U32" => Tensor::from_slice(
            engine,
            &whole().map(|x| x as u32).collect::<Vec<_>>(),
            shape,
        ),
        "U8" => Tensor::from_slice(engine, &whole().map(|x| x as u8).collect::<Vec<_>>(), shape),
        "Bool" => Tensor::from_slice(engine, &elements, shape)?.ne_scalar(0.0),
        other => panic!("{other}"),
    }
}

#[test]
fn tensors_print_as_in_pytorch() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/printing.json");
    let all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let engine = engine();
    let cases = all["cases"].as_array().unwrap();
    assert!(cases.len() > 50);
    for case in cases {
        let mut tensor = tensor(&engine, case).unwrap();
        if case["requires_grad"].as_bool().unwrap() {
            tensor = tensor.requires_grad_().unwrap();
        }
        assert_eq!(tensor.to_string(), case["text"].as_str().unwrap(), "{case}");
    }
    let parameter = Parameter::new(&engine, [2], |w| w.copy_from_slice(&[1.0, 2.5])).unwrap();
    assert_eq!(parameter.to_string(), all["parameter"].as_str().unwrap());
    let buffer = Buffer::new(&engine, [2], |x| x.copy_from_slice(&[1.0, 2.0])).unwrap();
    assert_eq!(buffer.to_string(), "tensor([1., 2.])");
}

/// What is pending is computed, and goes on to have a gradient; views print what they see.
#[test]
fn printing_reads() {
    let engine = engine();
    let w = Parameter::new(&engine, [2, 3], |w| {
        w.copy_from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    })
    .unwrap();
    let y = (&*w * 2.0).unwrap().transpose(0, 1).unwrap();
    let text = "tensor([[ 2.,  8.],\n        [ 4., 10.],\n        [ 6., 12.]], requires_grad=True)";
    assert_eq!(y.to_string(), text);
    y.sum().unwrap().backward().unwrap();
    let text = "tensor([[2., 2., 2.],\n        [2., 2., 2.]])";
    assert_eq!(w.grad().unwrap().to_string(), text);
    assert_eq!(
        y.detach().unwrap().sum().unwrap().to_string(),
        "tensor(42.)"
    );
    // A large one that nothing has computed yet, after which the step is as ever.
    let x = engine.tensor(&vec![0.5; 40 * 40], [40, 40]).unwrap();
    let layer = skip_init(|| Linear::new(&engine, 40, 40, true)).unwrap();
    let y = layer.forward(&x).unwrap();
    assert!(
        y.to_string()
            .starts_with("tensor([[0., 0., 0.,  ..., 0., 0., 0.],\n")
    );
    let mut optimizer = Sgd::new(layer.parameters(), SgdOptions::default()).unwrap();
    y.add_scalar(1.0)
        .unwrap()
        .sum()
        .unwrap()
        .backward()
        .unwrap();
    optimizer.step().unwrap();
    assert!(layer.bias.as_ref().unwrap().to_string().contains("-0.0400"));
}

#[test]
fn what_cannot_be_read_says_why() {
    let engine = engine();
    let w = Parameter::new(&engine, [300, 300], |w| w.fill(1.0)).unwrap();
    let mut optimizer = Sgd::new(vec![w.clone()], SgdOptions::default()).unwrap();
    let y = w.square().unwrap();
    y.sum().unwrap().backward().unwrap();
    optimizer.step().unwrap();
    let text = y.to_string();
    assert!(text.starts_with("tensor(<not available: "), "{text}");
    assert!(
        text.contains("size=(300, 300)") && text.contains("printing.rs"),
        "{text}"
    );
    assert_eq!(format!("{y:?}"), "Tensor(float32 [300, 300])");
    // Too large to be computed.
    let tight = Engine::builder().threads(1).arena(1 << 20).build().unwrap();
    let x = tight.tensor(&[1.0; 1000], [1000, 1]).unwrap();
    let large = x.matmul(&x.transpose(0, 1).unwrap()).unwrap();
    let text = large.to_string();
    assert!(
        text.contains("<not available: ") && text.contains("size=(1000, 1000)"),
        "{text}"
    );
}
