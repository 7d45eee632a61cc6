use super::*;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicBool;
use std::sync::{Barrier, mpsc};
use std::time::Duration;

#[test]
fn every_task_runs_once_on_a_thread_of_the_pool() {
    for threads in 1..=4 {
        let pool = Pool::new(threads).unwrap();
        let counts: Vec<_> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        pool.for_each_on_thread(100, |task, thread| {
            assert!(thread < threads);
            counts[task].fetch_add(1, Ordering::Relaxed);
        });
        assert!(
            counts
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 1)
        );
        let mut data = vec![0; 103];
        pool.for_each_chunk(&mut data, 10, |i, chunk| chunk.fill(i));
        assert!(data.iter().enumerate().all(|(k, &i)| i == k / 10));
    }
}

#[test]
fn threads_work_at_the_same_time() {
    let pool = Pool::new(3).unwrap();
    for _ in 0..ROUNDS {
        // Nobody passes before all three are there.
        let barrier = Barrier::new(3);
        pool.for_each(3, |_| {
            barrier.wait();
        });
    }
}

/// What is called inside a task stays on its thread, with the number that the thread has.
#[test]
fn tasks_may_have_tasks() {
    let pool = Pool::new(3).unwrap();
    let sum = AtomicUsize::new(0);
    pool.for_each_on_thread(20, |_, outer| {
        pool.for_each_on_thread(10, |task, inner| {
            assert_eq!(outer, inner);
            sum.fetch_add(task, Ordering::Relaxed);
        });
        pool.run(|| sum.fetch_add(1, Ordering::Relaxed));
    });
    assert_eq!(sum.into_inner(), 20 * 46);
}

#[test]
fn panics_reach_who_called_and_the_pool_goes_on() {
    let pool = Pool::new(3).unwrap();
    for round in 0..ROUNDS {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.for_each(9, |task| assert!(task != round % 9, "task {task}"));
        }));
        let panic = caught.unwrap_err();
        assert_eq!(
            panic.downcast_ref::<String>(),
            Some(&format!("task {}", round % 9))
        );
        let caught = catch_unwind(AssertUnwindSafe(|| pool.run(|| panic!("whole"))));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"whole"));
        assert_eq!(pool.run(|| round + 1), round + 1);
    }
}

/// Miri takes its time.
const ROUNDS: usize = if cfg!(miri) { 2 } else { 50 };

/// Pools that call each other, and threads that call one at the same time.
#[test]
fn nobody_waits_for_a_pool_that_waits_for_him() {
    let (done, over) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let [a, b] = [2, 2].map(|threads| Pool::new(threads).unwrap());
            let sum = AtomicUsize::new(0);
            let add = |task| {
                sum.fetch_add(task, Ordering::Relaxed);
            };
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..ROUNDS {
                            a.for_each(4, |_| b.for_each(4, |_| a.for_each(4, add)));
                            b.run(|| a.run(|| b.run(|| add(1))));
                        }
                    });
                }
            });
            assert_eq!(sum.into_inner(), 4 * ROUNDS * (4 * 4 * 6 + 1));
            done.send(()).unwrap();
        });
        // A stop, not a measure: what is tested would wait for ever.
        if over.recv_timeout(Duration::from_mins(5)).is_err() {
            eprintln!("two pools wait for each other");
            std::process::abort();
        }
    });
}

#[test]
fn who_works_for_an_engaged_thread_is_engaged() {
    let pool = Pool::new(3).unwrap();
    let all = |expected: bool| {
        let barrier = Barrier::new(3);
        let wrong = AtomicBool::new(false);
        pool.for_each(3, |_| {
            barrier.wait();
            wrong.fetch_or(Engaged::is() != expected, Ordering::Relaxed);
        });
        assert!(!wrong.into_inner());
        assert_eq!(Engaged::is(), expected);
    };
    all(false);
    let engaged = Engaged::enter();
    all(true);
    drop(engaged);
    all(false);
}

#[test]
fn a_thread_that_is_refused_is_an_error_and_the_others_end() {
    for refused in 1..=4 {
        let count = AtomicUsize::new(0);
        let alive = Arc::new(AtomicUsize::new(0));
        let spawn = |thread: Builder, work: Box<dyn FnOnce() + Send>| {
            if count.fetch_add(1, Ordering::Relaxed) + 1 == refused {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let alive = Arc::clone(&alive);
            alive.fetch_add(1, Ordering::Relaxed);
            thread.spawn(move || {
                work();
                alive.fetch_sub(1, Ordering::Relaxed);
            })
        };
        let error = Pool::start(4, &spawn).unwrap_err();
        assert!(
            matches!(error, PoolError::Thread { number, threads: 4, .. } if number == refused),
            "{error}"
        );
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }
}
