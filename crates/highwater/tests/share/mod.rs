//! How much of many samples is tried: all, or a part where a processor is emulated (`benches/aarch64.sh`).

/// Of so many samples one is tried.
#[expect(clippy::disallowed_methods, reason = "who runs the tests says it")]
pub(crate) fn one_of() -> usize {
    let told = std::env::var("ONE_OF");
    told.map_or(1, |text| text.parse().expect("a number in ONE_OF"))
}

/// The first of some samples, and each that is [`one_of`] after one of these.
pub(crate) fn some<T>(samples: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    samples.into_iter().step_by(one_of())
}
