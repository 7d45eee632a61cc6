//! A cache in which the rates of this machine are known: tests of the program neither measure nor
//! depend on what was measured.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use highwater::{Curve, Point, Rates};
use highwater_cli::machine::Machine;
use highwater_memory::DiskFiles;

/// More threads than a test asks for.
const THREADS: usize = 8;

/// What `XDG_CACHE_HOME` has to be.
pub(crate) fn home() -> &'static Path {
    static HOME: LazyLock<PathBuf> = LazyLock::new(|| {
        let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for threads in 1..=THREADS.max(cores) {
            let folder = home.join("highwater");
            let written =
                Machine::this(threads).write(&DiskFiles, &folder, (&rates(), u64::MAX), false);
            written.expect("a file in the target folder");
        }
        home
    });
    &HOME
}

/// Known: half as fast as the constants say in `linear`, and else the same.
fn rates() -> Rates {
    let point = Point {
        roofline_seconds: 1.0,
        seconds: 2.0,
    };
    let curve = Curve::through(vec![point]);
    Rates {
        operations: [("linear".to_owned(), curve)].into(),
        ..Rates::default()
    }
}
