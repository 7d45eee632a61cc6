//! What users give that is not what is expected: no files, links, names without a folder, and far too much of
//! everything. Messages name it as they gave it, and are short.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::started::{highwater, words};

/// What is said, in an error of this exit code.
fn refused(dir: &Path, line: &str, expected: i32) -> String {
    let (code, _, news) = highwater(dir, line);
    assert_eq!(code, expected, "{line}\n{news}");
    assert!(news.contains("error["), "{line}\n{news}");
    news
}

#[test]
fn what_is_no_regular_file_is_called_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    fs::write(dir.join("text.txt"), "water runs over stones. ".repeat(100)).unwrap();
    let records = "{\"text\": \"water\"}\n".repeat(99);
    fs::write(dir.join("texts.jsonl"), records).unwrap();
    for ending in [
        "", ".txt", ".npy", ".bin", ".jsonl", ".csv", ".toml", ".json",
    ] {
        let path = dir.join(format!("pipe{ending}"));
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
        symlink("/dev/zero", dir.join(format!("device{ending}"))).unwrap();
    }
    for line in [
        "train --data X",
        "train --data X.txt",
        "train --data X.npy",
        "train --data X.bin",
        "train --data X.jsonl",
        "train --data X.csv",
        "init --data X.npy",
        "train --data text.txt --eval-data X.txt",
        "train --data texts.jsonl --eval-data X.jsonl",
        "train --data text.txt --tokenizer X.json",
        "train --data texts.jsonl --chat-template X",
        "train --config X.toml",
        "plan --init-from X.json",
        "plan --diff X.json X.json",
        "data show X.jsonl",
    ] {
        for name in ["pipe", "device"] {
            let news = refused(dir, &line.replace('X', name), 4);
            let told =
                format!(": it is a {name}; only regular files are read: copy it to a file first");
            assert!(news.contains(&told), "{line}: {news}");
        }
    }
    // A plan needs no data, and says what `train` will.
    let (code, _, news) = highwater(dir, "plan --data pipe.txt --threads 2");
    assert!(code == 0 && news.contains("it is a pipe"), "{news}");
}

#[test]
fn what_is_written_through_a_link_leaves_the_link() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    fs::create_dir_all(dir.join("real")).unwrap();
    symlink("real/settings.toml", dir.join("link.toml")).unwrap();
    fs::write(dir.join("real/settings.toml"), "[training]\nbatch = 2\n").unwrap();
    let (code, _, news) = highwater(dir, "init --out link.toml --force --threads 2");
    assert_eq!(code, 0, "{news}");
    assert!(dir.join("link.toml").is_symlink());
    let text = fs::read_to_string(dir.join("real/settings.toml")).unwrap();
    assert!(text.contains("version = 2"), "{text}");
    fs::create_dir(dir.join("pages")).unwrap();
    symlink("../real/page", dir.join("pages/highwater.1")).unwrap();
    let (code, _, news) = highwater(dir, "man --out pages");
    assert_eq!(code, 0, "{news}");
    assert!(dir.join("pages/highwater.1").is_symlink());
    let page = fs::read_to_string(dir.join("real/page")).unwrap();
    assert!(page.contains(".TH"), "{page}");
    let left = fs::read_dir(dir.join("real")).unwrap().count();
    assert_eq!(left, 2);
}

#[test]
fn a_file_that_cannot_be_made_is_named_as_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let news = refused(dir, "init --out none/settings.toml --threads 2", 4);
    assert!(
        news.contains("cannot create none/settings.toml: No such file"),
        "{news}"
    );
    assert!(!news.contains(".highwater-"), "{news}");
}

#[test]
fn what_is_far_too_long_is_not_said_again_in_full() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let digits = "9".repeat(400);
    let json = format!("{{\"a\": {:?}}}", vec![1; 20_000]);
    fs::write(dir.join("plan.json"), &json).unwrap();
    fs::write(dir.join("long.toml"), format!("x = {json}")).unwrap();
    fs::write(
        dir.join("steps.toml"),
        format!("[training]\nsteps = {digits}\n"),
    )
    .unwrap();
    fs::write(dir.join("name.toml"), format!("[training]\n{digits} = 1\n")).unwrap();
    fs::write(
        dir.join("text.jsonl"),
        format!("{{\"role\": \"{}\"}}\n", "x".repeat(50_000)),
    )
    .unwrap();
    fs::write(
        dir.join("long.jinja"),
        format!("{{{{ {} }}}}", "x ".repeat(50_000)),
    )
    .unwrap();
    fs::write(
        dir.join("config.json"),
        format!("{{\"model_type\": \"gpt2\", \"n_layer\": {digits}}}"),
    )
    .unwrap();
    fs::write(
        dir.join("type.json"),
        format!("{{\"model_type\": \"{}\"}}", "x".repeat(50_000)),
    )
    .unwrap();
    for line in [
        "train --config plan.json".to_owned(),
        "train --config long.toml".to_owned(),
        "train --config steps.toml".to_owned(),
        "train --config name.toml".to_owned(),
        "plan --init-from config.json".to_owned(),
        "plan --init-from type.json".to_owned(),
        "plan --diff long.toml long.toml".to_owned(),
        "data show text.jsonl".to_owned(),
        "train --data text.jsonl --chat-template long.jinja".to_owned(),
        format!("train --steps {digits}"),
        format!("train --lr {digits}"),
        format!("train --held-out {digits}"),
        format!("train --memory {digits}"),
        format!("train --memory {digits}GiB"),
        format!("train --optimizer {digits}"),
        format!("train --model {digits}"),
        format!("train --{digits}"),
        format!("train --set training.steps={digits}"),
        format!("train --set optimizer.lr={digits}"),
        format!("train --set training.{digits}=1"),
        format!("generate . --prompt a --top-p {digits}"),
        "train --lr 1e308".to_owned(),
        "train --lr 1e400".to_owned(),
        "train --set optimizer.lr=1e400".to_owned(),
    ] {
        let (code, _, news) = words(dir, line.split(' '));
        assert!([2, 4].contains(&code), "{line}: {code} {news}");
        let longest = news.lines().map(|line| line.chars().count()).max();
        assert!(
            longest < Some(400) && news.lines().count() < 12,
            "{line}: {news}"
        );
    }
    let news = refused(dir, "train --config plan.json", 2);
    assert!(news.contains("plan.json: this is JSON"), "{news}");
}

/// `plan` takes a whole command line of `train` or `init`, and names the flags that it ignores.
#[test]
fn a_plan_takes_the_flags_of_the_command_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let flags = "--threads 2 --memory 20MiB --batch 8 --keep 2";
    for (line, told) in [
        (
            "train X --out run --force --profile",
            "note: ignored in a plan: --out, --force, --profile, --keep\n",
        ),
        (
            "init X --out a.toml --all",
            "note: ignored in a plan: --out, --all, --keep\n",
        ),
    ] {
        let line = line.replace('X', flags);
        let news = refused(dir, &line, 3);
        assert!(
            news.contains("`highwater plan` with the same flags"),
            "{news}"
        );
        let (_, flags) = line.split_once(' ').unwrap();
        let (code, results, news) = highwater(dir, &format!("plan {flags}"));
        assert_eq!(code, 3, "{news}");
        assert!(
            news.contains(told) && results.contains("does not fit"),
            "{news}{results}"
        );
    }
    // The batch that does not fit is not the one that was asked for.
    let news = refused(dir, &format!("init {flags}"), 3);
    let told = "this is the minimum for a batch of 1 and sequences of 64, the smallest that `init` tries; a batch of 8";
    assert!(news.contains(told), "{news}");
}
