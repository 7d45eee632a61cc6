//! A time limit: what hangs fails instead of blocking.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

/// What `f` answers, in a thread of its own that may take so many minutes.
pub(crate) fn within<T: Send + 'static>(minutes: u64, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = channel::<()>();
    let run = move || {
        // Dropped at the end, and by a panic too.
        let _done = done;
        f()
    };
    let thread = Builder::new().spawn(run).unwrap();
    let waited = wait.recv_timeout(Duration::from_mins(minutes));
    assert_eq!(
        waited,
        Err(RecvTimeoutError::Disconnected),
        "it hangs: over {minutes} minutes"
    );
    match thread.join() {
        Ok(answer) => answer,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
