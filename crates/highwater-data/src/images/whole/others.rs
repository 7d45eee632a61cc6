//! WebP, GIF, BMP, TIFF and the formats of Netpbm.

use super::{Flaw, MOST_BYTES, Orientation, Seeking, Window};
use std::io::{Read, Seek};
use tiff::ColorType;
use tiff::decoder::Decoder;
use tiff::tags::Tag;

/// RIFF: the chunks up to the length that the file announces.
pub(super) fn webp(window: &mut Window<'_>) -> Result<[usize; 2], Flaw> {
    let end = 8 + u64::from(window.u32_le(4)?);
    window.reaches(end)?;
    let sides = match &window.array::<4>(12)? {
        b"VP8 " => {
            if window.at(23, 3)? != [0x9d, 0x01, 0x2a] {
                return Err("damaged: no start of a VP8 frame".into());
            }
            [26, 28].map(|at| Ok(usize::from(window.u16_le(at)? & 0x3fff)))
        }
        b"VP8L" => {
            if window.byte(20)? != 0x2f {
                return Err("damaged: no start of a VP8L image".into());
            }
            let bits = window.u32_le(21)?;
            [0, 14].map(|shift| Ok(1 + (bits >> shift & 0x3fff) as usize))
        }
        b"VP8X" => [24, 27].map(|at| {
            let [a, b, c] = window.array(at)?;
            Ok(1 + u32::from_le_bytes([a, b, c, 0]) as usize)
        }),
        _ => return Err("damaged: its first chunk is no image".into()),
    };
    let [width, height]: [Result<usize, Flaw>; 2] = sides;
    let (mut at, mut has_image) = (12, false);
    while at + 8 <= end {
        let kind: [u8; 4] = window.array(at)?;
        let length = u64::from(window.u32_le(at + 4)?);
        if at + 8 + length > end {
            return Err(Flaw::Image(format!(
                "cut off: the chunk at byte {at} ends after the end of the file"
            )));
        }
        has_image |= [b"VP8 ", b"VP8L", b"ANMF"].contains(&&kind);
        // Chunks begin at even places.
        at += 8 + length + length % 2;
    }
    if !has_image {
        return Err("no pixels: it has no image chunk".into());
    }
    Ok([width?, height?])
}

/// The blocks up to the trailer.
pub(super) fn gif(window: &mut Window<'_>) -> Result<[usize; 2], Flaw> {
    let sides = [window.u16_le(6)?, window.u16_le(8)?].map(usize::from);
    let table = |flags: u8| match flags >> 7 {
        0 => 0,
        _ => 3_u64 << ((flags & 7) + 1),
    };
    let mut at = 13 + table(window.byte(10)?);
    let mut has_image = false;
    loop {
        match window.byte(at)? {
            0x3b if has_image => return Ok(sides),
            0x3b => return Err("no pixels: it has no image".into()),
            0x2c => {
                // The descriptor, its colours, and the width of the codes.
                at += 10 + table(window.byte(at + 9)?) + 1;
                has_image = true;
            }
            0x21 => at += 2,
            0x00 => {
                at += 1;
                continue;
            }
            _ => return Err(Flaw::Image(format!("damaged at byte {at}: not a block"))),
        }
        // Parts of at most 255 bytes, then an empty one.
        loop {
            let length = u64::from(window.byte(at)?);
            at += 1 + length;
            if length == 0 {
                break;
            }
        }
    }
}

/// The headers of Windows and OS/2, and as many rows as they announce.
pub(super) fn bmp(window: &mut Window<'_>) -> Result<[usize; 2], Flaw> {
    let offset = u64::from(window.u32_le(10)?);
    let (width, height, bits, compression) = match window.u32_le(14)? {
        12 => {
            let (width, height) = (window.u16_le(18)?, window.u16_le(20)?);
            (u64::from(width), u64::from(height), window.u16_le(24)?, 0)
        }
        40.. => {
            let (width, height) = (window.u32_le(18)?.cast_signed(), window.u32_le(22)?);
            // Rows may stand from the top down.
            let height = u64::from(height.cast_signed().unsigned_abs());
            let width = u64::try_from(width).map_err(|_| "damaged: a width below 0")?;
            (width, height, window.u16_le(28)?, window.u32_le(30)?)
        }
        size => {
            let unread = format!("BMP with a header of {size} bytes: not read");
            return Err(Flaw::Image(unread));
        }
    };
    if ![1, 4, 8, 16, 24, 32].contains(&bits) {
        let unread = format!("BMP of {bits} bits a pixel: not read");
        return Err(Flaw::Image(unread));
    }
    match compression {
        // Plain rows, of whole words of 32 bits.
        0 | 3 | 6 => {
            let row = (width * u64::from(bits)).div_ceil(32) * 4;
            if row.saturating_mul(height) <= MOST_BYTES * 2 {
                window.reaches(offset + row * height)?;
            }
        }
        // Runs, of as many bytes as are announced.
        1 | 2 => {
            let bytes = window.u32_le(34)?;
            window.reaches(offset + u64::from(bytes.max(1)))?;
        }
        other => {
            let unread = format!("BMP of compression {other}: not read");
            return Err(Flaw::Image(unread));
        }
    }
    Ok([width as usize, height as usize])
}

