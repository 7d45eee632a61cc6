//! Several documents in one sequence: each trains as if it were alone.

use crate::models::Random;
use highwater::nn::Linear;
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{Builder, Engine, Error, Module, Parameter, Result, Tensor};

const HEADS: usize = 2;
const WIDTH: usize = 16;
const TOKENS: usize = 150;

#[derive(Module)]
struct Attention {
    packed: Linear,
    out: Linear,
}

impl Attention {
    fn new(engine: &Engine) -> Result<Self> {
        let width = HEADS * WIDTH;
        Ok(Self {
            packed: Linear::new(engine, width, 3 * width, false)?,
            out: Linear::new(engine, width, width, false)?,
        })
    }

    /// `[B, T, C]` with documents of these lengths; alone without any.
    fn forward(&self, x: &Tensor, lengths: Option<&Tensor>) -> Result<Tensor> {
        let &[batch, tokens, width] = x.dims() else {
            panic!("rank 3")
        };
        let packed = self.packed.forward(x)?;
        let head = |i: usize| {
            let part = packed.narrow(2, i * width, width)?;
            part.reshape([batch, tokens, HEADS, WIDTH])?.transpose(1, 2)
        };
        let (q, k, v) = (head(0)?, head(1)?, head(2)?);
        let attended = match lengths {
            Some(lengths) => q.document_attention(&k, &v, lengths, true, None)?,
            None => q.scaled_dot_product_attention(&k, &v, true)?,
        };
        let merged = attended.transpose(1, 2)?.reshape([batch, tokens, width])?;
        self.out.forward(&merged)
    }
}

/// Trains on one sequence of documents, packed or one after the other; answers losses and weights.
fn train(builder: Builder, packed: bool) -> Result<Vec<f32>> {
    let engine = builder.seed(4).build()?;
    let model = Attention::new(&engine)?;
    let mut sgd = Sgd::new(
        model.parameters(),
        SgdOptions {
            lr: 0.1,
            ..SgdOptions::default()
        },
    )?;
    let mut seen = Vec::new();
    for step in 0..4 {
        let mut random = Random(step);
        let width = HEADS * WIDTH;
        let values = random.values(TOKENS * width);
        // What is left of the sequence is a document too.
        let mut lengths = vec![1 + random.below(70) as u32, random.below(40) as u32, 0];
        let x = |values: &[f32], tokens: usize| engine.tensor(values, [1, tokens, width]);
        let mut total = 0.0;
        if packed {
            let lengths = engine.indices(&lengths, [1, 3])?;
            let y = model.forward(&x(&values, TOKENS)?, Some(&lengths))?;
            let loss = y.square()?.sum()?;
            loss.backward()?;
            sgd.step()?;
            total += loss.item()?;
        } else {
            lengths.push(TOKENS as u32 - lengths.iter().sum::<u32>());
            let (mut losses, mut from) = (Vec::new(), 0);
            for tokens in lengths.into_iter().map(|n| n as usize).filter(|&n| n > 0) {
                let values = &values[from * width..][..tokens * width];
                let loss = model.forward(&x(values, tokens)?, None)?.square()?.sum()?;
                loss.backward()?;
                losses.push(loss);
                from += tokens;
            }
            sgd.step()?;
            for loss in losses {
                total += loss.item()?;
            }
        }
        seen.push(total);
    }
    for parameter in model.parameters() {
        seen.extend(parameter.to_vec::<f32>()?);
    }
    Ok(seen)
}

#[test]
fn documents_in_one_sequence_train_as_by_themselves() {
    let packed = train(Engine::builder(), true).unwrap();
    let apart = train(Engine::builder(), false).unwrap();
    for (packed, apart) in packed.iter().zip(&apart) {
        let off = (packed - apart).abs() / (1.0 + apart.abs());
        assert!(off < 1e-4, "{packed} beside {apart}");
    }
}

#[test]
fn documents_have_the_same_bits_in_any_arena_and_one_plan() {
    let expected = train(Engine::builder(), true).unwrap();
    for builder in [
        Engine::builder().arena(440 << 10).threads(2),
        Engine::builder().arena(400 << 10).threads(1),
        Engine::builder().threads(3),
        Engine::eager(),
    ] {
        assert_eq!(train(builder, true).unwrap(), expected);
    }
}

#[test]
fn lengths_that_cannot_be_are_refused_in_doubles_too() {
    let engine = Engine::builder().build().unwrap();
    let x = Tensor::from_slice(&engine, &[0.5_f64; 40], [1, 2, 5, 4]).unwrap();
    for causal in [true, false] {
        for (lengths, sound) in [([2_i64, 3], true), ([2, 4], false), ([-1, 3], false)] {
            let lengths = Tensor::from_slice(&engine, &lengths, [1, 2]).unwrap();
            let y = x
                .document_attention(&x, &x, &lengths, causal, None)
                .unwrap();
            assert_eq!(y.to_vec::<f64>().is_ok(), sound, "{lengths:?}");
        }
    }
}

#[test]
fn lengths_that_cannot_be_stop_the_step() {
    let engine = Engine::builder().build().unwrap();
    let weight = Parameter::normal(&engine, [2, 1, 5, 4], 1.0).unwrap();
    let before = weight.to_vec::<f32>().unwrap();
    let mut sgd = Sgd::new(vec![weight.clone()], SgdOptions::default()).unwrap();
    for (lengths, sound) in [
        ([[2_i64, 3], [5, 0]], true),
        ([[2, 3], [5, 1]], false),
        ([[-1, 3], [5, 0]], false),
        ([[i64::MAX, i64::MAX], [5, 0]], false),
    ] {
        let lengths = Tensor::from_slice(&engine, lengths.as_flattened(), [2, 2]).unwrap();
        let y = weight.document_attention(&weight, &weight, &lengths, true, None);
        y.unwrap().sum().unwrap().backward().unwrap();
        let stepped = sgd.step();
        match stepped {
            Ok(_) => assert!(sound),
            Err(error) => {
                assert!(!sound && matches!(error, Error::Kernel { .. }), "{error}");
                assert!(
                    error.to_string().contains("lengths of documents"),
                    "{error}"
                );
                sgd.zero_grad();
            }
        }
        let same = weight.to_vec::<f32>().unwrap() == before;
        assert_eq!(same, !sound);
        weight.copy_from_slice(&before).unwrap();
    }
}
