//! A rendering: names and their values, statements, output, and what it may take.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use chrono::NaiveDateTime;

use super::ast::{Body, Kind, Statement};
use super::error::{Error, Result};
use super::value::{Dict, MacroValue, Value};

/// What a rendering may do: so many instructions, or so many times 64 bytes.
const FUEL: u64 = 1 << 20;
/// How deep expressions, statements and calls may be within each other.
const DEPTH_MAX: usize = 1500;

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Normal,
    Break,
    Continue,
}

/// Names of a loop's iteration, a macro or the like.
#[derive(Debug, Default)]
struct Scope {
    names: Vec<(Arc<str>, Value)>,
    outer: Option<usize>,
    /// The message that it is about.
    owner: Option<usize>,
    /// Whether it is an iteration over numbers, which may pick a message by its number.
    counts: bool,
}

/// A text that was rendered.
#[derive(Debug, Default)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    /// Which message was at hand from where on.
    pub(crate) owners: Vec<(usize, Option<usize>)>,
    /// What lies in `{% generation %}`, and which message was at hand there.
    pub(crate) generations: Vec<(Range<usize>, Option<usize>)>,
}

pub(super) struct Run {
    fuel: Cell<u64>,
    depth: Cell<usize>,
    pub(super) now: NaiveDateTime,
    scopes: Vec<Scope>,
    /// Scopes below that something still needs.
    kept: usize,
    pub(super) scope: usize,
    /// The messages of the conversation, by their address.
    messages: BTreeMap<usize, usize>,
    /// The message that the expression took something of which is written.
    touched: Option<usize>,
    pub(super) namespaces: Vec<Dict>,
    pub(super) cyclers: Vec<(Vec<Value>, usize)>,
    pub(super) joiners: Vec<(Value, bool)>,
    /// Text that is being captured, in front of which is the text itself.
    captures: Vec<String>,
    rendered: Rendered,
}

impl Run {
    /// A rendering with some names.
    pub(super) fn new(names: Vec<(Arc<str>, Value)>, now: NaiveDateTime) -> Self {
        let mut messages = BTreeMap::new();
        let list = names.iter().find(|(name, _)| **name == *"messages");
        if let Some((_, Value::List(items))) = list {
            for (at, message) in items.values.iter().enumerate() {
                messages.extend(address(message).map(|address| (address, at)));
            }
        }
        let root = Scope {
            names,
            ..Scope::default()
        };
        Self {
            fuel: Cell::new(FUEL),
            depth: Cell::new(0),
            now,
            scopes: vec![root],
            kept: 1,
            scope: 0,
            messages,
            touched: None,
            namespaces: Vec::new(),
            cyclers: Vec::new(),
            joiners: Vec::new(),
            captures: Vec::new(),
            rendered: Rendered::default(),
        }
    }

    /// Renders statements.
    pub(super) fn render(mut self, body: &Body) -> Result<Rendered> {
        self.body(body)?;
        Ok(self.rendered)
    }

    /// Pays for some instructions.
    pub(super) fn spend(&self, fuel: u64) -> Result<()> {
        match self.fuel.get().checked_sub(fuel) {
            Some(left) => {
                self.fuel.set(left);
                Ok(())
            }
            None => Err(Error::too_much("it ran out of fuel")),
        }
    }

    /// Pays for some bytes.
    pub(super) fn spend_bytes(&self, bytes: usize) -> Result<()> {
        self.spend(bytes as u64 / 64)
    }

