//! Holds ARCHITECTURE.md and the pages of docs/design to the source: what they name exists, and what they
//! say of files, rooms, crates and `unsafe` is so.

#![expect(clippy::unwrap_used, reason = "a test")]

mod arrows;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Lines of a file at most, tests not counted.
const LINES: usize = 500;

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

fn architecture() -> String {
    read_to_string(repository().join("ARCHITECTURE.md")).unwrap()
}

/// The pages for engineers: the map, and the details that it links to.
fn maps() -> Vec<String> {
    let details = files("md").into_iter();
    let details = details.filter(|page| page.starts_with("docs/design/"));
    details.chain(["ARCHITECTURE.md".to_owned()]).collect()
}

/// All files of an extension below a folder, build outputs left out.
fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // A link's file stands elsewhere, too.
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files.extend(files_below(&path, extension));
            }
        } else if extension.is_empty() || path.extension().is_some_and(|e| e == extension) {
            files.push(path);
        }
    }
    files
}

/// The files of a kind in the repository, by their paths in it.
fn files(extension: &str) -> Vec<String> {
    let root = repository();
    let files = files_below(&root, extension).into_iter();
    let name = |file: PathBuf| file.strip_prefix(&root).unwrap().display().to_string();
    files.map(name).collect()
}

/// Whether a source file is there for tests alone.
fn is_test(file: &str) -> bool {
    let parts = file.split('/');
    let of_tests =
        |part: &str| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs");
    parts.into_iter().any(of_tests)
}

/// Source that is no test: `crates/*/src`.
fn sources() -> impl Iterator<Item = (String, String)> {
    let is_source = |file: &String| file.starts_with("crates/") && file.contains("/src/");
    let names = files("rs").into_iter().filter(is_source);
    let names = names.filter(|file| !is_test(file));
    names.map(|file| {
        let text = read_to_string(repository().join(&file)).unwrap();
        (file, without_tests(&text).to_owned())
    })
}

