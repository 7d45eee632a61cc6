//! PBM, PGM and PPM, in ASCII and in binary.

use super::super::picture::Pixels;
use super::super::whole::{Flaw, Netpbm, netpbm};
use super::picture;

pub(super) fn pnm(bytes: &[u8]) -> Result<Pixels, String> {
    let byte = |at: u64| {
        let found = bytes.get(at as usize).copied();
        found.ok_or_else(|| Flaw::from("cut off in its header"))
    };
    let header = netpbm(byte).map_err(|flaw| match flaw {
        Flaw::Image(problem) => problem,
        Flaw::File(error) => error.to_string(),
    })?;
    let [width, height] = header.sides;
    let data = bytes.get(header.end as usize..).unwrap_or(&[]);
    let colours = if [3, 6].contains(&header.kind) { 3 } else { 1 };
    let count = width * height * colours;
    let values: Vec<u8> = match header.kind {
        1 => bits(data, count)?,
        2 | 3 => numbers(data, &header, count)?,
        4 => {
            let rows = data.chunks(width.div_ceil(8).max(1)).take(height);
            let dark =
                |row: &[u8], x: usize| row.get(x / 8).copied().unwrap_or(0) >> (7 - x % 8) & 1;
            rows.flat_map(|row| (0..width).map(move |x| 255 * (1 - dark(row, x))))
                .collect()
        }
        _ if header.most > 255 => {
            let pairs = data.as_chunks().0.iter().take(count);
            pairs
                .map(|&pair| scaled(u32::from(u16::from_be_bytes(pair)), header.most))
                .collect()
        }
        _ => {
            let each = data.iter().take(count);
            each.map(|&value| scaled(u32::from(value), header.most))
                .collect()
        }
    };
    if values.len() != count {
        return Err(format!("cut off: {} of {count} values", values.len()));
    }
    if colours == 3 {
        return picture(width, height, values);
    }
    picture(width, height, super::colours(&values, |&[gray]| [gray; 3]))
}

/// A value of up to `most`, of 255.
fn scaled(value: u32, most: u32) -> u8 {
    let share = f64::from(value.min(most)) / f64::from(most);
    (share * 255.0).round_ties_even() as u8
}

/// Digits 0 and 1, with or without space between; 1 is black.
fn bits(data: &[u8], count: usize) -> Result<Vec<u8>, String> {
    let digits = without_comments(data).filter(|byte| !byte.is_ascii_whitespace());
    digits
        .take(count)
        .map(|digit| match digit {
            b'0' => Ok(255),
            b'1' => Ok(0),
            _ => Err("damaged: neither 0 nor 1".to_owned()),
        })
        .collect()
}

/// Decimal numbers with space between.
fn numbers(data: &[u8], header: &Netpbm, count: usize) -> Result<Vec<u8>, String> {
    let mut values = Vec::new();
    let mut open: Option<u32> = None;
    for byte in without_comments(data).chain([b' ']) {
        if values.len() == count {
            break;
        }
        match byte {
            b'0'..=b'9' => {
                let longer = open.unwrap_or(0) * 10 + u32::from(byte - b'0');
                if longer > header.most {
                    return Err(format!("damaged: {longer} of {} at most", header.most));
                }
                open = Some(longer);
            }
            space if space.is_ascii_whitespace() => {
                values.extend(open.take().map(|value| scaled(value, header.most)));
            }
            _ => return Err("damaged: not a number".to_owned()),
        }
    }
    Ok(values)
}

/// Bytes up to each `#`, and on from the next line.
fn without_comments(data: &[u8]) -> impl Iterator<Item = u8> {
    let mut skips = false;
    data.iter().copied().filter(move |&byte| {
        skips = (skips || byte == b'#') && byte != b'\n';
        !skips
    })
}
