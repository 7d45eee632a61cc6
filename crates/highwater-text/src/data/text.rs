//! Text whose bytes are the tokens: several files as if they were one.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use highwater_memory::{FileRead, Files};

use super::DataError;
use super::splits::Found;

/// Starts of files that are packed or hold something else than text.
const OTHERS: [(&[u8], &str, &str); 11] = [
    (b"\x1f\x8b", "packed with gzip", "unpack it with gunzip"),
    (
        b"\x28\xb5\x2f\xfd",
        "packed with Zstandard",
        "unpack it with unzstd",
    ),
    (b"\xfd7zXZ\0", "packed with xz", "unpack it with unxz"),
    (
        b"\x04\x22\x4d\x18",
        "packed with LZ4",
        "unpack it with unlz4",
    ),
    (b"BZh91AY&SY", "packed with bzip2", "unpack it with bunzip2"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (
        b"PK\x03\x04",
        "a ZIP archive",
        "unpack it; of an .npz save the array of tokens with numpy.save as .npy",
    ),
    (
        b"\x93NUMPY",
        "an array of NumPy",
        "let its name end in .npy",
    ),
    (b"ARROW1\0", "a file of Arrow", "save it as Parquet"),
    (b"PAR1", "a file of Parquet", "let its name end in .parquet"),
    (b"%PDF-", "a PDF", "take its text out, with pdftotext"),
];

/// That a file does not start like one of another kind, whose bytes would be trained on.
pub(super) fn check(files: &dyn Files, path: &Path) -> Result<(), DataError> {
    let mut file = files.open(path)?;
    let mut head = vec![0; file.bytes().min(16) as usize];
    file.read_exact_at(0, &mut head)?;
    // The digit is the level: 9 unless another was asked for.
    if head.starts_with(b"BZh") && head.get(4..10) == Some(b"1AY&SY") {
        head[3] = b'9';
    }
    match OTHERS.iter().find(|(start, ..)| head.starts_with(start)) {
        None => Ok(()),
        Some((_, what, hint)) => Err(DataError::Format {
            path: path.to_owned(),
            problem: format!("the file is {what}, not text; {hint}"),
        }),
    }
}

/// The bytes of several files as if they were one. One file is open at a time.
#[derive(Debug)]
pub(super) struct TextBytes {
    files: std::sync::Arc<dyn Files>,
    /// Each file with where it ends.
    parts: Vec<(PathBuf, u64)>,
    open: Option<(usize, Box<dyn FileRead>)>,
}

impl TextBytes {
    pub(super) fn new(
        files: std::sync::Arc<dyn Files>,
        parts: impl IntoIterator<Item = Found>,
    ) -> Self {
        let mut end = 0_u64;
        let ends = parts.into_iter().map(|(path, bytes)| {
            end += bytes;
            (path, end)
        });
        Self {
            parts: ends.collect(),
            files,
            open: None,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.parts.last().map_or(0, |&(_, end)| end)
    }

    /// Fills the buffer from byte `at` on, which must be there.
    pub(super) fn read(&mut self, mut at: u64, mut out: &mut [u8]) -> Result<(), DataError> {
        while !out.is_empty() {
            let part = self.parts.partition_point(|&(_, end)| end <= at);
            let start = part.checked_sub(1).map_or(0, |before| self.parts[before].1);
            let (path, end) = &self.parts[part];
            let (now, later) = out.split_at_mut(out.len().min((end - at) as usize));
            let file = match &mut self.open {
                Some((open, file)) if *open == part => file,
                open => &mut open.insert((part, self.files.open(path)?)).1,
            };
            file.read_exact_at(at - start, now)?;
            at += now.len() as u64;
            out = later;
        }
        Ok(())
    }
}

/// Reads from front to back, for a tokenizer.
#[derive(Debug)]
pub(super) struct TextReader {
    text: TextBytes,
    /// Bytes that were read, for others to see.
    at: Rc<Cell<u64>>,
}

impl TextReader {
    pub(super) fn new(text: TextBytes) -> Self {
        Self {
            text,
            at: Rc::default(),
        }
    }

    /// How many bytes were read, whenever it is asked.
    pub(super) fn counter(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.at)
    }
}

impl std::io::Read for TextReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let at = self.at.get();
        let left = self.text.bytes() - at;
        let count = left.min(buffer.len() as u64) as usize;
        let read = self.text.read(at, &mut buffer[..count]);
        read.map_err(std::io::Error::other)?;
        self.at.set(at + count as u64);
        Ok(count)
    }
}
