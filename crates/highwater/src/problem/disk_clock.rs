//! What the disk was taken to move, held against what it moved: rates measured for a moment, on a small
//! part of a disk, are seldom those of a long run.

use crate::store::disk::DiskRates;
use crate::store::io::Io;
use highwater_plan::Timeline;
use std::collections::VecDeque;

/// Rates are corrected if transfers take more or less than was predicted by this factor.
const TOLERANCE: f64 = 1.15;
/// Evaluations that are looked at before the first correction; four times as many before each other.
const PATIENCE: u32 = 2;
/// How often rates may be corrected: with each, plans are made anew.
const CORRECTIONS: u32 = 4;
/// The middle of so many evaluations counts.
const RECENT: usize = 3;
/// Transfers that are over in less say nothing, in seconds.
const LEAST: f64 = 0.02;

/// Follows the transfers of evaluations.
#[derive(Debug, Default)]
pub(crate) struct DiskClock {
    /// How often what was predicted of reads and of writes they took.
    recent: VecDeque<[f64; 2]>,
    seen: u32,
    corrections: u32,
}

impl DiskClock {
    /// Notes what an evaluation took; answers other rates where those told are off.
    pub(crate) fn note(
        &mut self,
        predicted: &Timeline,
        io: &Io,
        told: DiskRates,
    ) -> Option<DiskRates> {
        let ratio = |predicted: f64, took: f64| {
            let counts = predicted > LEAST && took > LEAST;
            if counts { took / predicted } else { 1.0 }
        };
        let reads = ratio(predicted.read_seconds, io.read_seconds);
        let writes = ratio(predicted.write_seconds, io.write_seconds);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back([reads, writes]);
        self.seen += 1;
        let (reads, writes) = (self.middle(0), self.middle(1));
        let is_off = |ratio: f64| !(1.0 / TOLERANCE..=TOLERANCE).contains(&ratio);
        let patience = PATIENCE << (2 * self.corrections);
        if self.corrections == CORRECTIONS
            || self.seen < patience
            || !(is_off(reads) || is_off(writes))
        {
            return None;
        }
        self.corrections += 1;
        self.seen = 0;
        self.recent.clear();
        Some(DiskRates {
            read: told.read / reads,
            read_while_writing: told.read_while_writing / reads,
            write: told.write / writes,
            write_while_reading: told.write_while_reading / writes,
            ..told
        })
    }

    /// Corrects nothing any more.
    pub(crate) fn stop(&mut self) {
        self.corrections = CORRECTIONS;
    }

    fn middle(&self, which: usize) -> f64 {
        let mut ratios: Vec<f64> = self.recent.iter().map(|ratios| ratios[which]).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_what_transfers_take_and_then_stay() {
        let predicted = Timeline {
            read_seconds: 1.0,
            write_seconds: 2.0,
            ..Timeline::default()
        };
        let took = |read_seconds, write_seconds| Io {
            read_seconds,
            write_seconds,
            ..Io::default()
        };
        let told = DiskRates::default();
        let mut clock = DiskClock::default();
        assert_eq!(clock.note(&predicted, &took(2.0, 2.1), told), None);
        let corrected = clock.note(&predicted, &took(2.0, 2.1), told).unwrap();
        assert!((corrected.read / told.read - 0.5).abs() < 1e-12);
        assert!((corrected.write / told.write - 1.0 / 1.05).abs() < 1e-12);
        for _ in 0..1000 {
            assert_eq!(clock.note(&predicted, &took(1.1, 1.9), corrected), None);
        }
    }
}
