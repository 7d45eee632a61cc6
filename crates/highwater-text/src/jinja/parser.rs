//! Tokens to expressions, as Jinja2's parser reads them.

use std::sync::Arc;

use super::ast::{Comparison, Expr, Literal, Operator};
use super::error::{Error, Result};
use super::lexer::Token;

/// How deep expressions and statements may be within each other.
const NESTED_MAX: usize = 100;
/// The most operators, filters and the like in one tag: each may make its tree one deeper.
const LINKS_MAX: usize = 1500;

pub(super) struct Parser {
    tokens: std::vec::IntoIter<(Token, u32)>,
    current: (Token, u32),
    next: (Token, u32),
    nested: usize,
    links: usize,
    /// Loops around, within this function.
    pub(super) loops: usize,
    /// All loops around.
    pub(super) all_loops: usize,
    /// The names of blocks.
    pub(super) blocks: Vec<Arc<str>>,
}

impl Parser {
    pub(super) fn new(tokens: Vec<(Token, u32)>) -> Self {
        let mut tokens = tokens.into_iter();
        let end = (Token::End, 1);
        let current = tokens.next().unwrap_or_else(|| end.clone());
        let next = tokens.next().unwrap_or(end);
        Self {
            tokens,
            current,
            next,
            nested: 0,
            links: 0,
            loops: 0,
            all_loops: 0,
            blocks: Vec::new(),
        }
    }

    pub(super) fn line(&self) -> u32 {
        self.current.1
    }

    pub(super) fn token(&self) -> &Token {
        &self.current.0
    }

    pub(super) fn look(&self) -> &Token {
        &self.next.0
    }

    /// A tag begins.
    pub(super) fn begin(&mut self) {
        self.links = 0;
    }

    pub(super) fn advance(&mut self) -> Token {
        let end = (Token::End, self.next.1);
        let after = self.tokens.next().unwrap_or(end);
        let next = std::mem::replace(&mut self.next, after);
        std::mem::replace(&mut self.current, next).0
    }

