//! Views, moves and products by their PyTorch names: shapes, elements, gradients, refusals.

use highwater::{DType, Engine, Result, Tensor};

fn engine() -> Engine {
    Engine::builder().threads(2).build().unwrap()
}

/// The numbers from 0 on.
fn numbers(engine: &Engine, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let data: Vec<f32> = (0..count).map(|i| i as f32).collect();
    engine.tensor(&data, dims.to_vec()).unwrap()
}

/// A tensor of this shape with these elements.
fn assert_is(tensor: Result<Tensor>, dims: &[usize], elements: &[f32]) {
    let tensor = tensor.unwrap();
    assert_eq!(tensor.dims(), dims);
    assert_eq!(tensor.to_vec::<f32>().unwrap(), elements);
}

#[test]
fn dimensions_come_and_go() {
    let engine = engine();
    let x = numbers(&engine, &[2, 1, 3]);
    let dims = |tensor: Result<Tensor>| tensor.unwrap().dims().to_vec();
    assert_eq!(dims(x.unsqueeze(0)), [1, 2, 1, 3]);
    assert_eq!(dims(x.unsqueeze(-1)), [2, 1, 3, 1]);
    assert_eq!(dims(x.unsqueeze(-4)), [1, 2, 1, 3]);
    assert_eq!(dims(x.squeeze(1)), [2, 3]);
    assert_eq!(dims(x.squeeze(-2)), [2, 3]);
    assert_eq!(dims(x.squeeze(0)), [2, 1, 3]);
    assert_eq!(dims(x.squeeze_dims::<usize>(&[])), [2, 3]);
    assert_eq!(dims(x.flatten(0, -1)), [6]);
    assert_eq!(dims(x.flatten(1, 2)), [2, 3]);
    assert_eq!(dims(numbers(&engine, &[]).flatten(0, -1)), [1]);
    assert_eq!(dims(x.unflatten(-1, &[3, 1])), [2, 1, 3, 1]);
    assert_eq!(dims(x.movedim(0, -1)), [1, 3, 2]);
    assert_eq!(dims(x.movedim(-1, 0)), [3, 2, 1]);
    assert_eq!(dims(x.permute(&[-1, 0, 1])), [3, 2, 1]);
    assert_eq!(dims(x.transpose(-1, 0)), [3, 1, 2]);
    assert_is(
        numbers(&engine, &[2, 2]).t(),
        &[2, 2],
        &[0.0, 2.0, 1.0, 3.0],
    );
    assert_eq!(dims(numbers(&engine, &[3]).t()), [3]);
}

