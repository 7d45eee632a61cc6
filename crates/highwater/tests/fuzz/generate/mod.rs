//! Random programs. Each statement is tried on the oracle as it is drawn, so that what is generated is
//! valid and its numbers are of a size that `f32` computes well.

mod operations;
mod start;
mod training;

use crate::oracle::{Expect, Oracle};
use crate::program::{Dtype, Op, Operand, Program, Statement, Var, mix};
use start::{fill, shape, start};
use std::collections::BTreeMap;

/// Random choices that follow from a seed.
pub(crate) struct Choices {
    seed: u64,
    drawn: u64,
}

impl Choices {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.drawn += 1;
        (mix(self.seed, self.drawn) >> 33) as usize % count.max(1)
    }

    /// Once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// How large a program's tensors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// A few elements.
    Small,
    /// Beyond a vector's and a tile's width.
    Medium,
    /// About what outlives a step without being marked, and what may move below memory.
    Border,
    /// Several threads and blocks.
    Large,
}

impl Size {
    pub(crate) fn of(seed: u64) -> Self {
        match mix(seed, 0) % 64 {
            0 => Self::Large,
            1..=2 => Self::Border,
            3..=12 => Self::Medium,
            _ => Self::Small,
        }
    }

    fn extents(self, choices: &mut Choices) -> Vec<usize> {
        let (all, count): (&[usize], usize) = match self {
            Self::Small => (&[1, 2, 3, 4, 5, 6, 8], 3),
            Self::Medium => (&[1, 7, 16, 17, 33, 40], 3),
            Self::Border => (&[1, 127, 128, 129], 2),
            Self::Large => (&[1, 300, 300, 260], 2),
        };
        let mut extents: Vec<usize> = (0..count).map(|_| *choices.of(all)).collect();
        if self == Self::Small && choices.once_in(24) {
            extents.push(0);
        }
        extents
    }

    fn elements_most(self) -> usize {
        match self {
            Self::Small => 600,
            Self::Medium => 6_000,
            Self::Border => 40_000,
            Self::Large => 90_000,
        }
    }

    fn statements(self, choices: &mut Choices) -> usize {
        match self {
            Self::Small => 8 + choices.below(32),
            Self::Medium => 8 + choices.below(24),
            Self::Border | Self::Large => 8 + choices.below(12),
        }
    }
}

struct Generator {
    choices: Choices,
    size: Size,
    extents: Vec<usize>,
    oracle: Oracle,
    program: Program,
    next: Var,
    /// The checkpoint that statements are in.
    region: Option<u32>,
    regions: u32,
}

/// The program of a seed.
pub(crate) fn program(seed: u64) -> Program {
    let size = Size::of(seed);
    let mut choices = Choices::new(seed);
    let extents = size.extents(&mut choices);
    let program = start(&mut choices, size, &extents);
    let oracle = Oracle::new(&program);
    let mut generator = Generator {
        choices,
        size,
        extents,
        oracle,
        program,
        next: 0,
        region: None,
        regions: 0,
    };
    generator.input();
    let mut block = 0;
    for _ in 0..size.statements(&mut generator.choices) {
        generator.statement();
        let steps = generator.program.statements[block..].iter();
        if steps
            .clone()
            .any(|s| matches!(s, Statement::Step(_) | Statement::StepKeepGrads(_)))
        {
            let end = generator.program.statements.len();
            if generator.choices.once_in(4) {
                (0..=generator.choices.below(3)).for_each(|_| generator.again(block, end));
            }
            block = generator.program.statements.len();
        }
    }
    generator.program
}

/// An operand with its shape.
type Known = (Operand, Vec<usize>, bool, Dtype);

impl Generator {
    /// Adds a statement if the oracle takes it.
    fn push(&mut self, statement: Statement) -> bool {
        let Ok(expected) = self.oracle.run(&statement) else {
            return false;
        };
        if statement.defines().is_some() {
            self.next += 1;
        }
        self.program.statements.push(statement);
        !matches!(expected, Expect::Error(_))
    }

