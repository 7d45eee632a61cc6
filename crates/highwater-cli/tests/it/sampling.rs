//! `generate` and `chat` as people use them: text as it comes, where it ends, and what is said in between.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::program::command;
use crate::started::{highwater, words};

/// A run of bytes.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = "pages of memory. ".repeat(200);
    std::fs::write(folder.path().join("text.txt"), text).unwrap();
    let line = "train --data text.txt --steps 30 --threads 2 --out run";
    let (code, _, news) = highwater(folder.path(), line);
    assert_eq!(code, 0, "{news}");
    folder
}

fn start(dir: &Path, line: &str) -> Child {
    command(dir, line.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What `chat` answers to some lines.
fn chat(dir: &Path, said: &[u8], more: &str) -> (String, String) {
    let line =
        format!("chat run --chat-template chatml --tokens 12 --temperature 0 --threads 2 {more}");
    let mut child = start(dir, &line);
    child.stdin.take().unwrap().write_all(said).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (results, news) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(0), "{news}");
    (results, news)
}

#[test]
fn a_text_that_outgrows_the_context_is_said_to() {
    let folder = folder();
    for (tokens, all) in [(61, None), (62, Some(66))] {
        let line = format!("generate run --tokens {tokens} --threads 2 --prompt page");
        let (code, _, news) = highwater(folder.path(), &line);
        assert_eq!(code, 0, "{news}");
        let said = all
            .map(|all| format!("note: the text has {all} tokens, and the model reads 64: its end"));
        assert_eq!(
            news.matches("note:").count(),
            usize::from(said.is_some()),
            "{news}"
        );
        assert!(said.is_none_or(|said| news.contains(&said)), "{news}");
    }
}

#[test]
fn what_is_left_out_of_a_long_prompt_is_said() {
    let folder = folder();
    let prompt = "page".repeat(60);
    for (length, left_out) in [(64, None), (65, Some(1)), (240, Some(176))] {
        let line = format!(
            "generate run --tokens 1 --threads 2 --prompt {}",
            &prompt[..length]
        );
        let (code, _, news) = highwater(folder.path(), &line);
        assert_eq!(code, 0, "{news}");
        let said = left_out.map(|n| {
            format!("note: the prompt has {length} tokens, and the model reads 64: the first {n} are left out")
        });
        assert_eq!(news.contains("note: the prompt"), said.is_some(), "{news}");
        assert!(said.is_none_or(|said| news.contains(&said)), "{news}");
        assert!(!news.contains("its end was generated"), "{news}");
    }
}

#[test]
fn text_comes_as_it_is_drawn_and_ends_where_it_is_to_end() {
    let folder = folder();
    let dir = folder.path();
    let mut child = start(
        dir,
        "generate run --prompt page --tokens 100000 --threads 2",
    );
    let mut first = [0; 16];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    assert!(first.starts_with(b"page"));
    assert!(
        child.try_wait().unwrap().is_none(),
        "it has ended before its text was read"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let generate = |more: &[&str]| {
        let line = [
            "generate",
            "run",
            "--prompt",
            "page",
            "--tokens",
            "40",
            "--temperature",
            "0",
        ];
        words(dir, line.iter().chain(more).copied())
    };
    let (code, whole, news) = generate(&[]);
    assert_eq!(code, 0, "{news}");
    assert!(
        news.contains("40 tokens, ") && news.contains("tokens/s"),
        "{whole} {news}"
    );
    let stop: String = whole.chars().skip(10).take(4).collect();
    let (_, cut, news) = generate(&["--stop", "nowhere", "--stop", &stop]);
    assert_eq!(
        cut.trim_end(),
        whole[..whole.find(&stop).unwrap()].trim_end()
    );
    assert!(!news.contains("40 tokens"), "{news}");
    // What was said is said less.
    let (_, other, _) = generate(&["--repetition-penalty", "100"]);
    assert_ne!(other, whole);
    for (flag, value, told) in [
        ("--min-p", "1.5", "--min-p must be from 0 to 1"),
        (
            "--repetition-penalty",
            "0",
            "--repetition-penalty must be a number above 0",
        ),
        ("--top-p", "0", "--top-p must be above 0"),
        ("--stop", "", "--stop must have at least one character"),
    ] {
        let (code, _, news) = generate(&[flag, value]);
        assert!(
            code == 2 && news.contains(told),
            "{flag} {value}: {code} {news}"
        );
    }
}

#[test]
fn a_models_own_file_says_how_to_draw() {
    let folder = folder();
    let dir = folder.path();
    let file = dir.join("run/final/generation_config.json");
    let generate = |seed: u32, more: &str| {
        let line =
            format!("generate run --prompt page --tokens 40 --threads 2 --seed {seed} {more}");
        highwater(dir, &line)
    };
    assert_ne!(generate(1, "").1, generate(2, "").1);
    let coldest = generate(1, "--temperature 0").1;
    for json in [
        r#"{"do_sample": false, "temperature": 0.7}"#,
        r#"{"do_sample": true, "temperature": 0.9, "top_k": 1, "eos_token_id": 300, "other": [1]}"#,
        r#"{"do_sample": true, "min_p": 1.0, "top_k": 0}"#,
    ] {
        std::fs::write(&file, json).unwrap();
        assert_eq!(generate(1, "").1, coldest, "{json}");
        assert_eq!(generate(2, "").1, coldest, "{json}");
        // Flags come first.
        let more = "--temperature 5 --top-k 256 --min-p 0";
        assert_ne!(generate(1, more).1, generate(2, more).1, "{json}");
    }
    // 0 is all of them, for the flag too.
    std::fs::write(
        &file,
        r#"{"do_sample": true, "temperature": 5.0, "top_k": 1}"#,
    )
    .unwrap();
    assert_eq!(generate(1, "").1, generate(2, "").1);
    assert_ne!(generate(1, "--top-k 0").1, generate(2, "--top-k 0").1);
    // Where to end is said there too, and what is not followed is named.
    let said = coldest.strip_prefix("page").unwrap();
    let stop = &said[4..7];
    let json = serde_json::json!({
        "do_sample": false, "stop_strings": [stop], "num_beams": 4, "typical_p": 1.0, "suppress_tokens": [7],
        "no_repeat_ngram_size": 0, "bad_words_ids": null,
    });
    std::fs::write(&file, json.to_string()).unwrap();
    let (_, text, news) = generate(1, "");
    assert_eq!(text, format!("page{}\n", said.split(stop).next().unwrap()));
    assert!(
        news.contains("generation_config.json: num_beams, suppress_tokens\n"),
        "{news}"
    );
    // The flag goes before the file.
    let (_, text, _) = generate(1, "--stop nowhere");
    assert_eq!(text, coldest);
    for json in ["{", r#"{"temperature": "warm"}"#, r#"{"top_p": 7}"#] {
        std::fs::write(&file, json).unwrap();
        let (code, _, news) = generate(1, "");
        assert!(
            code == 2 && news.contains("generation_config.json"),
            "{json}: {code} {news}"
        );
    }
}

#[test]
fn a_conversation_survives_what_people_type() {
    let folder = folder();
    let dir = folder.path();
    let (first, _) = chat(dir, b"pages\n", "");
    let (twice, _) = chat(dir, b"pages\npages\n", "");
    let (anew, news) = chat(dir, b"pages\n/reset\npages\n", "");
    assert!(
        anew == first.repeat(2) && news.contains("starts over"),
        "{anew:?} {news}"
    );
    assert!(twice.starts_with(&first));
    let mut said = vec![b'x'; (1 << 20) + 100];
    said.extend(b" and more\n\xff\xfe\n\n/reset\npages\n");
    let (results, news) = chat(dir, &said, "");
    assert!(results.ends_with(&first), "{results:?}");
    assert!(
        news.contains("not answered: a line of more than 1 MiB"),
        "{news}"
    );
    assert!(news.contains("not valid UTF-8"), "{news}");
    let (_, news) = chat(dir, &b"pages\n".repeat(40), "");
    let forgets = "its beginning is dropped from now on";
    assert_eq!(news.matches(forgets).count(), 1, "{news}");
    // Longer than the model reads, though not too long for a line.
    let (results, news) = chat(dir, &[&[b'y'; 4000][..], b"\npages\n"].concat(), "");
    assert!(
        results == first && news.contains("not answered: this is longer"),
        "{results:?} {news}"
    );
}
