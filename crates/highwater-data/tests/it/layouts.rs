//! Layouts of images in folders: bases times changes, each with what it must come to, and layouts that could be read
//! in two ways.

use highwater_data::DataError;
use highwater_data::images::{ENDINGS, Found, ImageFolder, Layout, LayoutError, ToTensor};
use highwater_memory::DiskFiles;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// What a layout must come to. Kept by whoever makes the files, so that nothing here walks through folders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Want {
    train: BTreeMap<String, usize>,
    held_out: Option<(String, BTreeMap<String, usize>)>,
    splits: Vec<String>,
    folders: Vec<String>,
    beside: usize,
    hidden: usize,
    unread: usize,
    others: usize,
    same: usize,
    nested: usize,
    problems: usize,
}

/// What was found, in the same form.
fn got(layout: &Layout) -> Want {
    let counts = |images: &[Found]| {
        let mut counts = BTreeMap::new();
        for image in images {
            *counts
                .entry(layout.classes[image.class].clone())
                .or_default() += 1;
        }
        counts
    };
    let left_out = &layout.left_out;
    Want {
        train: counts(&layout.train),
        held_out: (layout.held_out.as_ref()).map(|(name, images)| (name.clone(), counts(images))),
        splits: left_out.splits.clone(),
        folders: left_out.folders.clone(),
        beside: left_out.beside,
        hidden: left_out.hidden,
        unread: left_out.unread.values().sum(),
        others: left_out.others.values().sum(),
        same: left_out.same.len(),
        nested: left_out.nested,
        problems: layout
            .images()
            .filter(|image| image.problem.is_some())
            .count(),
    }
}

/// The kind of a refusal, without its contents.
fn kind(error: &DataError) -> String {
    match error {
        DataError::Layout(error) => {
            assert!(!error.hint().is_empty() && !error.to_string().is_empty());
            let name = format!("{error:?}");
            name.split([' ', '{']).next().unwrap().to_owned()
        }
        error => error.to_string(),
    }
}

fn put(path: impl AsRef<Path>) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "x").unwrap();
}

/// Images of some classes below a folder.
fn fill(folder: &Path, counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    for (class, count) in counts {
        for i in 0..*count {
            put(folder.join(class).join(format!("{i}.png")));
        }
    }
    let counts = counts.iter();
    counts
        .map(|(class, count)| ((*class).to_owned(), *count))
        .collect()
}

/// A folder of images, and what must be found there.
struct Case {
    root: PathBuf,
    /// Where the classes are that are trained on.
    classes: PathBuf,
    want: Want,
}

const CLASSES: [(&str, usize); 4] = [("10", 2), ("2", 1), ("cat", 3), ("dog", 2)];

