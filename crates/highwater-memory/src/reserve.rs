//! What a process costs beside its arenas.

use std::io::{self, BufRead};
use std::ops::Range;
use std::path::Path;

use crate::arena::Arena;
use crate::{code, smaps};

/// The memory that the process occupies outside its arenas, in bytes, by kind. `--memory M` bounds
/// arenas and reserve together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// The program's own file: its code and constants.
    pub code: u64,
    /// The main thread's stack. The system does not tell other threads' stacks from the heap.
    pub stacks: u64,
    /// Everything anonymous: heap, other threads' stacks.
    pub heap: u64,
    /// Other files that are mapped: shared libraries.
    pub libraries: u64,
}

impl Reserve {
    /// Measures what this process occupies now outside of `arenas`. Takes milliseconds.
    ///
    /// # Errors
    /// Where the system does not tell: without `/proc/self/smaps`.
    pub fn measure(arenas: &[&Arena]) -> io::Result<Self> {
        Ok(Self::read(arenas, &std::env::current_exe()?)?.0)
    }

    /// The same without code that only the start of the process ran. It goes first. As some of it comes back, one of so
    /// many parts of the program's file is counted at least, where more than that is there.
    ///
    /// # Errors
    /// As for [`Reserve::measure`].
    pub fn measure_settled(arenas: &[&Arena], parts: u64) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let (before, file) = Self::read(arenas, &program)?;
        if before.code <= file / parts {
            return Ok(before);
        }
        code::release(&program)?;
        let (after, _) = Self::read(arenas, &program)?;
        Ok(Self {
            code: after.code.max(file / parts),
            ..after
        })
    }

    /// With the bytes of the program's file that are mapped.
    fn read(arenas: &[&Arena], program: &Path) -> io::Result<(Self, u64)> {
        let arenas: Vec<_> = arenas.iter().map(|arena| arena.addresses()).collect();
        Self::from_smaps(smaps::open()?, program, &arenas)
    }

    /// The sum, in bytes.
    pub fn total(&self) -> u64 {
        self.code + self.stacks + self.heap + self.libraries
    }

    fn from_smaps(
        text: impl BufRead,
        program: &Path,
        arenas: &[Range<usize>],
    ) -> io::Result<(Self, u64)> {
        let (mut reserve, mut file) = (Self::default(), 0);
        smaps::for_each_mapping(text, |mapping| {
            if arenas
                .iter()
                .any(|arena| smaps::inside(&mapping.addresses, arena))
            {
                return;
            }
            let kind = match mapping.name.as_str() {
                "[stack]" => &mut reserve.stacks,
                name if Path::new(name) == program => {
                    file += mapping.addresses.len() as u64;
                    &mut reserve.code
                }
                name if name.starts_with('/') => &mut reserve.libraries,
                _ => &mut reserve.heap,
            };
            *kind += mapping.resident;
        })?;
        Ok((reserve, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart_and_arenas_left_out() {
        let smaps = "\
1000-2000 r-xp 00000000 fe:00 1 /opt/highwater
Rss: 4 kB
2000-3000 rw-p 00000000 00:00 0 [heap]
Rss: 16 kB
3000-4000 rw-p 00000000 00:00 0
Rss: 64 kB
4000-5000 rw-p 00000000 00:00 0
Rss: 1024 kB
5000-6000 r-xp 00000000 fe:00 2 /lib/libc.so.6
Rss: 256 kB
6000-7000 rw-p 00000000 00:00 0 [stack]
Rss: 8 kB
";
        let program = Path::new("/opt/highwater");
        let arena = 0x3f00..0x5000;
        let found = Reserve::from_smaps(smaps.as_bytes(), program, &[arena]);
        let (reserve, file) = found.unwrap();
        let expected = Reserve {
            code: 4 << 10,
            stacks: 8 << 10,
            heap: 80 << 10,
            libraries: 256 << 10,
        };
        assert_eq!((reserve, file), (expected, 4 << 10));
        assert_eq!(reserve.total(), 348 << 10);
    }
}
