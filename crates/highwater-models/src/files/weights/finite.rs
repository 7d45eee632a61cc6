//! Numbers of weights that are none, or infinite: whatever is computed with them is none.

use std::fmt;
use std::path::PathBuf;

use super::{WeightsError, WeightsFolder, WeightsReader, float_bytes};

/// A number of a file that is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct NotFinite {
    /// The file.
    pub path: PathBuf,
    /// The tensor, as the file names it.
    pub tensor: String,
    /// The first such number.
    pub value: f32,
    /// How many of the tensor's numbers are like it, and how many it has.
    pub count: u64,
    /// How many numbers the tensor has.
    pub of: u64,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.value.is_nan() {
            "NaN"
        } else {
            "infinite"
        };
        write!(
            f,
            "{}: tensor `{}` has numbers that are {what} ({} of {} are not finite)",
            self.path.display(),
            self.tensor,
            self.count,
            self.of
        )
    }
}

impl WeightsFolder<'_> {
    /// The first tensor with a number that is not finite. Reads all that is there.
    ///
    /// # Errors
    /// [`WeightsError`] for a file that cannot be read.
    pub fn not_finite(&mut self) -> Result<Option<NotFinite>, WeightsError> {
        let all = self.look_over()?;
        for (name, stored) in all {
            if float_bytes(stored.info.dtype).is_none() {
                continue;
            }
            if let Some(found) = self.reader(&name)?.not_finite(&name)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl WeightsReader {
    /// What of a tensor of floats is not finite, if anything is.
    fn not_finite(&mut self, name: &str) -> Result<Option<NotFinite>, WeightsError> {
        let (mut first, mut count, mut of) = (None, 0, 0);
        self.each_piece(name, |_, values| {
            of += values.len() as u64;
            for &value in values.iter().filter(|value| !value.is_finite()) {
                first.get_or_insert(value);
                count += 1;
            }
        })?;
        Ok(first.map(|value| NotFinite {
            path: self.path().to_owned(),
            tensor: name.to_owned(),
            value,
            count,
            of,
        }))
    }
}
