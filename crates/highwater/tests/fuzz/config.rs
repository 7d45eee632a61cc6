//! The engines that a program is run with: the numbers are to be the same in all.

use highwater::{Engine, Result};
use std::path::Path;

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Config {
    pub(crate) eager: bool,
    pub(crate) threads: usize,
    /// The most bytes of tensors, if there is a bound.
    pub(crate) arena: Option<u64>,
    /// Host memory apart.
    pub(crate) host: bool,
    pub(crate) disk: bool,
    /// A second engine, which runs the same program in turn, statement by statement.
    pub(crate) twin: bool,
}

/// Bytes that no program here comes near to.
const PLENTY: u64 = 1 << 36;

/// What all others are compared with.
pub(crate) const PLAIN: Config = Config {
    eager: false,
    threads: 1,
    arena: Some(PLENTY),
    host: false,
    disk: false,
    twin: false,
};

impl Config {
    pub(crate) fn build(&self) -> Result<Engine> {
        let builder = if self.eager {
            Engine::eager()
        } else {
            Engine::builder()
        };
        let mut builder = builder.threads(self.threads).prices(0).reserve(64 << 20);
        if self.host {
            builder = builder
                .device_memory(self.arena.unwrap_or(PLENTY))
                .host_memory(64 << 20);
        } else if let Some(bytes) = self.arena {
            builder = builder.arena(bytes);
        }
        if self.disk {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
            builder = builder.disk(folder, 16 << 20);
        }
        builder.build()
    }

    /// Whether it may say that there is no room.
    pub(crate) fn may_refuse(&self) -> bool {
        self.arena.is_some_and(|bytes| bytes < PLENTY)
    }
}
