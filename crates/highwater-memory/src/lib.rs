//! Memory and files of the Highwater training engine, as bytes: this crate knows no tensor.
//!
//! - [`Arena`] is address space of which exactly the first bytes can be used; [`Slots`] hands out
//!   stretches of one, [`Rooms`] pages that go back one by one, and [`Places`] keeps such books alone.
//! - [`System`] is what an engine asks of the machine: [`DeviceMemory`] and threads, which tests can refuse.
//! - [`ProcessMemory`] is what the process uses and may use; [`Bytes`] is a size as people write it.
//! - [`spill`] is the file where values wait on disk.
//! - [`Files`] is the one way to files with names, which tests can script; the [`saved`] states of a run are
//!   written through it so that a kill or a power cut at any instant loses none of them.

pub mod arena;
pub mod cgroup;
mod code;
pub mod files;
pub mod heap;
pub mod places;
pub mod process;
pub mod reserve;
pub mod rooms;
pub mod saved;
pub mod size;
pub mod slots;
mod smaps;
pub mod spill;
pub mod system;

pub use arena::{Arena, ArenaError, page_bytes};
pub use files::{
    DiskFiles, FilePart, FileRead, FileWrite, Files, FilesError, PartError, SharedFile,
};
pub use places::Places;
pub use process::{ProcessMemory, Usage};
pub use reserve::Reserve;
pub use rooms::{Room, Rooms, RoomsError};
pub use size::{Bytes, SizeError};
pub use slots::{Slot, Slots, SlotsError};
pub use system::{DeviceAddress, DeviceMemory, HostSystem, ScriptedSystem, System};
