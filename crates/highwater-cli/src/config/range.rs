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
        place: None,
        value: value.to_string(),
        expected: expected(),
    })
}
