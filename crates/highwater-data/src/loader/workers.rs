//! Threads that load batches ahead.
//!
//! One board, behind one lock, says which batch is wanted, which are being loaded and which have come. A worker
//! takes the first batch that nobody has, if that may be ahead so far and there is room for it; the batch that
//! is wanted always has room, so that nobody waits for bytes that only the waiting could free.

use super::samples::Samples;
use super::{Batch, Cursor, LoaderOptions};
use crate::{DataError, Dataset};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// The workers of a loader.
pub(super) struct Workers<B> {
    shared: Arc<Shared<B>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<B> {
    board: Mutex<Board<B>>,
    /// Something may be loaded now, or it is over.
    work: Condvar,
    /// A batch has come.
    come: Condvar,
}

struct Board<B> {
    epoch: u64,
    /// The batch that the loader asks for next.
    wanted: u64,
    /// The first batch that no worker has taken.
    next: u64,
    /// Where the epoch ends; 0 before anything is asked for.
    end: u64,
    /// What has come and was not asked for yet.
    come: BTreeMap<u64, Result<(B, u64), DataError>>,
    come_bytes: u64,
    /// Batches that are being loaded.
    loading: u64,
    /// Bytes of the largest batch so far; none before the first.
    largest: Option<u64>,
    /// Counts what was forgotten: batches that were begun before do not belong here.
    turn: u64,
    over: bool,
}

impl<B: Batch> Board<B> {
    /// Whether the next batch may be loaded now.
    fn may_load(&self, options: &LoaderOptions) -> bool {
        let depth = (options.workers * options.prefetch.max(1)) as u64;
        if self.next >= self.end || self.next >= self.wanted + depth {
            return false;
        }
        let has_room = match self.largest {
            // The first tells how large they are.
            None => self.loading == 0 && self.come.is_empty(),
            Some(largest) => {
                // Batches that are being loaded are there twice, as samples and put together.
                let loading = (self.loading + 1).saturating_mul(2 * largest);
                self.come_bytes.saturating_add(loading) <= options.prefetch_bytes
            }
        };
        has_room || self.next == self.wanted
    }

    /// Starts with a batch of an epoch, and forgets all others.
    fn restart(&mut self, at: Cursor, end: u64) {
        self.come.clear();
        self.come_bytes = 0;
        self.turn += 1;
        self.epoch = at.epoch;
        self.wanted = at.batch;
        self.next = at.batch;
        self.end = end;
    }
}

impl<B> Shared<B> {
    /// Nothing panics under this lock.
    fn board(&self) -> MutexGuard<'_, Board<B>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Batch> Workers<B> {
    pub(super) fn new<D: Dataset + 'static>(
        samples: &Arc<Samples<D, B>>,
    ) -> Result<Self, DataError> {
        let board = Board {
            epoch: 0,
            wanted: 0,
            next: 0,
            end: 0,
            come: BTreeMap::new(),
            come_bytes: 0,
            loading: 0,
            largest: None,
            turn: 0,
            over: false,
        };
        let mut workers = Self {
            shared: Arc::new(Shared {
                board: Mutex::new(board),
                work: Condvar::new(),
                come: Condvar::new(),
            }),
            threads: Vec::new(),
        };
        for i in 0..samples.options.workers {
            let (samples, shared) = (Arc::clone(samples), Arc::clone(&workers.shared));
            let thread = Builder::new().name(format!("hw-data-{i}"));
            let thread = thread.spawn(move || work(&samples, &shared));
            workers.threads.push(thread.map_err(DataError::Thread)?);
        }
        Ok(workers)
    }

    /// Waits for a batch of an epoch that ends there.
    pub(super) fn take(&self, at: Cursor, end: u64) -> Result<B, DataError> {
        let mut board = self.shared.board();
        if (board.epoch, board.wanted, board.end) != (at.epoch, at.batch, end) {
            board.restart(at, end);
        }
        self.shared.work.notify_all();
        loop {
            match board.come.remove(&at.batch) {
                None => {}
                Some(Ok((batch, bytes))) => {
                    board.come_bytes -= bytes;
                    board.wanted += 1;
                    self.shared.work.notify_all();
                    return Ok(batch);
                }
                Some(Err(error)) => {
                    // Asked again, it is tried again.
                    board.restart(at, 0);
                    return Err(error);
                }
            }
            board = self
                .shared
                .come
                .wait(board)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Forgets what was loaded ahead.
    pub(super) fn forget(&self) {
        self.shared.board().restart(Cursor::default(), 0);
    }
}

impl<B> Drop for Workers<B> {
    fn drop(&mut self) {
        self.shared.board().over = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // It loads what it has begun; panics of datasets are errors.
            let _ = thread.join();
        }
    }
}

/// What a worker does until it is over.
fn work<D: Dataset, B: Batch>(samples: &Samples<D, B>, shared: &Shared<B>) {
    let mut board = shared.board();
    while !board.over {
        if !board.may_load(&samples.options) {
            board = shared
                .work
                .wait(board)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let (epoch, batch, turn) = (board.epoch, board.next, board.turn);
        board.next += 1;
        board.loading += 1;
        drop(board);
        let loaded = samples.load(Cursor { epoch, batch });
        board = shared.board();
        board.loading -= 1;
        let bytes = loaded.as_ref().map_or(0, |(_, bytes)| *bytes);
        board.largest = board.largest.max(Some(bytes));
        if board.turn == turn {
            board.come_bytes += bytes;
            board.come.insert(batch, loaded);
        }
        // Another may be loaded now that this one's size is known.
        shared.work.notify_all();
        shared.come.notify_all();
    }
}
