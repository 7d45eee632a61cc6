//! What a run goes on from is what it began with: damage is noticed and named, other data too.

use std::path::Path;

use crate::byte_tokenizer;
use crate::program::{end, highwater, news};

const SMALL: &str = "--batch 1 --seq 16 --threads 1 --steps 2 --save-every 1";
const TEXT: &str =
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all. ";

/// A folder with a text, a tokenizer and a run of two steps on them.
fn trained() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data.txt"), TEXT.repeat(30)).unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), byte_tokenizer::json(&[])).unwrap();
    let line = format!("train {SMALL} --data data.txt --tokenizer tokenizer.json --out run");
    ends(dir.path(), &line, 0, "");
    dir
}

/// Runs the program to its end; it ends with this code, and says this.
#[track_caller]
fn ends(dir: &Path, line: &str, code: i32, expected: &str) {
    let found = end(highwater(dir, line).spawn().unwrap());
    let news = news(dir);
    assert_eq!(found, Some(code), "{line}\n{news}");
    assert!(news.contains(expected), "{line}: {expected}\n{news}");
}

/// Flips a bit of a file, or cuts it, in so many ways: resuming names the file each time.
fn damaged(count: u64) {
    let dir = trained();
    let dir = dir.path();
    let mut random = 88_172_645_463_325_252_u64;
    let mut below = |end: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize % end
    };
    for name in ["config.toml", "model.json", "tokens.bin"] {
        let path = dir.join("run").join(name);
        let whole = std::fs::read(&path).unwrap();
        for trial in 0..count {
            let mut bytes = whole.clone();
            if trial % 4 == 3 {
                bytes.truncate(below(whole.len()));
            } else {
                bytes[below(whole.len())] ^= 1 << below(8);
            }
            std::fs::write(&path, &bytes).unwrap();
            ends(dir, "resume run --steps 3", 4, name);
            assert!(news(dir).contains("hint: "), "{}", news(dir));
        }
        std::fs::write(&path, &whole).unwrap();
    }
    ends(dir, "resume run --steps 3", 0, "resuming after step 2");
}

#[test]
fn damage_is_noticed_by_name() {
    damaged(16);
}

#[test]
#[ignore = "in full: minutes"]
fn in_full_damage_is_noticed_by_name() {
    damaged(200);
}

#[test]
fn lost_tokens_are_made_again_of_the_same_text_only() {
    let dir = trained();
    let dir = dir.path();
    let (tokens, data) = (dir.join("run/tokens.bin"), dir.join("data.txt"));
    let whole = std::fs::read(&tokens).unwrap();
    std::fs::remove_file(&tokens).unwrap();
    ends(dir, "resume run --steps 3", 0, "resuming after step 2");
    assert_eq!(std::fs::read(&tokens).unwrap(), whole);

    std::fs::write(&data, TEXT.repeat(31)).unwrap();
    // The run has tokens of its own, of other data.
    ends(dir, "resume run --steps 4", 4, "data.txt has changed");
    std::fs::remove_file(&tokens).unwrap();
    ends(dir, "resume run --steps 5", 4, "data.txt has changed");
    assert!(!tokens.exists());
    ends(dir, "resume run --steps 5 --data-changed ok", 0, "resuming");
    assert!(std::fs::read(&tokens).unwrap().len() > whole.len());
    ends(dir, "resume run --steps 6", 0, "resuming after step 5");

    std::fs::write(dir.join("tokenizer.json"), byte_tokenizer::json(&[]) + " ").unwrap();
    ends(dir, "resume run --steps 7", 4, "tokenizer.json has changed");
    ends(dir, "resume run --steps 7 --data-changed ok", 0, "resuming");
}

#[test]
fn other_data_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = TEXT.repeat(30);
    for (name, data, other) in [
        ("text", text.clone(), text.replace("lazy", "lame")),
        ("longer", text.clone(), text.clone() + TEXT),
    ] {
        let path = dir.join(name);
        std::fs::write(&path, data).unwrap();
        let resume = |steps: u32| format!("resume run-{name} --steps {steps}");
        ends(
            dir,
            &format!("train {SMALL} --data {name} --out run-{name}"),
            0,
            "",
        );
        ends(dir, &resume(3), 0, "resuming after step 2");
        std::fs::write(&path, other).unwrap();
        ends(dir, &resume(4), 4, "has changed since the run began");
        assert!(news(dir).contains("--data-changed ok"), "{}", news(dir));
        let changed = format!("{} --data-changed ok", resume(4));
        ends(dir, &changed, 0, "resuming after step 3");
        ends(dir, &resume(5), 0, "resuming after step 4");
    }
}
