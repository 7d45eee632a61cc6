//! What came of settings that were tried: a search comes to the same ones again and again.

use crate::simulate::{Candidate, Stuck, faster};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Settings remembered at a time: some hundred KiB.
const MOST: usize = 7_000;

/// The settings of one search at one price of moving. Only their hashes: were two ever equal, one plan
/// would not be looked at.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    known: BTreeMap<u64, Known>,
}

/// What came of settings, and the runs that it took to know.
#[derive(Debug, Clone, Copy)]
struct Known {
    came: Came,
    runs: u64,
}

#[derive(Debug, Clone, Copy)]
enum Came {
    /// They cannot be carried out.
    Stuck,
    /// The peak is over so many bytes.
    Over(u64),
    Done {
        peak: u64,
        seconds: f64,
    },
}

/// Settings under a budget, and what to do better than.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial {
    key: u64,
    budget: u64,
    than: f64,
}

impl Trial {
    pub(crate) fn new(settings: &[u8], due: &[u32], budget: u64, than: f64) -> Trial {
        let mut hasher = DefaultHasher::new();
        (settings, due).hash(&mut hasher);
        let key = hasher.finish();
        Trial { key, budget, than }
    }
}

impl Tried {
    /// The runs that were simulated before to learn that settings don't fit or are no faster, if that is
    /// known.
    pub(crate) fn in_vain(&self, trial: &Trial) -> Option<u64> {
        let known = self.known.get(&trial.key)?;
        let vain = match known.came {
            Came::Stuck => true,
            Came::Over(bytes) => trial.budget <= bytes,
            Came::Done { peak, seconds } => peak > trial.budget || !faster(seconds, trial.than),
        };
        vain.then_some(known.runs)
    }

    pub(crate) fn note(&mut self, trial: &Trial, found: &Result<Candidate, Stuck>, runs: u64) {
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let came = match found {
            Ok(found) => Came::Done {
                peak: found.outcome.peak,
                seconds: found.outcome.seconds,
            },
            Err(Stuck::Over) => Came::Over(trial.budget),
            Err(_) => Came::Stuck,
        };
        self.known.insert(trial.key, Known { came, runs });
    }
}
