//! What typical mistakes are told: the operation, what it expected, what it got, and what to do next.

use highwater::nn::Linear;
use highwater::optim::{AdamW, AdamWOptions, Optimizer, clip_grad_norm_};
use highwater::{Engine, Parameter, Result, Tensor};

fn engine() -> Engine {
    Engine::builder().threads(1).arena(1 << 20).build().unwrap()
}

fn zeros(engine: &Engine, dims: &[usize]) -> Tensor {
    let count = dims.iter().product();
    engine.tensor(&vec![0.0; count], dims.to_vec()).unwrap()
}

/// The error's code comes first where a `main` answers it, and its words have these parts in this order.
#[track_caller]
fn told<T>(result: Result<T>, code: &str, parts: &[&str]) {
    let error = result.err().expect("a mistake");
    assert_eq!(error.code(), code, "{error}");
    let text = format!("{error:?}");
    let mut rest = text.strip_prefix(&format!("[{code}] ")).expect(&text);
    for part in parts {
        let (_, after) = rest
            .split_once(part)
            .unwrap_or_else(|| panic!("{part}: {text}"));
        rest = after;
    }
}

#[test]
fn shapes_that_do_not_fit() {
    let engine = engine();
    let (a, b) = (zeros(&engine, &[2, 3]), zeros(&engine, &[4, 5]));
    let columns = "expected as many columns in the first as rows in the second, got";
    let here = "mistakes.rs:";
    told(
        a.matmul(&b),
        "HW0101",
        &["matmul: ", columns, "[2, 3]", "[4, 5]", here],
    );
    let broadcast = "expected shapes that broadcast, got";
    told(
        a.add(&b),
        "HW0101",
        &["add: ", broadcast, "[2, 3]", "[4, 5]", here],
    );
    told(
        a.reshape([4, 2]),
        "HW0110",
        &["reshape of [2, 3] to [4, 2]: the counts differ", here],
    );
    let three = engine.tensor(&[1.0, 2.0, 3.0], [2, 2]);
    told(
        three,
        "HW0110",
        &["3 elements do not make the shape [2, 2]", here],
    );
    let layer = Linear::new(&engine, 8, 2, true).unwrap();
    told(
        layer.forward(&a),
        "HW0101",
        &["linear: expected", "8]", "got", "[2, 3]", here],
    );
}

#[test]
fn types_indices_and_engines() {
    let engine = engine();
    let table = zeros(&engine, &[4, 2]);
    let ids = zeros(&engine, &[3]);
    told(
        table.embedding(&ids),
        "HW0102",
        &["embedding: expected dtype", "got float32", "mistakes.rs:"],
    );
    let far = engine.indices(&[1, 9], [2]).unwrap();
    let read = table.embedding(&far).unwrap().item();
    told(
        read,
        "HW0110",
        &["item() is for one element, the shape is [2, 2]"],
    );
    let read = table.embedding(&far).unwrap().to_vec::<f32>();
    told(
        read,
        "HW0201",
        &[
            "embedding: index 9 at position 1",
            "must be below 4",
            "mistakes.rs:",
        ],
    );
    let other = zeros(&self::engine(), &[4, 2]);
    let hint = "hint: make both with one engine";
    told(
        table.add(&other),
        "HW0111",
        &["add: input 1, float32 [4, 2], is of another engine", hint],
    );
}

#[test]
fn gradients_and_steps() {
    let engine = engine();
    let x = zeros(&engine, &[2]);
    told(
        x.sum().unwrap().backward(),
        "HW0110",
        &["nothing with requires_grad went into", "mistakes.rs:"],
    );
    let weight = Parameter::new(&engine, [2], |_| {}).unwrap();
    weight.set_name("fc.weight");
    let own = std::slice::from_ref(&weight);
    told(
        clip_grad_norm_(own, 1.0),
        "HW0110",
        &["clip_grad_norm_: no parameter has a gradient"],
    );
    told(
        clip_grad_norm_(own, -1.0),
        "HW0110",
        &["a number above 0, not -1"],
    );
    let options = AdamWOptions {
        lr: f64::NAN,
        ..AdamWOptions::default()
    };
    told(
        AdamW::new(own.to_vec(), options),
        "HW0110",
        &["lr must be a number from 0 up, not NaN"],
    );
    let mut optimizer = AdamW::new(own.to_vec(), AdamWOptions::default()).unwrap();
    let big = zeros(&engine, &[200, 200]).mul_scalar(2.0).unwrap();
    weight.sum().unwrap().backward().unwrap();
    optimizer.step().unwrap();
    let next = "hint: call keep() on it before, or read it before";
    told(
        big.to_vec::<f32>(),
        "HW0112",
        &["float32 [200, 200]", "made at", "evaluated at", next],
    );
}

#[test]
fn what_a_budget_has_no_room_for() {
    let small = Engine::builder()
        .threads(1)
        .arena(256 << 10)
        .build()
        .unwrap();
    let weight = Parameter::new(&small, [1 << 20], |_| {});
    told(
        weight,
        "HW0302",
        &["no room for 4 MiB of", "hint: give the engine more memory"],
    );
}
