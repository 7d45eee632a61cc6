//! What transfers came to.

/// What plans moved to and from a tier, and what that took. Bytes; measured seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Io {
    /// Payload read.
    pub bytes_read: u64,
    /// Payload written.
    pub bytes_written: u64,
    /// Seconds in which kernels waited for its transfers.
    pub wait_seconds: f64,
    /// Seconds that reads took, one after the other.
    pub read_seconds: f64,
    /// Seconds that writes took, one after the other.
    pub write_seconds: f64,
}

impl Io {
    /// The share of the transfers' time that is hidden behind kernels and behind each other, from 0 to
    /// 1; 1 where nothing was moved.
    #[must_use]
    pub fn overlap(&self) -> f64 {
        let busy = self.read_seconds + self.write_seconds;
        if busy > 0.0 {
            (1.0 - self.wait_seconds / busy).clamp(0.0, 1.0)
        } else {
            1.0
        }
    }
}

impl std::ops::AddAssign for Io {
    fn add_assign(&mut self, other: Self) {
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.wait_seconds += other.wait_seconds;
        self.read_seconds += other.read_seconds;
        self.write_seconds += other.write_seconds;
    }
}

impl std::ops::Sub for Io {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            bytes_read: self.bytes_read - before.bytes_read,
            bytes_written: self.bytes_written - before.bytes_written,
            wait_seconds: self.wait_seconds - before.wait_seconds,
            read_seconds: self.read_seconds - before.read_seconds,
            write_seconds: self.write_seconds - before.write_seconds,
        }
    }
}
