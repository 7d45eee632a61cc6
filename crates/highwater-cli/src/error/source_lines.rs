//! Messages without the lines of source that they name, and without most of what they quote at length.

/// How many letters a line keeps at its beginning and at its end, if it has more than both.
const LINE: (usize, usize) = (240, 120);
/// The same of a word, such as a number of hundreds of digits, but not of a path.
const WORD: (usize, usize) = (60, 20);

/// A text without the middle of its long lines and words: they quote what users gave, which may be a whole file.
pub(crate) fn shortened(text: &str) -> String {
    let word = |word: &str| {
        let is_path = word.contains('/');
        cut(word, if is_path { LINE } else { WORD })
    };
    let line = |line: &str| {
        let words: Vec<_> = line.split(' ').map(word).collect();
        cut(&words.join(" "), LINE)
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn cut(text: &str, (start, end): (usize, usize)) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= start + end {
        return text.to_owned();
    }
    let of = |letters: &[char]| letters.iter().collect::<String>();
    let rest = &letters[letters.len() - end..];
    format!("{}...{}", of(&letters[..start]), of(rest))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_and_words_keep_their_ends() {
        let long = format!("begin{}end", " ä".repeat(50_000));
        let short = shortened(&format!("first\n{long}\nlast"));
        assert!(short.starts_with("first\nbegin") && short.ends_with("end\nlast"));
        assert!(short.chars().count() < 400, "{short}");
        let digits = "9".repeat(400);
        let short = shortened(&format!("it is {digits}: too much"));
        assert!(short.starts_with("it is 999") && short.ends_with("9: too much"));
        assert!(short.len() < 110, "{short}");
        for whole in [
            "x".repeat(80),
            format!("/{}", "x".repeat(255)),
            " y".repeat(180),
        ] {
            assert_eq!(shortened(&whole), whole);
        }
    }
}
