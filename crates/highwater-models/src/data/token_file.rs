//! Files of tokens: NumPy's `.npy`, and `.bin` as nanoGPT and llm.c write it.

use std::path::{Path, PathBuf};

use highwater_memory::{FileRead, Files};
use serde::{Deserialize, Serialize};

use super::DataError;
use highwater::data::NpyHeader;

/// Bytes of a file that are in memory at once.
const WINDOW_BYTES: usize = 64 << 10;
/// Bytes of llm.c's header, 256 numbers of 32 bits.
const LLMC_HEADER_BYTES: u64 = 1024;
/// llm.c's magic numbers, each with the one version that is known and its width.
const LLMC: [(u32, u32, TokenWidth); 2] = [
    (20_240_520, 1, TokenWidth::U16),
    (20_240_801, 7, TokenWidth::U32),
];

/// How wide the tokens of a headerless `.bin` are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenWidth {
    /// 16 bits, as nanoGPT has them.
    #[default]
    U16,
    /// 32 bits.
    U32,
}

/// How a token is stored, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    U16,
    U32,
    I32,
    I64,
}

impl Element {
    fn bytes(self) -> usize {
        match self {
            Self::U16 => 2,
            Self::U32 | Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// The tokens in `bytes`.
    fn each(self, bytes: &[u8], mut take: impl FnMut(i64)) {
        match self {
            Self::U16 => (bytes.as_chunks().0.iter())
                .for_each(|&bytes| take(i64::from(u16::from_le_bytes(bytes)))),
            Self::U32 => (bytes.as_chunks().0.iter())
                .for_each(|&bytes| take(i64::from(u32::from_le_bytes(bytes)))),
            Self::I32 => (bytes.as_chunks().0.iter())
                .for_each(|&bytes| take(i64::from(i32::from_le_bytes(bytes)))),
            Self::I64 => {
                (bytes.as_chunks().0.iter()).for_each(|&bytes| take(i64::from_le_bytes(bytes)));
            }
        }
    }
}

impl From<TokenWidth> for Element {
    fn from(width: TokenWidth) -> Self {
        match width {
            TokenWidth::U16 => Self::U16,
            TokenWidth::U32 => Self::U32,
        }
    }
}

/// An open file of tokens; each token is checked as it is read.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    file: Box<dyn FileRead>,
    element: Element,
    /// Where the tokens start, in bytes.
    data_at: u64,
    tokens: u64,
    vocab_size: u32,
    window: Vec<u8>,
}

impl TokenFile {
    /// Opens a `.npy` or `.bin`, by its ending.
    pub(super) fn open(
        files: &dyn Files,
        path: &Path,
        width: TokenWidth,
        vocab_size: u32,
    ) -> Result<Self, DataError> {
        let mut file = files.open(path)?;
        let layout = if path.extension().is_some_and(|ending| ending == "npy") {
            npy_layout(file.as_mut())
        } else {
            bin_layout(file.as_mut(), width)
        };
        let layout = layout?.map_err(|problem| DataError::Format {
            path: path.to_owned(),
            problem,
        });
        Self::with_layout(file, path, layout?, vocab_size)
    }

    /// Opens a `.bin` known to have no header.
    pub(super) fn open_raw(
        files: &dyn Files,
        path: &Path,
        width: TokenWidth,
        vocab_size: u32,
    ) -> Result<Self, DataError> {
        let file = files.open(path)?;
        let layout = raw_layout(file.bytes(), width).map_err(|problem| DataError::Format {
            path: path.to_owned(),
            problem,
        });
        Self::with_layout(file, path, layout?, vocab_size)
    }

