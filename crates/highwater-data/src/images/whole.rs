//! Whether an image file is whole: its header, and whether all that it announces is there. Nothing is decoded, and a
//! few KiB of the file are held at a time.

mod jpeg;
mod orientation;
mod others;
mod png;

pub(super) use orientation::Orientation;
pub(super) use others::{Netpbm, netpbm, tiff_kind};

use super::format::{Format, MAGIC_BYTES};
use highwater_memory::{FileRead, FilesError};
use std::io;

/// Bytes of pixels at most, three for each: more than 178 million pixels are refused, as by Pillow.
pub(super) const MOST_BYTES: u64 = 512 << 20;
/// Bytes of a file that are held at a time.
const WINDOW_BYTES: usize = 4 << 10;

/// What an image file is, by its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Its format, whatever its name ends in.
    pub format: Format,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Header {
    /// Memory that decoding needs at most, in bytes, beside the file itself.
    pub fn decoding_bytes(&self) -> u64 {
        // Three bytes for the result, and what each decoder holds beside it: of a progressive JPEG all coefficients, of
        // TIFF samples of 16 bits.
        let each = match self.format {
            Format::Png | Format::Jpeg | Format::Bmp => 9,
            Format::Gif | Format::Pnm => 6,
            Format::WebP => 12,
            Format::Tiff => 16,
        };
        each * (self.width * self.height) as u64
    }
}

/// Why an image cannot be used.
#[derive(Debug)]
pub(super) enum Flaw {
    /// It is damaged, cut off, too large, or of a kind that is not read.
    Image(String),
    /// The file could not be read.
    File(FilesError),
}

impl From<String> for Flaw {
    fn from(problem: String) -> Self {
        Self::Image(problem)
    }
}

impl From<&str> for Flaw {
    fn from(problem: &str) -> Self {
        Self::Image(problem.to_owned())
    }
}

impl From<FilesError> for Flaw {
    fn from(error: FilesError) -> Self {
        Self::File(error)
    }
}

/// Where the bytes of an image are.
pub(super) enum Source<'a> {
    Memory(&'a [u8]),
    File(&'a mut dyn FileRead),
}

/// The bytes of an image, a window at a time.
pub(super) struct Window<'a> {
    source: Source<'a>,
    length: u64,
    start: u64,
    held: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
        let length = match &source {
            Source::Memory(bytes) => bytes.len() as u64,
            Source::File(file) => file.bytes(),
        };
        Self {
            source,
            length,
            start: 0,
            held: Vec::new(),
        }
    }

    fn length(&self) -> u64 {
        self.length
    }

    /// That the file does not end before `end`.
    fn reaches(&self, end: u64) -> Result<(), Flaw> {
        if end <= self.length {
            return Ok(());
        }
        Err(Flaw::Image(format!(
            "cut off: the file has {} bytes and needs {end}",
            self.length
        )))
    }

    /// So many bytes from `offset` on.
    fn at(&mut self, offset: u64, count: usize) -> Result<&[u8], Flaw> {
        let end = offset.saturating_add(count as u64);
        self.reaches(end)?;
        if offset < self.start || end > self.start + self.held.len() as u64 {
            let size = (self.length - offset).min(count.max(WINDOW_BYTES) as u64);
            self.held.resize(size as usize, 0);
            self.start = offset;
            self.fill(offset)?;
        }
        let first = (offset - self.start) as usize;
        Ok(&self.held[first..first + count])
    }

    fn fill(&mut self, offset: u64) -> Result<(), Flaw> {
        match &mut self.source {
            Source::Memory(bytes) => {
                let from = &bytes[offset as usize..];
                let size = self.held.len();
                self.held.copy_from_slice(&from[..size]);
                Ok(())
            }
            Source::File(file) => {
                let read = file.read_exact_at(offset, &mut self.held);
                // A window that could not be filled holds nothing.
                read.inspect_err(|_| self.held.clear()).map_err(Flaw::File)
            }
        }
    }

    /// What there is of so many bytes from `offset` on.
    fn some(&mut self, offset: u64, count: usize) -> Result<&[u8], Flaw> {
        let there = self.length.saturating_sub(offset).min(count as u64);
        self.at(offset, there as usize)
    }

    fn byte(&mut self, offset: u64) -> Result<u8, Flaw> {
        Ok(self.at(offset, 1)?[0])
    }

    fn array<const N: usize>(&mut self, offset: u64) -> Result<[u8; N], Flaw> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.at(offset, N)?);
        Ok(bytes)
    }

    fn u16_le(&mut self, offset: u64) -> Result<u16, Flaw> {
        Ok(u16::from_le_bytes(self.array(offset)?))
    }

    fn u16_be(&mut self, offset: u64) -> Result<u16, Flaw> {
        Ok(u16::from_be_bytes(self.array(offset)?))
    }

    fn u32_le(&mut self, offset: u64) -> Result<u32, Flaw> {
        Ok(u32::from_le_bytes(self.array(offset)?))
    }

    fn u32_be(&mut self, offset: u64) -> Result<u32, Flaw> {
        Ok(u32::from_be_bytes(self.array(offset)?))
    }
}

/// The same bytes through the standard library's traits, for a decoder that seeks.
struct Seeking<'a, 'b> {
    window: &'a mut Window<'b>,
    offset: u64,
}

impl io::Read for Seeking<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let found = self
            .window
            .some(self.offset, buffer.len().min(WINDOW_BYTES));
        let found = found.map_err(|flaw| match flaw {
            Flaw::Image(problem) => io::Error::other(problem),
            Flaw::File(error) => error.into(),
        })?;
        buffer[..found.len()].copy_from_slice(found);
        let read = found.len();
        self.offset += read as u64;
        Ok(read)
    }
}

impl io::Seek for Seeking<'_, '_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let from = |base: u64, by: i64| {
            let found = base.checked_add_signed(by);
            found.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
        };
        self.offset = match to {
            io::SeekFrom::Start(offset) => offset,
            io::SeekFrom::End(by) => from(self.window.length(), by)?,
            io::SeekFrom::Current(by) => from(self.offset, by)?,
        };
        Ok(self.offset)
    }
}

/// Reads the header of an image, and finds whether the file has all that it announces.
pub(super) fn check(window: &mut Window<'_>) -> Result<Header, Flaw> {
    let format = Format::of(window.some(0, MAGIC_BYTES)?)?;
    let [width, height] = match format {
        Format::Png => png::check(window),
        Format::Jpeg => jpeg::check(window),
        Format::WebP => others::webp(window),
        Format::Gif => others::gif(window),
        Format::Bmp => others::bmp(window),
        Format::Tiff => others::tiff(window),
        Format::Pnm => others::pnm(window),
    }?;
    let header = Header {
        format,
        width,
        height,
    };
    let bytes = 3 * width as u128 * height as u128;
    if bytes == 0 {
        return Err(Flaw::Image(format!("{width} x {height}: no pixels")));
    }
    if bytes > u128::from(MOST_BYTES) {
        return Err(Flaw::Image(format!(
            "its header says {width} x {height} pixels: more than 178 million are not read"
        )));
    }
    Ok(header)
}