    /// Does something that may do the same again within.
    pub(super) fn deeper<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.enter()?;
        let done = work();
        self.leave();
        done
    }

    pub(super) fn enter(&self) -> Result<()> {
        if self.depth.get() == DEPTH_MAX {
            return Err(Error::too_much("recursion: too much within each other"));
        }
        self.depth.set(self.depth.get() + 1);
        Ok(())
    }

    pub(super) fn leave(&self) {
        self.depth.set(self.depth.get() - 1);
    }

    /// Enters a scope within another one; the current one, for `pop_scope`.
    pub(super) fn push_scope(&mut self, outer: usize) -> usize {
        self.scopes.push(Scope {
            outer: Some(outer),
            ..Scope::default()
        });
        std::mem::replace(&mut self.scope, self.scopes.len() - 1)
    }

    /// Back to a scope. The one that is left goes, if nothing needs it.
    pub(super) fn pop_scope(&mut self, outer: usize) {
        if self.scope + 1 == self.scopes.len() && self.scope >= self.kept {
            self.scopes.pop();
        }
        self.scope = outer;
    }

    /// Keeps all scopes that there are: a macro or a recursive loop sees them.
    pub(super) fn keep_scopes(&mut self) {
        self.kept = self.scopes.len();
    }

    /// Gives a name of this scope a value.
    pub(super) fn store(&mut self, name: Arc<str>, value: Value) {
        let names = &mut self.scopes[self.scope].names;
        match names.iter_mut().find(|(other, _)| *other == name) {
            Some((_, old)) => *old = value,
            None => names.push((name, value)),
        }
    }

    /// The value of a name.
    pub(super) fn load(&self, name: &str) -> Option<&Value> {
        let mut scope = Some(self.scope);
        while let Some(at) = scope {
            let found = self.scopes[at]
                .names
                .iter()
                .find(|(other, _)| **other == *name);
            if let Some((_, value)) = found {
                return Some(value);
            }
            scope = self.scopes[at].outer;
        }
        None
    }

    /// Notes which message an iteration is about, by what it goes over.
    pub(super) fn begin_iteration(&mut self, item: &Value) {
        let of = |value: &Value| {
            let found = address(value).and_then(|address| self.messages.get(&address));
            found.copied()
        };
        let owner = match item {
            Value::Tuple(items) => items.values.iter().find_map(of),
            item => of(item),
        };
        let scope = &mut self.scopes[self.scope];
        scope.owner = owner;
        scope.counts = matches!(item, Value::Int(_));
    }

    /// Notes that a message was picked in an iteration over numbers.
    fn pick(&mut self, value: &Value) {
        let scope = &mut self.scopes[self.scope];
        if scope.counts && scope.owner.is_none() {
            scope.owner = address(value)
                .and_then(|address| self.messages.get(&address))
                .copied();
        }
    }

    /// Notes that part of a value was taken.
    pub(super) fn touch(&mut self, value: &Value) {
        if self.touched.is_none() {
            self.touched = address(value)
                .and_then(|address| self.messages.get(&address))
                .copied();
        }
    }

    fn owner(&self) -> Option<usize> {
        let mut scope = Some(self.scope);
        while let Some(at) = scope {
            if self.scopes[at].owner.is_some() {
                return self.scopes[at].owner;
            }
            scope = self.scopes[at].outer;
        }
        self.touched
    }

    /// Writes text.
    pub(super) fn write(&mut self, text: &str) -> Result<()> {
        self.spend_bytes(text.len())?;
        if let Some(capture) = self.captures.last_mut() {
            capture.push_str(text);
            return Ok(());
        }
        if !text.is_empty() {
            let owner = self.owner();
            let owners = &mut self.rendered.owners;
            if owners.last().is_none_or(|(_, last)| *last != owner) {
                owners.push((self.rendered.text.len(), owner));
            }
            self.rendered.text.push_str(text);
        }
        Ok(())
    }

    /// What something writes, and what it returns.
    pub(super) fn captured<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(String, T)> {
        self.captures.push(String::new());
        let done = work(self);
        let text = self.captures.pop().unwrap_or_default();
        Ok((text, done?))
    }

    /// Runs statements.
    pub(super) fn body(&mut self, body: &[Statement]) -> Result<Flow> {
        for statement in body {
            self.spend(1)?;
            let flow = self.statement(&statement.kind);
            let flow = flow.map_err(|error| error.at(statement.line))?;
            if flow != Flow::Normal {
                return Ok(flow);
            }
        }
        Ok(Flow::Normal)
    }

    /// Runs statements in a scope of their own.
    fn scoped(&mut self, body: &[Statement], outer: usize) -> Result<Flow> {
        let before = self.push_scope(outer);
        let flow = self.body(body);
        self.pop_scope(before);
        flow
    }

    fn statement(&mut self, kind: &Kind) -> Result<Flow> {
        self.enter()?;
        let flow = self.run_statement(kind);
        self.leave();
        flow
    }

    #[allow(clippy::too_many_lines, reason = "an arm of each kind of statement")]
    fn run_statement(&mut self, kind: &Kind) -> Result<Flow> {
        // A text is about the message whose parts it is made of, not about one that a test before it looked at.
        self.touched = None;
        match kind {
            Kind::Text(text) => self.write(text)?,
            Kind::Output(expr) => {
                self.touched = None;
                let value = self.eval(expr)?;
                let text = self.text(&value)?;
                let written = self.write(&text);
                self.touched = None;
                written?;
            }
            Kind::For(code) => {
                let iterable = self
                    .eval(&code.iterable)
                    .map_err(|error| error.at(code.line))?;
                self.for_loop(code, &iterable, 0)?;
            }
            Kind::If(branches) => {
                for (test, body) in branches {
                    let taken = match test {
                        Some(test) => self.eval(test)?.truth(),
                        None => true,
                    };
                    if taken {
                        return self.body(body);
                    }
                }
            }
            Kind::Set(target, value) => {
                self.check_target(target)?;
                let value = self.eval(value)?;
                self.pick(&value);
                self.assign(target, value)?;
            }
            Kind::SetBlock(target, filter, body) => {
                let before = self.push_scope(self.scope);
                let captured = self.captured(|run| run.body(body));
                let filtered = captured.and_then(|(text, flow)| {
                    let value = Value::str(text);
                    let value = match filter {
                        Some(filter) if flow == Flow::Normal => self.filtered(filter, value)?,
                        _ => value,
                    };
                    Ok((value, flow))
                });
                self.pop_scope(before);
                let (value, flow) = filtered?;
                if flow != Flow::Normal {
                    return Ok(flow);
                }
                self.check_target(target)?;
                self.assign(target, value)?;
            }
            Kind::With(values, body) => {
                let outer = self.scope;
                let mut given = Vec::new();
                for (target, value) in values {
                    given.push((target, self.eval(value)?));
                }
                let before = self.push_scope(outer);
                let assigned = given
                    .into_iter()
                    .try_for_each(|(target, value)| self.assign(target, value));
                let flow = assigned.and_then(|()| self.body(body));
                self.pop_scope(before);
                return flow;
            }
            Kind::Macro(code) => {
                let value = self.close(code);
                let name = code.name.clone().unwrap_or_else(|| "".into());
                self.store(name, value);
            }
            Kind::CallBlock(code, call) => {
                let caller = self.close(code);
                let value = self.call_with(call, Some(caller))?;
                let text = self.text(&value)?;
                self.write(&text)?;
            }
            Kind::FilterBlock(filter, body) => {
                let before = self.push_scope(self.scope);
                let captured = self.captured(|run| run.body(body));
                let filtered = captured.and_then(|(text, flow)| match flow {
                    Flow::Normal => Ok((Some(self.filtered(filter, Value::str(text))?), flow)),
                    flow => Ok((None, flow)),
                });
                self.pop_scope(before);
                let (value, flow) = filtered?;
                match value {
                    Some(Value::Str(text) | Value::Markup(text)) => self.write(&text)?,
                    Some(other) => {
                        let name = other.type_name();
                        let problem = format!("a filter block gave a {name}; expected a text");
                        return Err(Error::raised(problem));
                    }
                    None => return Ok(flow),
                }
            }
            Kind::Generation(body) => {
                let start = self.rendered.text.len();
                let (text, _) = self.captured(|run| run.scoped(body, run.scope))?;
                self.write(&text)?;
                let owner = self.owner();
                self.rendered
                    .generations
                    .push((start..start + text.len(), owner));
            }
            Kind::Scope { body, sees_locals } => {
                let outer = if *sees_locals { self.scope } else { 0 };
                return self.scoped(body, outer);
            }
            Kind::Break => return Ok(Flow::Break),
            Kind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Normal)
    }

    /// A macro that sees the names of here.
    fn close(&mut self, code: &Arc<super::ast::Macro>) -> Value {
        self.keep_scopes();
        Value::Macro(Rc::new(MacroValue {
            code: code.clone(),
            scope: self.scope,
        }))
    }
}

/// Where a dictionary lies.
fn address(value: &Value) -> Option<usize> {
    match value {
        Value::Dict(dict) => Some(Rc::as_ptr(dict) as usize),
        _ => None,
    }
}