#[test]
fn parts_are_where_they_should_be() {
    let engine = engine();
    let x = numbers(&engine, &[2, 3]);
    assert_is(x.select(1, -1), &[2], &[2.0, 5.0]);
    assert_is(x.select(0, 1), &[3], &[3.0, 4.0, 5.0]);
    assert_is(x.narrow(-1, 1, 2), &[2, 2], &[1.0, 2.0, 4.0, 5.0]);
    let rows = x.unbind(0).unwrap();
    assert_eq!(rows.len(), 2);
    assert_is(Ok(rows[1].clone()), &[3], &[3.0, 4.0, 5.0]);
    let columns = x.split(2, 1).unwrap();
    assert_is(Ok(columns[0].clone()), &[2, 2], &[0.0, 1.0, 3.0, 4.0]);
    assert_is(Ok(columns[1].clone()), &[2, 1], &[2.0, 5.0]);
    let sized = x.split_sizes(&[0, 2, 1], -1).unwrap();
    assert_is(Ok(sized[1].clone()), &[2, 2], &[0.0, 1.0, 3.0, 4.0]);
    assert_eq!(numbers(&engine, &[0, 2]).split(3, 0).unwrap().len(), 1);
    assert_is(x.diagonal(0, 0, 1), &[2], &[0.0, 4.0]);
    assert_is(x.diagonal(1, 0, 1), &[2], &[1.0, 5.0]);
    assert_is(x.diagonal(-1, 0, 1), &[1], &[3.0]);
    assert_is(x.diagonal(5, 0, 1), &[0], &[]);
    let both = Tensor::stack(&[&rows[0], &rows[1]], -1);
    assert_is(both, &[3, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_is(
        Tensor::cat(&[&x, &x], -1),
        &[2, 6],
        &[0., 1., 2., 0., 1., 2., 3., 4., 5., 3., 4., 5.],
    );
}

#[test]
fn copies_and_moves() {
    let engine = engine();
    let x = numbers(&engine, &[2, 2]);
    assert_is(
        x.repeat(&[1, 2]),
        &[2, 4],
        &[0., 1., 0., 1., 2., 3., 2., 3.],
    );
    assert_is(
        x.repeat(&[2, 1, 1]),
        &[2, 2, 2],
        &[0., 1., 2., 3., 0., 1., 2., 3.],
    );
    assert_is(x.tile(&[2]), &[2, 4], &[0., 1., 0., 1., 2., 3., 2., 3.]);
    assert_is(x.repeat(&[0, 1]), &[0, 2], &[]);
    let deep = numbers(&engine, &[2, 2, 2, 2, 2]);
    let repeated = deep.repeat(&[2, 2, 2, 2, 2]).unwrap();
    let last = repeated.select(0, -1).unwrap().select(0, 3).unwrap();
    let last = last.select(0, 3).unwrap().select(0, 3).unwrap();
    assert_is(Ok(last), &[4], &[30., 31., 30., 31.]);
    assert_is(x.roll(&[1], &[0]), &[2, 2], &[2., 3., 0., 1.]);
    assert_is(x.roll(&[-1, 3], &[0, -1]), &[2, 2], &[3., 2., 1., 0.]);
    assert_is(x.roll::<i32>(&[1], &[]), &[2, 2], &[3., 0., 1., 2.]);
    assert_is(x.flip(&[-1]), &[2, 2], &[1., 0., 3., 2.]);
    assert_is(x.tril(0), &[2, 2], &[0., 0., 2., 3.]);
    assert_is(x.triu(1), &[2, 2], &[0., 1., 0., 0.]);
    let classes = engine.indices(&[1, 0], [2]).unwrap();
    let vectors = classes.one_hot(3).unwrap();
    assert_eq!(vectors.to_vec::<i64>().unwrap(), [0, 1, 0, 1, 0, 0]);
    assert_is(
        classes.one_hot_as(2, DType::F32),
        &[2, 2],
        &[0., 1., 1., 0.],
    );
    assert!(
        engine
            .indices(&[3], [1])
            .unwrap()
            .one_hot(3)
            .unwrap()
            .to_vec::<i64>()
            .is_err()
    );
}

#[test]
fn products_take_vectors_and_stacks() {
    let engine = engine();
    let (m, v) = (numbers(&engine, &[2, 3]), numbers(&engine, &[3]));
    assert_is(m.matmul(&v), &[2], &[5.0, 14.0]);
    assert_is(v.matmul(&m.t().unwrap()), &[2], &[5.0, 14.0]);
    assert_is(v.matmul(&v), &[], &[5.0]);
    assert_is(v.dot(&v), &[], &[5.0]);
    assert_is(m.mv(&v), &[2], &[5.0, 14.0]);
    assert_is(v.outer(&v), &[3, 3], &[0., 0., 0., 0., 1., 2., 0., 2., 4.]);
    let stack = numbers(&engine, &[2, 2, 3]);
    assert_is(stack.matmul(&v), &[2, 2], &[5.0, 14.0, 23.0, 32.0]);
    assert_is(
        v.matmul(&stack.transpose(1, 2).unwrap()),
        &[2, 2],
        &[5.0, 14.0, 23.0, 32.0],
    );
    let square = stack.bmm(&stack.transpose(1, 2).unwrap()).unwrap();
    assert_is(
        Ok(square),
        &[2, 2, 2],
        &[5., 14., 14., 50., 149., 212., 212., 302.],
    );
    let plus = numbers(&engine, &[2]).addmm(&m, &m.t().unwrap(), 2.0, 0.5);
    assert_is(plus, &[2, 2], &[2.5, 9.0, 7.0, 27.0]);
    assert!(m.bmm(&m).is_err() && m.dot(&m).is_err() && v.mm(&m).is_err());
    assert!(stack.bmm(&numbers(&engine, &[1, 3, 2])).is_err());
}

#[test]
fn equations() {
    let engine = engine();
    let (a, b) = (numbers(&engine, &[2, 3]), numbers(&engine, &[3, 2]));
    let sum = |equation: &str, of: &[&Tensor]| Tensor::einsum(equation, of);
    let product = [10.0, 13.0, 28.0, 40.0];
    assert_is(sum("ij,jk->ik", &[&a, &b]), &[2, 2], &product);
    assert_is(sum("ij, jk", &[&a, &b]), &[2, 2], &product);
    assert_is(
        sum("ij,jk->ki", &[&a, &b]),
        &[2, 2],
        &[10.0, 28.0, 13.0, 40.0],
    );
    assert_is(sum("ij->ji", &[&a]), &[3, 2], &[0., 3., 1., 4., 2., 5.]);
    assert_is(sum("ba", &[&a]), &[3, 2], &[0., 3., 1., 4., 2., 5.]);
    assert_is(sum("ij->", &[&a]), &[], &[15.0]);
    assert_is(sum("ij->i", &[&a]), &[2], &[3.0, 12.0]);
    assert_is(sum("ij,ij->j", &[&a, &a]), &[3], &[9.0, 17.0, 29.0]);
    let square = numbers(&engine, &[3, 3]);
    assert_is(sum("ii", &[&square]), &[], &[12.0]);
    assert_is(sum("ii->i", &[&square]), &[3], &[0.0, 4.0, 8.0]);
    let v = numbers(&engine, &[3]);
    assert_is(
        sum("i,j->ij", &[&v, &v]),
        &[3, 3],
        &[0., 0., 0., 0., 1., 2., 0., 2., 4.],
    );
    assert_is(
        sum("ij,jk,k->i", &[&a, &b, &numbers(&engine, &[2])]),
        &[2],
        &[13.0, 40.0],
    );
    let stack = numbers(&engine, &[4, 2, 3]);
    let many = sum("...ij,jk->...ik", &[&stack, &b]).unwrap();
    let want = stack.matmul(&b).unwrap().to_vec::<f32>().unwrap();
    assert_is(Ok(many), &[4, 2, 2], &want);
    assert_is(sum("...ij,...jk", &[&stack, &b]), &[4, 2, 2], &want);
    let turned = sum("bij,bkj->bik", &[&stack, &stack]).unwrap();
    let want = stack.bmm(&stack.transpose(1, 2).unwrap()).unwrap();
    assert_is(Ok(turned), &[4, 2, 2], &want.to_vec::<f32>().unwrap());
    // An extent of 1 broadcasts.
    assert_is(
        sum("ij,ij->ij", &[&a, &numbers(&engine, &[2, 1])]),
        &[2, 3],
        &[0., 0., 0., 3., 4., 5.],
    );
    let refused = [
        ("ij,jk", &[&a][..]),
        ("ijk", &[&a]),
        ("i->i", &[&a]),
        ("ij->ii", &[&a]),
        ("ij->k", &[&a]),
        ("ij,ij", &[&a, &b]),
        ("ii", &[&a]),
        ("i1", &[&a]),
    ];
    for (equation, of) in refused {
        let error = sum(equation, of).expect_err(equation).to_string();
        assert!(
            error.contains("einsum") && error.contains("shapes.rs"),
            "{error}"
        );
    }
}

#[test]
fn gradients_pass_through() {
    let engine = engine();
    let gradient = |dims: &[usize], f: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let x = numbers(&engine, dims).requires_grad_().unwrap();
        let y = f(&x).unwrap();
        let weights = numbers(&engine, y.dims());
        y.mul(&weights).unwrap().sum().unwrap().backward().unwrap();
        x.grad().unwrap().to_vec::<f32>().unwrap()
    };
    assert_eq!(gradient(&[2, 2], &|x| x.flip(&[0])), [2.0, 3.0, 0.0, 1.0]);
    assert_eq!(gradient(&[2, 2], &|x| x.tril(0)), [0.0, 0.0, 2.0, 3.0]);
    assert_eq!(gradient(&[2], &|x| x.repeat(&[2, 2])), [12.0, 16.0]);
    assert_eq!(gradient(&[3], &|x| x.roll(&[1], &[0])), [1.0, 2.0, 0.0]);
    assert_eq!(
        gradient(&[2, 2], &|x| x.diagonal(0, 0, 1)),
        [0.0, 0.0, 0.0, 1.0]
    );
    assert_eq!(gradient(&[2, 2], &|x| x.select(1, 0)), [0.0, 0.0, 1.0, 0.0]);
    assert_eq!(gradient(&[2], &|x| Tensor::stack(&[x, x], 1)), [1.0, 5.0]);
    assert_eq!(
        gradient(&[2, 2], &|x| Tensor::einsum("ii->i", &[x])),
        [0.0, 0.0, 0.0, 1.0]
    );
    let outer = |x: &Tensor| Tensor::einsum("i,j->ij", &[x, &x.detach()?]);
    assert_eq!(gradient(&[2], &outer), [1.0, 3.0]);
}

#[test]
fn refusals_name_what_is_wrong() {
    let engine = engine();
    let x = numbers(&engine, &[2, 3]);
    let refused = [
        (x.unsqueeze(3), "dimension 3"),
        (x.unsqueeze(-4), "dimension -4"),
        (x.squeeze(2), "dimension 2"),
        (x.flatten(1, 0), "behind"),
        (x.unflatten(1, &[2, 2]), "[2, 2]"),
        (x.movedim(0, -3), "dimension -3"),
        (x.select(0, 2), "index 2"),
        (x.select(0, -3), "index -3"),
        (
            x.split_sizes(&[1, 1], 1).map(|parts| parts[0].clone()),
            "add up",
        ),
        (x.split(0, 1).map(|parts| parts[0].clone()), "0 elements"),
        (x.unbind(5).map(|parts| parts[0].clone()), "dimension 5"),
        (x.diagonal(0, 1, -1), "the same"),
        (x.repeat(&[2]), "[2]"),
        (x.roll(&[1, 2], &[0]), "one shift"),
        (x.flip(&[0, -2]), "twice"),
        (x.select(0, 0).and_then(|row| row.tril(0)), "two dimensions"),
        (Tensor::stack(&[&x, &x.t().unwrap()], 0), "differ"),
        (x.unsqueeze(0).and_then(|x| x.t()), "at most two"),
    ];
    for (refused, words) in refused {
        let error = refused.expect_err(words).to_string();
        assert!(
            error.contains(words) && error.contains("shapes.rs"),
            "{words}: {error}"
        );
    }
}
