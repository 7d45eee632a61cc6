//! Typical mistakes and all that is said of each, word for word: the operation, what it expected, what it
//! got, the line, what to do next. After a change that is meant: `INSTA_UPDATE=always cargo test -p
//! highwater --test it mistakes_told`.

use std::collections::BTreeMap;

use highwater::nn::{Dropout, LayerNorm, Linear, Module};
use highwater::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions, clip_grad_norm_};
use highwater::{Engine, Parameter, Result, Tensor};

fn engine() -> Engine {
    Engine::builder().threads(1).arena(1 << 20).build().unwrap()
}

fn zeros(engine: &Engine, dims: &[usize]) -> Tensor {
    let count = dims.iter().product();
    engine.tensor(&vec![0.0; count], dims.to_vec()).unwrap()
}

fn parameter(engine: &Engine, name: &str, dims: &[usize]) -> Parameter {
    let parameter = Parameter::new(engine, dims, |own| own.fill(1.0)).unwrap();
    parameter.set_name(name);
    parameter
}

/// What a `main` that answers the error prints, with lines of this file as LINE. They are the caller's.
fn told<T>(result: Result<T>) -> String {
    let error = result.err().expect("a mistake");
    if let Some(location) = error.location() {
        assert!(location.file().ends_with("mistakes_told.rs"), "{error}");
    }
    let text = format!("{error:?}");
    let mut parts = text.split(file!());
    let mut lines = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit());
        lines = format!("{lines}mistakes_told.rs:LINE{rest}");
    }
    lines
}

/// The same without sizes in bytes, which may be another machine's.
fn without_sizes(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    for i in 1..words.len() {
        let unit = ["B", "KiB", "MiB"].into_iter().any(|unit| {
            let rest = words[i].strip_prefix(unit);
            rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        });
        if unit && words[i - 1].starts_with(|c: char| c.is_ascii_digit()) {
            words[i - 1] = "SIZE";
        }
    }
    words.join(" ")
}

#[test]
fn shapes_that_do_not_multiply() {
    let engine = engine();
    let (a, b) = (zeros(&engine, &[2, 3]), zeros(&engine, &[4, 5]));
    insta::assert_snapshot!("matmul", told(a.matmul(&b)));
}

#[test]
fn shapes_that_do_not_broadcast() {
    let engine = engine();
    let (a, b) = (zeros(&engine, &[2, 3]), zeros(&engine, &[2]));
    insta::assert_snapshot!("add", told(a.add(&b)));
}

#[test]
fn an_element_type_that_an_operation_does_not_take() {
    let engine = engine();
    let (table, ids) = (zeros(&engine, &[4, 2]), zeros(&engine, &[3]));
    insta::assert_snapshot!("dtype", told(table.embedding(&ids)));
}

#[test]
fn backward_of_many_elements() {
    let engine = engine();
    let weight = parameter(&engine, "fc.weight", &[2, 3]);
    let losses = weight.mul(&weight).unwrap();
    insta::assert_snapshot!("backward_of_many", told(losses.backward()));
    let loss = zeros(&engine, &[2]).sum().unwrap();
    insta::assert_snapshot!("backward_of_none", told(loss.backward()));
}

#[test]
fn a_value_that_is_gone() {
    let engine = engine();
    let weight = parameter(&engine, "fc.weight", &[200, 100]);
    let mut sgd = Sgd::new(vec![weight.clone()], SgdOptions::default()).unwrap();
    let hidden = weight.mul_scalar(2.0).unwrap();
    hidden.sum().unwrap().backward().unwrap();
    sgd.step().unwrap();
    insta::assert_snapshot!("expired", told(hidden.to_vec::<f32>()));
}

#[test]
fn a_loss_of_an_earlier_step() {
    let engine = engine();
    let weight = parameter(&engine, "fc.weight", &[2]);
    let mut sgd = Sgd::new(vec![weight.clone()], SgdOptions::default()).unwrap();
    let loss = weight.mul(&weight).unwrap().sum().unwrap();
    loss.backward().unwrap();
    sgd.step().unwrap();
    insta::assert_snapshot!("backward_again", told(loss.backward()));
}

#[test]
fn gradients_that_are_not_there() {
    let weight = parameter(&engine(), "fc.weight", &[2]);
    insta::assert_snapshot!("no_gradient", told(clip_grad_norm_(&[weight], 1.0)));
}

#[test]
fn tensors_of_two_engines() {
    let (a, b) = (zeros(&engine(), &[2]), zeros(&engine(), &[2]));
    insta::assert_snapshot!("two_engines", told(a.add(&b)));
}

#[test]
fn a_budget_that_is_too_small() {
    let engine = Engine::builder().threads(1).arena(256 << 10).build();
    let engine = engine.unwrap();
    let weight = parameter(&engine, "fc.weight", &[64, 64]);
    let mut sgd = Sgd::new(vec![weight.clone()], SgdOptions::default()).unwrap();
    let x = zeros(&engine, &[256, 64]);
    let hidden = x.linear(&weight, None).unwrap().exp().unwrap();
    let hidden = hidden.expand([4, 256, 64]).unwrap().exp().unwrap();
    hidden.mean().unwrap().backward().unwrap();
    insta::assert_snapshot!("over_budget", without_sizes(&told(sgd.step())));
}

#[test]
fn values_that_do_not_belong_to_a_module() {
    let layer = Linear::new(&engine(), 3, 2, true).unwrap();
    let mut values: BTreeMap<String, Vec<f32>> = [("weight".to_owned(), vec![0.0; 6])].into();
    insta::assert_snapshot!("missing_name", told(layer.load_state_dict(&values)));
    values.insert("bias".to_owned(), vec![0.0; 3]);
    insta::assert_snapshot!("other_shape", told(layer.load_state_dict(&values)));
    values.insert("head.bias".to_owned(), vec![0.0; 3]);
    values.insert("bias".to_owned(), vec![0.0; 2]);
    insta::assert_snapshot!("unexpected_name", told(layer.load_state_dict(&values)));
}

#[test]
fn labels_and_indices_out_of_range() {
    let engine = engine();
    let logits = zeros(&engine, &[3, 4]);
    let labels = engine.indices(&[0, 4, 1], [3]).unwrap();
    let loss = logits.cross_entropy(&labels).unwrap();
    insta::assert_snapshot!("label", told(loss.item()));
    let ids = engine.indices(&[1, 9], [2]).unwrap();
    let rows = logits.embedding(&ids).unwrap();
    insta::assert_snapshot!("index", told(rows.to_vec::<f32>()));
}

#[test]
fn settings_that_cannot_be_meant() {
    let engine = engine();
    let weight = parameter(&engine, "fc.weight", &[2]);
    let options = AdamWOptions {
        lr: -0.001,
        ..AdamWOptions::default()
    };
    insta::assert_snapshot!("rate", told(AdamW::new(vec![weight], options)));
    insta::assert_snapshot!("dropout", told(Dropout::new(1.5)));
    insta::assert_snapshot!("eps", told(LayerNorm::new(&engine, 8, 0.0)));
}
