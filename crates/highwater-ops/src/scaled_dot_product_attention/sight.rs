//! Which keys a query sees.

use super::rows::BLOCK;
use std::ops::Range;

/// Which keys a query sees: all; those up to its own position; or of these the last ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    pub(super) causal: bool,
    /// How many keys up to its own; only with `causal`.
    pub(super) window: Option<usize>,
}

impl Sight {
    /// The keys, of so many, that any of the queries sees.
    pub(super) fn keys(self, queries: &Range<usize>, keys: usize) -> Range<usize> {
        if !self.causal {
            return 0..keys;
        }
        let window = self.window.unwrap_or(usize::MAX);
        (queries.start + 1).saturating_sub(window)..queries.end
    }

    /// The queries, of so many, that see any of the keys.
    pub(super) fn queries(self, keys: &Range<usize>, queries: usize) -> Range<usize> {
        if !self.causal {
            return 0..queries;
        }
        let window = self.window.unwrap_or(usize::MAX);
        let end = keys.end.saturating_add(window).saturating_sub(1);
        keys.start.min(queries)..end.min(queries)
    }

    /// Whether any of the queries sees any of the keys.
    pub(super) fn meets(self, queries: &Range<usize>, keys: &Range<usize>) -> bool {
        let seen = self.keys(queries, keys.end);
        !queries.is_empty() && seen.start < keys.end && keys.start < seen.end
    }

    /// Hides from each query the keys that it does not see: a row of scores for each key, queries side
    /// by side.
    pub(super) fn mask(self, scores: &mut [f32], queries: &Range<usize>, keys: &Range<usize>) {
        if !self.causal {
            return;
        }
        let after = keys.end > queries.start;
        let window = self.window.unwrap_or(usize::MAX);
        let before = queries.end.saturating_sub(keys.start) > window;
        if !(after || before) {
            return;
        }
        for (key, scores) in keys.clone().zip(scores.chunks_exact_mut(BLOCK)) {
            let at = |query: usize| query.saturating_sub(queries.start).min(BLOCK);
            scores[..at(key)].fill(f32::NEG_INFINITY);
            scores[at(key.saturating_add(window))..].fill(f32::NEG_INFINITY);
        }
    }

    /// How many keys so many queries see together, of so many keys.
    pub(super) fn pairs(self, queries: usize, keys: usize) -> f64 {
        let (queries, all) = (queries as f64, keys as f64);
        if !self.causal {
            return queries * all;
        }
        // The first queries see fewer keys than a window.
        let window = self
            .window
            .map_or(queries, |window| queries.min(window as f64));
        window * (window + 1.0) / 2.0 + (queries - window) * window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_masks_agree_with_each_query_and_key() {
        for (causal, window) in [
            (false, None),
            (true, None),
            (true, Some(1)),
            (true, Some(70)),
        ] {
            let sight = Sight { causal, window };
            let sees = |i: usize, j: usize| {
                !causal || j <= i && window.is_none_or(|window| i - j < window)
            };
            let (n, mut count) = (200, 0);
            for queries in (0..n)
                .step_by(BLOCK)
                .map(|start| start..n.min(start + BLOCK))
            {
                for keys in (0..n)
                    .step_by(BLOCK)
                    .map(|start| start..n.min(start + BLOCK))
                {
                    let mut scores = vec![0.0; BLOCK * BLOCK];
                    sight.mask(&mut scores, &queries, &keys);
                    let mut any = false;
                    for (i, j) in queries
                        .clone()
                        .flat_map(|i| keys.clone().map(move |j| (i, j)))
                    {
                        let score = scores[(j - keys.start) * BLOCK + i - queries.start];
                        assert_eq!(score == 0.0, sees(i, j), "{sight:?} {i} {j}");
                        let within = sight.keys(&queries, n).contains(&j)
                            && sight.queries(&keys, n).contains(&i);
                        assert!(within || !sees(i, j), "{sight:?} {i} {j}");
                        any |= sees(i, j);
                        count += usize::from(sees(i, j));
                    }
                    assert_eq!(
                        sight.meets(&queries, &keys),
                        any,
                        "{sight:?} {queries:?} {keys:?}"
                    );
                }
            }
            assert!((sight.pairs(n, n) - count as f64).abs() < 0.5, "{sight:?}");
        }
    }
}
