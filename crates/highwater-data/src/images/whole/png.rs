//! PNG: the chunks up to `IEND`.

use super::{Flaw, Window};

/// Bytes of the signature.
const SIGNATURE_BYTES: u64 = 8;
/// Bytes of a chunk beside its contents: length, kind and checksum.
const FRAME_BYTES: u64 = 12;
/// Bytes of the contents of `IHDR`.
const IHDR_BYTES: u32 = 13;

pub(super) fn check(window: &mut Window<'_>) -> Result<[usize; 2], Flaw> {
    let sides = header(window)?;
    let (mut at, mut has_data) = (SIGNATURE_BYTES, false);
    loop {
        let length = window.u32_be(at)?;
        let kind: [u8; 4] = window.array(at + 4)?;
        if length > i32::MAX as u32 || !kind.iter().all(u8::is_ascii_alphabetic) {
            return Err(Flaw::Image(format!("damaged at byte {at}: not a chunk")));
        }
        at += FRAME_BYTES + u64::from(length);
        window.reaches(at)?;
        match &kind {
            b"IDAT" => has_data = true,
            b"IEND" if has_data => return Ok(sides),
            b"IEND" => return Err("no pixels: it has no IDAT chunk".into()),
            _ => {}
        }
    }
}

fn header(window: &mut Window<'_>) -> Result<[usize; 2], Flaw> {
    if window.u32_be(SIGNATURE_BYTES)? != IHDR_BYTES
        || window.at(SIGNATURE_BYTES + 4, 4)? != b"IHDR"
    {
        return Err("damaged: it does not begin with IHDR".into());
    }
    let checked = window.at(SIGNATURE_BYTES + 4, 4 + IHDR_BYTES as usize)?;
    let crc = crc32(checked);
    let (depth, colour) = (checked[12], checked[13]);
    if window.u32_be(SIGNATURE_BYTES + 8 + u64::from(IHDR_BYTES))? != crc {
        return Err("damaged: the checksum of IHDR is wrong".into());
    }
    let depths: &[u8] = match colour {
        0 => &[1, 2, 4, 8, 16],
        3 => &[1, 2, 4, 8],
        2 | 4 | 6 => &[8, 16],
        _ => &[],
    };
    if !depths.contains(&depth) {
        return Err(Flaw::Image(format!(
            "damaged: no PNG has {depth} bits a sample of colour type {colour}"
        )));
    }
    let width = window.u32_be(SIGNATURE_BYTES + 8)?;
    let height = window.u32_be(SIGNATURE_BYTES + 12)?;
    Ok([width as usize, height as usize])
}

/// The checksum of PNG, bit by bit: it is computed of 17 bytes.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
    let each = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, each)
}
