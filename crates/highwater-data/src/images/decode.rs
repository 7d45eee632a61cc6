//! Pictures from files: PNG and JPEG.

use super::picture::Pixels;
use crate::DataError;
use png::{ColorType, Transformations};
use std::io::Cursor;
use std::panic::catch_unwind;
use std::path::Path;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Bytes of pixels at most.
const MOST_BYTES: usize = 512 << 20;

/// Reads a PNG or JPEG file in memory, whichever it is, as red, green and blue: gray becomes all three,
/// transparency is left out, of deeper colours the upper byte is taken. Orientations that a camera noted are
/// left as they are, as in Pillow. PNG gives Pillow's bytes; JPEG's decoders differ by a little.
///
/// # Errors
/// [`DataError::Format`] with the path, for what is none of both, damaged, or too large: more than 512 MiB.
pub fn decode(path: &Path, bytes: &[u8]) -> Result<Pixels, DataError> {
    read(path, bytes, [png, jpeg])
}

/// What reads files of one format.
type Reader<T> = fn(&[u8]) -> Result<T, String>;

/// Reads a file by the function for its format, of PNG and JPEG. One that panics has met a damaged file as well.
fn read<T>(path: &Path, bytes: &[u8], [png, jpeg]: [Reader<T>; 2]) -> Result<T, DataError> {
    let of = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        png
    } else if bytes.starts_with(b"\xff\xd8\xff") {
        jpeg
    } else {
        return Err(DataError::format(path, "neither PNG nor JPEG"));
    };
    let read = catch_unwind(|| of(bytes)).unwrap_or_else(|_| Err("damaged".to_owned()));
    read.map_err(|problem| DataError::format(path, problem))
}

/// Width and height of a PNG or JPEG file, of which the beginning does: as [`decode`] would find them.
///
/// # Errors
/// [`DataError::Format`] with the path, for what is none of both, damaged, or cut off before its size is told.
pub fn dimensions(path: &Path, beginning: &[u8]) -> Result<[usize; 2], DataError> {
    read(path, beginning, [png_sides, jpeg_sides])
}

fn png_sides(beginning: &[u8]) -> Result<[usize; 2], String> {
    let decoder = png::Decoder::new(Cursor::new(beginning));
    let reader = decoder.read_info().map_err(|error| error.to_string())?;
    let info = reader.info();
    Ok([info.width as usize, info.height as usize])
}

fn jpeg_sides(beginning: &[u8]) -> Result<[usize; 2], String> {
    let mut decoder = JpegDecoder::new(ZCursor::new(beginning));
    decoder
        .decode_headers()
        .map_err(|error| error.to_string())?;
    let info = decoder.info().ok_or("no header")?;
    Ok([usize::from(info.width), usize::from(info.height)])
}

fn png(bytes: &[u8]) -> Result<Pixels, String> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|error| error.to_string())?;
    let length = reader
        .output_buffer_size()
        .filter(|&length| length <= MOST_BYTES);
    let mut held = vec![0; length.ok_or_else(too_large)?];
    let frame = reader
        .next_frame(&mut held)
        .map_err(|error| error.to_string())?;
    held.truncate(frame.buffer_size());
    let (width, height) = (frame.width as usize, frame.height as usize);
    match frame.color_type {
        ColorType::Rgb => picture(width, height, held),
        ColorType::Rgba => picture(width, height, colours(&held, |&[r, g, b, _]| [r, g, b])),
        ColorType::Grayscale => picture(width, height, colours(&held, |&[gray]| [gray; 3])),
        ColorType::GrayscaleAlpha => picture(width, height, colours(&held, |&[gray, _]| [gray; 3])),
        ColorType::Indexed => Err("colours of a palette that is not there".to_owned()),
    }
}

/// Three bytes of the bytes of each pixel.
fn colours<const N: usize>(held: &[u8], of: fn(&[u8; N]) -> [u8; 3]) -> Vec<u8> {
    held.as_chunks().0.iter().flat_map(of).collect()
}

fn jpeg(bytes: &[u8]) -> Result<Pixels, String> {
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder
        .decode_headers()
        .map_err(|error| error.to_string())?;
    let info = decoder.info().ok_or("no header")?;
    if decoder
        .output_buffer_size()
        .is_none_or(|length| length > MOST_BYTES)
    {
        return Err(too_large());
    }
    let held = decoder.decode().map_err(|error| error.to_string())?;
    let (width, height) = (usize::from(info.width), usize::from(info.height));
    // A picture of one channel is left as that.
    if held.len() == width * height {
        return picture(width, height, colours(&held, |&[gray]| [gray; 3]));
    }
    picture(width, height, held)
}

fn picture(width: usize, height: usize, bytes: Vec<u8>) -> Result<Pixels, String> {
    Pixels::new(width, height, bytes).map_err(|error| error.to_string())
}

fn too_large() -> String {
    "more than 512 MiB of pixels".to_owned()
}
