//! Expressions.

use std::sync::Arc;

use super::args::Args;
use super::ast::{Arguments, Comparison, Expr, Filter, Literal, Operator, Target};
use super::error::{Error, Result};
use super::run::Run;
use super::value::{Dict, Items, Value, View};
use super::{globals, numbers, percent};

impl Value {
    /// Whether Python takes it for true.
    pub(super) fn truth(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(is) => *is,
            Self::Int(number) => *number != 0,
            Self::Float(number) => number.abs() > 0.0 || number.is_nan(),
            Self::Str(text) | Self::Markup(text) => !text.is_empty(),
            Self::List(items) | Self::Tuple(items) | Self::Group(items) => !items.values.is_empty(),
            Self::Dict(dict) | Self::View(_, dict) => !dict.items.is_empty(),
            Self::Range(range) => range.len() > 0,
            _ => true,
        }
    }
}

impl Run {
    /// The value of an expression.
    pub(super) fn eval(&mut self, expr: &Expr) -> Result<Value> {
        self.spend(1)?;
        self.enter()?;
        let value = self.eval_here(expr);
        self.leave();
        value
    }

    fn eval_all(&mut self, all: &[Expr]) -> Result<Vec<Value>> {
        all.iter().map(|expr| self.eval(expr)).collect()
    }

    #[allow(clippy::too_many_lines, reason = "an arm of each kind of expression")]
    fn eval_here(&mut self, expr: &Expr) -> Result<Value> {
        match expr {
            Expr::Literal(literal) => Ok(match literal {
                Literal::None => Value::None,
                Literal::Bool(is) => Value::Bool(*is),
                Literal::Int(number) => Value::Int(*number),
                Literal::Float(number) => Value::Float(*number),
                Literal::Str(text) => Value::Str(text.clone()),
            }),
            Expr::Name(name) => Ok(self.named(name)),
            Expr::List(items) => Value::list(self.eval_all(items)?),
            Expr::Tuple(items) => Value::tuple(self.eval_all(items)?),
            Expr::Dict(pairs) => {
                let mut dict = Dict::default();
                for (key, value) in pairs {
                    let key = self.eval(key)?;
                    dict.insert(key, self.eval(value)?)?;
                }
                Ok(Value::Dict(dict.into()))
            }
            Expr::Negative(it) => self.signed(it, true),
            Expr::Positive(it) => self.signed(it, false),
            Expr::Not(it) => Ok(Value::Bool(!self.eval(it)?.truth())),
            Expr::Binary(operator, both) => {
                let left = self.eval(&both[0])?;
                let right = self.eval(&both[1])?;
                self.binary(*operator, &left, &right)
            }
            Expr::Concat(parts) => {
                let mut text = String::new();
                for part in parts {
                    let part = self.eval(part)?;
                    text.push_str(&self.text(&part)?);
                }
                self.spend_bytes(text.len())?;
                Ok(Value::str(text))
            }
            Expr::And(both) => {
                let left = self.eval(&both[0])?;
                if left.truth() {
                    self.eval(&both[1])
                } else {
                    Ok(left)
                }
            }
            Expr::Or(both) => {
                let left = self.eval(&both[0])?;
                if left.truth() {
                    Ok(left)
                } else {
                    self.eval(&both[1])
                }
            }
            Expr::Compare(first, rest) => self.compare(first, rest),
            Expr::Choice {
                test,
                then,
                otherwise,
            } => {
                if self.eval(test)?.truth() {
                    return self.eval(then);
                }
                match otherwise {
                    Some(otherwise) => self.eval(otherwise),
                    None => Ok(Value::undefined(
                        "the inline if-expression evaluated to false and no else section was defined",
                    )),
                }
            }
            Expr::Attribute(it, name) => {
                let value = self.eval(it)?;
                self.attribute(&value, name)
            }
            Expr::Item(both) => {
                let value = self.eval(&both[0])?;
                let key = self.eval(&both[1])?;
                self.item(&value, &key)
            }
            Expr::Slice(it, bounds) => {
                let value = self.eval(it)?;
                let mut found = [Value::None, Value::None, Value::None];
                for (place, bound) in found.iter_mut().zip(bounds.iter()) {
                    if let Some(bound) = bound {
                        *place = self.eval(bound)?;
                    }
                }
                self.slice(&value, found)
            }
            Expr::Call(..) => self.call_with(expr, None),
            Expr::Filter(filter) => {
                let Filter {
                    value: Some(value), ..
                } = filter
                else {
                    return Err(Error::raised("a filter without a value"));
                };
                let value = self.eval(value)?;
                self.apply_filter(filter, value)
            }
            Expr::Test(value, name, arguments) => {
                let value = self.eval(value)?;
                let args = self.arguments(arguments)?;
                self.test(name, &value, args)
            }
        }
    }

