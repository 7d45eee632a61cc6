//! Layouts of data through the commands: which files are trained on, held out and left unread, how wide tokens are, and
//! what is said of all that; what flags ask for and the data does not have.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::program::{end, highwater as spawn, news};
use crate::records::base;
use crate::started::highwater;

const TRAIN: &str = "train --seq 64 --batch 2 --steps 1 --memory 1GiB --force --out run";

fn texts(path: &Path, count: usize, word: &str) {
    let lines = (0..count).map(|i| format!("{{\"text\": \"{word} {i} runs over stones\"}}\n"));
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, lines.collect::<String>()).expect("data");
}

/// Runs the program, which has to end well; answers what it said.
fn run(dir: &Path, line: &str) -> String {
    let (code, results, news) = highwater(dir, line);
    assert_eq!(code, 0, "{line}\n{news}");
    format!("{news}\n{results}")
}

fn refused(dir: &Path, line: &str, told: &[&str]) {
    let (code, _, news) = highwater(dir, line);
    assert!(code == 2 || code == 4, "{line}: {code}: {news}");
    for told in told {
        assert!(news.contains(told), "{line}: {news}");
    }
}

#[test]
fn a_run_does_not_lie_within_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("a.txt"), "pages of memory. ".repeat(200)).unwrap();
    std::os::unix::fs::symlink(&data, folder.path().join("link")).unwrap();
    let train = "train --steps 1 --threads 2 --data";
    for (place, line) in [
        (&*data, format!("{train} .")),
        (folder.path(), format!("{train} data --out data/run")),
        (
            folder.path(),
            format!("{train} data --out link/run --force"),
        ),
        (folder.path(), format!("{train} link --out data/runs/a")),
        (
            folder.path(),
            format!("{train} data/a.txt --eval-data data --out data/run"),
        ),
    ] {
        let (code, _, news) = crate::started::highwater(place, &line);
        assert_eq!(code, 2, "{line}: {news}");
        assert!(news.contains("is inside its data folder"), "{line}: {news}");
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1, "{line}");
    }
    // A file beside it is no folder that is read whole.
    let line = format!("{train} a.txt --out run");
    let (code, _, news) = crate::started::highwater(&data, &line);
    assert_eq!(code, 0, "{news}");
}

#[test]
fn a_folder_of_records_is_divided() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    for (name, count) in [("train", 10), ("valid", 8), ("test", 6)] {
        texts(&dir.join(format!("d/{name}.jsonl")), count, name);
    }
    let said = run(
        dir,
        &format!("{TRAIN} --model ./base --data d --no-packing"),
    );
    assert!(
        said.contains("data: train.jsonl to train on; valid.jsonl held out; not read: test.jsonl"),
        "{said}"
    );
    assert!(
        said.lines().any(|line| line.starts_with("10 examples: ")),
        "{said}"
    );
    assert!(said.contains("held out, 8 examples: "), "{said}");
    assert!(said.contains("held-out loss after"), "{said}");
    // What is held out is the same when the run goes on.
    let said = run(dir, "resume run --steps 2");
    assert!(said.contains("held-out loss after"), "{said}");
    let said = run(dir, "eval run --data d");
    assert!(
        said.contains("data: test.jsonl; not read: train.jsonl, valid.jsonl"),
        "{said}"
    );
    refused(
        dir,
        &format!("{TRAIN} --model ./base --data d --held-out 0.1"),
        &["valid.jsonl both choose the held-out data"],
    );
    // What is named goes before what the folder has.
    texts(&dir.join("e.jsonl"), 4, "other");
    let named = format!("{TRAIN} --model ./base --data d --eval-data e.jsonl --no-packing");
    let said = run(dir, &named);
    assert!(said.contains("held out, 4 examples: "), "{said}");
    let said = run(dir, "train --config run/config.toml --force --out again");
    assert!(said.contains("held out, 4 examples: "), "{said}");
    refused(
        dir,
        &format!("{TRAIN} --model ./base --data d --eval-data none.jsonl"),
        &["none.jsonl"],
    );
    let said = run(dir, "data show d --model ./base");
    assert!(said.contains("data: train.jsonl to train on"), "{said}");
}

#[test]
fn files_of_any_name_are_read_and_what_is_no_file_is_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    for (end, unit) in [("jsonl", "records"), ("txt", "")] {
        let data = dir.join(end);
        texts(&data.join(format!("a.{end}")), 10, "water");
        let name = [b"caf\xe9.", end.as_bytes()].concat();
        texts(&data.join(OsStr::from_bytes(&name)), 10, "stones");
        symlink("nothing", data.join(format!("gone.{end}"))).expect("a link");
        let said = run(
            dir,
            &format!("{TRAIN} --model ./base --data {end} --held-out 0"),
        );
        assert!(said.contains(&format!("not read: gone.{end}")), "{said}");
        assert!(unit.is_empty() || said.contains("20 examples: "), "{said}");
    }
    std::fs::write(dir.join("txt/latin.txt"), b"caf\xe9").expect("a text");
    refused(
        dir,
        &format!("{TRAIN} --model ./base --data txt"),
        &["txt/latin.txt", "not UTF-8 at byte 3"],
    );
}

