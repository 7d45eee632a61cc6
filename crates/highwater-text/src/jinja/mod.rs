//! Jinja2 as transformers sets it up for chat templates (its immutable sandbox, with `trim_blocks`, `lstrip_blocks`,
//! `{% break %}`, `{% continue %}` and `{% generation %}`), with Python's values.
//!
//! A template means what it means there, to the letter, or it is refused by name: nothing is done another way. Templates
//! are programs of strangers. What one may do is bounded (`run.rs`: instructions, bytes, depth), and what it may see is
//! what it is given.

mod access;
mod args;
mod ast;
mod check;
mod clock;
mod compare;
mod error;
mod eval;
mod fields;
mod filters;
mod globals;
mod is;
mod json;
mod letters;
mod lexer;
mod loops;
mod macros;
mod methods;
mod numbers;
mod parser;
mod percent;
mod repr;
mod run;
mod spec;
mod statements;
mod strings;
mod suffixes;
mod unicode;
mod value;

use chrono::NaiveDateTime;
use serde_json::Value as Json;

pub(crate) use error::{Error, ErrorKind, Result};
pub(crate) use run::Rendered;
use run::Run;
use value::{Dict, Value};

/// The stack of the threads that parse and render: enough for what may be within each other.
const STACK: usize = 16 << 20;

/// A template that was parsed.
#[derive(Debug)]
pub(crate) struct Template(ast::Body);

impl Drop for Template {
    /// What is within each other is freed so, too: not on a stack that may be too small for that.
    fn drop(&mut self) {
        let body = std::mem::take(&mut self.0);
        if !body.is_empty() {
            // Without a thread it is freed here.
            let _ = with_stack(move || drop(body));
        }
    }
}

impl Template {
    /// Parses a template.
    pub(crate) fn parse(source: &str) -> Result<Self> {
        statements::parse(source).map(Self)
    }

    /// Whether `{% generation %}` is in it.
    pub(crate) fn marks_turns(&self) -> bool {
        check::has_generation(&self.0)
    }

    /// Renders it with some names at some time.
    pub(crate) fn render<'a>(
        &self,
        names: impl IntoIterator<Item = (&'a str, &'a Json)>,
        now: NaiveDateTime,
    ) -> Result<Rendered> {
        let names = names
            .into_iter()
            .map(|(name, value)| Ok((name.into(), of_json(value)?)));
        let names = names.collect::<Result<_>>()?;
        Run::new(names, now).render(&self.0)
    }
}

/// Does something on a thread whose stack is known, whatever the caller's is.
pub(crate) fn with_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("template".to_owned())
            .stack_size(STACK);
        let thread = thread.spawn_scoped(scope, work);
        let thread = thread.map_err(|error| {
            Error::too_much(format!("no thread can be started to render it: {error}"))
        })?;
        // A panic goes on where the thread is waited for.
        Ok(thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// A value of JSON.
fn of_json(json: &Json) -> Result<Value> {
    Ok(match json {
        Json::Null => Value::None,
        Json::Bool(is) => Value::Bool(*is),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number.into()),
            (None, Some(number)) => Value::Int(number.into()),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::str(&**text),
        Json::Array(items) => Value::list(items.iter().map(of_json).collect::<Result<_>>()?)?,
        Json::Object(fields) => {
            let mut dict = Dict::default();
            for (name, value) in fields {
                dict.insert(Value::str(&**name), of_json(value)?)?;
            }
            Value::Dict(dict.into())
        }
    })
}
