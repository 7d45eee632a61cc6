//! Models from a `config.json`, with weights drawn anew.

use std::path::Path;

use crate::byte_tokenizer;
use crate::started::highwater;

const FLAGS: &str = "--steps 3 --batch 2 --seq 32 --threads 2 --memory 64MiB --lr 1e-3 --beta2 0.99 --weight-decay 0.1 \
                     --warmup 1 --order shuffled --held-out 0.005";

fn run(dir: &Path, line: &str) -> String {
    let (code, _, news) = highwater(dir, line);
    assert_eq!(code, 0, "{line}\n{news}");
    news
}

fn weights(dir: &Path, run: &str) -> Vec<u8> {
    std::fs::read(dir.join(run).join("final/model.safetensors")).unwrap()
}

/// As a preset of the same shape, whose weights are drawn anew too.
#[test]
fn a_config_alone_is_enough_to_begin_with() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    run(
        dir,
        &format!("train --model llama-nano {FLAGS} --out preset"),
    );
    std::fs::create_dir(dir.join("own")).unwrap();
    std::fs::copy(
        dir.join("preset/final/config.json"),
        dir.join("own/config.json"),
    )
    .unwrap();
    let whole = weights(dir, "preset");
    for (line, out) in [
        (format!("--init-from own/config.json {FLAGS}"), "file"),
        (format!("--init-from own {FLAGS}"), "folder"),
        ("--config file/config.toml".to_owned(), "settings"),
    ] {
        run(dir, &format!("train {line} --out {out}"));
        assert!(weights(dir, out) == whole, "{line}");
    }
    // The run has all that it needs.
    std::fs::remove_dir_all(dir.join("own")).unwrap();
    let news = run(dir, "resume file --steps 4");
    assert!(news.contains("resuming after step 3"), "{news}");
    std::fs::write(dir.join("text.txt"), "pages of memory ".repeat(40)).unwrap();
    run(dir, "eval folder --data text.txt");
    run(
        dir,
        "plan --init-from file/final --batch 2 --seq 32 --memory 64MiB",
    );
}

#[test]
fn a_tokenizer_beside_the_config_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let config = r#"{"model_type": "qwen2", "vocab_size": 260, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}"#;
    std::fs::write(dir.join("config.json"), config).unwrap();
    let tokenizer = byte_tokenizer::json(&["<a>", "<b>", "<c>", "<d>"]);
    std::fs::write(dir.join("tokenizer.json"), tokenizer).unwrap();
    std::fs::write(dir.join("text.txt"), "pages of memory ".repeat(40)).unwrap();
    let line = "train --data text.txt --steps 1 --batch 2 --seq 16 --memory 64MiB";
    run(dir, &format!("{line} --init-from config.json --out run"));
    assert!(dir.join("run/final/tokenizer.json").exists());
    let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
    run(dir, &format!("{line} --init-from config.json"));
    assert!(dir.join("runs").join(name).exists());
    let special = ["<a>", "<b>", "<c>", "<d>", "<e>", "<f>", "<g>", "<h>"];
    std::fs::write(dir.join("wide.json"), byte_tokenizer::json(&special)).unwrap();
    for (more, code, told) in [
        ("--init-from config.json --model gpt2", 2, "use one of them"),
        ("--init-from config.json --lora 2", 2, "no trained weights"),
        ("--init-from config.json --preference orpo", 2, ""),
        ("--init-from nothing.json", 4, "nothing.json"),
        ("--init-from text.txt", 2, "text.txt: not a JSON object"),
        ("--model config.json", 2, "--init-from FILE"),
        (
            "--init-from config.json --tokenizer none.json",
            4,
            "none.json",
        ),
        (
            "--init-from config.json --tokenizer wide.json",
            4,
            "264 tokens",
        ),
    ] {
        let (found, _, news) = highwater(dir, &format!("{line} {more} --out refused"));
        assert!(
            found == code && news.contains(told),
            "{more}: {found}\n{news}"
        );
        assert!(!dir.join("refused").exists(), "{more}");
    }
}
