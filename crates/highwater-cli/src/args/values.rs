//! Values of flags that are no types of their own.

use highwater_models::TokenWidth;

/// A share, as a number or in percent.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let (number, of) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number < of => Ok(number / of),
        _ => Err("expected a share below 1, such as 0.05 or 5%".to_owned()),
    }
}

pub(crate) fn token_width(text: &str) -> TokenWidth {
    match text {
        "u32" => TokenWidth::U32,
        _ => TokenWidth::U16,
    }
}
