//! WebP, GIF and TIFF.

use super::super::picture::Pixels;
use super::super::whole::{MOST_BYTES, Orientation, tiff_kind};
use super::{buffer, colours, picture};
use image_webp::WebPDecoder;
use std::io::Cursor;
use tiff::ColorType;
use tiff::decoder::{Decoder, DecodingResult, Limits};

pub(super) fn webp(bytes: &[u8]) -> Result<Pixels, String> {
    let told = |error: image_webp::DecodingError| error.to_string();
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(told)?;
    decoder.set_memory_limit(2 * MOST_BYTES as usize);
    let (width, height) = decoder.dimensions();
    let (width, height) = (width as usize, height as usize);
    let mut held = buffer(decoder.output_buffer_size())?;
    decoder.read_image(&mut held).map_err(told)?;
    if decoder.has_alpha() {
        held = colours(&held, |&[r, g, b, _]| [r, g, b]);
    }
    picture(width, height, held)
}

pub(super) fn gif(bytes: &[u8]) -> Result<Pixels, String> {
    let told = |error: gif::DecodingError| error.to_string();
    let mut options = gif::DecodeOptions::new();
    options.set_color_output(gif::ColorOutput::Indexed);
    let most = std::num::NonZeroU64::new(MOST_BYTES).ok_or("no memory")?;
    options.set_memory_limit(gif::MemoryLimit::Bytes(most));
    let mut decoder = options.read_info(Cursor::new(bytes)).map_err(told)?;
    let (width, height) = (usize::from(decoder.width()), usize::from(decoder.height()));
    let shared = decoder.global_palette().map(<[u8]>::to_vec);
    let frame = decoder.read_next_frame().map_err(told)?;
    let frame = frame.ok_or("no image in it")?;
    let palette = frame.palette.as_ref().or(shared.as_ref());
    let palette = palette.ok_or("no colours in it")?;
    let colour = |index: u8| -> [u8; 3] {
        let found = palette.as_chunks().0.get(usize::from(index));
        found.copied().unwrap_or_default()
    };
    // What the first image leaves free has the transparent colour, or else the first, as in Pillow.
    let free = colour(frame.transparent.unwrap_or(0));
    let mut held = free.repeat(width * height);
    let [left, top, own] = [frame.left, frame.top, frame.width].map(usize::from);
    let shown = own.min(width.saturating_sub(left));
    let rows = frame.buffer.chunks(own.max(1));
    for (row, y) in rows.zip(top..height.min(top + usize::from(frame.height))) {
        let start = 3 * (y * width + left);
        let target = held.iter_mut().skip(start).take(3 * shown);
        let colours = row.iter().flat_map(|&index| colour(index));
        target.zip(colours).for_each(|(to, from)| *to = from);
    }
    picture(width, height, held)
}

pub(super) fn tiff(bytes: &[u8]) -> Result<Pixels, String> {
    let told = |error: tiff::TiffError| error.to_string();
    let mut limits = Limits::default();
    // Four samples of two bytes each.
    limits.decoding_buffer_size = (MOST_BYTES / 3 * 8) as usize;
    let decoder = Decoder::new(Cursor::new(bytes)).map_err(told)?;
    let mut decoder = decoder.with_limits(limits);
    let (width, height) = decoder.dimensions().map_err(told)?;
    let (width, height) = (width as usize, height as usize);
    let kind = tiff_kind(&mut decoder)?;
    let orientation = Orientation::read(&mut decoder)?;
    let samples = match decoder.read_image().map_err(told)? {
        DecodingResult::U8(samples) => samples,
        DecodingResult::U16(samples) => samples.into_iter().map(|x| (x >> 8) as u8).collect(),
        _ => return Err("damaged: samples of another width".to_owned()),
    };
    let held = match kind {
        ColorType::Gray(bits @ (1 | 2 | 4)) => {
            let bright = 255 / ((1 << bits) - 1);
            let pixels = packed(&samples, width, bits);
            pixels.flat_map(|gray| [gray * bright; 3]).collect()
        }
        ColorType::Gray(8 | 16) => colours(&samples, |&[gray]| [gray; 3]),
        ColorType::GrayA(8 | 16) => colours(&samples, |&[gray, _]| [gray; 3]),
        ColorType::RGB(8 | 16) => samples,
        ColorType::RGBA(8 | 16) => colours(&samples, |&[r, g, b, _]| [r, g, b]),
        ColorType::CMYK(8) => colours(&samples, |&[c, m, y, k]| [c, m, y].map(|ink| lit(ink, k))),
        other => return Err(format!("TIFF of {other:?}: not read")),
    };
    if held.len() < 3 * width * height {
        return Err("damaged: pixels are missing".to_owned());
    }
    let held = orientation.upright([width, height], held);
    let [width, height] = orientation.sides([width, height]);
    picture(width, height, held)
}

/// Samples of fewer bits than a byte has; each row begins with a byte.
fn packed(bytes: &[u8], width: usize, bits: u8) -> impl Iterator<Item = u8> {
    let (bits, mask) = (usize::from(bits), u8::MAX >> (8 - bits));
    let rows = bytes.chunks((width * bits).div_ceil(8).max(1));
    rows.flat_map(move |row| {
        (0..width).map(move |x| {
            let place = x * bits;
            row[place / 8] >> (8 - bits - place % 8) & mask
        })
    })
}

/// What of light an ink and black leave: Pillow's arithmetic.
fn lit(ink: u8, black: u8) -> u8 {
    let left = u32::from(255 - black);
    let product = u32::from(ink) * left + 128;
    let taken = ((product >> 8) + product) >> 8;
    left.saturating_sub(taken) as u8
}
