//! Figures as people read them.

/// So many in a second, with a digit behind the point where there are few.
pub fn per_second(count: f64) -> String {
    let digits = usize::from(count < 100.0);
    format!("{count:.digits$}")
}

/// Seconds as people say them: `12 s`, `3 min 20 s`, `5 h 10 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A perplexity, for people: with as many digits as mean something.
pub fn perplexity(perplexity: f64) -> String {
    match perplexity {
        few if few < 100.0 => format!("{few:.2}"),
        some if some < 1e6 => format!("{some:.1}"),
        many => format!("{many:.2e}"),
    }
}