/// The first directory, and that its strips or tiles lie within the file.
pub(super) fn tiff(window: &mut Window<'_>) -> Result<[usize; 2], Flaw> {
    let length = window.length();
    let seeking = Seeking { window, offset: 0 };
    let told = |error: tiff::TiffError| Flaw::Image(format!("TIFF: {error}"));
    let mut decoder = Decoder::new(seeking).map_err(told)?;
    let (width, height) = decoder.dimensions().map_err(told)?;
    tiff_kind(&mut decoder)?;
    let orientation = Orientation::read(&mut decoder)?;
    let mut parts = |offsets, counts| {
        let offsets = decoder
            .find_tag_unsigned_vec::<u64>(offsets)
            .map_err(told)?;
        let counts = decoder.find_tag_unsigned_vec::<u64>(counts).map_err(told)?;
        Ok::<_, Flaw>(offsets.zip(counts))
    };
    let strips = parts(Tag::StripOffsets, Tag::StripByteCounts)?;
    let tiles = match strips {
        None => parts(Tag::TileOffsets, Tag::TileByteCounts)?,
        strips => strips,
    };
    let (offsets, counts) = tiles.ok_or("damaged: it has no offsets of its pixels")?;
    let ends = offsets.iter().zip(&counts);
    let end = ends
        .map(|(offset, count)| offset.saturating_add(*count))
        .max();
    if let Some(end) = end.filter(|&end| end > length) {
        return Err(Flaw::Image(format!(
            "cut off: the file has {length} bytes and needs {end}"
        )));
    }
    Ok(orientation.sides([width as usize, height as usize]))
}

/// How the pixels of a TIFF are coded: one of the ways that are read.
pub(in super::super) fn tiff_kind<R: Read + Seek>(
    decoder: &mut Decoder<R>,
) -> Result<ColorType, String> {
    let told = |error: tiff::TiffError| format!("TIFF: {error}");
    let mut number = |tag, default| {
        let found = decoder.find_tag_unsigned_vec::<u16>(tag).map_err(told)?;
        Ok::<_, String>(
            found
                .and_then(|found| found.first().copied())
                .unwrap_or(default),
        )
    };
    let compression = number(Tag::Compression, 1)?;
    let (format, planes) = (
        number(Tag::SampleFormat, 1)?,
        number(Tag::PlanarConfiguration, 1)?,
    );
    // None, LZW, JPEG, Deflate by either name, and PackBits.
    if ![1, 5, 7, 8, 32773, 32946].contains(&compression) {
        return Err(format!("TIFF of compression {compression}: not read"));
    }
    if format != 1 {
        return Err("TIFF of samples that are not whole numbers: not read".to_owned());
    }
    if planes != 1 {
        return Err("TIFF of one plane for each colour: not read".to_owned());
    }
    if number(Tag::PhotometricInterpretation, 1)? == 3 {
        return Err("TIFF with a palette: not read".to_owned());
    }
    let kind = decoder.colortype().map_err(told)?;
    match kind {
        ColorType::Gray(1 | 2 | 4 | 8 | 16)
        | ColorType::GrayA(8 | 16)
        | ColorType::RGB(8 | 16)
        | ColorType::RGBA(8 | 16)
        | ColorType::CMYK(8) => Ok(kind),
        other => Err(format!("TIFF of {other:?}: not read")),
    }
}

/// The numbers of the header, and the pixels where they are binary.
pub(super) fn pnm(window: &mut Window<'_>) -> Result<[usize; 2], Flaw> {
    let header = netpbm(|at| window.byte(at))?;
    let [width, height] = header.sides.map(|side| side as u64);
    let bytes = match header.kind {
        4 => width.div_ceil(8).checked_mul(height),
        5 | 6 => {
            let each = u64::from(if header.kind == 5 { 1_u8 } else { 3 });
            let each = each * if header.most > 255 { 2 } else { 1 };
            width.checked_mul(height).and_then(|n| n.checked_mul(each))
        }
        _ => Some(0),
    };
    if let Some(bytes) = bytes.filter(|&bytes| bytes <= 2 * MOST_BYTES) {
        window.reaches(header.end + bytes)?;
    }
    Ok(header.sides)
}

/// The header of a file of Netpbm.
pub(in super::super) struct Netpbm {
    /// The digit behind the `P`.
    pub kind: u8,
    /// Width and height.
    pub sides: [usize; 2],
    /// The brightest value.
    pub most: u32,
    /// Where pixels begin.
    pub end: u64,
}

/// Reads the header of a file of Netpbm.
pub(in super::super) fn netpbm(
    mut byte: impl FnMut(u64) -> Result<u8, Flaw>,
) -> Result<Netpbm, Flaw> {
    let kind = byte(1)? - b'0';
    let mut at = 2;
    let mut number = || {
        let mut found: Option<u32> = None;
        loop {
            match byte(at)? {
                digit @ b'0'..=b'9' => {
                    let digit = u32::from(digit - b'0');
                    let longer = found.unwrap_or(0).checked_mul(10);
                    let longer = longer.and_then(|number| number.checked_add(digit));
                    found = Some(longer.ok_or("damaged: a number of the header is too large")?);
                }
                b'#' => {
                    while byte(at)? != b'\n' {
                        at += 1;
                    }
                }
                space if space.is_ascii_whitespace() => {
                    if let Some(found) = found {
                        return Ok::<_, Flaw>((found, at + 1));
                    }
                }
                _ => return Err(Flaw::Image(format!("damaged at byte {at}: not a number"))),
            }
            at += 1;
        }
    };
    let (width, _) = number()?;
    let (height, mut end) = number()?;
    let mut most = 1;
    if ![1, 4].contains(&kind) {
        (most, end) = number()?;
    }
    if !(1..=65535).contains(&most) {
        return Err(Flaw::Image(format!("damaged: values up to {most}")));
    }
    Ok(Netpbm {
        kind,
        sides: [width as usize, height as usize],
        most,
        end,
    })
}
