//! Unpacks pages. Nothing takes more memory than the page is said to have.

use std::io::Read;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::SerializedPageReader;

use super::shape::Leaf;
use super::{AGAIN, Fault};

/// The codecs by their numbers in the format.
const NAMES: [&str; 8] = [
    "none", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW",
];

/// Refuses codecs that are not read: LZO, of which there is no library, and BROTLI, whose library takes as much
/// memory as the data asks for.
pub(super) fn check(codec: i64) -> Result<(), Fault> {
    if matches!(codec, 0..=2 | 5..=7) {
        return Ok(());
    }
    let name = usize::try_from(codec).ok().and_then(|at| NAMES.get(at));
    let fault = match name {
        Some(name) => Fault::new(format!("values packed with {name} are not read")),
        None => Fault::new(format!(
            "values are packed in an unknown way, number {codec}"
        )),
    };
    Err(fault.hint("write it with compression=\"zstd\" or \"snappy\""))
}

/// Unpacks `packed` into so many bytes. They come within a page, since only that names what holds them.
pub(super) fn unpack(
    leaf: &Leaf,
    codec: i64,
    packed: Vec<u8>,
    bytes: usize,
) -> Result<Page, Fault> {
    let damaged = |said: String| {
        let name = NAMES.get(codec as usize).copied().unwrap_or_default();
        Fault::new(format!("a page packed with {name} is damaged: {said}")).hint(AGAIN)
    };
    let unpacked = match codec {
        _ if bytes == 0 => Vec::new(),
        0 => packed,
        2 => {
            // One byte more tells that there is too much.
            let mut unpacked = Vec::with_capacity(bytes + 1);
            let mut reader = MultiGzDecoder::new(&packed[..]).take(bytes as u64 + 1);
            let read = reader.read_to_end(&mut unpacked);
            read.map_err(|error| damaged(error.to_string()))?;
            unpacked
        }
        6 => {
            let unpacked = zstd::bulk::decompress(&packed, bytes);
            unpacked.map_err(|error| damaged(error.to_string()))?
        }
        _ => {
            let page = with_library(leaf, codec, &packed, bytes);
            return page.map_err(|error| damaged(error.to_string()));
        }
    };
    if unpacked.len() != bytes {
        return Err(damaged(format!(
            "{} bytes instead of {bytes}",
            unpacked.len()
        )));
    }
    Ok(page(unpacked))
}

/// Bytes as the library has them.
pub(super) fn page(bytes: Vec<u8>) -> Page {
    Page::DictionaryPage {
        buf: bytes.into(),
        num_values: 0,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    }
}

/// The library unpacks pages only: it is shown a dictionary with the same bytes.
fn with_library(
    leaf: &Leaf,
    codec: i64,
    packed: &[u8],
    bytes: usize,
) -> parquet::errors::Result<Page> {
    let codec = match codec {
        1 => Compression::SNAPPY,
        5 => Compression::LZ4,
        _ => Compression::LZ4_RAW,
    };
    let mut file = dictionary_header(packed.len(), bytes);
    file.extend_from_slice(packed);
    let chunk = ColumnChunkMetaData::builder(Arc::clone(&leaf.descriptor))
        .set_compression(codec)
        .set_data_page_offset(0)
        .set_total_compressed_size(file.len() as i64)
        .build()?;
    // The older forms of LZ4 know no bounds.
    let properties = ReaderProperties::builder().set_backward_compatible_lz4(false);
    let file = Arc::new(page(file).buffer().clone());
    let properties = Arc::new(properties.build());
    let mut reader = SerializedPageReader::new_with_properties(file, &chunk, 1, None, properties)?;
    let page = reader.get_next_page()?;
    page.ok_or_else(|| parquet::errors::ParquetError::EOF("no page".to_owned()))
}

/// The header of a page that is a dictionary of no values.
fn dictionary_header(packed: usize, bytes: usize) -> Vec<u8> {
    /// The next field, a number of 32 bits.
    const NUMBER: u8 = 0x15;
    let mut header = vec![NUMBER, 4];
    for size in [bytes, packed] {
        header.push(NUMBER);
        let mut left = (size as u64) << 1;
        while left >= 0x80 {
            header.push(left as u8 | 0x80);
            left >>= 7;
        }
        header.push(left as u8);
    }
    // Field 7, a struct: no values, encoding PLAIN.
    header.extend([0x4c, NUMBER, 0, NUMBER, 0, 0, 0]);
    header
}