    fn with_layout(
        file: Box<dyn FileRead>,
        path: &Path,
        layout: Layout,
        vocab_size: u32,
    ) -> Result<Self, DataError> {
        let bytes = layout.tokens.checked_mul(layout.element.bytes() as u64);
        let end = bytes.and_then(|bytes| bytes.checked_add(layout.data_at));
        if end != Some(file.bytes()) {
            return Err(DataError::Format {
                path: path.to_owned(),
                problem: format!(
                    "{} tokens by its header, but {} bytes long; truncated or damaged",
                    layout.tokens,
                    file.bytes()
                ),
            });
        }
        if layout.tokens == 0 {
            return Err(DataError::Empty {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            element: layout.element,
            data_at: layout.data_at,
            tokens: layout.tokens,
            vocab_size,
            window: vec![0; WINDOW_BYTES],
        })
    }

    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Fills the buffer from token `at` on, which must be there.
    pub(super) fn read(&mut self, at: u64, out: &mut [u32]) -> Result<(), DataError> {
        let mut out = out.iter_mut();
        self.windows(at, out.len() as u64, |token| {
            if let Some(out) = out.next() {
                *out = token;
            }
        })
    }

    /// Reads all of it once, so that a token that the model does not have is found before training
    /// and not in the midst of it.
    pub(super) fn check(&mut self) -> Result<(), DataError> {
        self.windows(0, self.tokens, |_| {})
    }

    fn windows(
        &mut self,
        mut at: u64,
        count: u64,
        mut take: impl FnMut(u32),
    ) -> Result<(), DataError> {
        let width = self.element.bytes();
        let end = at + count;
        while at < end {
            let now = (end - at).min((WINDOW_BYTES / width) as u64);
            let window = &mut self.window[..now as usize * width];
            self.file
                .read_exact_at(self.data_at + at * width as u64, window)?;
            let (mut index, mut wrong) = (at, None);
            self.element.each(window, |token| {
                if !(0..i64::from(self.vocab_size)).contains(&token) {
                    wrong.get_or_insert((index, token));
                }
                take(token as u32);
                index += 1;
            });
            if let Some((index, token)) = wrong {
                return Err(DataError::Token {
                    path: self.path.clone(),
                    index,
                    token,
                    vocab_size: self.vocab_size,
                });
            }
            at += now;
        }
        Ok(())
    }
}

/// Where a file's tokens are, and how many.
#[derive(Clone, Copy)]
struct Layout {
    element: Element,
    data_at: u64,
    tokens: u64,
}

/// A layout, or what is wrong with the file; the outer error is of reading it.
type Parsed = Result<Result<Layout, String>, DataError>;

fn raw_layout(bytes: u64, width: TokenWidth) -> Result<Layout, String> {
    let element = Element::from(width);
    let size = element.bytes() as u64;
    let whole = bytes.is_multiple_of(size);
    let layout = Layout {
        element,
        data_at: 0,
        tokens: bytes / size,
    };
    whole
        .then_some(layout)
        .ok_or_else(|| format!("{bytes} bytes are no whole number of tokens of {size}"))
}

fn bin_layout(file: &mut dyn FileRead, width: TokenWidth) -> Parsed {
    let mut header = [0; 12];
    if file.bytes() < LLMC_HEADER_BYTES {
        return Ok(raw_layout(file.bytes(), width));
    }
    file.read_exact_at(0, &mut header)?;
    let numbers: Vec<u32> = (header.as_chunks().0.iter())
        .map(|&bytes| u32::from_le_bytes(bytes))
        .collect();
    let (magic, version, tokens) = (numbers[0], numbers[1], numbers[2]);
    let Some((_, known, width)) = LLMC.into_iter().find(|known| known.0 == magic) else {
        return Ok(raw_layout(file.bytes(), width));
    };
    if version != known {
        return Ok(Err(format!(
            "llm.c's format {magic}, version {version}; only version {known} is known"
        )));
    }
    Ok(Ok(Layout {
        element: width.into(),
        data_at: LLMC_HEADER_BYTES,
        tokens: u64::from(tokens),
    }))
}

fn npy_layout(file: &mut dyn FileRead) -> Parsed {
    Ok(NpyHeader::read(file)?.and_then(|npy| {
        let element = match &*npy.descr {
            "<u2" => Element::U16,
            "<u4" => Element::U32,
            "<i4" => Element::I32,
            "<i8" => Element::I64,
            found => {
                return Err(format!(
                    "element type {found}; expected <u2, <u4, <i4 or <i8 (uint16, uint32, int32, int64)"
                ));
            }
        };
        let &[tokens] = npy.shape.as_slice() else {
            return Err(format!("shape {:?}; expected one dimension", npy.shape));
        };
        Ok(Layout {
            element,
            data_at: npy.data_at,
            tokens,
        })
    }))
}
