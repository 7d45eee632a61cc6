//! `{% for %}`, and what `loop` says in it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{For, Target};
use super::error::{Error, Result};
use super::run::{Flow, Run};
use super::value::{Loop, Peeked, Source, Value};

type Shared = Rc<RefCell<Loop>>;

impl Run {
    /// Runs a loop, or a call of a recursive one.
    pub(super) fn for_loop(
        &mut self,
        code: &Arc<For>,
        iterable: &Value,
        depth0: i128,
    ) -> Result<()> {
        let source = match iterable {
            Value::Stream(stream) => Source::Stream(stream.clone()),
            other => Source::Values(self.values(other)?.into_iter()),
        };
        let length = match &source {
            Source::Values(values) if code.test.is_none() => Some(values.len()),
            _ => None,
        };
        if code.recursive {
            self.keep_scopes();
        }
        let it = Rc::new(RefCell::new(Loop {
            code: code.clone(),
            source,
            length,
            scope: self.scope,
            index0: -1,
            depth0,
            current: None,
            before: None,
            after: Peeked::Nothing,
            changed: None,
        }));
        let ran = self.iterations(code, &it);
        // Values that hold the loop would hold each other otherwise.
        it.borrow_mut().changed = None;
        let completed = ran?;
        if !completed && !code.otherwise.is_empty() {
            let outer = self.push_scope(self.scope);
            let flow = self.body(&code.otherwise);
            self.pop_scope(outer);
            flow?;
        }
        Ok(())
    }

    /// Whether any iteration went through to the end of its body: else the loop's `else` runs.
    fn iterations(&mut self, code: &Arc<For>, it: &Shared) -> Result<bool> {
        let mut completed = false;
        while let Some(item) = self.next_item(it)? {
            self.spend(1)?;
            {
                let mut it = it.borrow_mut();
                it.index0 += 1;
                it.before = it.current.replace(item.clone());
            }
            let outer = self.push_scope(self.scope);
            let flow = self.iteration(code, it, item);
            self.pop_scope(outer);
            match flow? {
                Flow::Normal => completed = true,
                Flow::Continue => {}
                Flow::Break => break,
            }
        }
        Ok(completed)
    }

    fn iteration(&mut self, code: &Arc<For>, it: &Shared, item: Value) -> Result<Flow> {
        self.begin_iteration(&item);
        self.assign(&code.target, item)?;
        self.store("loop".into(), Value::Loop(it.clone()));
        self.body(&code.body)
    }

    /// The next item, which may have been looked at before.
    fn next_item(&mut self, it: &Shared) -> Result<Option<Value>> {
        let peeked = std::mem::replace(&mut it.borrow_mut().after, Peeked::Nothing);
        match peeked {
            Peeked::Item(item) => Ok(Some(item)),
            Peeked::End => Ok(None),
            Peeked::Nothing => self.pull(it),
        }
    }

    fn peek(&mut self, it: &Shared) -> Result<Option<Value>> {
        let peeked = it.borrow().after.clone();
        if let Peeked::Item(item) = peeked {
            return Ok(Some(item));
        }
        let next = self.pull(it)?;
        it.borrow_mut().after = next.clone().map_or(Peeked::End, Peeked::Item);
        Ok(next)
    }

    /// The next item that the loop's `if` takes.
    fn pull(&mut self, it: &Shared) -> Result<Option<Value>> {
        loop {
            let next = match &mut it.borrow_mut().source {
                Source::Values(values) => values.next(),
                Source::Stream(stream) => stream.left.borrow_mut().pop_front(),
            };
            let Some(item) = next else {
                return Ok(None);
            };
            let (code, scope) = (it.borrow().code.clone(), it.borrow().scope);
            let Some(test) = &code.test else {
                return Ok(Some(item));
            };
            let outer = self.push_scope(scope);
            let assigned = self.assign(&code.target, item.clone());
            let taken = assigned.and_then(|()| self.eval(test));
            self.pop_scope(outer);
            if taken?.truth() {
                return Ok(Some(item));
            }
        }
    }

    fn length(&mut self, it: &Shared) -> Result<i128> {
        let known = it.borrow().length;
        if let Some(known) = known {
            return Ok(known as i128);
        }
        let mut rest = Vec::new();
        while let Some(item) = self.pull(it)? {
            rest.push(item);
        }
        let mut it = it.borrow_mut();
        let seen = it.index0 + 1 + i128::from(matches!(it.after, Peeked::Item(_)));
        let length = rest.len() + seen as usize;
        it.source = Source::Values(rest.into_iter());
        it.length = Some(length);
        Ok(length as i128)
    }

    /// What `loop` says of itself.
    pub(super) fn loop_attribute(&mut self, it: &Shared, name: &str) -> Result<Option<Value>> {
        let (index0, depth0) = (it.borrow().index0, it.borrow().depth0);
        Ok(Some(match name {
            "index" => Value::Int(index0 + 1),
            "index0" => Value::Int(index0),
            "first" => Value::Bool(index0 == 0),
            "last" => Value::Bool(self.peek(it)?.is_none()),
            "length" => Value::Int(self.length(it)?),
            "revindex" => Value::Int(self.length(it)? - index0),
            "revindex0" => Value::Int(self.length(it)? - index0 - 1),
            "depth" => Value::Int(depth0 + 1),
            "depth0" => Value::Int(depth0),
            "previtem" => {
                let before = it.borrow().before.clone();
                before
                    .filter(|_| index0 > 0)
                    .unwrap_or_else(|| Value::undefined("there is no previous item"))
            }
            "nextitem" => {
                let next = self.peek(it)?;
                next.unwrap_or_else(|| Value::undefined("there is no next item"))
            }
            _ => return Ok(None),
        }))
    }

    /// `loop(items)` in a recursive loop: its output.
    pub(super) fn recurse(&mut self, it: &Shared, items: &Value) -> Result<Value> {
        let (code, scope, depth0) = {
            let it = it.borrow();
            (it.code.clone(), it.scope, it.depth0)
        };
        if !code.recursive {
            return Err(Error::raised(
                "The loop must have the 'recursive' marker to be called recursively.",
            ));
        }
        let outer = std::mem::replace(&mut self.scope, scope);
        let text = self.captured(|run| run.for_loop(&code, items, depth0 + 1));
        self.scope = outer;
        text.map(|(text, ())| Value::str(text))
    }

    /// Gives a value to a target.
    pub(super) fn assign(&mut self, target: &Target, value: Value) -> Result<()> {
        match target {
            Target::Name(name) => {
                self.store(name.clone(), value);
                Ok(())
            }
            Target::Attribute(name, attribute) => self.set_attribute(name, attribute, value),
            Target::Tuple(targets) => {
                let values = self.values(value.defined()?)?;
                if values.len() != targets.len() {
                    let (expected, found) = (targets.len(), values.len());
                    let problem = format!("expected {expected} values to unpack, got {found}");
                    return Err(Error::raised(problem));
                }
                let mut pairs = targets.iter().zip(values);
                pairs.try_for_each(|(target, value)| self.assign(target, value))
            }
        }
    }
}
