//! What an object will take in memory, told from its text before any of it is taken. A list of zeros takes
//! thirty-six times as many bytes as its text has.

use super::Fault;
use crate::records::fault;

/// The most that the values of a record may take, in bytes, beside the bytes of its texts.
pub(in crate::records) const WEIGHT_MAX: usize = 32 << 20;
/// The most bytes of its texts.
pub(in crate::records) const TEXTS_MAX: usize = crate::records::RECORD_BYTES_MAX;
/// The most elements of one list, or fields of one object.
pub(in crate::records) const LENGTH_MAX: usize = 1 << 17;
/// A value in a list.
pub(in crate::records) const VALUE_BYTES: usize = size_of::<serde_json::Value>();
/// What a field takes beside its value: its name's place and hash, and the table that finds it.
pub(in crate::records) const FIELD_BYTES: usize = 48;
/// What an object or list takes at least: room for four fields.
pub(in crate::records) const BOX_BYTES: usize = 4 * (VALUE_BYTES + FIELD_BYTES);
/// The parser goes no deeper.
const DEPTH_MAX: usize = 130;

/// Refuses an object that would take too much. What is no JSON is left to the parser.
pub(super) fn check(text: &[u8]) -> Result<(), Fault> {
    let mut lengths = [0_usize; DEPTH_MAX];
    let (mut depth, mut weight, mut at) = (0, 0, 0);
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(text, at),
            b'{' | b'[' => {
                depth += 1;
                weight += BOX_BYTES;
                let Some(length) = lengths.get_mut(depth) else {
                    return Ok(());
                };
                *length = 0;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b':' => weight += FIELD_BYTES,
            b',' => {
                weight += VALUE_BYTES;
                lengths[depth] += 1;
                if lengths[depth] >= LENGTH_MAX {
                    return Err(too_long());
                }
            }
            _ => {}
        }
        if weight > WEIGHT_MAX {
            return Err(too_heavy());
        }
    }
    Ok(())
}

/// The byte after a string that starts before `at`.
fn string_end(text: &[u8], mut at: usize) -> usize {
    while let Some(rest) = text.get(at..) {
        let found = rest.iter().position(|&byte| byte == b'"' || byte == b'\\');
        let Some(found) = found else {
            return text.len();
        };
        at += found + 1;
        if rest[found] == b'"' {
            return at;
        }
        at += 1;
    }
    text.len()
}

pub(in crate::records) fn too_long() -> fault::Fault {
    let problem = format!("a list or object of more than {LENGTH_MAX} values");
    Fault::new(problem).hint("split it into several examples")
}

pub(in crate::records) fn too_heavy() -> fault::Fault {
    let problem = format!(
        "its lists and objects take more than {} MiB once they are read",
        WEIGHT_MAX >> 20
    );
    Fault::new(problem).hint("split it into several examples")
}