/// What of a file comes before its tests.
fn without_tests(text: &str) -> &str {
    let starts = text.match_indices("#[cfg(test)]\n");
    let of_tests = |start: &usize| {
        let lines = text[*start..].lines();
        let mut lines = lines.skip_while(|line| line.starts_with("#["));
        lines.next().is_some_and(|line| line.starts_with("mod "))
    };
    let first = starts.map(|(start, _)| start).find(of_tests);
    &text[..first.unwrap_or(text.len())]
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The paragraph or list item that starts so.
fn stated(architecture: &str, start: &str) -> String {
    let found = architecture.lines().find(|line| line.starts_with(start));
    found
        .unwrap_or_else(|| panic!("ARCHITECTURE.md has no line that starts with {start:?}"))
        .to_owned()
}

fn numbers(text: &str) -> Vec<usize> {
    let digits = text.split(|c: char| !c.is_ascii_digit());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

#[test]
fn what_is_named_exists() {
    let all = files("");
    let mut named = 0;
    let others = [
        "README.md",
        "CONTRIBUTING.md",
        "BENCHMARKS.md",
        "KNOWN_ISSUES.md",
        "ERRORS.md",
        "fixtures/README.md",
    ];
    let others = others.map(str::to_owned);
    for page in maps().into_iter().chain(others) {
        let text = read_to_string(repository().join(&page)).unwrap();
        let prose = text.split("```").step_by(2).collect::<String>();
        let is_path = |name: &&str| {
            let endings = [".rs", ".py", ".sh", ".md", "/"];
            // Pages for users name folders of runs.
            let of_users = page == "README.md" && name.ends_with('/');
            !name.contains(' ')
                && !of_users
                && endings.iter().any(|end| name.ends_with(end))
                && !name.contains(['<', '*'])
        };
        for name in quoted(&prose).into_iter().filter(is_path) {
            let inside = format!("/{name}");
            let there = |file: &String| {
                let file = format!("/{file}");
                if name.ends_with('/') {
                    file.contains(&inside)
                } else {
                    file.ends_with(&inside)
                }
            };
            // Paths start at the repository, at `crates`, or at the `src` of the crate that is spoken of.
            let of_source = |file: &String| there(&file.replace("/src/", "/"));
            assert!(
                all.iter().any(|file| there(file) || of_source(file)),
                "{page}: no {name} is there"
            );
            named += 1;
        }
        for (name, file) in named_in(&prose) {
            let ends = format!("/{file}");
            let mut found = all.iter().filter(|of| format!("/{of}").ends_with(&ends));
            let text = |of: &String| read_to_string(repository().join(of)).unwrap();
            assert!(
                found.any(|of| text(of).contains(name)),
                "{page}: no {name} in {file}"
            );
        }
    }
    assert!(named > 100, "{named} files named");
}

/// Functions and types that the pages for engineers name by a path, such as `Graph::add`: something is declared
/// so.
#[test]
fn functions_that_are_named_exist() {
    let declared: BTreeSet<String> = files("rs")
        .into_iter()
        .flat_map(|file| declared(&read_to_string(repository().join(file)).unwrap()))
        .collect();
    let mut named = 0;
    for page in maps() {
        let text = read_to_string(repository().join(&page)).unwrap();
        let prose = text.split("```").step_by(2).collect::<String>();
        let is_path = |name: &&str| {
            let is_plain = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            name.contains("::") && name.chars().all(is_plain)
        };
        for name in quoted(&prose).into_iter().filter(is_path) {
            for part in name.split("::").filter(|part| !is_crate(part)) {
                assert!(declared.contains(part), "{page}: nothing is {name}");
            }
            named += 1;
        }
    }
    assert!(named > 20, "{named} functions named");
}

fn is_crate(name: &str) -> bool {
    let folder = name.replace('_', "-");
    repository().join("crates").join(folder).exists()
}

/// The names of what a file declares.
fn declared(text: &str) -> Vec<String> {
    let words: Vec<&str> = text
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .collect();
    let kinds = ["fn", "struct", "enum", "trait", "mod", "type"];
    let pairs = words.windows(2).filter(|pair| kinds.contains(&pair[0]));
    pairs.map(|pair| pair[1].to_owned()).collect()
}

/// What is said to stand in a file, and the file: `name` in `file.rs`.
fn named_in(prose: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = prose.split('`').collect();
    let names = parts.windows(3).skip(1).step_by(2);
    let is_source = |name: &str| Path::new(name).extension().is_some_and(|end| end == "rs");
    let pairs = names.filter(|parts| parts[1] == " in " && is_source(parts[2]));
    // Of a path its last part.
    pairs
        .map(|parts| (parts[0].rsplit("::").next().unwrap(), parts[2]))
        .collect()
}

/// What a flag of Cargo names, by the folder that it lies in: the words of a command from the name on.
fn targets<'a>(words: &'a [&'a str]) -> impl Iterator<Item = (&'static str, &'a [&'a str])> {
    let target = |at: usize| {
        let folder = match words[at] {
            "--test" => "tests",
            "--example" => "examples",
            "--bench" => "benches",
            _ => return None,
        };
        Some((folder, &words[at + 1..])).filter(|(_, rest)| !rest.is_empty())
    };
    (0..words.len()).filter_map(target)
}

/// Commands in pages name tests, examples and benches that are there, and of `it` what some test is
/// called like.
#[test]
fn what_commands_name_exists() {
    let sources = files("rs");
    let modules = sources.iter().filter(|file| file.contains("/tests/it/"));
    let of_it: Vec<String> = modules
        .map(|file| {
            let text = read_to_string(repository().join(file)).unwrap();
            let tests = text.lines().filter(|line| line.trim().starts_with("fn "));
            file.clone() + &tests.collect::<String>()
        })
        .collect();
    let is_filter = |word: &&&str| {
        word.chars()
            .all(|c| c.is_alphanumeric() || "_:".contains(c))
    };
    let mut named = 0;
    let pages = files("md").into_iter();
    let pages = pages.filter(|page| !page.contains('/') || page.starts_with("docs/design/"));
    for page in pages {
        let text = read_to_string(repository().join(&page)).unwrap();
        // A command ends with its quotation mark, or with the line.
        for command in text.split(['`', '\n']) {
            let words: Vec<&str> = command.split_whitespace().collect();
            for (folder, rest) in targets(&words) {
                let name = rest[0];
                let ends = [
                    format!("/{folder}/{name}.rs"),
                    format!("/{folder}/{name}/main.rs"),
                ];
                let is_there = |file: &String| ends.iter().any(|end| file.ends_with(end));
                assert!(
                    sources.iter().any(is_there),
                    "{page}: {command}: no `{name}`"
                );
                let filters = rest[1..].iter().take_while(is_filter);
                for filter in filters.filter(|_| name == "it") {
                    let last = filter.rsplit("::").find(|part| !part.is_empty()).unwrap();
                    let is_found = of_it.iter().any(|names| names.contains(last));
                    assert!(is_found, "{page}: {command}: no test like `{filter}`");
                }
                named += 1;
            }
        }
    }
    assert!(named > 15, "{named} named");
}

/// All crates have the version of the workspace, and the changelog's newest release is that one.
#[test]
fn the_changelog_knows_the_version() {
    let text = |file: &str| read_to_string(repository().join(file)).unwrap();
    let manifest = text("Cargo.toml");
    let versions = manifest.lines().find(|line| line.starts_with("version = "));
    let version = versions.unwrap().split('"').nth(1).unwrap();
    for file in files("toml")
        .iter()
        .filter(|file| file.starts_with("crates/") && file.ends_with("/Cargo.toml"))
    {
        assert!(text(file).contains("version.workspace = true"), "{file}");
    }
    let changelog = text("CHANGELOG.md");
    let sections = changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## "));
    let sections: Vec<&str> = sections.collect();
    let released = sections.iter().find(|section| **section != "Unreleased");
    let newest = released.map(|section| section.split(' ').next().unwrap());
    // Nothing was released before the first version.
    let expected = (version != "0.1.0").then_some(version);
    assert!(
        newest == expected || newest == Some(version),
        "{sections:?}, {version}"
    );
}

#[test]
fn crates_depend_on_what_the_table_says() {
    let text = architecture();
    let rows = text.lines().filter(|line| line.starts_with("| `highwater"));
    let rows: BTreeMap<String, BTreeSet<String>> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let others = quoted(cells[cells.len() - 2])
                .into_iter()
                .map(str::to_owned);
            (quoted(cells[1])[0].to_owned(), others.collect())
        })
        .collect();
    let mut crates = BTreeSet::new();
    for folder in std::fs::read_dir(repository().join("crates")).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().to_string_lossy().into_owned();
        let manifest = read_to_string(folder.path().join("Cargo.toml")).unwrap();
        let sections = manifest.split("\n[");
        let mut used = sections.filter(|section| section.starts_with("dependencies]"));
        let lines = used.next().unwrap_or("").lines();
        let others = lines.filter(|line| line.starts_with("highwater"));
        let other = |line: &str| line.split(['.', ' ', '=']).next().unwrap().to_owned();
        let others: BTreeSet<String> = others.map(other).collect();
        assert_eq!(rows.get(&name), Some(&others), "{name}");
        crates.insert(name);
    }
    assert_eq!(rows.into_keys().collect::<BTreeSet<_>>(), crates);
}

