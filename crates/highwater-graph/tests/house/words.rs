//! Holds the pages to plain English: short sentences, the field's words, links that lead somewhere.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Component, Path, PathBuf};

use super::{files, repository};

/// Words in a sentence at most.
const WORDS: usize = 40;

/// Words in the README at most.
const README_WORDS: usize = 1000;

/// Words in ARCHITECTURE.md at most: details have pages in `docs/design`.
const MAP_WORDS: usize = 3500;

/// Phrases that pages do not use, and what to write instead.
const INSTEAD: [(&str, &str); 44] = [
    ("told", "reported, predicted, prints"),
    ("tells", "reports, predicts, prints"),
    ("answers a", "returns"),
    ("answers with", "returns"),
    ("methods answer", "methods return"),
    ("beside", "next to, compared with"),
    ("picture", "image"),
    ("pictures", "images"),
    ("learnt", "loss is computed on"),
    ("the least that", "the minimum"),
    ("the least there is", "the minimum"),
    ("takes room", "needs space"),
    ("take room", "need space"),
    ("takes memory", "uses memory"),
    ("take memory", "use memory"),
    ("waits on a disk", "is offloaded to disk"),
    ("wait on a disk", "are offloaded to disk"),
    ("waits on the disk", "is offloaded to disk"),
    ("below memory", "on disk or host"),
    ("homes", "where tensors are kept"),
    ("computed again", "recomputed"),
    ("run again", "recomputed"),
    ("runs again", "is recomputed"),
    ("lesser processor", "an older CPU"),
    ("lesser processors", "older CPUs"),
    ("few bits", "quantized"),
    ("fewer bits", "quantized"),
    ("halves", "half precision"),
    ("made tokens", "tokenized"),
    ("makes tokens", "tokenizes"),
    ("making tokens", "tokenization"),
    ("let go of", "freed"),
    ("lets go of", "frees"),
    ("take for a while", "scratch memory (workspace)"),
    ("tables of pages", "page tables"),
    ("bits of eager", "bit-identical to eager mode"),
    ("eager's bits", "bit-identical to eager mode"),
    ("number that is none", "NaN or infinity"),
    ("without a name", "unlinked temporary"),
    ("records", "examples, rows of the dataset"),
    ("goes on", "resumes, continues"),
    ("go on", "resume, continue"),
    ("going on", "resuming, continuing"),
    ("step that was stopped", "aborted step"),
];

/// What a page may say all the same: names, and the field's own use of a word.
const EXCEPTIONS: [(&str, &str); 0] = [];

/// Pages that show what the program and the packages print. Their lines are mostly within blocks of code, and are
/// held to the phrases alone.
const PRINTED: [&str; 3] = [
    "crates/highwater-cli/MESSAGES.md",
    "crates/highwater-python/MESSAGES.md",
    "docs/reference/flags.md",
];

/// Pages that people read: users' and engineers'.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> = files("md")
        .into_iter()
        .filter(|page| page.starts_with("docs/"))
        .filter(|page| !PRINTED.contains(&page.as_str()))
        .collect();
    let others = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "KNOWN_ISSUES.md",
        "BENCHMARKS.md",
        "CHANGELOG.md",
        "ERRORS.md",
        "crates/highwater-cli/README.md",
        "crates/highwater-python/README.md",
    ];
    pages.extend(others.map(str::to_owned));
    pages
}

fn text(page: &str) -> String {
    read_to_string(repository().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// A page without its blocks of code.
fn without_code(text: &str) -> String {
    let mut inside = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            prose.push_str(line);
        }
        prose.push('\n');
    }
    prose
}

/// Text with each piece of code as one word, and of each link its words.
fn spoken(line: &str) -> String {
    let code: Vec<&str> = line.split('`').collect();
    let code = code.iter().enumerate();
    let line: String = code
        .map(|(i, part)| if i % 2 == 1 { "CODE" } else { part })
        .collect();
    let mut spoken = String::new();
    let mut rest = line.as_str();
    while let Some(at) = rest.find("](") {
        spoken.push_str(&rest[..at]);
        let after = &rest[at + 2..];
        rest = &after[after.find(')').map_or(after.len(), |end| end + 1)..];
    }
    (spoken + rest).replace(['[', '!', '*'], " ")
}

/// The sentences of a page: of paragraphs, headings, items of lists and cells of tables.
fn sentences(text: &str) -> Vec<String> {
    let mut units: Vec<String> = vec![String::new()];
    for line in without_code(text).lines() {
        let line = line.trim();
        let numbered = line.split_once(". ").is_some_and(|(number, _)| {
            !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
        });
        let starts = line.is_empty() || line.starts_with(['#', '-', '|', '<', '{']) || numbered;
        if starts {
            units.push(String::new());
        }
        let spoken = spoken(line);
        if line.starts_with('|') {
            units.extend(spoken.split('|').map(str::to_owned));
            units.push(String::new());
        } else if let Some(unit) = units.last_mut() {
            unit.push(' ');
            unit.push_str(&spoken);
        }
    }
    let mut sentences = Vec::new();
    for unit in units {
        let mut sentence = String::new();
        for word in unit.split_whitespace() {
            sentence.push_str(word);
            sentence.push(' ');
            let bare = word.trim_end_matches(['"', ')', '\'']);
            if bare.ends_with(['.', '?']) && !bare.ends_with("e.g.") {
                sentences.push(std::mem::take(&mut sentence));
            }
        }
        sentences.push(sentence);
    }
    sentences
}

fn is_word(word: &&str) -> bool {
    word.contains(char::is_alphanumeric)
}