#[test]
fn texts_and_tokens_are_divided() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("data");
    };
    write("t/train.txt", "the river rises ".repeat(40).as_bytes());
    write("t/valid.txt", "the stone sinks ".repeat(40).as_bytes());
    write("t/test.txt", b"unread");
    let said = run(dir, &format!("{TRAIN} --model ./base --data t"));
    assert!(
        said.contains("data: train.txt to train on; valid.txt held out; not read: test.txt"),
        "{said}"
    );
    assert!(said.contains("held-out loss after"), "{said}");
    let tokens = |width: usize| -> Vec<u8> {
        let ids = (0..400_u32).map(|i| (i * 7 % 300).to_le_bytes()[..width].to_vec());
        ids.collect::<Vec<_>>().concat()
    };
    write("n/train.bin", &tokens(2));
    write("n/val.bin", &tokens(2));
    write("n/meta.pkl", b"x");
    let said = run(dir, &format!("{TRAIN} --model ./base --data n"));
    assert!(said.contains("400 training tokens, 400 held out"), "{said}");
    assert!(said.contains("train.bin: 400 tokens of 16 bits"), "{said}");
    write("wide.bin", &tokens(4));
    let said = run(dir, &format!("{TRAIN} --model ./base --data wide.bin"));
    assert!(said.contains("wide.bin: 400 tokens of 32 bits"), "{said}");
    assert!(said.contains("400 training tokens"), "{said}");
}

#[test]
fn what_flags_ask_for_is_there_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    texts(&dir.join("d.jsonl"), 40, "water");
    let train = format!("{TRAIN} --model ./base --data d.jsonl");
    refused(
        dir,
        &format!("{train} --eval-every 1 --held-out 0"),
        &["nothing is held out", "--eval-data FILE"],
    );
    run(dir, &format!("{train} --eval-every 1 --val 10%"));
    refused(
        dir,
        &format!("{train} --optimizer sgd --moments int8"),
        &["--moments int8 has no effect: sgd without momentum"],
    );
    run(
        dir,
        &format!("{train} --optimizer sgd --momentum 0.9 --moments int8"),
    );
    refused(dir, "train --eval-data d.jsonl", &["needs --data"]);
    run(dir, &format!("{train} --held-out 0"));
    refused(
        dir,
        "resume run --steps 2 --eval-every 1",
        &["nothing is held out"],
    );
    // Records are gone through three times when nobody says.
    let said = run(
        dir,
        "train --model ./base --data d.jsonl --seq 64 --batch 2 --held-out 0 --memory 1GiB --force --out epochs",
    );
    assert!(said.contains("steps (3.0 epochs)"), "{said}");
    let said = run(dir, &train.replace("--steps 1 ", "--steps 60 "));
    assert!(said.contains("warning: 60 steps are"), "{said}");
}

#[test]
fn fields_that_are_not_read_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    let lines = (0..12).map(|i| format!("{{\"text\": \"water {i} runs\", \"score\": {i}}}\n"));
    std::fs::write(dir.join("d.jsonl"), lines.collect::<String>()).expect("data");
    let told = "field `score` in 12 examples is not read";
    for line in [
        &format!("{TRAIN} --model ./base --data d.jsonl"),
        "eval run --data d.jsonl",
        "data show d.jsonl --model ./base",
    ] {
        let said = run(dir, line);
        assert_eq!(said.matches(told).count(), 1, "{line}: {said}");
    }
    let bad = "{\"prompt\": \"q\", \"completion\": \"vile\", \"label\": false}";
    std::fs::write(dir.join("kto.jsonl"), bad).expect("data");
    for line in [
        &format!("{TRAIN} --model ./base --data kto.jsonl"),
        "eval run --data kto.jsonl",
        "data show kto.jsonl --model ./base",
    ] {
        refused(dir, line, &["kto.jsonl, line 1: label is false", "KTO"]);
    }
}

#[test]
fn tokenizing_says_how_far_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    let line = format!(
        "{{\"text\": \"{}\"}}\n",
        "water runs over stones and under bridges ".repeat(8)
    );
    std::fs::write(dir.join("big.jsonl"), line.repeat(400_000)).expect("data");
    let child = spawn(dir, &format!("{TRAIN} --model ./base --data big.jsonl"));
    let mut child = { child }.spawn().expect("a process");
    let started = std::time::Instant::now();
    let is_told = || {
        news(dir)
            .lines()
            .any(|line| line.starts_with("tokenizing: ") && line.contains('%'))
    };
    while !is_told() {
        assert!(started.elapsed().as_secs() < 60, "{}", news(dir));
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    child.kill().expect("killed");
    assert_eq!(end(child), None);
}