/// Whether a text has `unsafe` code.
fn is_unsafe(text: &str) -> bool {
    let forms = ["{", "fn", "impl", "extern", "trait"].map(|form| ["unsafe", form].join(" "));
    let mut code = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    code.any(|line| forms.iter().any(|form| line.contains(form)))
}

/// Holds files with `unsafe` code to a statement: they are named there, and no others.
fn are_named(files: impl Iterator<Item = String>, statement: &str) {
    let text = architecture();
    let line = stated(&text, statement);
    let allowed: Vec<String> = quoted(&line)[1..]
        .iter()
        .map(|name| format!("/{name}"))
        .collect();
    let mut used = BTreeSet::new();
    for file in files {
        let named = |name: &&String| {
            if name.ends_with('/') {
                file.contains(name.as_str())
            } else {
                file.ends_with(name.as_str())
            }
        };
        let name = allowed.iter().find(named);
        used.insert(name.unwrap_or_else(|| panic!("{file} has unsafe code and is not named")));
    }
    let unused: Vec<_> = allowed.iter().filter(|name| !used.contains(name)).collect();
    assert!(unused.is_empty(), "{unused:?} have no unsafe code");
}

#[test]
fn unsafe_stands_where_it_is_said_to() {
    let outside_tests = sources().filter(|(_, text)| is_unsafe(text));
    let outside_tests: BTreeSet<String> = outside_tests.map(|(file, _)| file).collect();
    let others = files("rs").into_iter().filter(|file| {
        let text = read_to_string(repository().join(file)).unwrap();
        !outside_tests.contains(file) && is_unsafe(&text)
    });
    are_named(others, "- Tests, examples and benches have `unsafe` in");
    let statement = "- Outside tests, examples and benches `unsafe` stands only in";
    are_named(outside_tests.into_iter(), statement);
}

#[test]
fn files_are_short() {
    let long = |(file, text): (String, String)| {
        let lines = text.lines().count();
        (lines > LINES).then(|| format!("{file}: {lines}"))
    };
    let long: Vec<String> = sources().filter_map(long).collect();
    assert!(long.is_empty(), "more than {LINES} lines: {long:#?}");
}

