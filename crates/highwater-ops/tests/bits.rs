//! Operations are what they are called: where IEEE 754 defines the result, the kernels give its bits,
//! for numbers of every kind.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use highwater_graph::Location;
use highwater_graph::{
    Backward, Category, DType, Graph, Layout, NodeId, Op, Operand, Phase, Shape, Site, Spec,
};
use highwater_ops::evaluate::Values;
use highwater_ops::{
    Accumulate, Add, AddScalar, Array, Assign, Cast, Cat, Copy, Div, DivScalar, Full, Mean, Mul,
    MulScalar, Neg, OPS, Pool, Relu, Scale, Sqrt, Sub, SubScalar, Sum,
};
use std::sync::Arc;

/// Zeros, ones, subnormal and huge numbers, infinities, a NaN, and bits at random.
fn numbers() -> Vec<f32> {
    let mut numbers = vec![0.0, 1.0, 3.0, 1e-40, f32::MIN_POSITIVE, f32::MAX, 1e-45];
    numbers.extend([
        f32::INFINITY,
        16_777_217.0,
        0.1,
        1.0 / 3.0,
        65504.0,
        65520.0,
    ]);
    numbers.extend(numbers.clone().into_iter().map(|x| -x));
    numbers.push(f32::NAN);
    let mut bits = 0x1234_5678_u32;
    for _ in 0..4000 {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        numbers.push(f32::from_bits(bits));
        numbers.push((bits >> 8) as f32 / 65536.0 - 128.0);
    }
    numbers
}

fn site() -> Site {
    Site {
        module: "".into(),
        location: Location::caller(),
        phase: Phase::Forward,
        checkpoint: None,
        grad_enabled: true,
    }
}

fn give(graph: &mut Graph, values: &mut Values, data: &[f32]) -> Operand {
    let spec = Spec::contiguous(DType::F32, [data.len()]);
    let operand = graph.add_input(spec, Category::Input);
    let array = Array::from_fn([data.len()], |i| f64::from(data[i]));
    values.set(&operand, &array);
    operand
}

fn read(values: &Values, operand: &Operand) -> Vec<f32> {
    values.get(operand).data.iter().map(|&x| x as f32).collect()
}

/// The first output of an operation.
fn run(op: impl Op, inputs: &[&[f32]]) -> Vec<f32> {
    let (mut graph, mut values) = (Graph::default(), Values::default());
    let inputs: Vec<Operand> = (inputs.iter())
        .map(|data| give(&mut graph, &mut values, data))
        .collect();
    let outputs = graph.add(Arc::new(op), &inputs, &site()).unwrap();
    let pool = Pool::new(2).unwrap();
    values.evaluate_kernels(&graph, OPS, &pool).unwrap();
    read(&values, &outputs[0])
}

/// The gradients of an operation's inputs, given that of its output.
fn gradients(op: impl Op, inputs: &[&[f32]], grad: &[f32]) -> Vec<Vec<f32>> {
    let (mut graph, mut values) = (Graph::default(), Values::default());
    let mut inputs: Vec<Operand> = (inputs.iter())
        .map(|data| give(&mut graph, &mut values, data))
        .collect();
    for input in &mut inputs {
        input.requires_grad = true;
    }
    let op = Arc::new(op);
    let output = graph
        .add(Arc::clone(&op) as Arc<dyn Op>, &inputs, &site())
        .unwrap();
    let layout = Layout::contiguous(output[0].shape().clone());
    let grads = [Some(
        give(&mut graph, &mut values, grad).with_layout(layout),
    )];
    let existing = vec![None; inputs.len()];
    let mut backward = Backward::new(&mut graph, NodeId::new(0), site(), &grads, &existing);
    op.backward(&mut backward).unwrap();
    let results = backward.finish();
    let pool = Pool::new(2).unwrap();
    values.evaluate_kernels(&graph, OPS, &pool).unwrap();
    let results = results.into_iter().map(|result| result.unwrap().0);
    results.map(|operand| read(&values, &operand)).collect()
}

