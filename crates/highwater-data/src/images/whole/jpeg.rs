//! JPEG: the segments up to the first scan, then the mark of the end.

use super::{Flaw, Window};

/// Bytes that are searched for the end at a time.
const PIECE_BYTES: usize = 64 << 10;

const RESTARTS: std::ops::RangeInclusive<u8> = 0xd0..=0xd7;
const END: u8 = 0xd9;
const SCAN: u8 = 0xda;

pub(super) fn check(window: &mut Window<'_>) -> Result<[usize; 2], Flaw> {
    let (mut at, mut sides) = (2, None);
    let scan = loop {
        let (kind, next) = marker(window, at)?;
        match kind {
            END => return Err("no pixels: it ends before its first scan".into()),
            // Without contents.
            0x01 | 0xd8 => at = next,
            kind if RESTARTS.contains(&kind) => at = next,
            SCAN => break next,
            kind => {
                let length = window.u16_be(next)?;
                // Tables of codes (C4), reserved (C8) and arithmetic conditions (CC) lie among the frames.
                if (0xc0..=0xcf).contains(&kind) && ![0xc4, 0xc8, 0xcc].contains(&kind) {
                    sides = Some(frame(window, kind, next)?);
                }
                at = next + u64::from(length.max(2));
                window.reaches(at)?;
            }
        }
    };
    let sides = sides.ok_or("damaged: a scan comes before the frame's header")?;
    let length = window.length();
    // Most files end with the mark; some carry more behind it.
    if window.at(length - 2, 2)? != [0xff, END] {
        find_end(window, scan)?;
    }
    Ok(sides)
}

/// The next marker from `at` on, and where it ends. What lies between two segments is skipped, as libjpeg does.
fn marker(window: &mut Window<'_>, mut at: u64) -> Result<(u8, u64), Flaw> {
    while window.byte(at)? != 0xff || [0x00, 0xff].contains(&window.byte(at + 1)?) {
        at += 1;
    }
    Ok((window.byte(at + 1)?, at + 2))
}

/// Width and height by the header of a frame.
fn frame(window: &mut Window<'_>, kind: u8, at: u64) -> Result<[usize; 2], Flaw> {
    let (bits, components) = (window.byte(at + 2)?, window.byte(at + 7)?);
    let unread = match (kind, bits, components) {
        (0xc0..=0xc2, 8, 1 | 3 | 4) => None,
        (0xc0..=0xc2, 8, _) => Some(format!("JPEG of {components} colours")),
        (0xc0..=0xc2, ..) => Some(format!("JPEG of {bits} bits a sample")),
        (0xc3, ..) => Some("lossless JPEG".to_owned()),
        (0xc9..=0xcf, ..) => Some("JPEG with arithmetic coding".to_owned()),
        _ => Some("hierarchical JPEG".to_owned()),
    };
    if let Some(unread) = unread {
        return Err(Flaw::Image(format!("{unread}: not read")));
    }
    let height = window.u16_be(at + 3)?;
    let width = window.u16_be(at + 5)?;
    Ok([usize::from(width), usize::from(height)])
}

/// That the mark of the end comes somewhere behind the start of a scan. Within a scan 0xff stands before 0, before a
/// restart, or in a marker.
fn find_end(window: &mut Window<'_>, mut at: u64) -> Result<(), Flaw> {
    let cut = "cut off: the mark of its end (EOI) is missing";
    loop {
        let piece = window.some(at, PIECE_BYTES)?;
        if piece.len() < 2 {
            return Err(cut.into());
        }
        let is_marker = |pair: &[u8]| {
            pair[0] == 0xff
                && ![0x00, 0x01, 0xff].contains(&pair[1])
                && !RESTARTS.contains(&pair[1])
        };
        let Some(found) = piece.windows(2).position(is_marker) else {
            at += piece.len() as u64 - 1;
            continue;
        };
        let kind = piece[found + 1];
        at += found as u64 + 2;
        if kind == END {
            return Ok(());
        }
        // Tables between scans may hold any bytes.
        let length = window.some(at, 2)?;
        let &[high, low] = length else {
            return Err(cut.into());
        };
        at += u64::from(u16::from_be_bytes([high, low]).max(2));
    }
}
