//! One transfer as many requests, several of them under way at a time.

#![expect(
    unsafe_code,
    reason = "memory is lent to whoever carries requests out, until they are done"
)]

use std::fmt::Debug;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::Disk;

/// The most bytes of one request. Requests end where this divides their place in the file.
pub(super) const REQUEST: usize = 1 << 20;
/// The most requests that are under way, each way.
pub(super) const DEPTH: usize = 16;
/// The most parts of one request: the system takes up to 1024.
const PARTS: usize = 256;

/// Memory that a request writes or reads into, laid out as the system's `iovec`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Part {
    pub(super) start: *mut u8,
    pub(super) bytes: usize,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Write,
    Read,
}

/// Something to be carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// By which its end is told.
    pub(super) number: usize,
    pub(super) way: Way,
    /// Where in the file it starts, in bytes.
    pub(super) offset: u64,
    pub(super) parts: *const Part,
    pub(super) count: usize,
}

/// The end of a request: its number, and the bytes that were transferred, from the first on.
pub(super) type Landed = (usize, io::Result<usize>);

/// Who carries requests out.
pub(super) trait Lane: Send + Debug {
    /// Starts a request; there are at most [`DEPTH`] at a time. One that is refused is not under way.
    ///
    /// # Safety
    /// Until its end has been told, the parts and the memory that they name stay valid; what is read
    /// into is used by nobody else, and what is written from is not changed.
    unsafe fn start(&mut self, request: &Request) -> io::Result<()>;

    /// A request that has ended, if there is one. If it is to wait, it may still come back with none.
    fn land(&mut self, wait: bool) -> Option<Landed>;
}

/// A disk of two lanes: writing and reading do not wait for each other.
#[derive(Debug)]
pub(super) struct Lanes<L> {
    pub(super) write: Mutex<L>,
    pub(super) read: Mutex<L>,
    /// How bytes travel, in a few words.
    pub(super) backend: &'static str,
}

impl<L: Lane> Disk for Lanes<L> {
    fn write_at(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        let parts = parts.iter().map(|part| Part {
            start: part.as_ptr().cast_mut(),
            bytes: part.len(),
        });
        let cut = Cut::new(offset, parts);
        // After a panic nothing is under way: see `Flight`.
        let mut lane = self.write.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the buffers are borrowed until this returns, and only read.
        unsafe { transfer(&mut *lane, Way::Write, &cut, seen) }
    }

    fn read_at(
        &self,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        let parts = parts.iter_mut().map(|part| Part {
            start: part.as_mut_ptr(),
            bytes: part.len(),
        });
        let cut = Cut::new(offset, parts);
        let mut lane = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the buffers are borrowed mutably until this returns.
        unsafe { transfer(&mut *lane, Way::Read, &cut, seen) }
    }

    fn backend(&self) -> &'static str {
        self.backend
    }
}

/// A transfer cut into pieces, one for each request.
struct Cut {
    parts: Vec<Part>,
    pieces: Vec<Piece>,
}

struct Piece {
    offset: u64,
    bytes: usize,
    parts: Range<usize>,
}

impl Cut {
    fn new(offset: u64, whole: impl Iterator<Item = Part>) -> Self {
        let (mut parts, mut pieces) = (Vec::new(), Vec::<Piece>::new());
        let mut at = offset;
        for mut part in whole {
            while part.bytes > 0 {
                let room = REQUEST - at as usize % REQUEST;
                let now = Part {
                    bytes: part.bytes.min(room),
                    ..part
                };
                match pieces.last_mut() {
                    Some(piece) if room < REQUEST && piece.parts.len() < PARTS => {
                        piece.bytes += now.bytes;
                        piece.parts.end += 1;
                    }
                    _ => pieces.push(Piece {
                        offset: at,
                        bytes: now.bytes,
                        parts: parts.len()..parts.len() + 1,
                    }),
                }
                parts.push(now);
                at += now.bytes as u64;
                part = Part {
                    start: part.start.wrapping_add(now.bytes),
                    bytes: part.bytes - now.bytes,
                };
            }
        }
        Self { parts, pieces }
    }
}

/// A lane with requests under way. It does not go before they are done: they use memory of others.
struct Flight<'a, L: Lane> {
    lane: &'a mut L,
    under_way: usize,
}

impl<L: Lane> Flight<'_, L> {
    fn land(&mut self, wait: bool) -> Option<Landed> {
        let landed = self.lane.land(wait && self.under_way > 0)?;
        self.under_way -= 1;
        Some(landed)
    }
}

impl<L: Lane> Drop for Flight<'_, L> {
    fn drop(&mut self) {
        while self.under_way > 0 {
            self.land(true);
        }
    }
}

/// Transfers the pieces, and says how many bytes it were from the first on; after a failure no more
/// requests are started. What is there to be seen is shown whenever there is nothing else to do.
///
/// # Safety
/// The memory of the parts is valid until this returns; what is read into is used by nobody else, and
/// what is written from is not changed.
unsafe fn transfer<L: Lane>(
    lane: &mut L,
    way: Way,
    cut: &Cut,
    seen: &mut dyn FnMut(&[u8]),
) -> io::Result<usize> {
    let pieces = &cut.pieces;
    let mut flight = Flight { lane, under_way: 0 };
    let mut landed = vec![0; pieces.len()];
    // Pieces that were started, those that are wholly done from the first on, those that were shown.
    let (mut started, mut done, mut shown) = (0, 0, 0);
    // The first request, by number, that came to less than all of its bytes.
    let mut failed: Option<Landed> = None;
    loop {
        while started < pieces.len() && failed.is_none() && flight.under_way < DEPTH {
            let piece = &pieces[started];
            let request = Request {
                number: started,
                way,
                offset: piece.offset,
                parts: cut.parts[piece.parts.clone()].as_ptr(),
                count: piece.parts.len(),
            };
            // SAFETY: as the caller promises; the flight ends after its last request.
            match unsafe { flight.lane.start(&request) } {
                Ok(()) => flight.under_way += 1,
                Err(error) => failed = Some((started, Err(error))),
            }
            started += 1;
        }
        let showable = match way {
            Way::Write if failed.is_some() => shown,
            Way::Write => pieces.len(),
            Way::Read => done,
        };
        let idle = shown == showable;
        if idle && flight.under_way == 0 {
            break;
        }
        while let Some((number, result)) = flight.land(idle) {
            let bytes = *result.as_ref().unwrap_or(&0);
            landed[number] = bytes;
            let first = failed.as_ref().is_none_or(|&(first, _)| number < first);
            if bytes < pieces[number].bytes && first {
                failed = Some((number, result));
            }
            if idle {
                break;
            }
        }
        while done < pieces.len() && landed[done] == pieces[done].bytes {
            done += 1;
        }
        if !idle {
            for part in &cut.parts[pieces[shown].parts.clone()] {
                // SAFETY: the caller's memory; of what is read into, this part is done.
                seen(unsafe { std::slice::from_raw_parts(part.start, part.bytes) });
            }
            shown += 1;
        }
    }
    let whole: usize = pieces[..done].iter().map(|piece| piece.bytes).sum();
    match failed {
        Some((_, Err(error))) if whole == 0 => Err(error),
        _ => Ok(whole + landed.get(done).unwrap_or(&0)),
    }
}
