//! Which file of the crate takes what from which other: read from its paths, `crate::`, `super::`
//! and `self::`, re-exports followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A module's path: `engine::evaluate` is `["engine", "evaluate"]`.
type Module = Vec<String>;

/// From a file to one that it takes something from.
pub(crate) type Arrow = (String, String);

/// All arrows between files below a folder `src`, which are named by their paths in it. `lib.rs` is the
/// table of contents: what it hands on counts as taken from where that is.
pub(crate) fn arrows(src: &Path) -> BTreeSet<Arrow> {
    let mut files = BTreeMap::new();
    for file in super::files_below(src, "rs") {
        let name = file.strip_prefix(src).expect("below src").display();
        let name = name.to_string();
        if !super::is_test(&name) {
            let text = std::fs::read_to_string(&file).expect("a readable file");
            let text = super::without_tests(&text).to_owned();
            files.insert(module(&name), (name, text));
        }
    }
    let tokens = files
        .iter()
        .map(|(of, (_, text))| (of.clone(), tokens(text)));
    let tokens: BTreeMap<Module, Vec<String>> = tokens.collect();
    let crate_ = Crate {
        exports: tokens
            .iter()
            .map(|(of, t)| (of.clone(), exports(of, t)))
            .collect(),
    };
    let mut arrows = BTreeSet::new();
    for (of, tokens) in tokens.iter().filter(|(of, _)| !of.is_empty()) {
        for path in paths(of, tokens) {
            if let Some(to) = crate_.resolve(&path, 0).filter(|to| to != of) {
                arrows.insert((files[of].0.clone(), files[&to].0.clone()));
            }
        }
    }
    arrows
}

/// The groups of files of which each can be reached from each other one.
pub(crate) fn circles(arrows: &BTreeSet<Arrow>) -> Vec<BTreeSet<String>> {
    let reached = |from: &str| {
        let (mut found, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(at) = open.pop() {
            let next = arrows.iter().filter(|arrow| arrow.0 == at);
            let next = next.map(|arrow| arrow.1.clone());
            open.extend(next.filter(|to| found.insert(to.clone())));
        }
        found
    };
    let files: BTreeSet<&String> = arrows.iter().map(|arrow| &arrow.0).collect();
    let reached: BTreeMap<&String, BTreeSet<String>> = files
        .into_iter()
        .map(|file| (file, reached(file)))
        .collect();
    let circle = |(&file, there): (&&String, &BTreeSet<String>)| {
        let back = |to: &&String| reached.get(to).is_some_and(|from| from.contains(file));
        there.iter().filter(back).cloned().collect::<BTreeSet<_>>()
    };
    let circles: BTreeSet<BTreeSet<String>> = reached.iter().map(circle).collect();
    circles
        .into_iter()
        .filter(|files| files.len() > 1)
        .collect()
}

fn module(file: &str) -> Module {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let parts = path.split('/').map(str::to_owned);
    parts.filter(|part| part != "lib").collect()
}

struct Crate {
    /// What each module hands on under which name, and where that is.
    exports: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl Crate {
    /// The module that a path leads into.
    fn resolve(&self, path: &[String], depth: usize) -> Option<Module> {
        let known = (0..=path.len()).rev().map(|n| &path[..n]);
        let at = known
            .into_iter()
            .find(|part| self.exports.contains_key(*part))?;
        let rest = &path[at.len()..];
        let handed = rest.first().and_then(|name| self.exports[at].get(name));
        match handed {
            Some(to) if depth < 8 && to != path => {
                let to: Module = to.iter().chain(&rest[1..]).cloned().collect();
                self.resolve(&to, depth + 1)
            }
            _ => (!at.is_empty()).then(|| at.to_vec()),
        }
    }
}

/// Words, `::` and single characters; comments left out.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    for line in text.lines() {
        let mut rest = line.split("//").next().unwrap_or("");
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let end = match first {
                c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                ':' if rest.starts_with("::") => 2,
                c => c.len_utf8(),
            };
            let token = &rest[..end];
            if !token.trim().is_empty() {
                tokens.push(token.to_owned());
            }
            rest = &rest[end..];
        }
    }
    tokens
}

/// The paths from the crate's root that a module's text has.
fn paths(of: &Module, tokens: &[String]) -> Vec<Module> {
    let mut paths = Vec::new();
    for at in 0..tokens.len() {
        let starts = matches!(&*tokens[at], "crate" | "super" | "self");
        let inside = at > 0 && tokens[at - 1] == "::";
        if starts && !inside && tokens.get(at + 1).is_some_and(|next| next == "::") {
            paths.extend(
                tree(tokens, &mut at.clone())
                    .iter()
                    .map(|path| absolute(of, path)),
            );
        }
    }
    paths
}

/// What `pub use` hands on.
fn exports(of: &Module, tokens: &[String]) -> BTreeMap<String, Module> {
    let mut exports = BTreeMap::new();
    for at in 0..tokens.len() {
        let before = &tokens[at.saturating_sub(4)..at];
        let is_public = before.last().is_some_and(|last| last == "pub")
            || before.last().is_some_and(|last| last == ")") && before.iter().any(|t| t == "pub");
        if tokens[at] == "use" && is_public {
            for path in tree(tokens, &mut (at + 1)) {
                if let Some(name) = path.last().cloned() {
                    exports.insert(name, absolute(of, &path));
                }
            }
        }
    }
    exports
}

fn absolute(of: &Module, path: &[String]) -> Module {
    let mut base = match path.first().map(String::as_str) {
        Some("crate") => Module::new(),
        _ => of.clone(),
    };
    for part in path {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => drop(base.pop()),
            part => base.push(part.to_owned()),
        }
    }
    base
}

/// The paths of a tree such as `a::{b, c::d}`, which starts at `at`.
fn tree(tokens: &[String], at: &mut usize) -> Vec<Module> {
    let token = |at: usize| tokens.get(at).map_or("", String::as_str);
    if token(*at) == "{" {
        *at += 1;
        let mut all = Vec::new();
        while !matches!(token(*at), "}" | "") {
            all.extend(tree(tokens, at));
            *at += usize::from(token(*at) == ",");
        }
        *at += 1;
        return all;
    }
    let part = token(*at).to_owned();
    *at += 1;
    let goes_on =
        |next: &str| next == "{" || next.starts_with(|c: char| c.is_alphabetic() || c == '_');
    if token(*at) == "::" && goes_on(token(*at + 1)) {
        *at += 1;
        let rest = tree(tokens, at).into_iter();
        return rest
            .map(|path| [vec![part.clone()], path].concat())
            .collect();
    }
    if token(*at) == "as" {
        *at += 2;
    }
    vec![vec![part]]
}