    pub(super) fn fails<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(Error::raised(problem).at(self.line()))
    }

    pub(super) fn is(&self, operator: &str) -> bool {
        matches!(self.token(), Token::Operator(it) if *it == operator)
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self.token(), Token::Name(it) if **it == *name)
    }

    pub(super) fn skip(&mut self, operator: &str) -> bool {
        let found = self.is(operator);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expect(&mut self, operator: &str) -> Result<()> {
        if self.skip(operator) {
            return Ok(());
        }
        self.fails(format!("expected {operator:?}, got {}", self.described()))
    }

    pub(super) fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.token() == token {
            self.advance();
            return Ok(());
        }
        let expected = describe(token);
        self.fails(format!("expected {expected}, got {}", self.described()))
    }

    pub(super) fn name(&mut self) -> Result<Arc<str>> {
        if let Token::Name(name) = self.token() {
            let name = name.clone();
            self.advance();
            return Ok(name);
        }
        self.fails(format!("expected a name, got {}", self.described()))
    }

    pub(super) fn described(&self) -> String {
        describe(self.token())
    }

    /// Runs a rule one level deeper.
    pub(super) fn deeper<T>(&mut self, rule: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.nested += 1;
        if self.nested > NESTED_MAX {
            let problem = format!("more than {NESTED_MAX} expressions or tags within each other");
            return Err(Error::too_much(problem).at(self.line()));
        }
        let read = rule(self);
        self.nested -= 1;
        read
    }

    pub(super) fn link(&mut self) -> Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            let problem = format!("a tag has more than {LINKS_MAX} operators");
            return Err(Error::too_much(problem).at(self.line()));
        }
        Ok(())
    }

    pub(super) fn expression(&mut self) -> Result<Expr> {
        self.deeper(Self::choice)
    }

    /// An expression without `if`, or with it.
    fn expression_with(&mut self, choice: bool) -> Result<Expr> {
        if choice {
            self.expression()
        } else {
            self.deeper(Self::or)
        }
    }

    fn choice(&mut self) -> Result<Expr> {
        let mut expr = self.or()?;
        while self.skip_name("if") {
            self.link()?;
            let test = Box::new(self.or()?);
            let otherwise = if self.skip_name("else") {
                Some(Box::new(self.deeper(Self::choice)?))
            } else {
                None
            };
            expr = Expr::Choice {
                test,
                then: Box::new(expr),
                otherwise,
            };
        }
        Ok(expr)
    }

    fn or(&mut self) -> Result<Expr> {
        let mut left = self.and()?;
        while self.skip_name("or") {
            self.link()?;
            left = Expr::Or(Box::new([left, self.and()?]));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr> {
        let mut left = self.not()?;
        while self.skip_name("and") {
            self.link()?;
            left = Expr::And(Box::new([left, self.not()?]));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr> {
        if self.skip_name("not") {
            return Ok(Expr::Not(Box::new(self.deeper(Self::not)?)));
        }
        self.compare()
    }

    fn compare(&mut self) -> Result<Expr> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let operator = match self.token() {
                Token::Operator("==") => Comparison::Eq,
                Token::Operator("!=") => Comparison::Ne,
                Token::Operator("<") => Comparison::Lt,
                Token::Operator("<=") => Comparison::Le,
                Token::Operator(">") => Comparison::Gt,
                Token::Operator(">=") => Comparison::Ge,
                Token::Name(name) if **name == *"in" => Comparison::In,
                Token::Name(name) if **name == *"not" => match self.look() {
                    Token::Name(next) if **next == *"in" => {
                        self.advance();
                        Comparison::NotIn
                    }
                    _ => break,
                },
                _ => break,
            };
            self.advance();
            self.link()?;
            rest.push((operator, self.sum()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(Expr::Compare(Box::new(first), rest))
    }

    fn sum(&mut self) -> Result<Expr> {
        let mut left = self.concat()?;
        loop {
            let operator = match self.token() {
                Token::Operator("+") => Operator::Add,
                Token::Operator("-") => Operator::Sub,
                _ => return Ok(left),
            };
            self.advance();
            self.link()?;
            left = Expr::Binary(operator, Box::new([left, self.concat()?]));
        }
    }

    fn concat(&mut self) -> Result<Expr> {
        let first = self.product()?;
        if !self.is("~") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.skip("~") {
            self.link()?;
            parts.push(self.product()?);
        }
        Ok(Expr::Concat(parts))
    }

    fn product(&mut self) -> Result<Expr> {
        let mut left = self.power()?;
        loop {
            let operator = match self.token() {
                Token::Operator("*") => Operator::Mul,
                Token::Operator("/") => Operator::Div,
                Token::Operator("//") => Operator::FloorDiv,
                Token::Operator("%") => Operator::Mod,
                _ => return Ok(left),
            };
            self.advance();
            self.link()?;
            left = Expr::Binary(operator, Box::new([left, self.power()?]));
        }
    }

    /// Powers group from the left, as Jinja2 has them.
    fn power(&mut self) -> Result<Expr> {
        let mut left = self.unary(true)?;
        while self.skip("**") {
            self.link()?;
            left = Expr::Binary(Operator::Pow, Box::new([left, self.unary(true)?]));
        }
        Ok(left)
    }

    fn unary(&mut self, with_filter: bool) -> Result<Expr> {
        let expr = if self.skip("-") {
            Expr::Negative(Box::new(self.deeper(|it| it.unary(false))?))
        } else if self.skip("+") {
            Expr::Positive(Box::new(self.deeper(|it| it.unary(false))?))
        } else {
            self.primary()?
        };
        let expr = self.postfix(expr)?;
        if with_filter {
            return self.filters_and_tests(expr);
        }
        Ok(expr)
    }

    pub(super) fn primary(&mut self) -> Result<Expr> {
        let literal = match self.token().clone() {
            Token::Name(name) => {
                self.advance();
                match &*name {
                    "true" | "True" => Literal::Bool(true),
                    "false" | "False" => Literal::Bool(false),
                    "none" | "None" => Literal::None,
                    "self" | "super" => {
                        let problem = format!("the name {name}");
                        return Err(Error::unsupported(problem).at(self.line()));
                    }
                    _ => return Ok(Expr::Name(name)),
                }
            }
            Token::Str(first) => {
                self.advance();
                let mut text = first;
                while let Token::Str(more) = self.token().clone() {
                    self.link()?;
                    text = format!("{text}{more}").into();
                    self.advance();
                }
                Literal::Str(text)
            }
            Token::Int(number) => {
                self.advance();
                Literal::Int(number)
            }
            Token::Float(number) => {
                self.advance();
                Literal::Float(number)
            }
            Token::Operator("(") => {
                self.advance();
                let tuple = self.tuple(true, true, &[])?;
                self.expect(")")?;
                return Ok(tuple);
            }
            Token::Operator("[") => return self.list(),
            Token::Operator("{") => return self.dict(),
            _ => return self.fails(format!("unexpected {}", self.described())),
        };
        Ok(Expr::Literal(literal))
    }

    /// One expression, or several with commas; `names` end them, too.
    pub(super) fn tuple(
        &mut self,
        parenthesized: bool,
        choice: bool,
        names: &[&str],
    ) -> Result<Expr> {
        let (mut items, mut is_tuple) = (Vec::new(), false);
        loop {
            if !items.is_empty() {
                self.expect(",")?;
            }
            let ends = match self.token() {
                Token::VariableEnd | Token::BlockEnd | Token::Operator(")") => true,
                Token::Name(name) => names.contains(&&**name),
                _ => false,
            };
            if ends {
                break;
            }
            items.push(self.expression_with(choice)?);
            if !self.is(",") {
                break;
            }
            is_tuple = true;
        }
        if !is_tuple {
            if let Some(item) = items.pop() {
                return Ok(item);
            }
            if !parenthesized {
                return self.fails(format!("expected an expression, got {}", self.described()));
            }
        }
        Ok(Expr::Tuple(items))
    }

    fn list(&mut self) -> Result<Expr> {
        self.expect("[")?;
        let mut items = Vec::new();
        while !self.is("]") {
            if !items.is_empty() {
                self.expect(",")?;
            }
            if self.is("]") {
                break;
            }
            items.push(self.expression()?);
        }
        self.expect("]")?;
        Ok(Expr::List(items))
    }

    fn dict(&mut self) -> Result<Expr> {
        self.expect("{")?;
        let mut items = Vec::new();
        while !self.is("}") {
            if !items.is_empty() {
                self.expect(",")?;
            }
            if self.is("}") {
                break;
            }
            let key = self.expression()?;
            self.expect(":")?;
            items.push((key, self.expression()?));
        }
        self.expect("}")?;
        Ok(Expr::Dict(items))
    }
}

fn describe(token: &Token) -> String {
    match token {
        Token::Data(_) => "text".to_owned(),
        Token::VariableBegin => "{{".to_owned(),
        Token::VariableEnd => "}}".to_owned(),
        Token::BlockBegin => "{%".to_owned(),
        Token::BlockEnd => "%}".to_owned(),
        Token::Name(name) => format!("{name:?}"),
        Token::Str(text) => format!("the text {text:?}"),
        Token::Int(number) => number.to_string(),
        Token::Float(number) => number.to_string(),
        Token::Operator(operator) => format!("{operator:?}"),
        Token::End => "the end of the template".to_owned(),
    }
}
