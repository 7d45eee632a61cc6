//! What of a page is looked at before the library decodes it: how many values it would take memory for.

use super::header::{Header, Kind};
use super::shape::Leaf;
use super::thrift::Thrift;
use super::{AGAIN, Fault};
use crate::records::json::weight::{self, LENGTH_MAX};

/// The most values of a page whose lengths are all decoded at once.
const LENGTHS_MAX: u64 = 1 << 20;

pub(super) const PLAIN: i64 = 0;
pub(super) const PLAIN_DICTIONARY: i64 = 2;
pub(super) const RLE: i64 = 3;
pub(super) const BIT_PACKED: i64 = 4;
pub(super) const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
pub(super) const DELTA_BYTE_ARRAY: i64 = 7;
pub(super) const RLE_DICTIONARY: i64 = 8;

fn damaged() -> Fault {
    Fault::new("a page is damaged").hint(AGAIN)
}

/// Looks at an unpacked page of data. `run` is how many values the row has so far that may go on in it.
pub(super) fn check(
    leaf: &Leaf,
    header: &Header,
    page: &[u8],
    run: &mut usize,
) -> Result<(), Fault> {
    let [repetition, _, values] = parts(leaf, header, page).ok_or_else(damaged)?;
    if leaf.repetition > 0 {
        let is_packed = matches!(header.kind, Kind::Data { levels } if levels[0] != RLE);
        if is_packed {
            let old = Fault::new("a list's lengths are in an obsolete encoding");
            return Err(old.hint("write it with a newer program"));
        }
        count(repetition, width(leaf.repetition), header.values, run)?;
    }
    match header.encoding {
        DELTA_LENGTH_BYTE_ARRAY => {
            lengths(values, header.values)?;
            Ok(())
        }
        DELTA_BYTE_ARRAY if leaf.repetition > 0 => {
            let fault = Fault::new("texts of lists in the encoding DELTA_BYTE_ARRAY are not read");
            Err(fault.hint("write them as PLAIN, or with a dictionary"))
        }
        DELTA_BYTE_ARRAY => {
            let end = lengths(values, header.values)?;
            lengths(values.get(end..).unwrap_or_default(), header.values)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Bits of a level.
pub(super) const fn width(most: i16) -> u32 {
    i16::BITS - most.leading_zeros()
}

/// Repetition levels, definition levels and values.
fn parts<'a>(leaf: &Leaf, header: &Header, page: &'a [u8]) -> Option<[&'a [u8]; 3]> {
    match header.kind {
        Kind::DataV2 { levels, .. } => {
            let (repetition, rest) = page.split_at_checked(levels[0] as usize)?;
            let (definition, values) = rest.split_at_checked(levels[1] as usize)?;
            Some([repetition, definition, values])
        }
        Kind::Data { levels } => {
            let mut rest = page;
            let mut part = |encoding: i64, most: i16| {
                if most == 0 {
                    return Some(&rest[..0]);
                }
                let length = match encoding {
                    RLE => {
                        let (length, after) = rest.split_first_chunk()?;
                        rest = after;
                        u32::from_le_bytes(*length) as usize
                    }
                    BIT_PACKED => {
                        let bits = u64::from(header.values) * u64::from(width(most));
                        usize::try_from(bits.div_ceil(8)).ok()?
                    }
                    _ => return None,
                };
                let (part, after) = rest.split_at_checked(length)?;
                rest = after;
                Some(part)
            };
            let repetition = part(levels[0], leaf.repetition)?;
            let definition = part(levels[1], leaf.definition)?;
            Some([repetition, definition, rest])
        }
        Kind::Dictionary | Kind::Other => None,
    }
}

/// Goes through repetition levels and refuses a row of too many values.
fn count(levels: &[u8], width: u32, values: u32, run: &mut usize) -> Result<(), Fault> {
    let mut thrift = Thrift::new(levels);
    let mut left = u64::from(values);
    while left > 0 {
        // Runs of one level, or groups of eight of them.
        let head = thrift.varint().map_err(|_| damaged())?;
        if head & 1 == 0 {
            let bytes = thrift
                .take(width.div_ceil(8) as usize)
                .map_err(|_| damaged())?;
            let level = bytes.iter().any(|&byte| byte != 0);
            let count = (head >> 1).min(left);
            if count == 0 {
                return Err(damaged());
            }
            left -= count;
            if level {
                add(run, count)?;
            } else {
                *run = 1;
            }
        } else {
            let groups = (head >> 1).min(left.div_ceil(8)).max(1);
            // The last bytes may be missing where they are of no level.
            let bytes = (groups * u64::from(width)).min(thrift.left() as u64);
            let bytes = thrift.take(bytes as usize).map_err(|_| damaged())?;
            let there = bytes.len() as u64 * 8 / u64::from(width);
            let count = (groups * 8).min(left).min(there);
            if count == 0 {
                return Err(damaged());
            }
            for at in 0..count {
                if is_zero(bytes, at * u64::from(width), width) {
                    *run = 1;
                } else {
                    add(run, 1)?;
                }
            }
            left -= count;
        }
    }
    Ok(())
}

/// Whether so many bits from a place on, lowest first, are all 0.
fn is_zero(bytes: &[u8], start: u64, width: u32) -> bool {
    let bit = |at: u64| bytes[(at / 8) as usize] >> (at % 8) & 1;
    (start..start + u64::from(width)).all(|at| bit(at) == 0)
}

fn add(run: &mut usize, count: u64) -> Result<(), Fault> {
    *run = run.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
    if *run > LENGTH_MAX {
        return Err(weight::too_long());
    }
    Ok(())
}

/// Goes through packed lengths; says where they end.
/// Source: <https://github.com/apache/parquet-format/blob/master/Encodings.md#delta-encoding-delta_binary_packed--5>.
fn lengths(bytes: &[u8], values: u32) -> Result<usize, Fault> {
    let mut thrift = Thrift::new(bytes);
    let mut next = || thrift.varint().map_err(|_| damaged());
    let (block, minis, count, _first) = (next()?, next()?, next()?, next()?);
    if count > u64::from(values) {
        return Err(damaged());
    }
    if count > LENGTHS_MAX {
        let fault = Fault::new(format!("a page has more than {LENGTHS_MAX} values"));
        return Err(fault.hint("write smaller pages: data_page_size=1 << 20"));
    }
    let valid = block > 0 && block.is_multiple_of(128) && minis > 0 && block.is_multiple_of(minis);
    let each = if valid { block / minis } else { 0 };
    if !valid || !each.is_multiple_of(32) || minis > bytes.len() as u64 {
        return Err(damaged());
    }
    let mut left = count.saturating_sub(1);
    while left > 0 {
        thrift.varint().map_err(|_| damaged())?;
        let widths = thrift.take(minis as usize).map_err(|_| damaged())?;
        for &width in widths {
            if left == 0 {
                break;
            }
            let bytes = (each / 8).checked_mul(width.into()).ok_or_else(damaged)?;
            // The last values need not be filled up.
            let bytes = usize::try_from(bytes).map_err(|_| damaged())?;
            thrift
                .take(bytes.min(thrift.left()))
                .map_err(|_| damaged())?;
            left = left.saturating_sub(each);
        }
    }
    Ok(bytes.len() - thrift.left())
}

#[cfg(test)]
mod tests;