/// Compares bit for bit; any NaN is as good as another.
fn assert_bits(what: &str, got: &[f32], want: impl IntoIterator<Item = f32>) {
    let want: Vec<f32> = want.into_iter().collect();
    assert_eq!(got.len(), want.len(), "{what}");
    let differ = |(got, want): &(&f32, &f32)| {
        got.to_bits() != want.to_bits() && !(got.is_nan() && want.is_nan())
    };
    let differing = got.iter().zip(&want).filter(differ).count();
    let first = got.iter().zip(&want).find(differ);
    assert!(
        first.is_none(),
        "{what}: {differing} of {} differ, first {first:?}",
        got.len()
    );
}

#[test]
fn arithmetic_on_two_tensors() {
    let x = numbers();
    let y: Vec<f32> = x.iter().rev().copied().collect();
    let pairs = || x.iter().copied().zip(y.iter().copied());
    assert_bits("add", &run(Add, &[&x, &y]), pairs().map(|(x, y)| x + y));
    assert_bits("sub", &run(Sub, &[&x, &y]), pairs().map(|(x, y)| x - y));
    assert_bits("mul", &run(Mul, &[&x, &y]), pairs().map(|(x, y)| x * y));
    assert_bits("div", &run(Div, &[&x, &y]), pairs().map(|(x, y)| x / y));
    let same = x.iter().map(|x| x / x);
    assert_bits("div by itself", &run(Div, &[&x, &x]), same);
}

#[test]
fn arithmetic_with_a_number() {
    let x = numbers();
    let each = |f: fn(f32, f32) -> f32, value: f64| x.iter().map(move |&x| f(x, value as f32));
    let values = [
        3.0,
        -7.0,
        0.1,
        1.0 / 3.0,
        1e-40,
        1e39,
        0.0,
        -0.0,
        49.0,
        f64::INFINITY,
        1e-46,
    ];
    for value in values {
        let of = |name: &str| format!("{name}({value})");
        let add = run(AddScalar { value }, &[&x]);
        assert_bits(&of("add_scalar"), &add, each(|x, v| x + v, value));
        let sub = run(SubScalar { value }, &[&x]);
        assert_bits(&of("sub_scalar"), &sub, each(|x, v| x - v, value));
        let mul = run(MulScalar { value }, &[&x]);
        assert_bits(&of("mul_scalar"), &mul, each(|x, v| x * v, value));
        let div = run(DivScalar { value }, &[&x]);
        assert_bits(&of("div_scalar"), &div, each(|x, v| x / v, value));
        let full = run(
            Full {
                value,
                dtype: DType::F32,
                shape: Shape::from([7]),
            },
            &[],
        );
        assert_bits(&of("full"), &full, [value as f32; 7]);
        let scale = run(Scale, &[&x, &[value as f32]]);
        assert_bits(&of("scale"), &scale, each(|x, v| x * v, value));
        let by = DivScalar { value };
        let [grad] = &gradients(by, &[&x], &x)[..] else {
            panic!("one gradient")
        };
        assert_bits(
            &of("gradient of div_scalar"),
            grad,
            each(|x, v| x / v, value),
        );
    }
}

#[test]
fn functions_that_are_exact() {
    let x = numbers();
    assert_bits("neg", &run(Neg, &[&x]), x.iter().map(|x| -x));
    assert_bits("sqrt", &run(Sqrt, &[&x]), x.iter().map(|x| x.sqrt()));
    let relu = |&x: &f32| if x <= 0.0 { 0.0 } else { x };
    assert_bits("relu", &run(Relu, &[&x]), x.iter().map(relu));
    assert_bits("copy", &run(Copy, &[&x]), x.iter().copied());
    let both = x.iter().chain(&x).copied();
    assert_bits("cat", &run(Cat { dim: 0 }, &[&x, &x]), both);
}

