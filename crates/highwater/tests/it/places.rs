//! Errors point to the line that called, not into the library: of every public call that can refuse, whatever
//! it calls inside.

use highwater::nn::{CausalSelfAttention, Embedding, LayerNorm, Linear, self_attention};
use highwater::optim::{
    AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions, clip_grad_norm_, grad_norm,
};
use highwater::{
    Buffer, DType, Engine, Error, Location, Parameter, Result, Tensor, checkpoint,
    checkpoint_sequential, eval, scope,
};

fn engine() -> Engine {
    Engine::builder().threads(1).arena(4 << 20).build().unwrap()
}

fn zeros(engine: &Engine, dims: &[usize]) -> Tensor {
    let count = dims.iter().product();
    engine.tensor(&vec![0.0; count], dims.to_vec()).unwrap()
}

/// Each of these is refused on a line of this file.
macro_rules! refused {
    ($($call:expr;)*) => {$(
        let error: Error = $call.err().unwrap_or_else(|| panic!("{} was taken", stringify!($call)));
        let at = error.location().unwrap_or_else(|| panic!("{}: {error}", stringify!($call)));
        assert_eq!(at.file(), file!(), "{}: {error}", stringify!($call));
    )*};
}

#[test]
fn tensors_and_their_operations() {
    let engine = engine();
    let (a, wide) = (zeros(&engine, &[2, 3]), zeros(&engine, &[4, 5]));
    let ids = engine.indices(&[0, 1], [2]).unwrap();
    refused! {
        engine.tensor(&[0.0; 5], [2, 3]);
        engine.indices(&[0; 5], [2, 3]);
        Tensor::from_slice(&engine, &[0_u32; 5], [2, 3]);
        Tensor::randn(&engine, [usize::MAX, 2]);
        a.matmul(&wide);
        a.linear(&wide, None);
        a.embedding(&wide);
        ids.gelu();
        ids.gelu_tanh();
        ids.softmax();
        a.layer_norm(Some((&wide, &wide)), 1e-5);
        a.dropout(2.0);
        a.scaled_dot_product_attention(&wide, &wide, true);
        a.cross_entropy(&wide);
        a.linear_cross_entropy(&wide, &ids);
        ids.sum();
        a.sum_dims(&[7], false);
        a.mean_dims(&[7], true);
        ids.mean();
        Tensor::cat(&[&a, &wide], 0);
        Tensor::cat::<Tensor>(&[], 0);
        ids.to_dtype(DType::I8Block { block: 64 });
        a.transpose(0, 9);
        a.permute(&[0, 0]);
        a.narrow(0, 1, 9);
        a.chunk(0, 1);
        a.chunk(1, 9);
        a.split(0, 1);
        a.select(0, 2);
        a.squeeze(2);
        a.flip(&[2]);
        a.amax(&[2], false);
        a.cumsum(2);
        a.topk(9, 0, true);
        a.gather(0, &a);
        Tensor::einsum("ij,jk", &[&a, &wide]);
        a.expand([7, 7]);
        a.expand([usize::MAX, usize::MAX, 3]);
        a.reshape([7]);
        a.reshape([usize::MAX, usize::MAX]);
        a.add(&wide);
        a.sub(&wide);
        a.mul(&wide);
        a.div(&wide);
        ids.add_scalar(1.0);
        ids.relu();
        ids.exp();
        ids.neg();
        &a + &wide;
        &a * &wide + &a;
        -&ids;
        2.0 * &ids;
        a.item();
        a.to_vec::<u32>();
        a.backward();
        a.sum().unwrap().backward();
        ids.clone().requires_grad_();
        a.add(&a).unwrap().requires_grad_();
        a.add(&zeros(&self::engine(), &[2, 3]));
    }
}

