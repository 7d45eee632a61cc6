//! Looks images over before they are trained on: whether each can be decoded, and how much memory that needs.

use super::decode;
use super::layout::Found;
use super::whole::{Flaw, Header, Source, Window, check};
use crate::DataError;
use highwater_memory::{Files, FilesError};
use std::io::ErrorKind;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Memory that a thread uses at most to decode an image while it looks it over, in bytes.
pub const LOOK_BYTES: u64 = 8 << 20;
/// As much of a file is read at once at first: most headers are shorter.
const BEGINNING_BYTES: u64 = 4 << 10;

/// How closely images are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Headers, and whether files have all that they announce.
    Whole,
    /// The same, and images that [`LOOK_BYTES`] are enough for are decoded.
    Decoded,
}

/// What came of looking at some images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looked {
    /// The image that decoding needs most memory for, by its place among those that were looked at.
    pub largest: Option<Largest>,
    /// Images that cannot be used, by their places, with the reason.
    pub bad: Vec<(usize, String)>,
}

/// The image that decoding needs most memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Largest {
    /// Its place.
    pub place: usize,
    /// Columns and rows.
    pub sides: [usize; 2],
    /// Bytes for its pixels while it is decoded, and for its file.
    pub decoding_bytes: u64,
}

/// Looks at images, on some threads. What comes of it does not depend on how many.
///
/// # Errors
/// [`DataError::Files`] for a file that cannot be read now, though it may be well: a missing file, and one that this
/// user may not read, are bad images instead.
pub fn look_over(
    files: &dyn Files,
    images: &[Found],
    depth: Depth,
    threads: usize,
) -> Result<Looked, DataError> {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Ok(Looked::default()));
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(image) = images.get(place) else {
                break;
            };
            let found = look(files, image, depth);
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(looked) = &mut *all else { break };
            match found {
                Ok(Ok(header)) => looked.take(place, header, image.bytes),
                Ok(Err(problem)) => looked.bad.push((place, problem)),
                Err(error) => *all = Err(error),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(images.len()) {
            // A thread that cannot be had is not needed: this one does all of the work then.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut looked = all.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    looked.bad.sort();
    Ok(looked)
}

impl Looked {
    fn take(&mut self, place: usize, header: Header, bytes: u64) {
        let found = Largest {
            place,
            sides: [header.width, header.height],
            decoding_bytes: header.decoding_bytes() + bytes,
        };
        // Of several of one size the first, whichever thread looked at it.
        let order = |of: &Largest| (of.decoding_bytes, std::cmp::Reverse(of.place));
        if self
            .largest
            .is_none_or(|largest| order(&found) > order(&largest))
        {
            self.largest = Some(found);
        }
    }
}

/// Looks at an image: its header, or what is wrong with it.
fn look(
    files: &dyn Files,
    image: &Found,
    depth: Depth,
) -> Result<Result<Header, String>, FilesError> {
    if let Some(problem) = image.problem {
        return Ok(Err(problem.to_owned()));
    }
    match header(files, image, depth) {
        Ok(header) => Ok(Ok(header)),
        Err(Flaw::Image(problem)) => Ok(Err(problem)),
        Err(Flaw::File(error)) => match error.source.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => Ok(Err(error.source.to_string())),
            _ => Err(error),
        },
    }
}

fn header(files: &dyn Files, image: &Found, depth: Depth) -> Result<Header, Flaw> {
    let mut file = files.open(&image.path)?;
    // Nothing is read ahead: most of the file is not needed.
    file.read_until(BEGINNING_BYTES);
    let header = check(&mut Window::new(Source::File(&mut *file)))?;
    let length = file.bytes();
    if depth == Depth::Decoded && header.decoding_bytes() + length <= LOOK_BYTES {
        file.read_until(length);
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(0, &mut bytes)?;
        decode::read(header, &bytes)?;
    }
    Ok(header)
}
