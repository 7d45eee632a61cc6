//! What an engine's memory is bounded by: the whole process, the memory of kernels, host memory beside it.

use crate::{Error, Result};
use highwater_memory::Bytes;

/// The bounds that a builder was given, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// Of the whole process.
    pub(crate) memory: Option<u64>,
    /// Of arenas, whatever the rest of the process takes.
    pub(crate) arena: Option<u64>,
    /// Of the memory that kernels work in.
    pub(crate) device: Option<u64>,
    /// Of host memory beside it.
    pub(crate) host: Option<u64>,
}

/// The budget that people are told of, and what of it plans cannot have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stated {
    /// In bytes, like all.
    pub(crate) budget: u64,
    pub(crate) reserve: u64,
    /// All of the room that host memory is.
    pub(crate) host: u64,
    /// Bytes for which the system takes one more; 0 where the process is not bounded.
    table: u64,
}

impl Stated {
    /// What bytes take with those that the system takes for them.
    pub(crate) fn with_tables(&self, bytes: u64) -> u64 {
        match self.table {
            0 => bytes,
            table => bytes.saturating_add(bytes.div_ceil(table - 1)),
        }
    }

    /// What all takes where tensors take so many bytes.
    pub(crate) fn whole(&self, tensors: u64) -> u64 {
        self.with_tables(tensors + self.reserve + self.host)
    }

    /// What of that is for the process itself: the reserve, and the tables.
    pub(crate) fn process(&self, tensors: u64) -> u64 {
        self.whole(tensors) - tensors - self.host
    }
}

impl Limits {
    /// That they make sense together.
    pub(crate) fn check(&self) -> Result<()> {
        let build = |message: &str| Err(Error::Build(message.to_owned()));
        if self.device == Some(0) || self.host == Some(0) {
            return build("device memory and host memory cannot be 0 bytes\n  hint: leave it out");
        }
        if self.arena.is_some() && self.device.is_some() {
            return build(
                "Builder::arena() and Builder::device_memory() bound the same bytes\n  hint: leave one \
                 out",
            );
        }
        if self.host.is_some() && self.memory.or(self.arena).or(self.device).is_none() {
            return build(
                "Builder::host_memory() needs a bound on memory\n  hint: set \
                 Builder::device_memory() as well, or Builder::memory() for all together",
            );
        }
        Ok(())
    }

    /// That they leave room for what the process takes beside its tensors.
    pub(crate) fn check_reserve(&self, reserve: u64) -> Result<()> {
        let Some(memory) = self.memory else {
            return Ok(());
        };
        let (device, host) = (self.device.unwrap_or(0), self.host_bytes());
        let needed = reserve.saturating_add(device).saturating_add(host);
        // Without a bound of its own device memory is what is left: there has to be some.
        let usable = usable(memory);
        if needed < usable || self.device.is_some() && needed == usable {
            return Ok(());
        }
        let and = |bytes: u64, what: &str| match bytes {
            0 => String::new(),
            bytes => format!(", {what} {}", Bytes(bytes)),
        };
        let told = and(device, "device memory") + &and(host, "host memory");
        let (needs, budget) = (Bytes(reserve).to_string(), Bytes(memory).to_string());
        let rest = if device + host > 0 {
            let together = self.stated(reserve).with_tables(needed);
            format!("; together {}", Bytes(together))
        } else if needs == budget {
            // Rounded they are the same.
            ", which leaves nothing for tensors".to_owned()
        } else {
            String::new()
        };
        Err(Error::Build(format!(
            "a budget of {budget} is too small: the process itself needs {needs}{told}{rest}\n  hint: \
             raise the budget; Builder::dry_run() finds the minimum for a step"
        )))
    }

    /// The most bytes that an arena may need, where that is bounded.
    pub(crate) fn capacity(&self) -> Option<u64> {
        self.arena.or(self.device).or(self.memory)
    }

    /// What kernels and state may take, beside a reserve.
    pub(crate) fn budget(&self, reserve: u64) -> u64 {
        let left = |memory: u64| usable(memory).saturating_sub(reserve + self.host_bytes());
        let left = self.memory.map(left);
        let bound = self.device.or(self.arena.filter(|_| left.is_none()));
        match (left, bound) {
            (Some(left), Some(bound)) => left.min(bound),
            (left, bound) => left.or(bound).unwrap_or(UNBOUNDED),
        }
    }

