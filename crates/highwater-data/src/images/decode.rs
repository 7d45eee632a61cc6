//! Images from files: PNG, JPEG, WebP, GIF, BMP, TIFF and PPM.

mod bmp;
mod others;
mod pnm;

use super::format::Format;
use super::picture::Pixels;
use super::whole::{Flaw, Header, MOST_BYTES, Source, Window, check};
use crate::DataError;
use png::{ColorType, Transformations};
use std::io::Cursor;
use std::panic::catch_unwind;
use std::path::Path;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Reads an image file in memory, in whichever of these formats it is, as red, green and blue: gray becomes all three,
/// transparency is left out, of deeper colours the upper byte is taken, of an animation the first image. Orientations
/// that a camera noted are left as they are, but in TIFF, as in Pillow. PNG, GIF, BMP, TIFF and PPM give Pillow's bytes; decoders
/// of JPEG and WebP differ by a little.
///
/// # Errors
/// [`DataError::Format`] with the path, for a file of another format, one that is damaged or cut off, and more than
/// 512 MiB of pixels.
pub fn decode(path: &Path, bytes: &[u8]) -> Result<Pixels, DataError> {
    let header = header(path, bytes)?;
    read(header, bytes).map_err(|problem| DataError::format(path, problem))
}

/// Width and height of an image file in memory, which must be whole: as [`decode`] finds them.
///
/// # Errors
/// As [`decode`], as far as that shows without decoding.
pub fn dimensions(path: &Path, bytes: &[u8]) -> Result<[usize; 2], DataError> {
    let header = header(path, bytes)?;
    Ok([header.width, header.height])
}

fn header(path: &Path, bytes: &[u8]) -> Result<Header, DataError> {
    check(&mut Window::new(Source::Memory(bytes))).map_err(|flaw| match flaw {
        Flaw::Image(problem) => DataError::format(path, problem),
        Flaw::File(error) => error.into(),
    })
}

/// Decodes a file that was found to be whole. A decoder that panics has met a damaged file as well.
pub(super) fn read(header: Header, bytes: &[u8]) -> Result<Pixels, String> {
    let decoder = match header.format {
        Format::Png => png,
        Format::Jpeg => jpeg,
        Format::WebP => others::webp,
        Format::Gif => others::gif,
        Format::Bmp => bmp::bmp,
        Format::Tiff => others::tiff,
        Format::Pnm => pnm::pnm,
    };
    catch_unwind(|| decoder(bytes)).unwrap_or_else(|_| Err("damaged".to_owned()))
}

fn png(bytes: &[u8]) -> Result<Pixels, String> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|error| error.to_string())?;
    let mut held = buffer(reader.output_buffer_size())?;
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

/// Zeros to decode into: with transparency a decoder writes four bytes for each pixel.
fn buffer(length: Option<usize>) -> Result<Vec<u8>, String> {
    let most = (MOST_BYTES / 3 * 4) as usize;
    let length = length.filter(|&length| length <= most);
    Ok(vec![0; length.ok_or("more than 178 million pixels")?])
}

/// Three bytes of the bytes of each pixel.
fn colours<const N: usize>(held: &[u8], of: fn(&[u8; N]) -> [u8; 3]) -> Vec<u8> {
    held.as_chunks().0.iter().flat_map(of).collect()
}

fn jpeg(bytes: &[u8]) -> Result<Pixels, String> {
    // Not zune's strict mode: it refuses files that libjpeg, and so torchvision, reads with a warning. That the file
    // is whole was found before.
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder
        .decode_headers()
        .map_err(|error| error.to_string())?;
    let info = decoder.info().ok_or("no header")?;
    buffer(decoder.output_buffer_size()).map(drop)?;
    let held = decoder.decode().map_err(|error| error.to_string())?;
    let (width, height) = (usize::from(info.width), usize::from(info.height));
    // An image of one channel is left as that.
    if held.len() == width * height {
        return picture(width, height, colours(&held, |&[gray]| [gray; 3]));
    }
    picture(width, height, held)
}

fn picture(width: usize, height: usize, bytes: Vec<u8>) -> Result<Pixels, String> {
    Pixels::new(width, height, bytes).map_err(|error| error.to_string())
}