#[test]
fn gradients_of_exact_operations() {
    let x = numbers();
    let y: Vec<f32> = x.iter().rev().copied().collect();
    let g: Vec<f32> = x.iter().cycle().skip(40).take(x.len()).copied().collect();
    let at = || (0..x.len()).map(|i| (g[i], x[i], y[i]));
    let div = gradients(Div, &[&x, &y], &g);
    assert_bits("div by a", &div[0], at().map(|(g, _, y)| g / y));
    assert_bits(
        "div by b",
        &div[1],
        at().map(|(g, x, y)| -g * ((x / y) / y)),
    );
    let mul = gradients(Mul, &[&x, &y], &g);
    assert_bits("mul by a", &mul[0], at().map(|(g, _, y)| g * y));
    assert_bits("mul by b", &mul[1], at().map(|(g, x, _)| g * x));
    let sub = gradients(Sub, &[&x, &y], &g);
    assert_bits("sub by b", &sub[1], at().map(|(g, ..)| -g));
    let sqrt = &gradients(Sqrt, &[&x], &g)[0];
    assert_bits("sqrt", sqrt, at().map(|(g, x, _)| g / (2.0 * x.sqrt())));
    let relu = &gradients(Relu, &[&x], &g)[0];
    assert_bits(
        "relu",
        relu,
        at().map(|(g, x, _)| if x <= 0.0 { 0.0 } else { g }),
    );
    let neg = &gradients(Neg, &[&x], &g)[0];
    assert_bits("neg", neg, at().map(|(g, ..)| -g));
    for len in [3_u16, 7, 49, 1999] {
        let mean = Mean {
            dims: vec![],
            keepdim: false,
        };
        let x = &x[..usize::from(len)];
        let mean = &gradients(mean, &[x], &[0.3])[0];
        assert_bits("mean", mean, x.iter().map(|_| 0.3 / f32::from(len)));
    }
}

#[test]
fn sums_and_means_are_rounded_once() {
    let x: Vec<f32> = numbers()
        .into_iter()
        .filter(|x| x.abs() < 1e4 && x.abs() > 1e-4)
        .collect();
    let (sum, mean) = (Sum::default(), Mean::default());
    // Multiples of 2^-28 of at most 14 bits before the point add up without rounding.
    let x: Vec<f32> = x.iter().map(|x| (x * 65536.0).round() / 65536.0).collect();
    let exact: f64 = x.iter().map(|&x| f64::from(x)).sum();
    assert_bits("sum", &run(sum, &[&x]), [exact as f32]);
    assert_bits("mean", &run(mean, &[&x]), [(exact / x.len() as f64) as f32]);
}

#[test]
fn cells() {
    let x = numbers();
    let y: Vec<f32> = x.iter().rev().copied().collect();
    let after = |op: Arc<dyn Op>| {
        let (mut graph, mut values) = (Graph::default(), Values::default());
        let spec = Spec::contiguous(DType::F32, [x.len()]);
        let id = graph.add_cell("cell", spec, Category::Parameter, false);
        let cell = graph.read_cell(id).unwrap();
        values.set(&cell, &Array::from_fn([x.len()], |i| f64::from(x[i])));
        let value = give(&mut graph, &mut values, &y);
        graph.add(op, &[cell, value], &site()).unwrap();
        let pool = Pool::new(2).unwrap();
        values.evaluate_kernels(&graph, OPS, &pool).unwrap();
        read(&values, &graph.read_cell(id).unwrap())
    };
    let sums = x.iter().zip(&y).map(|(x, y)| x + y);
    assert_bits("accumulate", &after(Arc::new(Accumulate)), sums);
    assert_bits("assign", &after(Arc::new(Assign)), y.iter().copied());
}

#[test]
fn casts_round_to_nearest_even_and_keep_signs_and_infinities() {
    let x = numbers();
    let there_and_back = |dtype| {
        let (mut graph, mut values) = (Graph::default(), Values::default());
        let input = give(&mut graph, &mut values, &x);
        let there = graph
            .add(Arc::new(Cast { dtype }), &[input], &site())
            .unwrap();
        let back = Arc::new(Cast { dtype: DType::F32 });
        let back = graph.add(back, &[there[0].clone()], &site()).unwrap();
        let pool = Pool::new(2).unwrap();
        values.evaluate_kernels(&graph, OPS, &pool).unwrap();
        read(&values, &back[0])
    };
    assert_bits("float64", &there_and_back(DType::F64), x.iter().copied());
    let bf16 = x.iter().map(|&x| half::bf16::from_f32(x).to_f32());
    assert_bits("bfloat16", &there_and_back(DType::BF16), bf16);
    let f16 = x
        .iter()
        .map(|&x| half::f16::from_f32_const(x).to_f32_const());
    assert_bits("float16", &there_and_back(DType::F16), f16);
}
