//! A small program as data: what a user might have written, one statement after the other.

use serde::{Deserialize, Serialize};

/// The name of a tensor in a program.
pub(crate) type Var = u32;

/// Numbers that follow from a seed: multiples of a power of two around `shift`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fill {
    pub(crate) seed: u64,
    pub(crate) scale: f64,
    pub(crate) shift: f64,
}

impl Fill {
    /// The numbers, all of which `f32` holds exactly.
    pub(crate) fn values(self, count: usize) -> Vec<f64> {
        (0..count as u64)
            .map(|i| {
                let step = (mix(self.seed, i) >> 40) % 257;
                (step as f64 - 128.0) / 64.0 * self.scale + self.shift
            })
            .collect()
    }

    /// Whole numbers from 0 up to, not including, `below`; if `ignore`, some of them -100.
    pub(crate) fn labels(self, count: usize, below: usize, ignore: bool) -> Vec<i64> {
        let draw = |i, below| (mix(self.seed, i) >> 33) % below;
        let one = |i| {
            if ignore && draw(count as u64 + i, 4) == 0 {
                -100
            } else {
                draw(i, below as u64) as i64
            }
        };
        (0..count as u64).map(one).collect()
    }
}

/// Bits without a pattern from a seed and a counter (the finaliser of splitmix64).
pub(crate) fn mix(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add(i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What is read or computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Operand {
    /// A tensor.
    T(Var),
    /// A parameter, at its newest version.
    P(usize),
}

/// Element types that a program names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Dtype {
    F32,
    Bf16,
    F16,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ParameterSpec {
    pub(crate) shape: Vec<usize>,
    pub(crate) fill: Fill,
    pub(crate) dtype: Dtype,
    /// Made by `Parameter::frozen`.
    pub(crate) frozen: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OptimizerSpec {
    pub(crate) parameters: Vec<usize>,
    pub(crate) rule: Rule,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Rule {
    Sgd {
        lr: f64,
        momentum: f64,
        dampening: f64,
        weight_decay: f64,
        nesterov: bool,
    },
    AdamW {
        lr: f64,
        betas: (f64, f64),
        eps: f64,
        weight_decay: f64,
    },
}

/// An operation and its attributes; its operands stand beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Op {
    Add,
    Sub,
    Mul,
    Div,
    AddScalar(f64),
    SubScalar(f64),
    MulScalar(f64),
    DivScalar(f64),
    Neg,
    Relu,
    Tanh,
    Sigmoid,
    Exp,
    Log,
    Sqrt,
    Gelu,
    GeluTanh,
    Softmax,
    LayerNorm {
        affine: bool,
        eps: f64,
    },
    MatMul,
    Linear {
        bias: bool,
    },
    Embedding,
    Attention {
        causal: bool,
    },
    CrossEntropy,
    LinearCrossEntropy,
    Sum {
        dims: Vec<usize>,
        keepdim: bool,
    },
    Mean {
        dims: Vec<usize>,
        keepdim: bool,
    },
    Cat {
        dim: usize,
    },
    /// To that dtype and back.
    Round(Dtype),
    ToF32,
    Transpose(usize, usize),
    Permute(Vec<usize>),
    Narrow {
        dim: usize,
        start: usize,
        length: usize,
    },
    Chunk {
        chunks: usize,
        dim: usize,
        index: usize,
    },
    Expand(Vec<usize>),
    Reshape(Vec<usize>),
    Contiguous,
    Detach,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Statement {
    /// `engine.tensor(..)`, with `requires_grad_()` if `grad`.
    Input {
        to: Var,
        shape: Vec<usize>,
        fill: Fill,
        grad: bool,
    },
    /// Whole numbers from 0 up to, not including, `below`: I64, some of them -100 if `ignore`, else U32.
    Labels {
        to: Var,
        shape: Vec<usize>,
        fill: Fill,
        below: usize,
        ignore: bool,
    },
    /// One operation. Statements in turn of the same `checkpoint` are one call of that.
    Apply {
        to: Var,
        op: Op,
        on: Vec<Operand>,
        no_grad: bool,
        checkpoint: Option<u32>,
    },
    /// `checkpoint_sequential` of operations of one operand.
    Sequential {
        to: Var,
        ops: Vec<Op>,
        on: Operand,
        segments: usize,
    },
    /// `parameter.grad()`, held.
    GradOf {
        to: Var,
        parameter: usize,
    },
    /// `input.grad()`, held.
    LeafGrad {
        to: Var,
        of: Var,
    },
    /// `to_vec()`.
    Read(Operand),
    /// `parameter.grad()`, read at once.
    ReadGrad(usize),
    /// `input.grad()`, read at once.
    ReadLeafGrad(Var),
    /// Moments and their count.
    ReadMoments(usize),
    /// `requires_grad()`.
    Requires(Operand),
    Keep(Var),
    Eval(Vec<Operand>),
    Drop(Var),
    Backward(Operand),
    ZeroGrad(usize),
    Step(usize),
    StepKeepGrads(usize),
    Clip {
        to: Var,
        parameters: Vec<usize>,
        max_norm: f64,
    },
    GradNorm {
        to: Var,
        parameters: Vec<usize>,
    },
    SetRequiresGrad {
        parameter: usize,
        requires: bool,
    },
    /// `copy_from_slice`.
    Assign {
        parameter: usize,
        fill: Fill,
    },
    SetLr {
        optimizer: usize,
        lr: f64,
    },
    /// The user's handle of a parameter goes; an optimizer may still have one.
    Forget(usize),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) parameters: Vec<ParameterSpec>,
    pub(crate) optimizers: Vec<OptimizerSpec>,
    pub(crate) statements: Vec<Statement>,
}

impl Statement {
    /// The tensor that it names.
    pub(crate) fn defines(&self) -> Option<Var> {
        match self {
            Self::Input { to, .. }
            | Self::Labels { to, .. }
            | Self::Apply { to, .. }
            | Self::Sequential { to, .. }
            | Self::GradOf { to, .. }
            | Self::LeafGrad { to, .. }
            | Self::Clip { to, .. }
            | Self::GradNorm { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// The tensors and parameters that it looks at, to be changed by a shrinker.
    pub(crate) fn operands_mut(&mut self) -> Vec<&mut Operand> {
        match self {
            Self::Apply { on, .. } | Self::Eval(on) => on.iter_mut().collect(),
            Self::Sequential { on, .. }
            | Self::Read(on)
            | Self::Requires(on)
            | Self::Backward(on) => vec![on],
            _ => Vec::new(),
        }
    }

    /// The tensors that it looks at.
    pub(crate) fn uses(&self) -> Vec<Var> {
        let of = |operands: &[Operand]| -> Vec<Var> {
            let var = |operand: &Operand| match operand {
                Operand::T(var) => Some(*var),
                Operand::P(_) => None,
            };
            operands.iter().filter_map(var).collect()
        };
        match self {
            Self::Apply { on, .. } | Self::Eval(on) => of(on),
            Self::Sequential { on, .. }
            | Self::Read(on)
            | Self::Requires(on)
            | Self::Backward(on) => of(&[*on]),
            Self::LeafGrad { of, .. } | Self::ReadLeafGrad(of) => vec![*of],
            Self::Keep(var) | Self::Drop(var) => vec![*var],
            _ => Vec::new(),
        }
    }

    /// Names tensors otherwise, and its own `to`. Answers whether it is one that can be run again.
    pub(crate) fn rename(&mut self, name: &dyn Fn(Var) -> Var, own: Var) -> bool {
        for operand in self.operands_mut() {
            if let Operand::T(var) = operand {
                *var = name(*var);
            }
        }
        match self {
            Self::LeafGrad { of, .. } | Self::ReadLeafGrad(of) => *of = name(*of),
            Self::Keep(var) | Self::Drop(var) => *var = name(*var),
            Self::Forget(_) => return false,
            _ => {}
        }
        match self {
            Self::Input { to, .. }
            | Self::Labels { to, .. }
            | Self::Apply { to, .. }
            | Self::Sequential { to, .. }
            | Self::GradOf { to, .. }
            | Self::LeafGrad { to, .. }
            | Self::Clip { to, .. }
            | Self::GradNorm { to, .. } => *to = own,
            _ => {}
        }
        true
    }

    /// The numbers of the parameters that it names, to be changed by a shrinker.
    #[expect(
        clippy::match_ref_pats,
        reason = "a closure's argument is not matched through its reference"
    )]
    pub(crate) fn parameters_mut(&mut self) -> Vec<&mut usize> {
        match self {
            Self::GradOf { parameter, .. }
            | Self::ReadGrad(parameter)
            | Self::Forget(parameter)
            | Self::SetRequiresGrad { parameter, .. }
            | Self::Assign { parameter, .. } => vec![parameter],
            Self::Clip { parameters, .. } | Self::GradNorm { parameters, .. } => {
                parameters.iter_mut().collect()
            }
            other => {
                let number = |operand| match operand {
                    &mut Operand::P(ref mut number) => Some(number),
                    &mut Operand::T(_) => None,
                };
                other
                    .operands_mut()
                    .into_iter()
                    .filter_map(number)
                    .collect()
            }
        }
    }
}

impl std::fmt::Display for Program {
    /// One line for each part, as it stands in a regression.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines = |items: Vec<String>| items.join(",\n    ");
        let json = |text: Result<String, serde_json::Error>| text.unwrap_or_default();
        let parameters = self
            .parameters
            .iter()
            .map(|p| json(serde_json::to_string(p)));
        let optimizers = self
            .optimizers
            .iter()
            .map(|o| json(serde_json::to_string(o)));
        let statements = self
            .statements
            .iter()
            .map(|s| json(serde_json::to_string(s)));
        write!(
            f,
            "{{\n  \"parameters\": [\n    {}\n  ],\n  \"optimizers\": [\n    {}\n  ],\n  \
             \"statements\": [\n    {}\n  ]\n}}",
            lines(parameters.collect()),
            lines(optimizers.collect()),
            lines(statements.collect())
        )
    }
}

impl Op {
    /// Whether it is another way to see the same elements.
    pub(crate) fn is_view(&self) -> bool {
        matches!(
            self,
            Self::Transpose(..)
                | Self::Permute(_)
                | Self::Narrow { .. }
                | Self::Chunk { .. }
                | Self::Expand(_)
                | Self::Reshape(_)
                | Self::Contiguous
                | Self::Detach
        )
    }
}
