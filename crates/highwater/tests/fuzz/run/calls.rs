//! The calls of the public API that statements stand for.

use super::{Answer, Outcome};
use crate::program::{Dtype, Fill, Op, OptimizerSpec, Rule};
use highwater::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions, Stepped};
use highwater::{DType, Engine, Error, Parameter, Tensor};

pub(super) fn f32s(fill: Fill, count: usize) -> Vec<f32> {
    fill.values(count).into_iter().map(|v| v as f32).collect()
}

fn dtype(dtype: Dtype) -> DType {
    match dtype {
        Dtype::F32 => DType::F32,
        Dtype::Bf16 => DType::BF16,
        Dtype::F16 => DType::F16,
    }
}

pub(super) fn optimizer(
    spec: &OptimizerSpec,
    parameters: &[Parameter],
) -> Result<Box<dyn Optimizer>, Error> {
    let own: Vec<Parameter> = spec
        .parameters
        .iter()
        .map(|&p| parameters[p].clone())
        .collect();
    Ok(match spec.rule {
        Rule::Sgd {
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
        } => Box::new(Sgd::new(
            own,
            SgdOptions {
                lr,
                momentum,
                dampening,
                weight_decay,
                nesterov,
                ..SgdOptions::default()
            },
        )?),
        Rule::AdamW {
            lr,
            betas,
            eps,
            weight_decay,
        } => Box::new(AdamW::new(
            own,
            AdamWOptions {
                lr,
                betas,
                eps,
                weight_decay,
                ..AdamWOptions::default()
            },
        )?),
    })
}

pub(super) fn frozen(
    engine: &Engine,
    kind: Dtype,
    shape: &[usize],
    values: &[f32],
) -> Result<Parameter, Error> {
    Parameter::frozen(engine, dtype(kind), shape, |bytes| match kind {
        Dtype::F32 => {
            for (to, value) in bytes.chunks_exact_mut(4).zip(values) {
                to.copy_from_slice(&value.to_le_bytes());
            }
        }
        Dtype::Bf16 => {
            for (to, &value) in bytes.chunks_exact_mut(2).zip(values) {
                to.copy_from_slice(&half::bf16::from_f32(value).to_le_bytes());
            }
        }
        Dtype::F16 => {
            for (to, &value) in bytes.chunks_exact_mut(2).zip(values) {
                to.copy_from_slice(&half::f16::from_f32(value).to_le_bytes());
            }
        }
    })
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

pub(super) fn values(tensor: &Tensor) -> Answer {
    Ok(Outcome::Values(match tensor.dtype() {
        DType::BF16 => {
            let all = tensor.to_vec::<half::bf16>()?;
            all.into_iter().map(|v| v.to_f32().to_bits()).collect()
        }
        DType::F16 => {
            let all = tensor.to_vec::<half::f16>()?;
            all.into_iter().map(|v| v.to_f32().to_bits()).collect()
        }
        DType::I64 => tensor
            .to_vec::<i64>()?
            .into_iter()
            .map(|v| (v as f32).to_bits())
            .collect(),
        DType::U32 => tensor
            .to_vec::<u32>()?
            .into_iter()
            .map(|v| (v as f32).to_bits())
            .collect(),
        _ if tensor.shape().numel() == 1 => vec![tensor.item()?.to_bits()],
        _ => bits(&tensor.to_vec::<f32>()?),
    }))
}

/// A parameter through both ways to read it.
pub(super) fn read_parameter(parameter: &Parameter) -> Answer {
    let read = values(parameter)?;
    let bytes = parameter.with_bytes(<[u8]>::to_vec)?;
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    Ok(match &read {
        Outcome::Values(all)
            if parameter.dtype() == DType::F32
                && !bytes.chunks(4).map(word).eq(all.iter().copied()) =>
        {
            Outcome::Broken("with_bytes() reads something else".into())
        }
        _ => read,
    })
}

pub(super) fn stepped(stepped: Stepped) -> Outcome {
    match stepped {
        Stepped::Updated => Outcome::Done,
        Stepped::Skipped { what } => Outcome::Broken(format!("skipped: {what}")),
    }
}

pub(super) fn moments(optimizer: &dyn Optimizer) -> Answer {
    let mut all = Vec::new();
    for (_, moment) in optimizer.state_dict() {
        all.push(bits(&moment.to_vec::<f32>()?));
    }
    Ok(Outcome::Moments(all, optimizer.step_counts()))
}

pub(super) fn apply(op: &Op, on: &[&Tensor]) -> Result<Tensor, Error> {
    let x = on[0];
    match op {
        Op::Add => x.add(on[1]),
        Op::Sub => x.sub(on[1]),
        Op::Mul => x.mul(on[1]),
        Op::Div => x.div(on[1]),
        Op::AddScalar(by) => x.add_scalar(*by),
        Op::SubScalar(by) => x.sub_scalar(*by),
        Op::MulScalar(by) => x.mul_scalar(*by),
        Op::DivScalar(by) => x.div_scalar(*by),
        Op::Neg => x.neg(),
        Op::Relu => x.relu(),
        Op::Tanh => x.tanh(),
        Op::Sigmoid => x.sigmoid(),
        Op::Exp => x.exp(),
        Op::Log => x.log(),
        Op::Sqrt => x.sqrt(),
        Op::Gelu => x.gelu(),
        Op::GeluTanh => x.gelu_tanh(),
        Op::Softmax => x.softmax(),
        Op::LayerNorm { affine: false, eps } => x.layer_norm(None, *eps),
        Op::LayerNorm { affine: true, eps } => x.layer_norm(Some((on[1], on[2])), *eps),
        Op::MatMul => x.matmul(on[1]),
        Op::Linear { .. } => x.linear(on[1], on.get(2).copied()),
        Op::Embedding => x.embedding(on[1]),
        Op::Attention { causal } => x.scaled_dot_product_attention(on[1], on[2], *causal),
        Op::CrossEntropy => x.cross_entropy(on[1]),
        Op::LinearCrossEntropy => x.linear_cross_entropy(on[1], on[2]),
        Op::Sum { dims, keepdim } => x.sum_dims(dims, *keepdim),
        Op::Mean { dims, keepdim } => x.mean_dims(dims, *keepdim),
        Op::Cat { dim } => Tensor::cat(&on.iter().map(|&t| t.clone()).collect::<Vec<_>>(), *dim),
        Op::Round(to) => x.to_dtype(dtype(*to))?.to_dtype(DType::F32),
        Op::ToF32 => x.to_dtype(DType::F32),
        Op::Transpose(a, b) => x.transpose(*a, *b),
        Op::Permute(order) => x.permute(order),
        Op::Narrow { dim, start, length } => x.narrow(*dim, *start, *length),
        Op::Chunk { chunks, dim, index } => Ok(x.chunk(*chunks, *dim)?[*index].clone()),
        Op::Expand(shape) => x.expand(&shape[..]),
        Op::Reshape(shape) => x.reshape(&shape[..]),
        Op::Contiguous => x.contiguous(),
        Op::Detach => x.detach(),
    }
}