    /// The same statements once more, of tensors of their own: steps whose plans are known.
    fn again(&mut self, from: usize, to: usize) {
        let mut names: BTreeMap<Var, Var> = BTreeMap::new();
        let block = self.program.statements[from..to].to_vec();
        for mut statement in block {
            let before = statement.defines();
            if !statement.rename(&|var| names.get(&var).copied().unwrap_or(var), self.next) {
                continue;
            }
            if let Statement::Input { fill, .. } = &mut statement {
                fill.seed = self.choices.below(1 << 20) as u64;
            }
            let made = self.next;
            if self.push(statement)
                && let Some(before) = before
            {
                names.insert(before, made);
            }
        }
    }

    fn input(&mut self) -> bool {
        let shape = shape(&mut self.choices, self.size, &self.extents);
        self.input_of(shape)
    }

    fn input_of(&mut self, shape: Vec<usize>) -> bool {
        let (fill, grad) = (fill(&mut self.choices), self.choices.once_in(4));
        self.push(Statement::Input {
            to: self.next,
            shape,
            fill,
            grad,
        })
    }

    fn known(&self) -> Vec<Known> {
        let parameters = self.program.parameters.iter().enumerate();
        let parameters = parameters
            .filter(|(number, _)| !self.oracle.is_forgotten(*number))
            .map(|(number, spec)| {
                (
                    Operand::P(number),
                    spec.shape.clone(),
                    !spec.frozen,
                    spec.dtype,
                )
            });
        let tensors = self.oracle.tensors().into_iter();
        parameters.chain(tensors).collect()
    }

    /// Any operand: a parameter, one of the newest tensors, or any.
    fn any(&mut self) -> Known {
        let known = self.known();
        let parameters = known
            .iter()
            .take_while(|k| matches!(k.0, Operand::P(_)))
            .count();
        let all = known.len();
        let at = match self.choices.below(4) {
            0 if parameters > 0 => self.choices.below(parameters),
            1 | 2 => all - 1 - self.choices.below(3.min(all)),
            _ => self.choices.below(all),
        };
        known[at].clone()
    }

    /// An operand that fits.
    fn that(&mut self, fits: impl Fn(&[usize]) -> bool) -> Option<Operand> {
        let known = self.known();
        let fitting: Vec<_> = known
            .iter()
            .filter(|k| k.3 == Dtype::F32 && fits(&k.1))
            .collect();
        if fitting.is_empty() {
            return None;
        }
        Some(self.choices.of(&fitting).0)
    }

    /// An operand of this shape: one that is there, or a new input.
    fn of_shape(&mut self, shape: &[usize]) -> Option<Operand> {
        let found = if self.choices.once_in(5) {
            None
        } else {
            self.that(|other| other == shape)
        };
        if found.is_some() {
            return found;
        }
        let made = Operand::T(self.next);
        self.input_of(shape.to_vec()).then_some(made)
    }

    fn apply(&mut self, op: Op, on: Vec<Operand>) -> Option<Operand> {
        // What may answer the tensor itself keeps what that requires.
        let same = matches!(op, Op::Contiguous | Op::ToF32);
        let no_grad = self.choices.once_in(25) && !same;
        let checkpoint = self.region;
        let to = self.next;
        let done = self.push(Statement::Apply {
            to,
            op,
            on,
            no_grad,
            checkpoint,
        });
        done.then_some(Operand::T(to))
    }

    fn statement(&mut self) {
        if self.region.is_some() && self.choices.once_in(3) {
            self.region = None;
        } else if self.region.is_none() && self.choices.once_in(15) {
            self.regions += 1;
            self.region = Some(self.regions);
        }
        match self.choices.below(100) {
            0..18 => self.pointwise(),
            18..32 => self.binary(),
            32..47 => self.view(),
            47..56 => self.reduction(),
            56..64 => self.product(),
            64..68 => self.composite(),
            68..81 => self.backward(),
            81..92 => self.optimizer(),
            92..97 => self.look(),
            _ => {
                self.odd();
            }
        }
    }
}
