//! How files store tokens: NumPy's `.npy`, and `.bin` as nanoGPT, llm.c, Megatron and `numpy.tofile` write it.

use std::path::Path;

use highwater_data::NpyHeader;
use highwater_memory::{FileRead, Files};
use serde::{Deserialize, Serialize};

use super::DataError;

/// Bytes of llm.c's header, 256 numbers of 32 bits.
const LLMC_HEADER_BYTES: u64 = 1024;
/// llm.c's magic numbers, each with the one version that is known and its width.
const LLMC: [(u32, u32, TokenWidth); 2] = [
    (20_240_520, 1, TokenWidth::U16),
    (20_240_801, 7, TokenWidth::U32),
];
/// The start of the index that Megatron writes beside a `.bin`: a mark and version 1, before the type's number.
const MEGATRON: &[u8; 17] = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0";
/// Bytes at the start of a `.bin` that are looked at for its width.
const SAMPLE_BYTES: usize = 64 << 10;
/// With fewer tokens than this, their bytes say nothing about their width.
const SAMPLE_LEAST: usize = 16;
/// Models of more tokens than this cannot have them in 16 bits.
const OF_16_BITS: u32 = 1 << 16;

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

/// How a token is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    kind: Kind,
    /// Whether the highest byte comes first.
    is_big: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
}

impl Kind {
    /// By the letters that NumPy has for it.
    fn of_numpy(code: &str) -> Option<Self> {
        Some(match code {
            "u1" => Self::U8,
            "i1" => Self::I8,
            "u2" => Self::U16,
            "i2" => Self::I16,
            "u4" => Self::U32,
            "i4" => Self::I32,
            "u8" => Self::U64,
            "i8" => Self::I64,
            _ => return None,
        })
    }

    /// By the number that Megatron has for it.
    fn of_megatron(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::U8,
            2 => Self::I8,
            3 => Self::I16,
            4 => Self::I32,
            5 => Self::I64,
            8 => Self::U16,
            _ => return None,
        })
    }
}

impl Element {
    const fn little(kind: Kind) -> Self {
        Self {
            kind,
            is_big: false,
        }
    }

    pub(super) fn bytes(self) -> usize {
        match self.kind {
            Kind::U8 | Kind::I8 => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 => 4,
            Kind::U64 | Kind::I64 => 8,
        }
    }

    /// The tokens in `bytes`.
    pub(super) fn each(self, bytes: &[u8], mut take: impl FnMut(i128)) {
        macro_rules! each {
            ($number:ty) => {{
                let read = if self.is_big {
                    <$number>::from_be_bytes
                } else {
                    <$number>::from_le_bytes
                };
                let tokens = bytes.as_chunks().0.iter();
                tokens.for_each(|&bytes| take(read(bytes).into()));
            }};
        }
        match self.kind {
            Kind::U8 => each!(u8),
            Kind::I8 => each!(i8),
            Kind::U16 => each!(u16),
            Kind::I16 => each!(i16),
            Kind::U32 => each!(u32),
            Kind::I32 => each!(i32),
            Kind::U64 => each!(u64),
            Kind::I64 => each!(i64),
        }
    }
}

impl From<TokenWidth> for Element {
    fn from(width: TokenWidth) -> Self {
        Self::little(match width {
            TokenWidth::U16 => Kind::U16,
            TokenWidth::U32 => Kind::U32,
        })
    }
}

/// Where a file's tokens are, and how many.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) element: Element,
    pub(super) data_at: u64,
    pub(super) tokens: u64,
    /// Rows and columns of an array that is stored column after column.
    pub(super) by_columns: Option<[u64; 2]>,
    /// What told the width, for people.
    told_by: String,
}

/// A layout, or what is wrong with the file; the outer error is of reading it.
type Parsed = Result<Result<Layout, String>, DataError>;

