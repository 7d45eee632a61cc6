//! Small files, read whole.

use std::path::Path;

use highwater_memory::Files;

use crate::{Place, TextError};

/// The largest template or settings of a tokenizer, in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// The text of a small file.
///
/// # Errors
/// [`TextError`] for a file that cannot be read, is too large, or is not UTF-8.
pub fn read_text(files: &dyn Files, path: &Path) -> Result<String, TextError> {
    let mut file = files.open(path)?;
    let bytes = file.bytes();
    if bytes > BYTES_MAX {
        let problem = format!("{bytes} bytes; at most {BYTES_MAX} were expected");
        return Err(TextError::bad(Place::of(path), problem));
    }
    let mut text = vec![0; bytes as usize];
    file.read_exact_at(0, &mut text)?;
    String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        TextError::bad(Place::of(path), format!("not UTF-8 at byte {at}"))
    })
}
