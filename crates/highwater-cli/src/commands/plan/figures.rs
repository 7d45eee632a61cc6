//! Times and counts of a plan as people read them.

/// Seconds with three digits that count.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 10.0 => format!("{s:.1} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-2 => format!("{:.1} ms", s * 1e3),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s if s > 0.0 => format!("{:.1} us", s * 1e6),
        _ => "0 s".to_owned(),
    }
}

pub(crate) fn times(count: u32) -> String {
    if count > 1 {
        format!(" (x{count})")
    } else {
        String::new()
    }
}
