//! Calls of macros.

use std::rc::Rc;

use super::args::Args;
use super::error::{Error, Result};
use super::run::Run;
use super::value::{Dict, MacroValue, Value};

impl Run {
    /// What a macro writes.
    pub(super) fn call_macro(&mut self, it: &Rc<MacroValue>, args: Args) -> Result<Value> {
        let code = it.code.clone();
        let name = code.name.as_deref().unwrap_or("caller");
        let Args {
            mut positional,
            mut named,
        } = args;
        let more = positional.split_off(code.parameters.len().min(positional.len()));
        let mut given: Vec<Option<Value>> = positional.into_iter().map(Some).collect();
        for parameter in &code.parameters[given.len()..] {
            let at = named.iter().position(|(name, _)| name == parameter);
            given.push(at.map(|at| named.remove(at).1));
        }
        let mut special = Vec::new();
        if code.caller {
            let at = named.iter().position(|(name, _)| **name == *"caller");
            let caller = at
                .map(|at| named.remove(at).1)
                .filter(|it| !matches!(it, Value::None));
            let caller = caller.unwrap_or_else(|| Value::undefined("No caller defined"));
            special.push(("caller", caller));
        }
        if code.kwargs {
            let items = named
                .into_iter()
                .map(|(name, value)| (Value::Str(name), value));
            special.push(("kwargs", Value::Dict(Dict::new(items)?.into())));
        } else if let Some((other, _)) = named.first() {
            let problem = format!("macro '{name}' takes no keyword argument '{other}'");
            return Err(Error::raised(problem));
        }
        if code.varargs {
            special.push(("varargs", Value::tuple(more)?));
        } else if !more.is_empty() {
            let most = code.parameters.len();
            let problem = format!("macro '{name}' takes not more than {most} argument(s)");
            return Err(Error::raised(problem));
        }
        let outer = self.push_scope(it.scope);
        let text = self.captured(|run| {
            for (name, value) in special {
                run.store(name.into(), value);
            }
            let without = code.parameters.len() - code.defaults.len();
            for (at, (name, value)) in code.parameters.iter().zip(given).enumerate() {
                let value = match (value, at.checked_sub(without)) {
                    (Some(value), _) => value,
                    (None, Some(at)) => run.eval(&code.defaults[at])?,
                    (None, None) => {
                        Value::undefined(format!("parameter '{name}' was not provided"))
                    }
                };
                run.store(name.clone(), value);
            }
            run.body(&code.body)
        });
        self.pop_scope(outer);
        text.map(|(text, _)| Value::str(text))
    }
}
