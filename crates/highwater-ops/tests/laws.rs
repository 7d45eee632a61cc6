//! The laws, for every operation of the table.

#[expect(dead_code, reason = "the laws pick their samples themselves")]
#[path = "../../highwater/tests/share/mod.rs"]
mod share;

use highwater_ops::OPS;
use highwater_ops::laws::Laws;
use share::{first, one_of};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

fn check_all(laws: &Laws) {
    let next = AtomicUsize::new(0);
    let check = || -> Vec<String> {
        let entries = std::iter::from_fn(|| OPS.get(next.fetch_add(1, Ordering::Relaxed)));
        let broken = entries.flat_map(|entry| laws.check(entry));
        broken.map(|broken| broken.to_string()).collect()
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let broken = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(check)).collect();
        let found = threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread that does not panic"));
        found.collect::<Vec<_>>().concat()
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_operation_keeps_the_laws() {
    check_all(&Laws::new(&[]).one_of(one_of(), first()));
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = OPS.iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
}
