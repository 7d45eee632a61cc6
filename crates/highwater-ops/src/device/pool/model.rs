//! The protocol of [`Team`] in every order that its threads can take: `CONTRIBUTING.md` says how to run it.

use super::Team;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// A caller, a lead and some helpers, for a number of calls that each fork twice.
fn model(helpers: usize, calls: usize, forks: usize, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let team = Arc::new(Team::default());
        let mut threads = vec![thread::spawn({
            let team = Arc::clone(&team);
            move || team.lead()
        })];
        for number in 1..=helpers {
            let team = Arc::clone(&team);
            threads.push(thread::spawn(move || team.help(number)));
        }
        for _ in 0..calls {
            let mut answers = 0;
            team.call(&mut || {
                for _ in 0..forks {
                    // In the lead's frame, as the pool does it: gone when the fork has returned.
                    let next = AtomicUsize::new(0);
                    let done = AtomicUsize::new(0);
                    team.fork(helpers, &|_| {
                        while next.fetch_add(1, Ordering::Relaxed) < 2 {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                    assert_eq!(done.load(Ordering::Relaxed), 2);
                }
                answers += 1;
            });
            assert_eq!(answers, 1);
        }
        team.end();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_helper_joins_or_is_too_late() {
    model(1, 1, 2, 3);
}

#[test]
fn two_helpers_share_a_fork() {
    model(2, 1, 1, 2);
}

#[test]
fn a_call_follows_a_call() {
    model(1, 2, 1, 3);
}