/// A package of a crate has the files of its folder alone.
#[test]
fn sources_include_files_of_their_own_crates_alone() {
    let mut included = 0;
    for (file, text) in sources() {
        let parts: Vec<_> = file.splitn(3, '/').collect();
        let folder = Path::new(&file).parent().unwrap();
        // Documents that are only there for `cargo test --doc`.
        let text = text.split("#[cfg(doctest)]").next().unwrap();
        for name in text.split("include_str!(\"").skip(1) {
            let name = name.split('"').next().unwrap();
            let mut place = PathBuf::new();
            for part in folder.join(name).components() {
                match part {
                    std::path::Component::ParentDir => assert!(place.pop(), "{file}: {name}"),
                    part => place.push(part),
                }
            }
            let own = Path::new(parts[0]).join(parts[1]);
            assert!(
                place.starts_with(own),
                "{file} includes {name}, of no package"
            );
            assert!(repository().join(&place).is_file(), "{file}: no {name}");
            included += 1;
        }
    }
    assert!(included > 20, "{included}");
}

#[test]
fn the_verifier_takes_only_data_from_the_planner() {
    let of_verifier = |(file, _): &(String, String)| file.contains("highwater-plan/src/verify/");
    let mut taken = BTreeSet::new();
    for (_, text) in sources().filter(of_verifier) {
        let paths = text.split("crate::").skip(1);
        let module = |path: &str| {
            let end = path.find(|c: char| !c.is_alphanumeric() && c != '_');
            path[..end.unwrap_or(path.len())].to_owned()
        };
        taken.extend(paths.map(module));
    }
    assert_eq!(taken.into_iter().collect::<Vec<_>>(), ["plan", "problem"]);
}

/// What `docs/design/rooms.md` says of a crate.
struct Rooms {
    /// Rooms by their names without an ending, from top to bottom.
    levels: Vec<Vec<String>>,
    most_upward: usize,
    most_in_a_circle: usize,
}

impl Rooms {
    /// The crates' sections, by the crates' names.
    fn stated() -> BTreeMap<String, Rooms> {
        let page = read_to_string(repository().join("docs/design/rooms.md")).unwrap();
        let sections = page.split("\n## `").skip(1);
        let of_crate = |section: &str| {
            let name = section.split('`').next().unwrap().to_owned();
            let order = stated(section, "Rooms, from top to bottom:");
            let room = |name: &str| {
                name.trim_end_matches('/')
                    .trim_end_matches(".rs")
                    .to_owned()
            };
            let level = |level: &str| quoted(level).into_iter().map(room).collect();
            let bounds = stated(section, "Arrows that run upward: at most");
            let [most_upward, most_in_a_circle] = numbers(&bounds)[..] else {
                panic!("two numbers: {bounds}")
            };
            let levels = order.split('·').map(level).collect();
            let rooms = Rooms {
                levels,
                most_upward,
                most_in_a_circle,
            };
            (name, rooms)
        };
        sections.map(of_crate).collect()
    }

    /// The room of a file, and how many levels are above it.
    fn of(&self, file: &str) -> Option<(String, usize)> {
        let room = file.split('/').next().unwrap().trim_end_matches(".rs");
        let has = |level: &Vec<String>| level.iter().any(|name| name == room);
        let rank = self.levels.iter().position(has)?;
        Some((room.to_owned(), rank))
    }
}

#[test]
fn rooms_use_rooms_below_them() {
    let mut rooms = Rooms::stated();
    for folder in std::fs::read_dir(repository().join("crates")).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        let src = format!("crates/{name}/src/");
        let of_crate = |file: &String| file.starts_with(&src) && !is_test(file);
        let files = files("rs").into_iter().filter(of_crate);
        let files = files.map(|file| file[src.len()..].to_owned());
        let files: Vec<String> = files.filter(|file| file != "lib.rs").collect();
        let Some(stated) = rooms.remove(&name) else {
            assert!(files.is_empty(), "rooms.md has no section of {name}");
            continue;
        };
        let room = |file: &String| {
            let found = stated.of(file);
            found.unwrap_or_else(|| panic!("rooms.md does not say where {name}'s {file} belongs"))
        };
        let there: BTreeSet<String> = files.iter().map(|file| room(file).0).collect();
        let named = stated.levels.iter().flatten();
        let gone: Vec<_> = named.filter(|name| !there.contains(*name)).collect();
        assert!(gone.is_empty(), "{name} has no rooms {gone:?}");
        let arrows = arrows::arrows(&repository().join(&src));
        let upward = arrows.iter().filter(|(from, to)| room(to).1 < room(from).1);
        let upward: Vec<_> = upward.collect();
        assert!(upward.len() <= stated.most_upward, "{name}: {upward:#?}");
        let largest = arrows::circles(&arrows)
            .into_iter()
            .max_by_key(BTreeSet::len);
        let largest = largest.unwrap_or_default();
        assert!(
            largest.len() <= stated.most_in_a_circle,
            "{name}: {largest:#?}"
        );
    }
    assert!(rooms.is_empty(), "no such crates: {:?}", rooms.keys());
}
