//! A parsed template.

use std::sync::Arc;

/// An expression.
#[derive(Debug)]
pub(super) enum Expr {
    Literal(Literal),
    Name(Arc<str>),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    Not(Box<Expr>),
    Binary(Operator, Box<[Expr; 2]>),
    Concat(Vec<Expr>),
    And(Box<[Expr; 2]>),
    Or(Box<[Expr; 2]>),
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    /// `then if test else otherwise`.
    Choice {
        test: Box<Expr>,
        then: Box<Expr>,
        otherwise: Option<Box<Expr>>,
    },
    Attribute(Box<Expr>, Arc<str>),
    Item(Box<[Expr; 2]>),
    Slice(Box<Expr>, Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Arguments),
    Filter(Filter),
    Test(Box<Expr>, Arc<str>, Arguments),
}

/// What is written as itself.
#[derive(Clone, Debug)]
pub(super) enum Literal {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
}

/// `value | name(arguments)`; the value of the innermost filter of a block is the block's output.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) value: Option<Box<Expr>>,
    pub(super) name: Arc<str>,
    pub(super) arguments: Arguments,
}

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Expr>,
    pub(super) named: Vec<(Arc<str>, Expr)>,
    pub(super) more: Option<Box<Expr>>,
    pub(super) more_named: Option<Box<Expr>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}

/// What values are assigned to.
#[derive(Debug)]
pub(super) enum Target {
    Name(Arc<str>),
    /// `namespace.attribute`.
    Attribute(Arc<str>, Arc<str>),
    Tuple(Vec<Target>),
}

/// A statement, with its line.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) line: u32,
    pub(super) kind: Kind,
}

pub(super) type Body = Vec<Statement>;

#[derive(Debug)]
pub(super) enum Kind {
    Text(Arc<str>),
    Output(Expr),
    For(Arc<For>),
    /// Branches, the first whose test is true is taken; the last may have none.
    If(Vec<(Option<Expr>, Body)>),
    Set(Target, Expr),
    SetBlock(Target, Option<Expr>, Body),
    With(Vec<(Target, Expr)>, Body),
    Macro(Arc<Macro>),
    /// `{% call %}`: the body becomes the callee's `caller`.
    CallBlock(Arc<Macro>, Expr),
    FilterBlock(Expr, Body),
    /// What `{% generation %}` marks.
    Generation(Body),
    /// A body with names of its own: `{% block %}` and `{% autoescape false %}`.
    Scope {
        body: Body,
        sees_locals: bool,
    },
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) line: u32,
    pub(super) target: Target,
    pub(super) iterable: Expr,
    pub(super) test: Option<Expr>,
    pub(super) recursive: bool,
    pub(super) body: Body,
    pub(super) otherwise: Body,
}

#[derive(Debug)]
pub(super) struct Macro {
    /// None for the body of a `{% call %}`.
    pub(super) name: Option<Arc<str>>,
    pub(super) parameters: Vec<Arc<str>>,
    /// Of the last parameters.
    pub(super) defaults: Vec<Expr>,
    pub(super) body: Body,
    /// Which of the special names its body uses.
    pub(super) caller: bool,
    pub(super) kwargs: bool,
    pub(super) varargs: bool,
}
