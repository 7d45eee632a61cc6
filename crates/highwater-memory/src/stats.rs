//! How much memory is and was in use, by category.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::events::{Action, Category, Event};

/// Bytes in use by category and in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    categories: [CategoryStatistics; Category::ALL.len()],
    total: CategoryStatistics,
}

/// What the events of one category add up to, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CategoryStatistics {
    /// In use now.
    pub current: u64,
    /// The most ever in use at once.
    pub peak: u64,
    /// All that was ever taken.
    pub allocated: u64,
    /// All that was computed again.
    pub recomputed: u64,
    /// All that was copied to another tier.
    pub moved: u64,
}

impl Statistics {
    /// Of one category.
    pub fn category(&self, category: Category) -> CategoryStatistics {
        self.categories[category as usize]
    }

    /// Of all categories together. Its peak is that of the sum, not the sum of the peaks.
    pub fn total(&self) -> CategoryStatistics {
        self.total
    }
}

/// The running sums. Updates from several threads at once all count; a reading taken meanwhile may
/// have part of them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    categories: [Counter; Category::ALL.len()],
    total: Counter,
}

#[derive(Debug, Default)]
struct Counter {
    current: AtomicU64,
    peak: AtomicU64,
    allocated: AtomicU64,
    recomputed: AtomicU64,
    moved: AtomicU64,
}

impl Counters {
    pub(crate) fn record(&self, event: &Event<'_>) {
        self.categories[event.category as usize].record(event);
        self.total.record(event);
    }

    pub(crate) fn read(&self) -> Statistics {
        Statistics {
            categories: std::array::from_fn(|i| self.categories[i].read()),
            total: self.total.read(),
        }
    }

    pub(crate) fn reset_peaks(&self) {
        for counter in self.categories.iter().chain([&self.total]) {
            counter
                .peak
                .store(counter.current.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl Counter {
    fn record(&self, event: &Event<'_>) {
        let bytes = event.bytes;
        match event.action {
            Action::Alloc => {
                let current = self.current.fetch_add(bytes, Ordering::Relaxed) + bytes;
                self.peak.fetch_max(current, Ordering::Relaxed);
                self.allocated.fetch_add(bytes, Ordering::Relaxed);
            }
            Action::Free => {
                let before = self.current.fetch_sub(bytes, Ordering::Relaxed);
                debug_assert!(before >= bytes, "more freed than allocated: {event:?}");
            }
            Action::Recompute => _ = self.recomputed.fetch_add(bytes, Ordering::Relaxed),
            Action::Move { .. } => _ = self.moved.fetch_add(bytes, Ordering::Relaxed),
        }
    }

    fn read(&self) -> CategoryStatistics {
        CategoryStatistics {
            current: self.current.load(Ordering::Relaxed),
            peak: self.peak.load(Ordering::Relaxed),
            allocated: self.allocated.load(Ordering::Relaxed),
            recomputed: self.recomputed.load(Ordering::Relaxed),
            moved: self.moved.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Label, Place};

    #[test]
    fn sums_and_peaks_by_category() {
        let counters = Counters::default();
        let record = |action, bytes, category| {
            counters.record(&Event {
                action,
                bytes,
                category,
                label: Label::Text("test"),
            });
        };
        record(Action::Alloc, 100, Category::Gradient);
        record(Action::Free, 100, Category::Gradient);
        record(Action::Alloc, 60, Category::Activation);
        record(Action::Recompute, 60, Category::Activation);
        record(
            Action::Move {
                from: Place::Device,
                to: Place::Host,
            },
            40,
            Category::Activation,
        );
        let all = counters.read();
        assert_eq!(all.category(Category::Gradient).peak, 100);
        assert_eq!(all.category(Category::Gradient).current, 0);
        let expected = CategoryStatistics {
            current: 60,
            peak: 60,
            allocated: 60,
            recomputed: 60,
            moved: 40,
        };
        assert_eq!(all.category(Category::Activation), expected);
        assert_eq!(
            (all.total().current, all.total().peak, all.total().allocated),
            (60, 100, 160)
        );
        counters.reset_peaks();
        assert_eq!(counters.read().total().peak, 60);
    }

    #[test]
    fn updates_from_many_threads_all_count() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for category in Category::ALL {
                let counters = &counters;
                scope.spawn(move || {
                    for _ in 0..1000 {
                        for action in [Action::Alloc, Action::Alloc, Action::Free] {
                            let label = Label::Id(0);
                            counters.record(&Event {
                                action,
                                bytes: 3,
                                category,
                                label,
                            });
                        }
                    }
                });
            }
        });
        let all = counters.read();
        assert_eq!(all.total().current, 7 * 3000);
        assert!(
            Category::ALL
                .iter()
                .all(|&category| all.category(category).current == 3000)
        );
    }
}
