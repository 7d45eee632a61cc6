//! Reductions, orders and indices by their PyTorch names: elements, gradients, refusals.

use highwater::{DType, Engine, Result, Tensor};

fn engine() -> Engine {
    Engine::builder().threads(2).build().unwrap()
}

fn floats(tensor: Result<Tensor>) -> Vec<f32> {
    tensor.unwrap().to_vec().unwrap()
}

fn places(tensor: &Tensor) -> Vec<i64> {
    tensor.to_vec().unwrap()
}

#[test]
fn extremes_have_places() {
    let engine = engine();
    let x = engine
        .tensor(&[3.0, 1.0, 3.0, -1.0, 5.0, -2.0], [2, 3])
        .unwrap();
    assert_eq!(floats(x.max()), [5.0]);
    assert_eq!(floats(x.amin(&[0], false)), [-1.0, 1.0, -2.0]);
    let (values, indices) = x.max_dim(-1, true).unwrap();
    assert_eq!(values.dims(), [2, 1]);
    assert_eq!(
        (floats(Ok(values)), places(&indices)),
        (vec![3.0, 5.0], vec![0, 1])
    );
    assert_eq!(places(&x.argmin_dim(0, false).unwrap()), [1, 0, 1]);
    assert_eq!(places(&x.argmax().unwrap()), [4]);
    assert_eq!(places(&x.t().unwrap().argmax().unwrap()), [3]);
    assert!(engine.tensor(&[], [0, 2]).unwrap().max().is_err());
}

#[test]
fn statistics() {
    let engine = engine();
    let x = engine.tensor(&[1.0, 2.0, 3.0, 5.0], [2, 2]).unwrap();
    assert!((x.var().unwrap().item().unwrap() - 2.916_666_7).abs() < 1e-6);
    assert_eq!(floats(x.std_dims(&[0], 0.0, false)), [1.0, 1.5]);
    assert_eq!(floats(x.prod_dim(-1, false)), [2.0, 15.0]);
    assert_eq!(floats(x.prod()), [30.0]);
    assert_eq!(floats(x.norm(1.0)), [11.0]);
    assert_eq!(floats(x.norm_dims(f64::INFINITY, &[0], true)), [3.0, 5.0]);
    assert_eq!(floats(x.cumsum(0)), [1.0, 2.0, 4.0, 7.0]);
    let log = x.logsumexp(&[1], false).unwrap().to_vec::<f32>().unwrap();
    assert!((log[0] - 2.313_261_7).abs() < 1e-6);
    let shares = x
        .softmax_dim(0)
        .unwrap()
        .log()
        .unwrap()
        .to_vec::<f32>()
        .unwrap();
    let logs = x.log_softmax(0).unwrap().to_vec::<f32>().unwrap();
    assert!(shares.iter().zip(&logs).all(|(a, b)| (a - b).abs() < 1e-6));
    assert_eq!(x.any().unwrap().to_vec::<u8>().unwrap(), [1]);
    let zeros = engine.tensor(&[0.0, 1.0, 0.0, 0.0], [2, 2]).unwrap();
    assert_eq!(
        zeros.any_dims(&[1], false).unwrap().to_vec::<u8>().unwrap(),
        [1, 0]
    );
    assert_eq!(zeros.all_dims(&[0], true).unwrap().dtype(), DType::Bool);
    // A scalar has one dimension as far as it may be named.
    let one = engine.tensor(&[2.0], []).unwrap();
    assert_eq!(floats(one.sum_dims(&[-1], false)), [2.0]);
    assert_eq!(floats(one.softmax()), [1.0]);
    assert_eq!(floats(one.amax(&[0], false)), [2.0]);
    assert_eq!(floats(one.cumsum(0)), [2.0]);
}

#[test]
fn orders() {
    let engine = engine();
    let x = engine.tensor(&[2.0, 3.0, 2.0, 1.0], [4]).unwrap();
    let (values, indices) = x.sort(0, false).unwrap();
    assert_eq!(
        (floats(Ok(values)), places(&indices)),
        (vec![1.0, 2.0, 2.0, 3.0], vec![3, 0, 2, 1])
    );
    assert_eq!(places(&x.argsort(0, true).unwrap()), [1, 0, 2, 3]);
    let (values, indices) = x.topk(2, -1, true).unwrap();
    assert_eq!(
        (floats(Ok(values)), places(&indices)),
        (vec![3.0, 2.0], vec![1, 0])
    );
    assert!(x.topk(5, 0, true).is_err());
}

