//! The bytes of a file from front to back, unpacked.

use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;
use highwater_memory::Files;
use highwater_memory::files::Sequential;

use super::fault::lift;
use super::kind::{Kind, Wrap};
use super::{Fault, sniff};
use crate::{Position, TextError};

/// What is read ahead.
const BUFFER_BYTES: usize = 64 << 10;
/// Zstandard may look back so far: 8 MiB, as what is packed with levels up to 19 does.
const WINDOW_LOG_MAX: u32 = 23;

/// A file's bytes, unpacked.
pub(super) type Source = BufReader<Box<dyn Read + Send>>;

/// Opens a file of text, packed or not.
///
/// # Errors
/// [`TextError`], also where its first bytes say that it is something else.
pub(super) fn open(
    files: &dyn Files,
    path: &Path,
    kind: Kind,
    read: &Arc<AtomicU64>,
) -> Result<Source, TextError> {
    let at = |fault: Fault| fault.at(path, Position::Whole);
    let lifted = |error| lift(error, path, Position::Whole);
    let file = files.open(path)?;
    let mut raw = Counted {
        inner: Sequential::new(file),
        read: Arc::clone(read),
    };
    let head = head(&mut raw).map_err(lifted)?;
    let found = sniff::wrap(&head);
    if let (Some(wrap), None, false) = (kind.wrap, found, head.is_empty()) {
        sniff::check(&head, kind.format).map_err(at)?;
        let fault = Fault::new(format!("the file is not packed with {}", wrap.name()));
        let hint = format!(
            "remove {} from its name, or download it again",
            wrap.ending()
        );
        return Err(at(fault.hint(hint)));
    }
    let raw = Cursor::new(head).chain(raw);
    let mut unpacked: Box<dyn Read + Send> = match found {
        None => Box::new(raw),
        Some(Wrap::Gzip) => Box::new(Unpacked {
            inner: MultiGzDecoder::new(raw),
        }),
        Some(Wrap::Zstd) => {
            let mut inner = zstd::stream::read::Decoder::new(raw).map_err(lifted)?;
            inner.window_log_max(WINDOW_LOG_MAX).map_err(lifted)?;
            Box::new(Unpacked { inner })
        }
    };
    let head = self::head(&mut unpacked).map_err(lifted)?;
    sniff::check(&head, kind.format).map_err(at)?;
    let all = Cursor::new(head).chain(unpacked);
    Ok(BufReader::with_capacity(BUFFER_BYTES, Box::new(all)))
}

/// The first bytes.
fn head(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(sniff::HEAD_BYTES);
    source
        .take(sniff::HEAD_BYTES as u64)
        .read_to_end(&mut head)?;
    Ok(head)
}

/// How many lines end within bytes.
pub(super) fn breaks(bytes: &[u8]) -> u64 {
    bytes.split(|&byte| byte == b'\n').count() as u64 - 1
}

/// Counts what is read.
struct Counted {
    inner: Sequential,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Says of packed bytes what is wrong with them.
struct Unpacked<R> {
    inner: R,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(damage)
    }
}

/// What an error of unpacking means. Errors of the file itself stay as they are.
fn damage(error: io::Error) -> io::Error {
    if error
        .get_ref()
        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<highwater_memory::FilesError>)
    {
        return error;
    }
    let said = error.to_string();
    if error.kind() == io::ErrorKind::UnexpectedEof {
        let cut = Fault::new("the compressed data ends in the middle");
        return cut.hint("copy the file again").io();
    }
    if said.contains("too much memory") {
        let window =
            Fault::new("it is packed so that unpacking needs more than 8 MiB to look back");
        let hint = "pack it again: unzstd --long=31 -c FILE | zstd -19 -o NEW";
        return window.hint(hint).io();
    }
    let fault = Fault::new(format!("the compressed data is damaged: {said}"));
    fault.hint("copy the file again").io()
}