    fn named(&self, name: &Arc<str>) -> Value {
        if let Some(value) = self.load(name) {
            return value.clone();
        }
        match globals::function(name) {
            Some(function) => Value::Function(function),
            None => Value::undefined(format!("'{name}' is undefined")),
        }
    }

    /// The value of filters that stand by themselves, of what they are applied to.
    pub(super) fn filtered(&mut self, expr: &Expr, value: Value) -> Result<Value> {
        match expr {
            Expr::Filter(filter) => {
                let value = match &filter.value {
                    Some(inner) => self.filtered(inner, value)?,
                    None => value,
                };
                self.apply_filter(filter, value)
            }
            other => self.eval(other),
        }
    }

    fn apply_filter(&mut self, filter: &Filter, value: Value) -> Result<Value> {
        let args = self.arguments(&filter.arguments)?;
        self.filter(&filter.name, value, args)
    }

    fn signed(&mut self, it: &Expr, negative: bool) -> Result<Value> {
        let value = self.eval(it)?;
        match value.defined()? {
            Value::Float(number) => Ok(Value::Float(if negative { -number } else { *number })),
            other => {
                let number = other.as_int().ok_or_else(|| {
                    let name = other.type_name();
                    Error::raised(format!("bad operand type for unary operator: '{name}'"))
                })?;
                let number = if negative {
                    number.checked_neg()
                } else {
                    Some(number)
                };
                number.map(Value::Int).ok_or_else(numbers::too_large)
            }
        }
    }

    /// `left operator right`.
    pub(super) fn binary(
        &mut self,
        operator: Operator,
        left: &Value,
        right: &Value,
    ) -> Result<Value> {
        if let (Operator::Mod, Value::Str(format)) = (operator, left) {
            return percent::format(self, format, right).map(Value::str);
        }
        let (left, right) = (left.defined()?, right.defined()?);
        if let (Some(a), Some(b)) = (left.number(), right.number()) {
            return Ok(match numbers::apply(operator, a, b)? {
                numbers::Number::Int(number) => Value::Int(number),
                numbers::Number::Float(number) => Value::Float(number),
            });
        }
        if matches!(left, Value::Markup(_)) || matches!(right, Value::Markup(_)) {
            return Err(Error::unsupported("an operation on escaped text"));
        }
        let views = [left, right].map(|it| matches!(it, Value::View(View::Keys | View::Items, _)));
        if views != [false; 2] && operator == Operator::Sub {
            return Err(Error::unsupported("a difference of views of dictionaries"));
        }
        match (operator, left, right) {
            (Operator::Add, Value::Str(a), Value::Str(b)) => {
                self.spend_bytes(a.len() + b.len())?;
                Ok(Value::str([&**a, &**b].concat()))
            }
            (Operator::Add, Value::List(a), Value::List(b)) => Value::list(self.joined(a, b)?),
            (
                Operator::Add,
                Value::Tuple(a) | Value::Group(a),
                Value::Tuple(b) | Value::Group(b),
            ) => Value::tuple(self.joined(a, b)?),
            (Operator::Mul, sequence, count) if count.as_int().is_some() => {
                self.repeated(sequence, count.as_int().unwrap_or(0), right)
            }
            (Operator::Mul, count, sequence) if count.as_int().is_some() => {
                self.repeated(sequence, count.as_int().unwrap_or(0), left)
            }
            _ => Err(unfit(operator, left, right)),
        }
    }

