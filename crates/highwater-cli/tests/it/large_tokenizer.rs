//! Tokenizers that use more memory than the model: no command reads one for which it has no room, and none reads one
//! that it does not need.

use std::fmt::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::byte_tokenizer;
use crate::program::command;
use crate::started::highwater;

const TOKENS: usize = 300_000;
const MIB: u64 = 1 << 20;

/// The folder of a model, `m`, with a tokenizer of many tokens, and `tokens.bin`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m");
    std::fs::create_dir(&model).unwrap();
    let mut more = String::new();
    for i in 256..TOKENS {
        write!(more, ",\"<{i}>\":{i}").unwrap();
    }
    let json = byte_tokenizer::json(&[]);
    let (start, end) = json.split_once("},\"merges\"").unwrap();
    let json = format!("{start}{more}}},\"merges\"{end}");
    std::fs::write(model.join("tokenizer.json"), json).unwrap();
    let config = format!(
        r#"{{"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":{TOKENS},
        "n_positions":64,"n_embd":4,"n_layer":1,"n_head":1}}"#
    );
    std::fs::write(model.join("config.json"), config).unwrap();
    let tokens = (0..4000_u32).flat_map(|i| ((i % 97) as u16).to_le_bytes());
    std::fs::write(folder.path().join("tokens.bin"), tokens.collect::<Vec<_>>()).unwrap();
    folder
}

/// The budget that a message asks for.
fn asked(news: &str) -> u64 {
    let (_, rest) = news.split_once("use --memory ").expect(news);
    let (number, _) = rest.split_once("MiB").expect(news);
    number.parse().expect(news)
}

/// The most memory, in bytes, that a process has used; 0 once it has ended.
fn most(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kibibytes = line.and_then(|line| line.split_whitespace().nth(1));
    kibibytes.map_or(0, |number| number.parse::<u64>().unwrap() << 10)
}

/// The most memory that `chat` uses for an answer, or what it says where it does not start.
fn chat(dir: &Path, memory: u64) -> Result<u64, String> {
    let line = format!(
        "chat run --chat-template chatml --tokens 2 --temperature 0 --threads 1 --memory {memory}MiB"
    );
    std::fs::write(dir.join("asked"), "hi\n").unwrap();
    let mut child = command(dir, line.split_whitespace())
        .stdin(std::fs::File::open(dir.join("asked")).unwrap())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(dir.join("said")).unwrap())
        .spawn()
        .unwrap();
    let mut used = 0;
    let status = loop {
        used = used.max(most(child.id()));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let said = std::fs::read_to_string(dir.join("said")).unwrap();
    match status.code() {
        Some(0) => Ok(used),
        code => Err(format!("{code:?} {said}")),
    }
}

#[test]
fn a_tokenizer_is_read_only_where_it_is_needed_and_has_room() {
    let folder = folder();
    let dir = folder.path();
    let settings = "--init-from m --data tokens.bin --token-dtype u16 --seq 16 --batch 1 --threads 1 --steps 2";
    let (code, plan, news) = highwater(dir, &format!("plan --json --memory 1GiB {settings}"));
    assert_eq!(code, 0, "{news}");
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let memory = plan["floor_bytes"].as_u64().unwrap().div_ceil(MIB) + 2;
    // Tokens need no tokenizer: reading it would use more than that.
    let line = format!("train --json --memory {memory}MiB {settings} --out run");
    let (code, trained, news) = highwater(dir, &line);
    assert_eq!(code, 0, "{news}");
    let trained: serde_json::Value = serde_json::from_str(&trained).unwrap();
    let used = trained["peak_rss_bytes"].as_u64().unwrap();
    assert!(used <= memory * MIB, "{used} bytes, {memory} MiB allowed");
    // Text does: there is no room, and nothing is read before that is known.
    let (code, _, news) = highwater(
        dir,
        &format!("generate run --prompt hi --memory {memory}MiB"),
    );
    assert_eq!(code, 3, "{news}");
    assert!(news.contains("tokenizer.json does not fit into"), "{news}");
    // What the messages ask for is enough.
    let mut memory = asked(&news);
    let used = (0..3).find_map(|_| match chat(dir, memory) {
        Ok(used) => Some(used),
        Err(news) => {
            assert!(news.starts_with("Some(3)"), "{news}");
            memory = asked(&news);
            None
        }
    });
    let used = used.expect("a budget that is enough");
    assert!(used <= memory * MIB, "{used} bytes, {memory} MiB allowed");
}
