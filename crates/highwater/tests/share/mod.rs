//! How much of many samples is tried. `ONE_OF=4` takes one of four, and `SHARE` says which: another one each time that
//! continuous integration runs, so that all are tried in turn. Where a processor is emulated (`benches/aarch64.sh`) it
//! is fewer.

/// A number that whoever runs the tests states.
#[expect(clippy::disallowed_methods, reason = "who runs the tests says it")]
fn stated(name: &str, otherwise: usize) -> usize {
    let text = std::env::var(name);
    text.map_or(otherwise, |text| text.parse().expect(name))
}

/// Of so many samples one is tried.
pub(crate) fn one_of() -> usize {
    stated("ONE_OF", 1)
}

/// Which of them, before it is brought into a range.
pub(crate) fn first() -> usize {
    stated("SHARE", 0)
}

/// Some samples of all, at least one: those whose places are [`one_of`] apart, from the one that `SHARE` says.
pub(crate) fn some<T>(samples: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let all: Vec<T> = samples.into_iter().collect();
    let first = first() % one_of().min(all.len()).max(1);
    all.into_iter().skip(first).step_by(one_of())
}