    fn joined(&self, a: &Items, b: &Items) -> Result<Vec<Value>> {
        self.spend((a.values.len() + b.values.len()) as u64)?;
        Ok(a.values.iter().chain(&b.values).cloned().collect())
    }

    fn repeated(&self, sequence: &Value, count: i128, other: &Value) -> Result<Value> {
        let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
        let repeat = |items: &Items| {
            self.spend(items.values.len().saturating_mul(count) as u64)?;
            Ok(std::iter::repeat_n(&items.values, count)
                .flatten()
                .cloned()
                .collect())
        };
        match sequence {
            Value::Str(text) => {
                self.spend_bytes(text.len().saturating_mul(count))?;
                Ok(Value::str(text.repeat(count)))
            }
            Value::List(items) => Value::list(repeat(items)?),
            Value::Tuple(items) | Value::Group(items) => Value::tuple(repeat(items)?),
            sequence => Err(unfit(Operator::Mul, sequence, other)),
        }
    }

    fn compare(&mut self, first: &Expr, rest: &[(Comparison, Expr)]) -> Result<Value> {
        let mut left = self.eval(first)?;
        for (comparison, right) in rest {
            let right = self.eval(right)?;
            if !self.holds(*comparison, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    /// Whether two values compare so.
    pub(super) fn holds(&mut self, comparison: Comparison, a: &Value, b: &Value) -> Result<bool> {
        Ok(match comparison {
            Comparison::Eq => self.equal(a, b)?,
            Comparison::Ne => !self.equal(a, b)?,
            Comparison::Lt => self
                .order(a, b, "<")?
                .is_some_and(std::cmp::Ordering::is_lt),
            Comparison::Le => self
                .order(a, b, "<=")?
                .is_some_and(std::cmp::Ordering::is_le),
            Comparison::Gt => self
                .order(a, b, ">")?
                .is_some_and(std::cmp::Ordering::is_gt),
            Comparison::Ge => self
                .order(a, b, ">=")?
                .is_some_and(std::cmp::Ordering::is_ge),
            Comparison::In => self.contains(b, a)?,
            Comparison::NotIn => !self.contains(b, a)?,
        })
    }

    pub(super) fn arguments(&mut self, arguments: &Arguments) -> Result<Args> {
        let mut args = Args {
            positional: self.eval_all(&arguments.positional)?,
            named: Vec::new(),
        };
        for (name, value) in &arguments.named {
            args.named.push((name.clone(), self.eval(value)?));
        }
        if let Some(more) = &arguments.more {
            let more = self.eval(more)?;
            args.positional.extend(self.values(&more)?);
        }
        if let Some(more) = &arguments.more_named {
            let more = self.eval(more)?;
            let Value::Dict(dict) = more.defined()? else {
                return Err(Error::raised("argument after ** must be a mapping"));
            };
            for (name, value) in &dict.items {
                let Some(name) = name.as_str() else {
                    return Err(Error::raised("keywords must be strings"));
                };
                if args.named.iter().any(|(other, _)| other == name) {
                    let problem = format!("got multiple values for keyword argument '{name}'");
                    return Err(Error::raised(problem));
                }
                args.named.push((name.clone(), value.clone()));
            }
        }
        Ok(args)
    }

    /// A call, with the body of a `{% call %}` as another argument.
    pub(super) fn call_with(&mut self, call: &Expr, caller: Option<Value>) -> Result<Value> {
        let Expr::Call(callee, arguments) = call else {
            return Err(Error::raised("expected a call"));
        };
        let callee = self.eval(callee)?;
        let mut args = self.arguments(arguments)?;
        args.named
            .extend(caller.map(|caller| ("caller".into(), caller)));
        self.call(&callee, args)
    }

    /// Calls a value.
    pub(super) fn call(&mut self, callee: &Value, args: Args) -> Result<Value> {
        self.spend(1)?;
        match callee.defined()? {
            Value::Macro(it) => self.call_macro(it, args),
            Value::Method(it) => self.call_method(&it.0, it.1, args),
            Value::Function(function) => self.call_function(*function, args),
            Value::Joiner(at) => {
                args.none("joiner")?;
                let (separator, used) = &mut self.joiners[*at];
                if std::mem::replace(used, true) {
                    return Ok(separator.clone());
                }
                Ok(Value::str(""))
            }
            Value::Loop(it) => {
                let [items] = args.bind("loop", ["iterable"], 1)?;
                self.recurse(it, &items.unwrap_or(Value::None))
            }
            other => {
                let name = other.type_name();
                Err(Error::raised(format!("'{name}' object is not callable")))
            }
        }
    }

    /// All values that can be gone through.
    pub(super) fn values(&self, value: &Value) -> Result<Vec<Value>> {
        let values: Vec<Value> = match value {
            Value::Undefined(_) => Vec::new(),
            Value::Str(text) => {
                self.spend(text.len() as u64 / 8)?;
                let mut buffer = [0; 4];
                let each = text
                    .chars()
                    .map(|c| Value::str(&*c.encode_utf8(&mut buffer)));
                each.collect()
            }
            Value::List(items) | Value::Tuple(items) | Value::Group(items) => items.values.clone(),
            Value::Dict(dict) | Value::View(View::Keys, dict) => dict.keys().cloned().collect(),
            Value::View(View::Values, dict) => dict.items.iter().map(|it| it.1.clone()).collect(),
            Value::View(View::Items, dict) => {
                let pairs = dict
                    .items
                    .iter()
                    .map(|(k, v)| Value::tuple(vec![k.clone(), v.clone()]));
                pairs.collect::<Result<_>>()?
            }
            Value::Range(range) => (0..range.len()).map(|at| range.get(at)).collect(),
            Value::Stream(stream) => stream.left.borrow_mut().drain(..).collect(),
            Value::Markup(_) | Value::Loop(_) => {
                let name = value.type_name();
                return Err(Error::unsupported(format!("going through a {name}")));
            }
            other => {
                let name = other.type_name();
                return Err(Error::raised(format!("'{name}' object is not iterable")));
            }
        };
        self.spend(values.len() as u64 / 8)?;
        Ok(values)
    }

    /// Sets an attribute of a namespace.
    pub(super) fn set_attribute(
        &mut self,
        name: &str,
        attribute: &Arc<str>,
        value: Value,
    ) -> Result<()> {
        let Some(Value::Namespace(at)) = self.load(name) else {
            return Err(Error::raised(
                "cannot assign attribute on non-namespace object",
            ));
        };
        let at = *at;
        globals::check_attribute(attribute)?;
        self.namespaces[at].insert(Value::Str(attribute.clone()), value)
    }

    /// An error if a target's attributes are none of namespaces: that is looked at before the value.
    pub(super) fn check_target(&mut self, target: &Target) -> Result<()> {
        match target {
            Target::Name(_) => Ok(()),
            Target::Attribute(name, _) => match self.load(name) {
                Some(Value::Namespace(_)) => Ok(()),
                _ => Err(Error::raised(
                    "cannot assign attribute on non-namespace object",
                )),
            },
            Target::Tuple(all) => all.iter().try_for_each(|target| self.check_target(target)),
        }
    }
}

fn unfit(operator: Operator, left: &Value, right: &Value) -> Error {
    let sign = match operator {
        Operator::Add => "+",
        Operator::Sub => "-",
        Operator::Mul => "*",
        Operator::Div => "/",
        Operator::FloorDiv => "//",
        Operator::Mod => "%",
        Operator::Pow => "**",
    };
    Error::raised(format!(
        "unsupported operand type(s) for {sign}: '{}' and '{}'",
        left.type_name(),
        right.type_name()
    ))
}
