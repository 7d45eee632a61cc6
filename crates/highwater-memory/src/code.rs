//! Pages of the program's own code.

#![expect(unsafe_code, reason = "pages are given back by address")]

use std::io;
use std::path::Path;

use rustix::mm::{Advice, madvise};

use crate::smaps;

/// Gives pages of the program's own code back to the system, which reads those that run again from the file, or from
/// its cache of it. Of what a start runs, a training step runs half.
///
/// # Errors
/// Where the system does not tell what is mapped, or gives nothing back.
pub(crate) fn release(program: &Path) -> io::Result<()> {
    let mut code = Vec::new();
    smaps::for_each_mapping(smaps::open()?, |mapping| {
        if mapping.is_plain_code && Path::new(&mapping.name) == program {
            code.push(mapping.addresses.clone());
        }
    })?;
    for addresses in code {
        let start = std::ptr::with_exposed_provenance_mut(addresses.start);
        // SAFETY: a private mapping of a file that nobody has written to: its bytes are the same when they are read
        // again, and no reference points to memory that goes.
        unsafe { madvise(start, addresses.len(), Advice::LinuxDontNeed) }?;
    }
    Ok(())
}
