//! What the folder of a saved state is called: `step-000120` after 120 steps.

/// The name of the state after so many steps.
pub(crate) fn state_name(step: u64) -> String {
    format!("step-{step:06}")
}

/// The step that a saved state is of, by its name.
pub(crate) fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("step-")?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}