impl Layout {
    /// That of a `.npy` or `.bin`, by its ending. Without a `width`, that of a `.bin` without header is found.
    pub(super) fn of(
        files: &dyn Files,
        file: &mut dyn FileRead,
        path: &Path,
        (width, vocab_size): (Option<TokenWidth>, u32),
    ) -> Result<Self, DataError> {
        let ending = path.extension().unwrap_or_default();
        let parsed = if ending.eq_ignore_ascii_case("npy") {
            npy(file)?
        } else {
            bin(files, file, path, (width, vocab_size))?
        };
        let layout = parsed.map_err(|problem| DataError::Format {
            path: path.to_owned(),
            problem,
        })?;
        layout.check(file.bytes(), path)
    }

    /// That of a `.bin` known to have no header, up to a byte.
    pub(super) fn raw(bytes: u64, width: TokenWidth, path: &Path) -> Result<Self, DataError> {
        let layout = raw(bytes, Element::from(width), String::new());
        let layout = layout.map_err(|problem| DataError::Format {
            path: path.to_owned(),
            problem,
        })?;
        layout.check(bytes, path)
    }

    fn check(self, found: u64, path: &Path) -> Result<Self, DataError> {
        let bytes = self.tokens.checked_mul(self.element.bytes() as u64);
        let end = bytes.and_then(|bytes| bytes.checked_add(self.data_at));
        if end != Some(found) {
            return Err(DataError::Format {
                path: path.to_owned(),
                problem: format!(
                    "{} tokens by its header, but {found} bytes long; truncated or damaged",
                    self.tokens
                ),
            });
        }
        if self.tokens == 0 {
            return Err(DataError::Empty {
                path: path.to_owned(),
            });
        }
        Ok(self)
    }

    /// How many tokens there are, how wide, and what told so.
    pub(super) fn describe(&self) -> String {
        let bits = 8 * self.element.bytes();
        format!("{} tokens of {bits} bits ({})", self.tokens, self.told_by)
    }
}

fn raw(bytes: u64, element: Element, told_by: String) -> Result<Layout, String> {
    let size = element.bytes() as u64;
    let layout = Layout {
        element,
        data_at: 0,
        tokens: bytes / size,
        by_columns: None,
        told_by,
    };
    bytes
        .is_multiple_of(size)
        .then_some(layout)
        .ok_or_else(|| format!("{bytes} bytes is not a multiple of the token size, {size} bytes"))
}

fn bin(
    files: &dyn Files,
    file: &mut dyn FileRead,
    path: &Path,
    (width, vocab_size): (Option<TokenWidth>, u32),
) -> Parsed {
    if let Some(found) = llmc(file)? {
        return Ok(found);
    }
    if let Some(width) = width {
        return Ok(raw(file.bytes(), width.into(), "as asked for".to_owned()));
    }
    if let Some(found) = megatron(files, path)? {
        let told_by = "its .idx says so".to_owned();
        return Ok(found.and_then(|element| raw(file.bytes(), element, told_by)));
    }
    let mut sample = vec![0; file.bytes().min(SAMPLE_BYTES as u64) as usize];
    file.read_exact_at(0, &mut sample)?;
    Ok(headerless(file.bytes(), &sample, vocab_size))
}

/// A `.bin` without header, by its first bytes: where tokens are wider than they need to be, there are zeros between.
fn headerless(bytes: u64, sample: &[u8], vocab_size: u32) -> Result<Layout, String> {
    let words: Vec<u16> = (sample.as_chunks().0.iter())
        .map(|&bytes| u16::from_le_bytes(bytes))
        .collect();
    let are_zero = |every: usize, kept: usize| {
        let (groups, _) = words.as_chunks::<4>();
        let is_zero = |group: &[u16; 4]| (0..4).all(|at| at % every < kept || group[at] == 0);
        let has_more = groups.iter().any(|group| group[0] != 0);
        2 * groups.len() >= SAMPLE_LEAST && has_more && groups.iter().all(is_zero)
    };
    if bytes.is_multiple_of(8) && are_zero(4, 2) {
        let hint = "save them as uint16 or uint32, or as .npy, which stores its type; --token-dtype u32 takes them \
        as 32";
        return Err(format!(
            "its tokens have 64 bits, by their zeros; {hint} bits"
        ));
    }
    if vocab_size > OF_16_BITS {
        let told_by = format!(
            "no header: the model's {vocab_size} tokens need 32; override with --token-dtype u16"
        );
        return raw(bytes, Element::little(Kind::U32), told_by)
            .map_err(|problem| format!("{problem}; --token-dtype u16 takes them as 16 bits"));
    }
    let (kind, told_by) = if bytes.is_multiple_of(4) && are_zero(2, 1) {
        let told_by = "no header: the zeros look like 32 bits; override with --token-dtype u16";
        (Kind::U32, told_by)
    } else {
        let told_by = "no header: as nanoGPT writes them; override with --token-dtype u32";
        (Kind::U16, told_by)
    };
    raw(bytes, Element::little(kind), told_by.to_owned())
}

