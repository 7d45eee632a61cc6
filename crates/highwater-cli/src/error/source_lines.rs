//! Messages of the engine without the lines of source that they name.

/// A text without lines of source, and the hints that it ends with.
pub(crate) fn without_lines(text: &str) -> (String, Vec<String>) {
    let (mut message, mut hints) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some(hint) = line.strip_prefix("  hint: ") {
            hints.push(hint.to_owned());
        } else if let Some(place) = line.strip_prefix("  at ") {
            if let Some((_, module)) = place.split_once(", in ") {
                message = format!("{message} (in {module})");
            }
        } else {
            let said = without_places(line);
            message = if message.is_empty() {
                said
            } else {
                format!("{message}\n{said}")
            };
        }
    }
    (message, hints)
}

/// A line of text without any ` at FILE.rs:LINE:COLUMN`.
pub(crate) fn without_places(line: &str) -> String {
    let mut parts = line.split(" at ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find([' ', ';', ',']).unwrap_or(part.len());
        let (place, rest) = part.split_at(end);
        if place.contains(".rs:") {
            kept.push_str(rest);
        } else {
            kept = format!("{kept} at {part}");
        }
    }
    kept
}