#[test]
fn sentences_are_short() {
    let mut long = Vec::new();
    for page in pages() {
        for sentence in sentences(&text(&page)) {
            let words = sentence.split_whitespace().filter(is_word).count();
            if words > WORDS {
                long.push(format!("{page}: {words} words: {sentence}"));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn pages_use_the_fields_words() {
    let mut found = Vec::new();
    let prose = pages().into_iter().map(|page| {
        let sentences = sentences(&text(&page));
        (page, sentences)
    });
    let printed = PRINTED.into_iter().map(|page| {
        let lines = text(page).lines().map(str::to_owned).collect();
        (page.to_owned(), lines)
    });
    for (page, sentences) in prose.chain(printed) {
        for sentence in sentences {
            let plain: String = sentence
                .to_lowercase()
                .chars()
                .map(|c| {
                    if c.is_alphanumeric() || c == '\'' {
                        c
                    } else {
                        ' '
                    }
                })
                .collect();
            let words: Vec<&str> = plain.split_whitespace().collect();
            let plain = format!(" {} ", words.join(" "));
            for (phrase, instead) in INSTEAD {
                let excepted = EXCEPTIONS
                    .iter()
                    .any(|(of, said)| page.ends_with(of) && sentence.contains(said));
                if plain.contains(&format!(" {phrase} ")) && !excepted {
                    found.push(format!("{page}: {phrase:?}, write {instead:?}: {sentence}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_readme_is_short() {
    let words = text("README.md").split_whitespace().count();
    assert!(words <= README_WORDS, "{words} words");
}

#[test]
fn the_map_is_short() {
    let words = text("ARCHITECTURE.md").split_whitespace().count();
    assert!(words <= MAP_WORDS, "{words} words");
}

/// The name by which links find a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A path without `..` in it.
fn resolved(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            found.pop();
        } else {
            found.push(part);
        }
    }
    found
}

/// The anchors of a page, with those of pages that it includes.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = text(&page.display().to_string());
    let mut anchors = BTreeSet::new();
    for line in without_code(&text).lines() {
        if line.starts_with('#') {
            anchors.insert(anchor(line.trim_start_matches('#')));
        }
        if let Some(included) = included(line) {
            let beside = page.parent().unwrap().join(included);
            anchors.extend(self::anchors(&resolved(&beside)));
        }
    }
    anchors
}

fn included(line: &str) -> Option<&str> {
    line.strip_prefix("{{#include ")?.strip_suffix("}}")
}

/// Where the links of a page lead to.
fn links(text: &str) -> Vec<String> {
    let prose = without_code(text);
    let unquoted: String = prose.split('`').step_by(2).collect();
    let targets = unquoted.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    targets.map(str::to_owned).collect()
}

#[test]
fn links_lead_somewhere() {
    let (mut followed, mut broken) = (0, Vec::new());
    let all = files("md").into_iter();
    for page in all.filter(|page| !page.contains("/target")) {
        let text = text(&page);
        let here = Path::new(&page);
        let folder = here.parent().unwrap();
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() {
                here.to_owned()
            } else {
                resolved(&folder.join(path))
            };
            let exists = repository().join(&target).exists();
            let is_page = target.extension().is_some_and(|end| end == "md");
            let has = |anchor: &str| !is_page || anchors(&target).contains(anchor);
            if !exists || !(anchor.is_empty() || has(anchor)) {
                broken.push(format!("{page}: {link}"));
            }
            followed += 1;
        }
        for included in text.lines().filter_map(included) {
            assert!(repository().join(folder.join(included)).exists(), "{page}");
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(followed > 80, "{followed} links");
}

#[test]
fn the_book_has_every_page() {
    let summary = text("docs/SUMMARY.md");
    let listed: BTreeSet<String> = links(&summary)
        .into_iter()
        .map(|link| format!("docs/{link}"))
        .collect();
    let there = files("md")
        .into_iter()
        .filter(|page| page.starts_with("docs/") && page != "docs/SUMMARY.md");
    assert_eq!(listed, there.collect());
}

/// The figures of a text: numbers before a unit.
fn figures(text: &str) -> Vec<String> {
    let units = ["s", "MiB", "GiB", "MB", "GB", "tokens/s"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let pairs = words.windows(2).filter(|pair| {
        let unit = pair[1].trim_end_matches([',', '.', ':', ';']);
        units.contains(&unit) && pair[0].starts_with(|c: char| c.is_ascii_digit())
    });
    pairs.map(|pair| pair[0].to_owned()).collect()
}

/// The README's table of results quotes the result files that its links lead to.
#[test]
fn figures_of_the_readme_are_results() {
    let results = files("json").into_iter();
    let results = results.filter(|file| file.starts_with("benches/results/"));
    let results: Vec<(String, String)> = results
        .map(|file| {
            let text = text(&file);
            let title = text
                .lines()
                .find_map(|line| line.strip_prefix(" \"title\": \""));
            (anchor(title.unwrap_or("").trim_end_matches("\",")), text)
        })
        .collect();
    let mut quoted = 0;
    let readme = text("README.md");
    for row in readme
        .lines()
        .filter(|line| line.contains("(BENCHMARKS.md#"))
    {
        let link = links(row).pop().unwrap();
        let (_, name) = link.split_once('#').unwrap();
        let found = results.iter().find(|(title, _)| title == name);
        let (_, result) = found.unwrap_or_else(|| panic!("no result {name}"));
        for figure in figures(row) {
            let parts: Vec<&str> = result
                .split(|c: char| !c.is_ascii_digit() && c != '.')
                .collect();
            assert!(parts.contains(&figure.as_str()), "{name} has no {figure}");
            quoted += 1;
        }
    }
    assert!(quoted > 30, "{quoted} figures");
}
