//! The headers of pages.

use super::thrift::{self, Broken, Thrift};

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Dictionary,
    /// Levels and values are packed together.
    Data {
        levels: [i64; 2],
    },
    /// Levels are not packed.
    DataV2 {
        nulls: u32,
        rows: u32,
        /// Bytes of repetition levels and of definition levels.
        levels: [u32; 2],
        packed: bool,
    },
    Other,
}

/// What a page has: numbers of bytes before and after unpacking, and of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) bytes: u32,
    pub(super) packed_bytes: u32,
    pub(super) values: u32,
    pub(super) encoding: i64,
}

/// Reads a header; says also how many bytes it has.
pub(super) fn parse(bytes: &[u8]) -> thrift::Result<(Header, usize)> {
    let mut thrift = Thrift::new(bytes);
    // Type, bytes before and after unpacking.
    let mut sizes = [None; 3];
    let mut parts = [None; 3];
    thrift.fields(thrift::STRUCT, |thrift, number, kind| {
        match number {
            1..=3 => sizes[number as usize - 1] = Some(thrift.int(kind)?),
            5 => parts[0] = Some(numbers(thrift, kind)?),
            7 => parts[1] = Some(numbers(thrift, kind)?),
            8 => parts[2] = Some(numbers(thrift, kind)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let size = |at: usize| sizes[at].ok_or(Broken::Wrong);
    let mut header = Header {
        kind: Kind::Other,
        bytes: unsigned(size(1)?)?,
        packed_bytes: unsigned(size(2)?)?,
        values: 0,
        encoding: 0,
    };
    let part = |at: usize| parts[at].ok_or(Broken::Wrong);
    match size(0)? {
        0 => {
            let [values, encoding, definition, repetition, ..] = part(0)?;
            (header.values, header.encoding) = (unsigned(values)?, encoding);
            header.kind = Kind::Data {
                levels: [repetition, definition],
            };
        }
        2 => {
            let [values, encoding, ..] = part(1)?;
            (header.values, header.encoding) = (unsigned(values)?, encoding);
            header.kind = Kind::Dictionary;
        }
        3 => {
            let [
                values,
                nulls,
                rows,
                encoding,
                definition,
                repetition,
                packed,
            ] = part(2)?;
            (header.values, header.encoding) = (unsigned(values)?, encoding);
            header.kind = Kind::DataV2 {
                nulls: unsigned(nulls)?,
                rows: unsigned(rows)?,
                levels: [unsigned(repetition)?, unsigned(definition)?],
                packed: packed != i64::from(thrift::FALSE),
            };
        }
        _ => {}
    }
    Ok((header, bytes.len() - thrift.left()))
}

/// The first fields of a struct, 0 where they are missing; a truth value is its type.
fn numbers(thrift: &mut Thrift<'_>, kind: u8) -> thrift::Result<[i64; 7]> {
    let mut found = [0; 7];
    thrift.fields(kind, |thrift, number, kind| {
        let at = number
            .checked_sub(1)
            .and_then(|at| usize::try_from(at).ok());
        let Some(place) = at.and_then(|at| found.get_mut(at)) else {
            return Ok(false);
        };
        *place = match kind {
            thrift::TRUE | thrift::FALSE => kind.into(),
            thrift::I32 => thrift.int(kind)?,
            _ => return Ok(false),
        };
        Ok(true)
    })?;
    Ok(found)
}

fn unsigned(value: i64) -> thrift::Result<u32> {
    // The format's numbers have 32 bits with a sign.
    let value = i32::try_from(value).map_err(|_| Broken::Wrong)?;
    u32::try_from(value).map_err(|_| Broken::Wrong)
}
