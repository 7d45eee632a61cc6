//! How far something is that takes a while.

use std::fmt;

/// Who is told how many bytes are done, and of how many.
#[derive(Clone, Copy, Default)]
pub struct Progress<'a>(Option<&'a dyn Fn(u64, u64)>);

impl<'a> Progress<'a> {
    /// Tells a function.
    pub fn to(listener: &'a dyn Fn(u64, u64)) -> Self {
        Self(Some(listener))
    }

    /// Says how much is done.
    pub fn tell(self, done: u64, of: u64) {
        if let Some(listener) = self.0 {
            listener(done, of);
        }
    }
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_heard = self.0.is_some();
        f.debug_tuple("Progress").field(&is_heard).finish()
    }
}
