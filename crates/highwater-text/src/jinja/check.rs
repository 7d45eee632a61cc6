//! What Jinja2 refuses when it compiles a template, before anything is rendered.

use super::ast::{Arguments, Expr, Filter, Kind, Statement, Target};
use super::error::{Error, Result};
use super::{filters, is};

/// Filters and tests that are nowhere are errors, but for those in branches, which may never be reached.
pub(super) fn body(body: &[Statement]) -> Result<()> {
    Walk::new(&mut missing).body(body, false)
}

/// Whether statements read a name that they do not set before.
pub(super) fn uses(statements: &[Statement], name: &str) -> bool {
    let (mut found, mut stored) = (false, false);
    let mut see = |seen: &Seen<'_>, _| {
        match seen {
            Seen::Load(other) if *other == name && !stored => found = true,
            Seen::Store(other) if *other == name => stored = true,
            _ => {}
        }
        Ok(())
    };
    // Nothing that is seen there is an error.
    let _ = Walk::new(&mut see).body(statements, false);
    found
}

/// Whether any statement is a `{% generation %}`.
pub(super) fn has_generation(statements: &[Statement]) -> bool {
    let mut found = false;
    let mut see = |seen: &Seen<'_>, _| {
        found |= matches!(seen, Seen::Generation);
        Ok(())
    };
    // Nothing that is seen there is an error.
    let _ = Walk::new(&mut see).body(statements, false);
    found
}

fn missing(seen: &Seen<'_>, soft: bool) -> Result<()> {
    match seen {
        Seen::Filter(name) if !soft && !filters::exists(name) => {
            Err(Error::raised(format!("No filter named {name:?}.")))
        }
        Seen::Test(name) if !soft && !is::exists(name) => {
            Err(Error::raised(format!("No test named {name:?}.")))
        }
        _ => Ok(()),
    }
}

enum Seen<'a> {
    Load(&'a str),
    Store(&'a str),
    Filter(&'a str),
    Test(&'a str),
    Generation,
}

/// Goes through all of a template, in order. What is in a branch is `soft`.
struct Walk<'a> {
    see: &'a mut dyn FnMut(&Seen<'_>, bool) -> Result<()>,
}

impl<'a> Walk<'a> {
    fn new(see: &'a mut dyn FnMut(&Seen<'_>, bool) -> Result<()>) -> Self {
        Self { see }
    }

    fn body(&mut self, body: &[Statement], soft: bool) -> Result<()> {
        for statement in body {
            let walked = self.kind(&statement.kind, soft);
            walked.map_err(|error| error.at(statement.line))?;
        }
        Ok(())
    }

    fn kind(&mut self, kind: &Kind, soft: bool) -> Result<()> {
        match kind {
            Kind::Text(_) | Kind::Break | Kind::Continue => Ok(()),
            Kind::Output(expr) => self.expr(expr, soft),
            Kind::For(it) => {
                self.expr(&it.iterable, soft)?;
                self.target(&it.target, soft)?;
                if let Some(test) = &it.test {
                    self.expr(test, false)?;
                }
                self.body(&it.body, false)?;
                self.body(&it.otherwise, false)
            }
            Kind::If(branches) => branches.iter().try_for_each(|(test, body)| {
                if let Some(test) = test {
                    self.expr(test, true)?;
                }
                self.body(body, true)
            }),
            Kind::Set(target, value) => {
                self.expr(value, soft)?;
                self.target(target, soft)
            }
            Kind::SetBlock(target, filter, body) => {
                self.body(body, false)?;
                if let Some(filter) = filter {
                    self.expr(filter, false)?;
                }
                self.target(target, soft)
            }
            Kind::With(values, body) => {
                for (target, value) in values {
                    self.expr(value, soft)?;
                    self.target(target, soft)?;
                }
                self.body(body, false)
            }
            Kind::Macro(it) => {
                self.exprs(&it.defaults, false)?;
                self.body(&it.body, false)
            }
            Kind::CallBlock(it, call) => {
                self.exprs(&it.defaults, false)?;
                self.body(&it.body, false)?;
                self.expr(call, soft)
            }
            Kind::FilterBlock(filter, body) => {
                self.body(body, false)?;
                self.expr(filter, false)
            }
            Kind::Generation(body) => {
                (self.see)(&Seen::Generation, soft)?;
                self.body(body, false)
            }
            Kind::Scope { body, .. } => self.body(body, false),
        }
    }

    fn target(&mut self, target: &Target, soft: bool) -> Result<()> {
        match target {
            Target::Name(name) => (self.see)(&Seen::Store(name), soft),
            Target::Attribute(name, _) => (self.see)(&Seen::Load(name), soft),
            Target::Tuple(all) => all.iter().try_for_each(|it| self.target(it, soft)),
        }
    }

    fn exprs(&mut self, all: &[Expr], soft: bool) -> Result<()> {
        all.iter().try_for_each(|expr| self.expr(expr, soft))
    }

    fn expr(&mut self, expr: &Expr, soft: bool) -> Result<()> {
        match expr {
            Expr::Literal(_) => Ok(()),
            Expr::Name(name) => (self.see)(&Seen::Load(name), soft),
            Expr::List(all) | Expr::Tuple(all) | Expr::Concat(all) => self.exprs(all, soft),
            Expr::Dict(pairs) => pairs.iter().try_for_each(|(key, value)| {
                self.expr(key, soft)?;
                self.expr(value, soft)
            }),
            Expr::Negative(it) | Expr::Positive(it) | Expr::Not(it) | Expr::Attribute(it, _) => {
                self.expr(it, soft)
            }
            Expr::Binary(_, both) | Expr::And(both) | Expr::Or(both) | Expr::Item(both) => {
                self.exprs(&both[..], soft)
            }
            Expr::Compare(first, rest) => {
                self.expr(first, soft)?;
                rest.iter().try_for_each(|(_, expr)| self.expr(expr, soft))
            }
            Expr::Choice {
                test,
                then,
                otherwise,
            } => {
                self.expr(test, true)?;
                self.expr(then, true)?;
                otherwise.iter().try_for_each(|expr| self.expr(expr, true))
            }
            Expr::Slice(it, bounds) => {
                self.expr(it, soft)?;
                bounds
                    .iter()
                    .flatten()
                    .try_for_each(|it| self.expr(it, soft))
            }
            Expr::Call(callee, arguments) => {
                self.expr(callee, soft)?;
                self.arguments(arguments, soft)
            }
            Expr::Filter(Filter {
                value,
                name,
                arguments,
            }) => {
                (self.see)(&Seen::Filter(name), soft)?;
                value.iter().try_for_each(|value| self.expr(value, soft))?;
                self.arguments(arguments, soft)
            }
            Expr::Test(value, name, arguments) => {
                (self.see)(&Seen::Test(name), soft)?;
                self.expr(value, soft)?;
                self.arguments(arguments, soft)
            }
        }
    }

    fn arguments(&mut self, arguments: &Arguments, soft: bool) -> Result<()> {
        self.exprs(&arguments.positional, soft)?;
        let named = arguments.named.iter().map(|(_, expr)| expr);
        let more = arguments.more.iter().chain(&arguments.more_named);
        named
            .chain(more.map(|expr| &**expr))
            .try_for_each(|expr| self.expr(expr, soft))
    }
}
