//! Requests carried out by a few threads, with calls that block.

#![expect(
    unsafe_code,
    reason = "requests name memory that another thread has lent"
)]

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::file::SpillFile;
use super::requests::{Landed, Lane, Request, Way};

/// Threads of one lane.
const THREADS: usize = 8;
/// What a thread's calls need of stack, in bytes, with room to spare.
const STACK: usize = 128 << 10;

/// Threads that wait for requests.
#[derive(Debug)]
pub(super) struct Threads {
    /// None once they are to end.
    requests: Option<Sender<Lent>>,
    landed: Receiver<Landed>,
    handles: Vec<JoinHandle<()>>,
}

/// A request on its way to a thread.
#[derive(Debug)]
struct Lent(Request);

// SAFETY: what a request points to is valid, and not used otherwise, until its end has been told:
// `Lane::start` asks for that.
unsafe impl Send for Lent {}

impl Threads {
    /// Starts them.
    ///
    /// # Errors
    /// Where the system has no more threads.
    pub(super) fn start(file: &Arc<SpillFile>) -> io::Result<Self> {
        let (requests, queue) = channel();
        let (told, landed) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut pool = Self {
            requests: Some(requests),
            landed,
            handles: Vec::new(),
        };
        for _ in 0..THREADS {
            let (file, queue, told) = (file.clone(), queue.clone(), told.clone());
            let thread = Builder::new()
                .name("highwater-disk".into())
                .stack_size(STACK);
            let thread = thread.spawn(move || carry_out_all(&file, &queue, &told))?;
            pool.handles.push(thread);
        }
        Ok(pool)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.requests = None;
        for thread in self.handles.drain(..) {
            // They do not panic, and there would be nothing to be done about it.
            let _ = thread.join();
        }
    }
}

impl Lane for Threads {
    unsafe fn start(&mut self, request: &Request) -> io::Result<()> {
        let sent = self
            .requests
            .as_ref()
            .map(|queue| queue.send(Lent(*request)));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(io::Error::other("the threads that transfer have ended")),
        }
    }

    fn land(&mut self, wait: bool) -> Option<Landed> {
        if wait {
            // The threads outlive the requests that they were given.
            return self.landed.recv().ok();
        }
        self.landed.try_recv().ok()
    }
}

fn carry_out_all(file: &SpillFile, queue: &Mutex<Receiver<Lent>>, told: &Sender<Landed>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Lent(request)) = next else { return };
        // SAFETY: the request's memory is lent until its end is told, which is below.
        let result = unsafe { carry_out(file, &request) };
        if told.send((request.number, result)).is_err() {
            return;
        }
    }
}

/// Carries a request out, part by part.
///
/// # Safety
/// The request's parts and memory are valid; what is read into is used by nobody else, and what is
/// written from is not changed.
unsafe fn carry_out(file: &SpillFile, request: &Request) -> io::Result<usize> {
    let mut done = 0;
    // SAFETY: as the caller promises.
    for part in unsafe { std::slice::from_raw_parts(request.parts, request.count) } {
        let offset = request.offset + done as u64;
        let result = match request.way {
            Way::Write => {
                // SAFETY: as the caller promises.
                let bytes = unsafe { std::slice::from_raw_parts(part.start, part.bytes) };
                file.write_at(offset, bytes)
            }
            Way::Read => {
                // SAFETY: as the caller promises.
                let bytes = unsafe { std::slice::from_raw_parts_mut(part.start, part.bytes) };
                file.read_at(offset, bytes)
            }
        };
        match result {
            Ok(bytes) => done += bytes,
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done),
        }
        if done as u64 + request.offset < offset + part.bytes as u64 {
            break;
        }
    }
    Ok(done)
}
