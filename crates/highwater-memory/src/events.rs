//! The stream of what happens to memory.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::stats::{Counters, Statistics};

/// What a stretch of memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Weights.
    Parameter,
    /// Gradients of parameters.
    Gradient,
    /// Moments and the like.
    OptimizerState,
    /// Results that the backward pass will read, and gradients of them.
    Activation,
    /// Scratch space of one operation.
    Workspace,
    /// The batch.
    Input,
    /// What fits nowhere else.
    Other,
}

impl Category {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::Parameter,
        Self::Gradient,
        Self::OptimizerState,
        Self::Activation,
        Self::Workspace,
        Self::Input,
        Self::Other,
    ];
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Parameter => "parameter",
            Self::Gradient => "gradient",
            Self::OptimizerState => "optimizer state",
            Self::Activation => "activation",
            Self::Workspace => "workspace",
            Self::Input => "input",
            Self::Other => "other",
        })
    }
}

/// A tier of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where kernels read and write.
    Device,
    /// The host's memory, where that is another.
    Host,
    /// A file.
    Disk,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Bytes were taken.
    Alloc,
    /// Bytes were given back.
    Free,
    /// A value was computed again. Its bytes have their own `Alloc`.
    Recompute,
    /// A value was copied to another tier. The bytes there and here have their own `Alloc` and `Free`.
    Move {
        /// The tier it was read from.
        from: Place,
        /// The tier it was written to.
        to: Place,
    },
}

/// Whose bytes they are, as the caller can tell cheaply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label<'a> {
    /// A number that the caller can look up, such as a node's.
    Id(u32),
    /// A name.
    Text(&'a str),
}

/// One thing that happened to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// What happened.
    pub action: Action,
    /// To how many bytes.
    pub bytes: u64,
    /// What they are for.
    pub category: Category,
    /// Whose they are.
    pub label: Label<'a>,
}

/// A listener to the stream. It runs inside the call that reports the event, on whatever thread that
/// is: it must be quick, and must not report events itself.
pub trait Listener: Send + Sync {
    /// Called after the statistics have taken in the event.
    fn on_event(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync> Listener for F {
    fn on_event(&self, event: &Event<'_>) {
        self(event);
    }
}

/// The stream of events: keeps statistics, and passes each event on to who listens. When nobody does,
/// an event costs a few atomic additions.
#[derive(Default)]
pub struct Events {
    counters: Counters,
    anyone: AtomicBool,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
}

impl Events {
    /// A stream with nobody listening.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports an event.
    pub fn record(&self, event: &Event<'_>) {
        self.counters.record(event);
        if self.anyone.load(Ordering::Acquire) {
            let listeners = self
                .listeners
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            for listener in listeners.iter() {
                listener.on_event(event);
            }
        }
    }

    /// Passes all events from now on to `listener`.
    pub fn listen(&self, listener: Arc<dyn Listener>) {
        let mut listeners = self
            .listeners
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.push(listener);
        self.anyone.store(true, Ordering::Release);
    }

    /// Passes no events to `listener` any more.
    pub fn unlisten(&self, listener: &Arc<dyn Listener>) {
        let mut listeners = self
            .listeners
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|other| !Arc::ptr_eq(other, listener));
        self.anyone.store(!listeners.is_empty(), Ordering::Release);
    }

    /// The statistics at this moment.
    pub fn statistics(&self) -> Statistics {
        self.counters.read()
    }

    /// Makes all peaks start anew from what is in use now.
    pub fn reset_peaks(&self) {
        self.counters.reset_peaks();
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn event(action: Action, bytes: u64) -> Event<'static> {
        Event {
            action,
            bytes,
            category: Category::Activation,
            label: Label::Id(7),
        }
    }

    #[test]
    fn listeners_hear_what_is_reported_while_they_listen() {
        let events = Events::new();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener: Arc<dyn Listener> = Arc::new({
            let heard = heard.clone();
            move |event: &Event<'_>| heard.lock().unwrap().push((event.action, event.bytes))
        });
        events.record(&event(Action::Alloc, 1));
        events.listen(listener.clone());
        events.record(&event(Action::Alloc, 2));
        events.record(&event(
            Action::Move {
                from: Place::Device,
                to: Place::Disk,
            },
            3,
        ));
        events.unlisten(&listener);
        events.record(&event(Action::Free, 2));
        let moved = Action::Move {
            from: Place::Device,
            to: Place::Disk,
        };
        assert_eq!(*heard.lock().unwrap(), [(Action::Alloc, 2), (moved, 3)]);
        assert_eq!(events.statistics().total().current, 1);
    }
}