#[test]
fn elements_by_index() {
    let engine = engine();
    let x = engine
        .tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])
        .unwrap();
    let index = |data: &[u32], shape: &[usize]| engine.indices(data, shape).unwrap();
    assert_eq!(
        floats(x.gather(1, &index(&[2, 0, 1, 1], &[2, 2]))),
        [3.0, 1.0, 5.0, 5.0]
    );
    assert_eq!(floats(x.gather(0, &index(&[1, 0], &[1, 2]))), [4.0, 2.0]);
    assert_eq!(
        floats(x.index_select(-1, &index(&[2, 2], &[2]))),
        [3.0, 3.0, 6.0, 6.0]
    );
    assert_eq!(
        floats(x.take_along_dim(&index(&[1, 0, 1], &[1, 3]), 0)),
        [4.0, 2.0, 6.0]
    );
    let zeros = engine.tensor(&[0.0; 6], [2, 3]).unwrap();
    assert_eq!(
        floats(zeros.index_add(1, &index(&[2, 2], &[2]), &x.narrow(1, 0, 2).unwrap())),
        [0.0, 0.0, 3.0, 0.0, 0.0, 9.0]
    );
    // An index that reaches a part of the tensor, and takes a part of the source.
    let part = zeros
        .add_scalar(1.0)
        .unwrap()
        .scatter_add(1, &index(&[2, 2], &[1, 2]), &x);
    assert_eq!(floats(part), [1.0, 1.0, 4.0, 1.0, 1.0, 1.0]);
    let [of_gather, of_select] = [index(&[0, 2], &[1, 2]), index(&[1, 2], &[2])];
    // One after the other: a step that stops leaves nothing of what was pending.
    for i in 0..2 {
        let wrong = match i {
            0 => x.gather(0, &of_gather),
            _ => x.index_select(0, &of_select),
        };
        let error = wrong.unwrap().to_vec::<f32>().unwrap_err().to_string();
        assert!(error.contains("index 2 at position 1"), "{error}");
    }
    let refused = [
        x.gather(2, &index(&[0], &[1, 1])),
        x.gather(0, &index(&[0; 4], &[1, 4])),
        x.gather(0, &x),
        x.index_select(0, &index(&[0; 2], &[1, 2])),
        x.index_add(0, &index(&[0], &[1]), &x),
        x.take_along_dim(&index(&[0], &[1]), 0),
        x.amax(&[0, 0], false),
        x.cumsum(2),
    ];
    for (i, refused) in refused.into_iter().enumerate() {
        let error = refused.err().unwrap_or_else(|| panic!("{i} was taken"));
        assert_eq!(error.location().unwrap().file(), file!(), "{i}: {error}");
    }
}

#[test]
fn gradients_find_their_elements() {
    let engine = engine();
    let gradient = |data: &[f32], f: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let x = engine.tensor(data, [data.len()]).unwrap();
        let x = x.requires_grad_().unwrap();
        f(&x).unwrap().sum().unwrap().backward().unwrap();
        x.grad().unwrap().to_vec::<f32>().unwrap()
    };
    assert_eq!(
        gradient(&[1.0, 4.0, 4.0, 4.0, 4.0], &|x| x.max()),
        [0.0, 0.25, 0.25, 0.25, 0.25]
    );
    assert_eq!(
        gradient(&[1.0, 4.0, 4.0], &|x| Ok(x.max_dim(0, false)?.0)),
        [0.0, 1.0, 0.0]
    );
    assert_eq!(gradient(&[2.0, 0.0, 3.0], &|x| x.prod()), [0.0, 6.0, 0.0]);
    assert_eq!(gradient(&[2.0, 4.0, 3.0], &|x| x.prod()), [12.0, 6.0, 8.0]);
    assert_eq!(gradient(&[3.0, -4.0], &|x| x.norm(2.0)), [0.6, -0.8]);
    assert_eq!(gradient(&[2.0, 2.0], &|x| x.std()), [0.0, 0.0]);
    assert_eq!(
        gradient(&[1.0, 2.0, 3.0], &|x| x.cumsum(0)),
        [3.0, 2.0, 1.0]
    );
    assert_eq!(
        gradient(&[1.0, 5.0, 3.0], &|x| Ok(x.topk(2, 0, true)?.0)),
        [0.0, 1.0, 1.0]
    );
    let index = engine.indices(&[1, 1, 0], [3]).unwrap();
    assert_eq!(
        gradient(&[1.0, 2.0, 3.0], &|x| x.index_select(0, &index)),
        [1.0, 2.0, 0.0]
    );
}
