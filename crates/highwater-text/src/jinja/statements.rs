//! Tokens to statements, as Jinja2's parser reads them.

use std::sync::Arc;

use super::ast::{Body, Expr, For, Kind, Macro, Statement, Target};
use super::check;
use super::error::{Error, Result};
use super::lexer::{Token, tokens};
use super::parser::Parser;

/// Loops within each other: so many Python compiles.
const LOOPS_MAX: usize = 20;

/// A template's statements.
pub(super) fn parse(source: &str) -> Result<Body> {
    let mut parser = Parser::new(tokens(source)?);
    let (body, _) = parser.body(&[])?;
    check::body(&body)?;
    Ok(body)
}

impl Parser {
    /// Statements up to a tag with one of some names, and that name.
    fn body(&mut self, ends: &[&str]) -> Result<(Body, Arc<str>)> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            self.begin();
            match self.advance() {
                Token::Data(text) => body.push(Statement {
                    line,
                    kind: Kind::Text(text),
                }),
                Token::VariableBegin => {
                    let expr = self.tuple(false, true, &[])?;
                    self.expect_token(&Token::VariableEnd)?;
                    let kind = Kind::Output(expr);
                    body.push(Statement { line, kind });
                }
                Token::BlockBegin => {
                    let name = self.name()?;
                    if ends.contains(&&*name) {
                        return Ok((body, name));
                    }
                    let kinds = self.deeper(|it| it.statement(&name, ends))?;
                    self.expect_token(&Token::BlockEnd)?;
                    body.extend(kinds.into_iter().map(|kind| Statement { line, kind }));
                }
                Token::End if ends.is_empty() => return Ok((body, "".into())),
                _ => {
                    let expected = ends.join(" or ");
                    let problem = format!("unexpected end of template; expected {expected}");
                    return self.fails(problem);
                }
            }
        }
    }

    /// What is between a tag and the one that ends it.
    fn within(&mut self, ends: &[&str]) -> Result<(Body, Arc<str>)> {
        self.skip(":");
        self.expect_token(&Token::BlockEnd)?;
        self.body(ends)
    }

    fn statement(&mut self, name: &str, ends: &[&str]) -> Result<Vec<Kind>> {
        let kind = match name {
            "for" => self.for_loop()?,
            "if" => self.branches()?,
            "set" => self.set()?,
            "with" => self.with()?,
            "macro" => {
                let name = self.stored_name()?;
                Kind::Macro(Arc::new(self.macro_of(Some(name), "endmacro")?))
            }
            "call" => self.call_block()?,
            "filter" => {
                let filter = self.filter(None, true)?;
                let (body, _) = self.within(&["endfilter"])?;
                Kind::FilterBlock(filter, body)
            }
            "generation" => Kind::Generation(self.function_body("endgeneration")?),
            "block" => self.block()?,
            "autoescape" => {
                let escapes = self.expression()?;
                if !matches!(escapes, Expr::Literal(super::ast::Literal::Bool(false))) {
                    return Err(Error::unsupported("autoescape").at(self.line()));
                }
                let (body, _) = self.within(&["endautoescape"])?;
                Kind::Scope {
                    body,
                    sees_locals: true,
                }
            }
            "print" => return self.print(),
            "break" | "continue" => {
                if self.loops == 0 {
                    return self.fails(format!("{name:?} outside of a loop"));
                }
                if name == "break" {
                    Kind::Break
                } else {
                    Kind::Continue
                }
            }
            "extends" | "include" | "import" | "from" => {
                return self.fails(format!(
                    "{name}: there is no other template, as chat templates stand alone"
                ));
            }
            _ => {
                let expected = match ends {
                    [] => String::new(),
                    ends => format!("; expected {}", ends.join(" or ")),
                };
                return self.fails(format!("unknown tag {name:?}{expected}"));
            }
        };
        Ok(vec![kind])
    }

    fn print(&mut self) -> Result<Vec<Kind>> {
        let mut kinds = Vec::new();
        while *self.token() != Token::BlockEnd {
            if !kinds.is_empty() {
                self.expect(",")?;
            }
            kinds.push(Kind::Output(self.expression()?));
        }
        Ok(kinds)
    }

    /// What is compiled to a function: loops around it cannot be left from there.
    fn function_body(&mut self, end: &str) -> Result<Body> {
        let loops = std::mem::take(&mut self.loops);
        let read = self.within(&[end]);
        self.loops = loops;
        Ok(read?.0)
    }

    fn for_loop(&mut self) -> Result<Kind> {
        let line = self.line();
        self.all_loops += 1;
        let target = self.target(&["in"], false)?;
        if !self.skip_name("in") {
            return self.fails(format!("expected \"in\", got {}", self.described()));
        }
        let iterable = self.tuple(false, false, &["recursive"])?;
        let test = if self.skip_name("if") {
            Some(self.expression()?)
        } else {
            None
        };
        let recursive = self.skip_name("recursive");
        self.loops += 1;
        if self.loops > LOOPS_MAX {
            return self.fails(format!("more than {LOOPS_MAX} loops within each other"));
        }
        let (body, end) = self.within(&["endfor", "else"])?;
        self.loops -= 1;
        let otherwise = if &*end == "else" {
            self.within(&["endfor"])?.0
        } else {
            Vec::new()
        };
        self.all_loops -= 1;
        Ok(Kind::For(Arc::new(For {
            line,
            target,
            iterable,
            test,
            recursive,
            body,
            otherwise,
        })))
    }

    fn branches(&mut self) -> Result<Kind> {
        let mut branches = Vec::new();
        loop {
            let test = self.tuple(false, false, &[])?;
            let (body, end) = self.within(&["elif", "else", "endif"])?;
            branches.push((Some(test), body));
            match &*end {
                "elif" => self.begin(),
                "else" => {
                    let (body, _) = self.within(&["endif"])?;
                    branches.push((None, body));
                    break;
                }
                _ => break,
            }
        }
        Ok(Kind::If(branches))
    }

    fn set(&mut self) -> Result<Kind> {
        let target = self.target(&[], true)?;
        if self.skip("=") {
            return Ok(Kind::Set(target, self.tuple(false, true, &[])?));
        }
        let filter = if self.is("|") {
            Some(self.filter(None, false)?)
        } else {
            None
        };
        let (body, _) = self.within(&["endset"])?;
        Ok(Kind::SetBlock(target, filter, body))
    }

    fn with(&mut self) -> Result<Kind> {
        let mut values = Vec::new();
        while *self.token() != Token::BlockEnd {
            if !values.is_empty() {
                self.expect(",")?;
            }
            let target = self.target(&[], false)?;
            self.expect("=")?;
            values.push((target, self.expression()?));
        }
        let (body, _) = self.within(&["endwith"])?;
        Ok(Kind::With(values, body))
    }

    fn call_block(&mut self) -> Result<Kind> {
        let (parameters, defaults) = if self.is("(") {
            self.signature()?
        } else {
            (Vec::new(), Vec::new())
        };
        let call = self.expression()?;
        if !matches!(call, Expr::Call(..)) {
            return self.fails("expected a call");
        }
        let body = self.function_body("endcall")?;
        let caller = Macro::new(None, parameters, defaults, body);
        Ok(Kind::CallBlock(Arc::new(caller), call))
    }

    fn macro_of(&mut self, name: Option<Arc<str>>, end: &str) -> Result<Macro> {
        let (parameters, defaults) = self.signature()?;
        let body = self.function_body(end)?;
        Ok(Macro::new(name, parameters, defaults, body))
    }

    fn signature(&mut self) -> Result<(Vec<Arc<str>>, Vec<Expr>)> {
        self.expect("(")?;
        let (mut parameters, mut defaults) = (Vec::new(), Vec::new());
        while !self.is(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            let name = self.stored_name()?;
            if &*name == "caller" {
                return Err(Error::unsupported("a parameter called caller").at(self.line()));
            }
            if parameters.contains(&name) {
                return self.fails(format!("duplicate argument {name:?}"));
            }
            parameters.push(name);
            if self.skip("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return self.fails("non-default argument follows default argument");
            }
        }
        self.expect(")")?;
        Ok((parameters, defaults))
    }

    fn block(&mut self) -> Result<Kind> {
        let name = self.name()?;
        let sees_locals = self.skip_name("scoped");
        if self.skip_name("required") {
            return self.fails("a required block, which another template would fill");
        }
        if self.blocks.contains(&name) {
            return self.fails(format!("block {name:?} defined twice"));
        }
        self.blocks.push(name.clone());
        let body = self.function_body("endblock")?;
        self.skip_name(&name);
        Ok(Kind::Scope { body, sees_locals })
    }

    /// A name that a value is given to.
    fn stored_name(&mut self) -> Result<Arc<str>> {
        let name = self.name()?;
        if matches!(
            &*name,
            "true" | "false" | "none" | "True" | "False" | "None"
        ) {
            return self.fails(format!("can't assign to {name}"));
        }
        if self.all_loops > 0 && &*name == "loop" {
            return self.fails("can't assign to special loop variable in for-loop");
        }
        Ok(name)
    }

    /// One target, or several with commas, up to one of some names or the end of the tag.
    fn target(&mut self, ends: &[&str], attributes: bool) -> Result<Target> {
        let (mut targets, mut is_tuple) = (Vec::new(), false);
        loop {
            if !targets.is_empty() {
                self.expect(",")?;
            }
            let over = match self.token() {
                Token::BlockEnd | Token::Operator(")") => true,
                Token::Name(name) => ends.contains(&&**name),
                _ => false,
            };
            if over {
                break;
            }
            targets.push(self.one_target(attributes)?);
            if !self.is(",") {
                break;
            }
            is_tuple = true;
        }
        match targets.pop() {
            Some(target) if !is_tuple => Ok(target),
            Some(last) => {
                targets.push(last);
                Ok(Target::Tuple(targets))
            }
            None => self.fails(format!("expected a name, got {}", self.described())),
        }
    }

    fn one_target(&mut self, attributes: bool) -> Result<Target> {
        if self.skip("(") {
            let inner = self.deeper(|it| it.target(&[], false))?;
            self.expect(")")?;
            return Ok(inner);
        }
        let name = self.stored_name()?;
        if attributes && self.skip(".") {
            return Ok(Target::Attribute(name, self.name()?));
        }
        Ok(Target::Name(name))
    }
}

impl Macro {
    fn new(
        name: Option<Arc<str>>,
        parameters: Vec<Arc<str>>,
        defaults: Vec<Expr>,
        body: Body,
    ) -> Self {
        let uses = |special: &str| {
            let given = parameters.iter().any(|name| **name == *special);
            !given && check::uses(&body, special)
        };
        Self {
            caller: uses("caller"),
            kwargs: uses("kwargs"),
            varargs: uses("varargs"),
            name,
            parameters,
            defaults,
            body,
        }
    }
}
