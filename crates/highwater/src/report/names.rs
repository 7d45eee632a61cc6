//! Module paths as people read them: equal layers under one name.

use std::fmt::Write as _;

/// Stands for the number of a layer.
const ANY: &str = "*";

/// A path with the first number left out, and that number: `h.3.mlp` is `h.*.mlp` and 3.
pub(crate) fn pattern(path: &str) -> (String, Option<u32>) {
    let mut number = None;
    let part = |part: &str| match part.parse() {
        Ok(found) if number.is_none() => {
            number = Some(found);
            ANY.to_owned()
        }
        _ => part.to_owned(),
    };
    let parts: Vec<String> = path.split('.').map(part).collect();
    (parts.join("."), number)
}

/// The part of a path that names a layer: up to its first number, or all of it.
pub(crate) fn layer(path: &str) -> &str {
    let mut end = 0;
    for part in path.split('.') {
        end += part.len();
        if part.parse::<u32>().is_ok() {
            return &path[..end];
        }
        end += 1;
    }
    path
}

/// The name of some layers: `h.[0-3,7].mlp`. `numbers` ascend.
pub(crate) fn join(pattern: &str, numbers: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let several = runs.len() > 1 || runs.iter().any(|(first, last)| first < last);
    let mut text = String::new();
    for (i, (first, last)) in runs.into_iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        // Writing to a text cannot fail.
        let _ = write!(text, "{comma}{first}");
        if first < last {
            let _ = write!(text, "-{last}");
        }
    }
    if several {
        text = format!("[{text}]");
    }
    pattern.replacen(ANY, &text, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_layers_share_a_name() {
        assert_eq!(pattern("h.3.mlp.0"), ("h.*.mlp.0".to_owned(), Some(3)));
        assert_eq!(pattern("lm_head"), ("lm_head".to_owned(), None));
        assert_eq!(layer("transformer.h.11.mlp"), "transformer.h.11");
        assert_eq!(layer("transformer.wte"), "transformer.wte");
        assert_eq!(layer("3"), "3");
        assert_eq!(join("h.*.mlp", [0, 1, 2, 3, 7]), "h.[0-3,7].mlp");
        assert_eq!(join("h.*", [4]), "h.4");
        assert_eq!(join("lm_head", []), "lm_head");
    }
}