    /// The budget of the process, if that is bounded, else of what kernels and state may take.
    pub(crate) fn stated(&self, reserve: u64) -> Stated {
        let Some(memory) = self.memory else {
            return Stated {
                budget: self.budget(0),
                reserve: 0,
                host: 0,
                table: 0,
            };
        };
        let mut stated = Stated {
            budget: memory,
            reserve,
            host: self.host_bytes(),
            table: table(),
        };
        if let Some(device) = self.device {
            let bytes = device.saturating_add(reserve).saturating_add(stated.host);
            stated.budget = memory.min(stated.with_tables(bytes));
        }
        stated
    }

    /// What a refusal talks of: device memory alone, if that has a bound of its own.
    pub(crate) fn refusing(&self, reserve: u64) -> (Stated, &'static str) {
        if self.device.is_none() {
            return (self.stated(reserve), "memory");
        }
        let stated = Stated {
            budget: self.budget(reserve),
            reserve: 0,
            host: 0,
            table: 0,
        };
        (stated, "device memory")
    }

    fn host_bytes(&self) -> u64 {
        self.host.unwrap_or(0)
    }
}

/// Bytes for which the system takes one more, for its tables of pages: a word for each page. Where memory
/// is bounded by a cgroup, they count.
fn table() -> u64 {
    highwater_memory::page_bytes() / 8
}

/// What of so many bytes is left beside such tables.
fn usable(memory: u64) -> u64 {
    memory - memory.div_ceil(table())
}

/// More than any machine has.
const UNBOUNDED: u64 = u64::MAX / 4;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn device_memory_is_what_is_left_or_what_was_said() {
        let whole = |bytes: u64| {
            Stated {
                budget: 0,
                reserve: 0,
                host: 0,
                table: table(),
            }
            .with_tables(bytes)
        };
        let limits = Limits {
            memory: Some(whole(100 * MIB)),
            host: Some(30 * MIB),
            ..Limits::default()
        };
        assert_eq!(limits.budget(20 * MIB), 50 * MIB);
        let said = Limits {
            device: Some(40 * MIB),
            ..limits
        };
        assert_eq!(said.budget(20 * MIB), 40 * MIB);
        assert_eq!(said.budget(35 * MIB), 35 * MIB);
        assert_eq!(said.stated(20 * MIB).budget, whole(90 * MIB));
        said.check_reserve(30 * MIB).unwrap();
        let error = said.check_reserve(30 * MIB + 1).unwrap_err().to_string();
        assert!(
            error.contains("device memory 40 MiB, host memory 30 MiB"),
            "{error}"
        );
        limits.check_reserve(60 * MIB).unwrap();
        assert!(limits.check_reserve(70 * MIB).is_err());
    }

    #[test]
    fn tables_of_pages_are_part_of_the_budget() {
        for bytes in [0, 1, 511, 512, 513, 4095, 4096, 1 << 20, (1 << 40) + 12_345] {
            let limits = |memory| Limits {
                memory: Some(memory),
                ..Limits::default()
            };
            let memory = limits(0).stated(0).with_tables(bytes);
            assert_eq!(limits(memory).budget(0), bytes);
            assert!(limits(memory.saturating_sub(1)).budget(0) <= bytes.saturating_sub(1));
        }
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let bounds = |memory, arena, device, host| Limits {
            memory,
            arena,
            device,
            host,
        };
        let some = Some(MIB);
        for sound in [
            bounds(None, None, None, None),
            bounds(some, None, None, some),
            bounds(None, some, None, some),
            bounds(some, None, some, some),
        ] {
            sound.check().unwrap();
        }
        for wrong in [
            bounds(None, None, None, some),
            bounds(None, some, some, None),
            bounds(some, None, None, Some(0)),
            bounds(None, None, Some(0), None),
        ] {
            assert!(matches!(wrong.check(), Err(Error::Build(_))), "{wrong:?}");
        }
    }
}
