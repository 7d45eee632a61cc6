//! What settings may be.

use super::error::SettingsError;

pub(crate) fn require(
    ok: bool,
    setting: &'static str,
    value: &dyn std::fmt::Display,
    expected: impl FnOnce() -> String,
) -> Result<(), SettingsError> {
    ok.then_some(()).ok_or_else(|| SettingsError::Range {
        setting,
        value: value.to_string(),
        expected: expected(),
    })
}

pub(crate) fn count(setting: &'static str, value: u64, max: u64) -> Result<(), SettingsError> {
    require((1..=max).contains(&value), setting, &value, || match max {
        u64::MAX => "at least 1".to_owned(),
        max => format!("1 to {max}"),
    })
}

pub(crate) fn most(setting: &'static str, value: u64, max: u64) -> Result<(), SettingsError> {
    require(value <= max, setting, &value, || format!("0 to {max}"))
}

pub(crate) fn fraction(setting: &'static str, value: f64) -> Result<(), SettingsError> {
    require((0.0..1.0).contains(&value), setting, &value, || {
        "a number from 0 to below 1".to_owned()
    })
}

pub(crate) fn positive(setting: &'static str, value: f64, max: f64) -> Result<(), SettingsError> {
    let ok = value > 0.0 && value <= max;
    require(ok, setting, &value, || {
        let most = if max < f64::MAX {
            format!(", at most {max}")
        } else {
            String::new()
        };
        format!("a number above 0{most}")
    })
}

/// Of images, in pixels.
pub(crate) fn side(size: usize) -> Result<(), SettingsError> {
    require((16..=4096).contains(&size), "size", &size, || {
        "16 to 4096".to_owned()
    })
}
