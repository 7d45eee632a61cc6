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

#[test]
fn whole_numbers_are_counted_exactly() {
    let engine = engine();
    let large = (1_i64 << 53) + 1;
    let numbers = [large, 3, large, -7, 5, 3];
    let x = Tensor::from_slice(&engine, &numbers, [2, 3]).unwrap();
    let wholes = |x: Result<Tensor>| x.unwrap().to_vec::<i64>().unwrap();
    assert_eq!(wholes(x.sum()), [2 * large + 4]);
    assert_eq!(wholes(x.sum_dims(&[0], false)), [large - 7, 8, large + 3]);
    assert_eq!(
        wholes(x.cumsum(1)),
        [large, large + 3, 2 * large + 3, -7, -2, 1]
    );
    assert_eq!(
        wholes(x.prod_dim(1, false)),
        [large.wrapping_mul(3).wrapping_mul(large), -105]
    );
    assert_eq!(wholes(x.max()), [large]);
    let (values, at) = x.max_dim(1, false).unwrap();
    assert_eq!(
        (wholes(Ok(values)), places(&at)),
        (vec![large, 5], vec![0, 1])
    );
    assert_eq!(places(&x.argmin().unwrap()), [3]);
    let (values, at) = x.sort(-1, true).unwrap();
    assert_eq!(wholes(Ok(values)), [large, large, 3, 5, 3, -7]);
    assert_eq!(places(&at), [0, 2, 1, 1, 2, 0]);
    assert_eq!(places(&x.topk(1, 0, false).unwrap().1), [1, 0, 1]);
    // How many are right.
    let right = x.eq(&x.max().unwrap()).unwrap();
    assert_eq!(right.dtype(), DType::Bool);
    let count = right.sum().unwrap();
    assert_eq!((count.dtype(), count.item().unwrap()), (DType::I64, 2.0));
    assert_eq!(wholes(right.cumsum(1)), [1, 1, 2, 0, 0, 0]);
    // The mean of whole numbers is refused, as in PyTorch.
    assert!(x.mean().is_err());
}

#[test]
fn items_are_of_any_dtype() {
    let engine = engine();
    let x = engine.tensor(&[2.5], [1]).unwrap();
    for dtype in [DType::F64, DType::BF16, DType::F16, DType::F32] {
        assert_eq!(x.to_dtype(dtype).unwrap().item().unwrap(), 2.5);
    }
    for dtype in [DType::I64, DType::U8, DType::U32] {
        assert_eq!(x.to_dtype(dtype).unwrap().item().unwrap(), 2.0);
    }
    assert_eq!(x.gt(&x.neg().unwrap()).unwrap().item().unwrap(), 1.0);
}

#[test]
fn whole_numbers_and_choices_are_drawn() {
    let draw = |seed| {
        let engine = Engine::builder().seed(seed).build().unwrap();
        Tensor::randint(&engine, -2, 3, [4000])
            .unwrap()
            .to_vec::<i64>()
            .unwrap()
    };
    let drawn = draw(1);
    assert_eq!(drawn, draw(1));
    assert_ne!(drawn, draw(2));
    for x in -2..3 {
        let count = drawn.iter().filter(|&&y| y == x).count();
        assert!((700..900).contains(&count), "{x}: {count}");
    }
    let engine = engine();
    assert!(Tensor::randint(&engine, 3, 3, [4]).is_err());
    let widest = Tensor::randint(&engine, i64::MIN, i64::MAX, [100]).unwrap();
    let widest = widest.to_vec::<i64>().unwrap();
    assert!(widest.iter().any(|&x| x < i64::MIN / 2) && widest.iter().any(|&x| x > i64::MAX / 2));

    let weights = engine.tensor(&[0.0, 3.0, 1.0, 0.0, 4.0, 0.0], [6]).unwrap();
    let drawn = weights.multinomial(8000, true).unwrap();
    assert_eq!((drawn.dtype(), drawn.dims()), (DType::I64, &[8000][..]));
    let drawn = drawn.to_vec::<i64>().unwrap();
    for (at, share) in [0.0, 3.0, 1.0, 0.0, 4.0, 0.0].iter().enumerate() {
        let count = drawn.iter().filter(|&&x| x == at as i64).count() as f64;
        assert!(
            (count - share * 1000.0).abs() <= share * 130.0,
            "{at}: {count}"
        );
    }
    // Without replacement: each once, the heavier ones more often first.
    let rows = weights.reshape([1, 6]).unwrap().expand([3000, 6]).unwrap();
    let drawn = rows.multinomial(3, false).unwrap();
    assert_eq!(drawn.dims(), [3000, 3]);
    let drawn = drawn.to_vec::<i64>().unwrap();
    for row in drawn.chunks(3) {
        let mut row = row.to_vec();
        row.sort_unstable();
        assert_eq!(row, [1, 2, 4]);
    }
    let first = drawn.iter().step_by(3).filter(|&&x| x == 4).count();
    assert!((1400..1600).contains(&first), "{first}");
    // What PyTorch refuses: some index of the row.
    let rows = [
        [0.0; 3],
        [1.0, f32::INFINITY, 1.0],
        [f32::NAN; 3],
        [-1.0, 2.0, 0.5],
        [3e38, 3e38, 1.0],
        [1e-45; 3],
    ];
    for row in rows {
        let weights = engine.tensor(&row, [3]).unwrap();
        for replacement in [false, true] {
            let drawn = weights.multinomial(3, replacement).unwrap();
            let drawn = places(&drawn);
            assert!(
                drawn.iter().all(|at| (0..3).contains(at)),
                "{row:?}: {drawn:?}"
            );
        }
    }
    let tiny = Tensor::from_slice(&engine, &[1e-60, 3e-60], [2]).unwrap();
    let drawn = tiny.multinomial(1000, true).unwrap().sum().unwrap();
    let drawn = drawn.item().unwrap();
    assert!((700.0..800.0).contains(&drawn), "{drawn}");
    for (num_samples, replacement) in [(0, true), (7, false)] {
        assert!(weights.multinomial(num_samples, replacement).is_err());
    }
}