/// The layout by llm.c's header, if there is one.
fn llmc(file: &mut dyn FileRead) -> Result<Option<Result<Layout, String>>, DataError> {
    if file.bytes() < LLMC_HEADER_BYTES {
        return Ok(None);
    }
    let mut header = [0; 12];
    file.read_exact_at(0, &mut header)?;
    let numbers: Vec<u32> = (header.as_chunks().0.iter())
        .map(|&bytes| u32::from_le_bytes(bytes))
        .collect();
    let (magic, version, tokens) = (numbers[0], numbers[1], numbers[2]);
    let known = LLMC.into_iter().find(|known| known.0 == magic);
    Ok(known.map(|(_, known, width)| {
        if version != known {
            return Err(format!(
                "llm.c's format {magic}, version {version}; only version {known} is known"
            ));
        }
        Ok(Layout {
            element: width.into(),
            data_at: LLMC_HEADER_BYTES,
            tokens: u64::from(tokens),
            by_columns: None,
            told_by: "llm.c's header".to_owned(),
        })
    }))
}

/// The type that Megatron's index beside a `.bin` names, if there is one.
fn megatron(files: &dyn Files, path: &Path) -> Result<Option<Result<Element, String>>, DataError> {
    let index = path.with_extension("idx");
    if files
        .metadata(&index)?
        .is_none_or(|found| found.is_dir || found.bytes < 18)
    {
        return Ok(None);
    }
    let mut start = [0; 18];
    files.open(&index)?.read_exact_at(0, &mut start)?;
    if !start.starts_with(MEGATRON) {
        return Ok(None);
    }
    let kind = Kind::of_megatron(start[17]).map(Element::little);
    Ok(Some(kind.ok_or_else(|| {
        format!(
            "its .idx names the type {}, which is none of tokens",
            start[17]
        )
    })))
}

fn npy(file: &mut dyn FileRead) -> Parsed {
    Ok(NpyHeader::read(file)?.and_then(|npy| {
        let (order, code) = npy.descr.split_at_checked(1).unwrap_or_default();
        let element = Kind::of_numpy(code).map(|kind| Element {
            kind,
            is_big: order == ">",
        });
        let element = element.filter(|_| matches!(order, "<" | ">" | "|" | "="));
        let element = element.ok_or_else(|| {
            format!(
                "element type {}; expected integers of 8 to 64 bits, such as uint16: \
                 numpy.save(path, tokens.astype(numpy.uint16))",
                npy.descr
            )
        })?;
        let (tokens, by_columns) = match npy.shape[..] {
            [tokens] => (Some(tokens), None),
            [rows, columns] => {
                let is_table = npy.fortran_order && rows > 1 && columns > 1;
                let tokens = rows.checked_mul(columns);
                (tokens, is_table.then_some([rows, columns]))
            }
            _ => (None, None),
        };
        let tokens = tokens.ok_or_else(|| {
            format!(
                "shape {:?}; expected one dimension, or two that are read row after row",
                npy.shape
            )
        })?;
        let told_by = match npy.shape.len() {
            1 => format!("NumPy's {}", npy.descr),
            _ => format!("NumPy's {}, shape {:?} row after row", npy.descr, npy.shape),
        };
        Ok(Layout {
            element,
            data_at: npy.data_at,
            tokens,
            by_columns,
            told_by,
        })
    }))
}
