//! The process's mappings with what each costs, from `/proc/self/smaps`.

use std::io::{self, BufRead, BufReader};
use std::ops::Range;

/// One mapping of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Its addresses.
    pub(crate) addresses: Range<usize>,
    /// The file behind it, `[heap]`, `[stack]` and the like, or nothing.
    pub(crate) name: String,
    /// The bytes of memory that it occupies.
    pub(crate) resident: u64,
    /// Whether it may be run, and is as the file has it.
    pub(crate) is_plain_code: bool,
}

/// Reads the text of `/proc/self/smaps`, one mapping at a time.
pub(crate) fn for_each_mapping(
    smaps: impl BufRead,
    mut each: impl FnMut(&Mapping),
) -> io::Result<()> {
    let mut current: Option<Mapping> = None;
    for line in smaps.lines() {
        let line = line?;
        if let Some(mapping) = parse_header(&line) {
            if let Some(done) = current.replace(mapping) {
                each(&done);
            }
        } else if let Some(mapping) = &mut current {
            let bytes = |rest| crate::process::parse_kilobytes(rest).unwrap_or(0);
            if let Some(rest) = line.strip_prefix("Rss:") {
                mapping.resident = bytes(rest);
            } else if let Some(rest) = line.strip_prefix("Anonymous:") {
                mapping.is_plain_code &= bytes(rest) == 0;
            }
        }
    }
    if let Some(done) = current {
        each(&done);
    }
    Ok(())
}

/// `7f00-7f10 rw-p 00000000 fe:00 247030    /usr/bin/cat`
fn parse_header(line: &str) -> Option<Mapping> {
    let mut fields = line.split_ascii_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let addresses = address(from)?..address(to)?;
    let is_plain_code = fields.next()? == "r-xp";
    let name = fields.skip(3).collect::<Vec<_>>().join(" ");
    Some(Mapping {
        addresses,
        name,
        resident: 0,
        is_plain_code,
    })
}

/// The process's own `/proc/self/smaps`.
pub(crate) fn open() -> io::Result<impl BufRead> {
    Ok(BufReader::new(std::fs::File::open("/proc/self/smaps")?))
}

/// The bytes of memory that the mappings wholly inside `addresses` occupy.
pub(crate) fn resident_bytes(addresses: &Range<usize>) -> io::Result<u64> {
    let mut bytes = 0;
    for_each_mapping(open()?, |mapping| {
        if inside(&mapping.addresses, addresses) {
            bytes += mapping.resident;
        }
    })?;
    Ok(bytes)
}

/// Whether a mapping lies in a reservation. Its inaccessible ends may have been merged with an
/// inaccessible neighbour by the system, but those occupy nothing.
pub(crate) fn inside(mapping: &Range<usize>, reservation: &Range<usize>) -> bool {
    reservation.start <= mapping.start && mapping.end <= reservation.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55672176a000-55672176c000 r--p 00000000 fe:00 247030                     /usr/bin/my cat
Size:                  8 kB
Rss:                   8 kB
VmFlags: rd mr mw me
7f0000000000-7f0000200000 rw-p 00000000 00:00 0
Size:               2048 kB
Rss:                 100 kB
7f0000200000-7f0000300000 r-xp 00000000 fe:00 247030 /usr/bin/my cat
Rss:                   4 kB
Anonymous:             0 kB
7f0000300000-7f0000400000 r-xp 00000000 fe:00 247030 /usr/bin/my cat
Rss:                   4 kB
Anonymous:             4 kB
";

    #[test]
    fn mappings_are_read_with_their_names() {
        let mut found = Vec::new();
        for_each_mapping(SMAPS.as_bytes(), |mapping| found.push(mapping.clone())).unwrap();
        let [cat, anonymous, code, changed] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((cat.name.as_str(), cat.resident), ("/usr/bin/my cat", 8192));
        assert_eq!(cat.addresses, 0x5567_2176_a000..0x5567_2176_c000);
        assert_eq!((anonymous.name.as_str(), anonymous.resident), ("", 102_400));
        assert_eq!(code.name, cat.name);
        assert!(code.is_plain_code);
        assert!(
            ![cat, anonymous, changed]
                .iter()
                .any(|other| other.is_plain_code)
        );
    }
}
