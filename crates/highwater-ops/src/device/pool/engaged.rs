//! Threads that work under a lock that others wait for.

use std::cell::Cell;

thread_local! {
    static ENGAGED: Cell<bool> = const { Cell::new(false) };
}

/// That this thread works under a lock, its own or that of who waits for it, until this is dropped. A pool
/// passes that on to all threads that work for it. Who is engaged must not wait for such a lock: it may
/// be the very one, or one whose holder waits for it.
#[derive(Debug)]
pub struct Engaged {
    before: bool,
    /// It is the thread's own.
    on_thread: std::marker::PhantomData<*const ()>,
}

impl Engaged {
    /// Notes it for this thread.
    #[must_use]
    pub fn enter() -> Self {
        Self {
            before: ENGAGED.replace(true),
            on_thread: std::marker::PhantomData,
        }
    }

    /// Whether this thread is.
    #[must_use]
    pub fn is() -> bool {
        ENGAGED.get()
    }
}

impl Drop for Engaged {
    fn drop(&mut self) {
        ENGAGED.set(self.before);
    }
}