type Base = (&'static str, fn(&Path) -> Case);

fn plain(root: &Path) -> Case {
    Case {
        root: root.to_owned(),
        classes: root.to_owned(),
        want: Want {
            train: fill(root, &CLASSES),
            ..Want::default()
        },
    }
}

/// Splits of these names.
fn split(root: &Path, [train, held_out, test]: [&str; 3]) -> Case {
    let classes = root.join(train);
    let mut want = Want {
        train: fill(&classes, &CLASSES),
        ..Want::default()
    };
    if !held_out.is_empty() {
        // Some of the classes.
        let counts = fill(&root.join(held_out), &[("cat", 2), ("10", 1)]);
        want.held_out = Some((held_out.to_owned(), counts));
    }
    if !test.is_empty() {
        fill(&root.join(test), &[("cat", 2), ("unknown", 4)]);
        want.splits.push(test.to_owned());
    }
    Case {
        root: root.to_owned(),
        classes,
        want,
    }
}

const BASES: [Base; 9] = [
    ("classes", plain),
    ("train", |root| split(root, ["train", "", ""])),
    ("train, val", |root| split(root, ["train", "val", ""])),
    ("train, valid, test", |root| {
        split(root, ["train", "valid", "test"])
    }),
    ("train, validation", |root| {
        split(root, ["train", "validation", ""])
    }),
    ("training, dev", |root| split(root, ["training", "dev", ""])),
    ("Train, Test", |root| split(root, ["Train", "", "Test"])),
    ("TRAIN, eval, testing", |root| {
        split(root, ["TRAIN", "eval", "testing"])
    }),
    ("a folder next to splits", |root| {
        let mut case = split(root, ["train", "val", ""]);
        put(root.join("annotations/cat.json"));
        put(root.join("sources/cat/1.png"));
        case.want.folders = vec!["annotations".to_owned(), "sources".to_owned()];
        case
    }),
];

/// A change of a layout; the kind of its refusal, if it must be refused.
type Change = (&'static str, fn(&mut Case) -> Option<&'static str>);

fn more(case: &mut Case, class: &str, count: usize) {
    *case.want.train.entry(class.to_owned()).or_default() += count;
}

const CHANGES: [Change; 19] = [
    ("none", |_| None),
    ("hidden files", |case| {
        put(case.classes.join("cat/._0.png"));
        put(case.classes.join("cat/.DS_Store"));
        put(case.classes.join("Thumbs.db"));
        case.want.hidden += 3;
        None
    }),
    ("hidden folders", |case| {
        put(case.classes.join(".ipynb_checkpoints/0.png"));
        put(case.classes.join("__MACOSX/cat/0.png"));
        put(case.classes.join("dog/.cache/0.png"));
        case.want.hidden += 3;
        None
    }),
    ("other files", |case| {
        put(case.root.join("README.md"));
        put(case.classes.join("cat/labels.csv"));
        put(case.classes.join("LICENSE"));
        case.want.others += 3;
        None
    }),
    ("formats that are not read", |case| {
        put(case.classes.join("cat/a.HEIC"));
        put(case.classes.join("dog/b.avif"));
        case.want.unread += 2;
        None
    }),
    ("images next to classes", |case| {
        put(case.classes.join("a.jpg"));
        put(case.classes.join("b.PNG"));
        case.want.beside += 2;
        None
    }),
    ("folders within a class", |case| {
        put(case.classes.join("cat/more/0.png"));
        put(case.classes.join("cat/more/deep/0.png"));
        put(case.classes.join("dog/a.png/0.png"));
        more(case, "cat", 2);
        more(case, "dog", 1);
        case.want.nested += 3;
        None
    }),
    ("every ending", |case| {
        for ending in ENDINGS {
            put(case.classes.join(format!("cat/x.{ending}")));
            put(case
                .classes
                .join(format!("cat/y.{}", ending.to_uppercase())));
        }
        more(case, "cat", 2 * ENDINGS.len());
        None
    }),
    ("a class that is a link", |case| {
        let elsewhere = case.root.with_extension("elsewhere");
        put(elsewhere.join("0.png"));
        put(elsewhere.join("1.png"));
        symlink(&elsewhere, case.classes.join("mouse")).unwrap();
        more(case, "mouse", 2);
        None
    }),
    ("a class that is a relative link to another", |case| {
        symlink("cat", case.classes.join("tiger")).unwrap();
        more(case, "tiger", 3);
        case.want.same += 1;
        None
    }),
    ("an image that is a link", |case| {
        symlink("0.png", case.classes.join("cat/link.png")).unwrap();
        more(case, "cat", 1);
        None
    }),
    ("an image that is a link to nothing", |case| {
        symlink("nothing", case.classes.join("cat/link.png")).unwrap();
        more(case, "cat", 1);
        case.want.problems += 1;
        None
    }),
    ("a class that is a link to nothing", |case| {
        symlink("nothing", case.classes.join("mouse")).unwrap();
        Some("Dangling")
    }),
    ("a folder in a class that is a link to nothing", |case| {
        symlink("nothing", case.classes.join("cat/more")).unwrap();
        Some("Dangling")
    }),
    ("a link to the folder above", |case| {
        symlink("..", case.classes.join("cat/up")).unwrap();
        Some("Cycle")
    }),
    ("a link to itself", |case| {
        symlink("self", case.classes.join("self")).unwrap();
        Some("Cycle")
    }),
    ("a class without images", |case| {
        put(case.classes.join("mouse/readme.txt"));
        Some("Empty")
    }),
    ("an image whose name is not UTF-8", |case| {
        let name = OsStr::from_bytes(b"caf\xe9.png");
        put(case.classes.join("cat").join(name));
        more(case, "cat", 1);
        None
    }),
    ("a class whose name is not UTF-8", |case| {
        let name = OsStr::from_bytes(b"caf\xe9");
        put(case.classes.join(name).join("0.png"));
        Some("NotUtf8")
    }),
];

#[test]
fn layouts_come_to_what_they_must() {
    let folder = tempfile::tempdir().unwrap();
    let mut tried = 0;
    for (base, make) in BASES {
        for (change, apply) in CHANGES {
            tried += 1;
            let mut case = make(&folder.path().join(format!("{tried}")));
            let refused = apply(&mut case);
            let found = Layout::find(&DiskFiles, &case.root);
            match (found, refused) {
                (Ok(layout), None) => {
                    assert_eq!(got(&layout), case.want, "{base}: {change}");
                    let sorted: Vec<&String> = case.want.train.keys().collect();
                    assert!(layout.classes.iter().eq(sorted), "{base}: {change}");
                }
                (Err(error), Some(want)) => assert_eq!(kind(&error), want, "{base}: {change}"),
                (found, want) => panic!("{base}: {change}: {found:?}, not {want:?}"),
            }
        }
    }
    assert_eq!(tried, BASES.len() * CHANGES.len());
}

/// Files that are made, each by its path, and the kind of the refusal, or `classes` or `splits`.
const AMBIGUOUS: [(&[&str], &str); 31] = [
    (&[], "NoClasses"),
    (&["1.png", "2.png"], "NoClasses"),
    (&["notes.txt"], "NoClasses"),
    (&["val/cat/1.png", "test/cat/1.png"], "NoTrain"),
    (&["test/1.png"], "NoTrain"),
    (&["valid/1.png", "invalid/1.png"], "classes"),
    (&["test/1.png", "car/1.png"], "classes"),
    (&["train/1.png", "bus/1.png", "car/1.png"], "classes"),
    (
        &["train/1.png", "train/steam/2.png", "car/1.png"],
        "classes",
    ),
    (&["train/cat/1.png", "car/1.png"], "Mixed"),
    (
        &["train/cat/1.png", "train/dog/1.png", "other/cat/1.png"],
        "Mixed",
    ),
    (&["cat/1.png", "dog/1.png", "val/cat/1.png"], "Mixed"),
    (
        &["cat/1.png", "dog/1.png", "test/cat/1.png", "test/dog/1.png"],
        "Mixed",
    ),
    (&["train/1.png", "val/1.png"], "Unlabelled"),
    (&["train/1.png"], "Unlabelled"),
    (
        &["train/1.png", "train/metadata.jsonl", "test/1.png"],
        "Unlabelled",
    ),
    (&["train/1.png", "val/1.png", "car/1.png"], "Unlabelled"),
    (&["train/cat/1.png", "val/1.png"], "Unlabelled"),
    (&["train/cat/1.png", "val/cat/notes.txt"], "Empty"),
    (&["train/cat/1.png", "val/cow/1.png"], "OtherClass"),
    (&["train/cat/1.png", "val/Cat/1.png"], "OtherClass"),
    (
        &["train/cat/1.png", "val/cat/1.png", "val/cow/notes.txt"],
        "OtherClass",
    ),
    (
        &["train/cat/1.png", "val/cat/1.png", "valid/cat/1.png"],
        "Twice",
    ),
    (&["train/cat/1.png", "training/cat/1.png"], "Twice"),
    (&["train/cat/1.png", "train/dog/notes.txt"], "Empty"),
    (
        &["cat/train/1.png", "cat/val/1.png", "dog/train/1.png"],
        "SplitsInClass",
    ),
    (&["flowers/rose/1.png", "flowers/tulip/1.png"], "Wrapped"),
    (&["data/train/rose/1.png"], "Wrapped"),
    (&["rose/1.png"], "classes"),
    (&["rose/part1/1.png"], "classes"),
    (
        &["train/rose/1.png", "test/rose/1.png", "val/rose/1.png"],
        "splits",
    ),
];

#[test]
fn layouts_that_could_be_read_in_two_ways_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (i, (files, want)) in AMBIGUOUS.iter().enumerate() {
        let root = folder.path().join(i.to_string());
        fs::create_dir(&root).unwrap();
        files.iter().for_each(|file| put(root.join(file)));
        let got = match Layout::find(&DiskFiles, &root) {
            Ok(layout) if layout.held_out.is_some() => "splits".to_owned(),
            Ok(_) => "classes".to_owned(),
            Err(error) => {
                let told = error.to_string();
                assert!(told.contains(root.to_str().unwrap()), "{told}");
                kind(&error)
            }
        };
        assert_eq!(got, *want, "{files:?}");
    }
    let missing = Layout::find(&DiskFiles, &folder.path().join("nowhere"));
    assert!(matches!(missing, Err(DataError::Files(_))), "{missing:?}");
}

/// `ImageFolder` of the library has folders as classes whatever they are called, as torchvision's.
#[test]
fn an_image_folder_has_torchvisions_classes() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fill(root, &[("val", 2), ("train", 1)]);
    symlink("val", root.join("link")).unwrap();
    let found = ImageFolder::new(root, ToTensor).unwrap();
    assert_eq!(found.classes(), ["link", "train", "val"]);
    let labels: Vec<i64> = found.samples().iter().map(|(_, label)| *label).collect();
    assert_eq!(labels, [0, 0, 1, 2, 2]);
    fs::create_dir(root.join("empty")).unwrap();
    let refused = ImageFolder::new(root, ToTensor).unwrap_err();
    assert!(
        matches!(&refused, DataError::Layout(LayoutError::Empty { classes, .. }) if classes == &["empty"]),
        "{refused}"
    );
}