#[test]
fn parameters_modules_and_optimizers() {
    let engine = engine();
    let weight = Parameter::new(&engine, [2], |own| own.fill(1.0)).unwrap();
    let half = Parameter::frozen(&engine, DType::BF16, [2], |_| {}).unwrap();
    let other = Parameter::new(&self::engine(), [2], |_| {}).unwrap();
    let own = std::slice::from_ref(&weight);
    let both = [weight.clone(), other];
    let x = zeros(&engine, &[2, 3]);
    let absurd = [usize::MAX, usize::MAX];
    let adamw = AdamWOptions {
        lr: -1.0,
        ..AdamWOptions::default()
    };
    let mut optimizer = Sgd::new(own.to_vec(), SgdOptions::default()).unwrap();
    let used = weight.mul(&weight).unwrap();
    refused! {
        Parameter::new(&engine, absurd, |_| {});
        Parameter::normal(&engine, absurd, 1.0);
        Parameter::uniform(&engine, absurd, 1.0);
        Parameter::frozen(&engine, DType::F16, absurd, |_| {});
        Buffer::new(&engine, absurd, |_| {});
        weight.copy_from_slice(&[1.0; 3]);
        weight.copy_from_slice(&[1.0; 2]);
        weight.with_bytes_mut(|_| ());
        half.with_values_mut(|_| ());
        Linear::new(&engine, usize::MAX, 8, true);
        Embedding::new(&engine, usize::MAX, 8);
        Linear::new(&engine, 4, 2, true).unwrap().forward(&x);
        Embedding::new(&engine, 4, 2).unwrap().forward(&x);
        LayerNorm::new(&engine, 4, 1e-5).unwrap().forward(&x);
        CausalSelfAttention::new(&engine, 8, 2, 0.0).unwrap().forward(&x);
        self_attention(&x, 2);
        self_attention(&zeros(&engine, &[1, 2, 7]), 2);
        grad_norm(own);
        grad_norm(&both);
        clip_grad_norm_(own, 1.0);
        clip_grad_norm_(own, -1.0);
        clip_grad_norm_(&both, 1.0);
        AdamW::new(own.to_vec(), adamw.clone());
        AdamW::with_groups(vec![(both.to_vec(), AdamWOptions::default())]);
        optimizer.set_lr(f64::NAN);
        checkpoint(|x| x.reshape([7]), &x);
        checkpoint_sequential(Vec::<fn(&Tensor) -> Result<Tensor>>::new(), 3, &x);
        scope("block", || x.reshape([7]));
    }
    drop(used);
    optimizer.groups_mut()[0].lr = f64::NAN;
    refused! {
        optimizer.step();
        optimizer.step_keep_grads();
    }
}

#[test]
fn kernels_that_stop() {
    let engine = engine();
    let table = zeros(&engine, &[4, 2]);
    let ids = engine.indices(&[1, 9], [2]).unwrap();
    let far = table.embedding(&ids).unwrap();
    refused! {
        far.to_vec::<f32>();
    }
}

#[test]
fn values_that_are_gone() {
    let engine = engine();
    let weight = Parameter::new(&engine, [2], |own| own.fill(1.0)).unwrap();
    let mut optimizer = Sgd::new(vec![weight.clone()], SgdOptions::default()).unwrap();
    let big = zeros(&engine, &[200, 200]).mul_scalar(2.0).unwrap();
    weight.sum().unwrap().backward().unwrap();
    optimizer.step().unwrap();
    refused! {
        big.to_vec::<f32>();
        big.detach();
        big.add_scalar(1.0);
        big.transpose(0, 1);
        big.contiguous();
        big.reshape([40_000]);
        big.chunk(2, 0);
        big.requires_grad();
        eval([&big]);
    }
}

#[test]
fn a_front_end_says_where_it_is() {
    let engine = engine();
    let x = zeros(&engine, &[2, 3]);
    let script = Location::new("train.py", 12, 0);
    let error = script.at(|| self_attention(&x, 2)).unwrap_err();
    assert_eq!(error.location(), Some(script));
    assert!(error.to_string().contains("\n  at train.py:12"), "{error}");
}
