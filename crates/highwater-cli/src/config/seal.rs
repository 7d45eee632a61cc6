//! A text that knows what it was: its first line is a comment with the hash of the rest.

use highwater_memory::saved::Digest;

/// How the first line begins and ends.
const BEFORE: &str = "# blake3 ";
const AFTER: &str = " of what follows: `resume` takes changes as flags, and no others\n";

/// What is wrong with a sealed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// A text with its seal.
pub(crate) fn seal(text: &str) -> String {
    format!(
        "{BEFORE}{}{AFTER}{text}",
        Digest::of(text.as_bytes()).blake3
    )
}

/// The text under the seal, which must be whole; none for a text that never had one.
///
/// # Errors
/// [`Broken`] for a text that is not as it was sealed.
pub(crate) fn open(text: &str) -> Result<Option<&str>, Broken> {
    let Some(rest) = text.strip_prefix(BEFORE) else {
        return Ok(None);
    };
    let (hash, text) = rest.split_once(AFTER).ok_or(Broken)?;
    let whole = Digest::of(text.as_bytes()).blake3 == hash;
    whole.then_some(Some(text)).ok_or(Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_sealed_is_opened() {
        let text = "version = 2\n[model]\ndropout = 0.1\n";
        let sealed = seal(text);
        assert_eq!(open(&sealed), Ok(Some(text)));
        assert_eq!(open(text), Ok(None));
        for at in BEFORE.len()..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(open(&changed), Err(Broken), "{changed}");
            assert_eq!(open(&sealed[..at]), Err(Broken));
        }
    }
}
