//! What stands behind an expression: attributes, items, calls, filters and tests.

use std::sync::Arc;

use super::ast::{Arguments, Expr, Filter, Literal};
use super::error::Result;
use super::lexer::Token;
use super::parser::Parser;

impl Parser {
    pub(super) fn postfix(&mut self, mut expr: Expr) -> Result<Expr> {
        loop {
            expr = match self.token() {
                Token::Operator("." | "[") => self.subscript(expr)?,
                Token::Operator("(") => Expr::Call(Box::new(expr), self.arguments()?),
                _ => return Ok(expr),
            };
            self.link()?;
        }
    }

    pub(super) fn filters_and_tests(&mut self, mut expr: Expr) -> Result<Expr> {
        loop {
            expr = match self.token() {
                Token::Operator("|") => self.filter(Some(expr), false)?,
                Token::Name(name) if **name == *"is" => self.test(expr)?,
                Token::Operator("(") => Expr::Call(Box::new(expr), self.arguments()?),
                _ => return Ok(expr),
            };
            self.link()?;
        }
    }

    fn subscript(&mut self, expr: Expr) -> Result<Expr> {
        if self.skip(".") {
            return match self.advance() {
                Token::Name(name) => Ok(Expr::Attribute(Box::new(expr), name)),
                Token::Int(index) => {
                    let index = Expr::Literal(Literal::Int(index));
                    Ok(Expr::Item(Box::new([expr, index])))
                }
                _ => self.fails("expected a name or a number behind the dot"),
            };
        }
        self.expect("[")?;
        let mut items = Vec::new();
        while !self.is("]") {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(self.subscribed()?);
        }
        self.expect("]")?;
        if items.len() == 1 {
            return Ok(match items.remove(0) {
                Subscribed::Item(item) => Expr::Item(Box::new([expr, item])),
                Subscribed::Slice(slice) => Expr::Slice(Box::new(expr), slice),
            });
        }
        let items = items.into_iter().map(|item| match item {
            Subscribed::Item(item) => Ok(item),
            Subscribed::Slice(_) => self.fails("a slice beside other indices"),
        });
        let key = Expr::Tuple(items.collect::<Result<_>>()?);
        Ok(Expr::Item(Box::new([expr, key])))
    }

    fn subscribed(&mut self) -> Result<Subscribed> {
        let start = if self.is(":") {
            None
        } else {
            let start = self.expression()?;
            if !self.is(":") {
                return Ok(Subscribed::Item(start));
            }
            Some(start)
        };
        self.expect(":")?;
        let ends = |it: &Self| it.is("]") || it.is(",");
        let stop = if self.is(":") || ends(self) {
            None
        } else {
            Some(self.expression()?)
        };
        let step = if self.skip(":") && !ends(self) {
            Some(self.expression()?)
        } else {
            None
        };
        Ok(Subscribed::Slice(Box::new([start, stop, step])))
    }

    pub(super) fn arguments(&mut self) -> Result<Arguments> {
        self.expect("(")?;
        let mut arguments = Arguments::default();
        let mut first = true;
        while !self.is(")") {
            if !first {
                self.expect(",")?;
                if self.is(")") {
                    break;
                }
            }
            first = false;
            let fits = |fits: bool, it: &Self| {
                if fits {
                    Ok(())
                } else {
                    it.fails("invalid syntax for function call expression")
                }
            };
            let (more, more_named) = (arguments.more.is_none(), arguments.more_named.is_none());
            if self.skip("*") {
                fits(more && more_named, self)?;
                arguments.more = Some(Box::new(self.expression()?));
            } else if self.skip("**") {
                fits(more_named, self)?;
                arguments.more_named = Some(Box::new(self.expression()?));
            } else if matches!(
                (self.token(), self.look()),
                (Token::Name(_), Token::Operator("="))
            ) {
                fits(more_named, self)?;
                let name = self.name()?;
                self.expect("=")?;
                if arguments.named.iter().any(|(other, _)| *other == name) {
                    return self.fails(format!("keyword argument repeated: {name}"));
                }
                arguments.named.push((name, self.expression()?));
            } else {
                fits(more && more_named && arguments.named.is_empty(), self)?;
                arguments.positional.push(self.expression()?);
            }
        }
        self.expect(")")?;
        Ok(arguments)
    }

    /// Filters, one behind the other; `inline` where the first has no bar before it.
    pub(super) fn filter(&mut self, value: Option<Expr>, mut inline: bool) -> Result<Expr> {
        let mut value = value;
        loop {
            if !inline && !self.skip("|") {
                break;
            }
            inline = false;
            self.link()?;
            let name = self.dotted()?;
            let arguments = if self.is("(") {
                self.arguments()?
            } else {
                Arguments::default()
            };
            value = Some(Expr::Filter(Filter {
                value: value.map(Box::new),
                name,
                arguments,
            }));
        }
        match value {
            Some(value) => Ok(value),
            None => self.fails(format!("expected a filter, got {}", self.described())),
        }
    }

    fn dotted(&mut self) -> Result<Arc<str>> {
        let mut name = self.name()?;
        while self.skip(".") {
            name = format!("{name}.{}", self.name()?).into();
        }
        Ok(name)
    }

    fn test(&mut self, value: Expr) -> Result<Expr> {
        self.advance();
        let negated = self.skip_name("not");
        let name = self.dotted()?;
        let arguments = match self.token() {
            Token::Operator("(") => self.arguments()?,
            Token::Name(name) if matches!(&**name, "else" | "or" | "and") => Arguments::default(),
            Token::Name(name) if **name == *"is" => {
                return self.fails("You cannot chain multiple tests with is");
            }
            Token::Name(_)
            | Token::Str(_)
            | Token::Int(_)
            | Token::Float(_)
            | Token::Operator("[" | "{") => {
                let argument = self.primary()?;
                Arguments {
                    positional: vec![self.postfix(argument)?],
                    ..Arguments::default()
                }
            }
            _ => Arguments::default(),
        };
        let test = Expr::Test(Box::new(value), name, arguments);
        Ok(if negated {
            Expr::Not(Box::new(test))
        } else {
            test
        })
    }
}

enum Subscribed {
    Item(Expr),
    Slice(Box<[Option<Expr>; 3]>),
}
