//! Which keys a query sees.

use super::documents::{Documents, Row};
use super::rows::BLOCK;
use std::ops::Range;

/// Which keys a query sees: all; those up to its own position; or of these the last ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    pub(super) causal: bool,
    /// How many keys up to its own; only with `causal`.
    pub(super) window: Option<usize>,
}

/// [`Sight`] in one sequence of a batch: where there are documents, within a query's own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    sight: Sight,
    documents: Row<'a>,
}

/// Of a task that lets groups of queries meet its keys: to which of these no query came before.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fresh {
    All,
    /// Where queries see no keys behind their own.
    From(usize),
    None,
}

impl<'a> Seen<'a> {
    pub(super) fn new(sight: Sight, documents: Option<Documents<'a>>, batch: usize) -> Self {
        Self {
            sight,
            documents: documents.map_or(Row::WHOLE, |documents| documents.row(batch)),
        }
    }

    /// The keys, of so many, that any of the queries sees.
    pub(super) fn keys(&self, queries: &Range<usize>, keys: usize) -> Range<usize> {
        if !self.sight.causal {
            return 0..keys;
        }
        let window = self.sight.window.unwrap_or(usize::MAX);
        let start = (queries.start + 1).saturating_sub(window);
        start.max(self.documents.of(queries.start).start)..queries.end
    }

    /// The queries, of so many, that see any of the keys.
    pub(super) fn queries(&self, keys: &Range<usize>, queries: usize) -> Range<usize> {
        if !self.sight.causal || keys.is_empty() {
            return 0..queries;
        }
        let window = self.sight.window.unwrap_or(usize::MAX);
        let end = keys.end.saturating_add(window).saturating_sub(1);
        let end = end.min(self.documents.of(keys.end - 1).end);
        keys.start.min(queries)..end.min(queries)
    }

    /// Whether any of the queries sees any of the keys.
    pub(super) fn meets(&self, queries: &Range<usize>, keys: &Range<usize>) -> bool {
        if queries.is_empty() {
            return false;
        }
        let seen = if self.sight.causal {
            self.keys(queries, keys.end)
        } else {
            let (first, last) = (queries.start, queries.end - 1);
            self.documents.of(first).start..self.documents.of(last).end
        };
        seen.start < keys.end && keys.start < seen.end
    }

    /// Whether query `i` of a block sees none of the keys behind key `i`.
    pub(super) fn diagonal(&self, queries: &Range<usize>, keys: &Range<usize>) -> bool {
        self.sight.causal && queries.start == keys.start
    }

    /// Hides from each query the keys that it does not see: a row of scores for each key, queries side
    /// by side.
    pub(super) fn mask(&self, scores: &mut [f32], queries: &Range<usize>, keys: &Range<usize>) {
        let causal = self.sight.causal;
        let window = self.sight.window.unwrap_or(usize::MAX);
        let after = causal && keys.end > queries.start;
        let before = causal && queries.end.saturating_sub(keys.start) > window;
        let all = keys.start.min(queries.start)..keys.end.max(queries.end);
        if !(after || before || self.documents.part(&all)) {
            return;
        }
        let at = |query: usize| query.saturating_sub(queries.start).min(BLOCK);
        for document in self.documents.over(keys) {
            for key in keys.start.max(document.start)..keys.end.min(document.end) {
                let scores = &mut scores[(key - keys.start) * BLOCK..][..BLOCK];
                let seen = if causal {
                    key.max(document.start)..key.saturating_add(window).min(document.end)
                } else {
                    document.clone()
                };
                scores[..at(seen.start)].fill(f32::NEG_INFINITY);
                scores[at(seen.end)..].fill(f32::NEG_INFINITY);
            }
        }
    }
}

impl Sight {
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
    use crate::View;
    use highwater_graph::{DType, Spec};

    #[test]
    fn blocks_and_masks_agree_with_each_query_and_key() {
        let all: [&[i64]; 5] = [&[], &[200], &[64, 0, 1, 70, 65], &[3, 0, 90], &[0, 0, 5]];
        for (lengths, (causal, window)) in all.into_iter().flat_map(|lengths| {
            let sights = [
                (false, None),
                (true, None),
                (true, Some(1)),
                (true, Some(70)),
            ];
            sights.map(|sight| (lengths, sight))
        }) {
            let (n, mut count) = (200, 0);
            let spec = Spec::contiguous(DType::I64, [1, lengths.len()]);
            let view = View::read(bytemuck::cast_slice(lengths), &spec);
            let documents = Documents::new(&view, n).unwrap();
            let plain = Sight { causal, window };
            let sight = Seen::new(plain, Some(documents), 0);
            let mut names = Vec::new();
            for (name, &length) in lengths.iter().enumerate() {
                names.extend(vec![name; length as usize]);
            }
            names.resize(n, lengths.len());
            let sees = |i: usize, j: usize| {
                let near = !causal || j <= i && window.is_none_or(|window| i - j < window);
                near && names[i] == names[j]
            };
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
            let pairs = plain.pairs(n, n);
            let whole = names.iter().all(|&name| name == names[0]);
            assert!(count as f64 <= pairs + 0.5, "{sight:?}");
            assert!(!whole || count as f64 > pairs - 0.5, "{sight:?}");
        }
    }
}
