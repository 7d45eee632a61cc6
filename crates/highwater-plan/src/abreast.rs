//! Independent pieces of planning, on as many threads as there are processors.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, available_parallelism, scope};

/// Nodes of a problem below which one thread does all: it takes no time, and each more takes memory.
const MANY: usize = 250;

/// What a function makes of each item, in their order, for a problem of so many nodes. Where the system
/// gives no more threads, fewer do the work.
pub(crate) fn abreast<T: Send, R: Send>(
    nodes: usize,
    items: Vec<T>,
    make: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let count = items.len();
    let items = Mutex::new(items.into_iter().enumerate());
    let made = Mutex::new(Vec::with_capacity(count));
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((i, item)) = next() {
            let one = make(item);
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            made.push((i, one));
        }
    };
    let most = if nodes < MANY { 1 } else { count };
    let threads = available_parallelism().map_or(1, usize::from).min(most);
    scope(|scope| {
        let others = (1..threads).map_while(|_| {
            let thread = Builder::new().name("highwater-plan".to_owned());
            thread.spawn_scoped(scope, work).ok()
        });
        let others: Vec<_> = others.collect();
        work();
        for other in others {
            if let Err(panic) = other.join() {
                resume_unwind(panic);
            }
        }
    });
    let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    made.sort_by_key(|&(i, _)| i);
    made.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_made_and_stay_in_order() {
        for count in [0, 1, 2, 100] {
            let squares = abreast(MANY, (0..count).collect(), |i: usize| i * i);
            assert_eq!(squares, (0..count).map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    #[should_panic(expected = "the third")]
    fn a_panic_is_passed_on() {
        abreast(MANY, (0..9).collect(), |i: usize| {
            assert!(i != 2, "the third");
        });
    }
}
