use super::*;
use highwater_memory::files::MemoryFiles;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A byte-level BPE of 256 bytes, of which a few merge.
fn bpe() -> Value {
    // GPT-2's characters for bytes: printable ones as they are, the rest from U+0100 on.
    let mut next = 0x100;
    let mut vocab = Map::new();
    for byte in 0..=255_u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let character = if printable {
            char::from(byte)
        } else {
            next += 1;
            char::from_u32(next - 1).unwrap()
        };
        vocab.insert(character.to_string(), Value::from(byte));
    }
    let merges = ["t h", "th e", "Ġ the", "Ċ Ċ", "Ġ Ġ"];
    for (i, merge) in merges.iter().enumerate() {
        vocab.insert(merge.replace(' ', ""), Value::from(256 + i));
    }
    let byte_level = |prefix| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": byte_level(false), "post_processor": null,
        "decoder": byte_level(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "vocab": vocab, "merges": merges
        }
    })
}

fn load(text: &str) -> Result<Tokenizer, TokenizerError> {
    let (files, path) = (MemoryFiles::new(), Path::new("/tokenizer.json"));
    files
        .create(path)
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    Tokenizer::load(&files, path)
}

#[test]
fn bytes_are_tokens() {
    let text = "héllo\n";
    let tokens = Tokenizer::Bytes.encode(text).unwrap();
    assert_eq!(tokens, [104, 195, 169, 108, 108, 111, 10]);
    assert_eq!(Tokenizer::Bytes.decode(&tokens).unwrap(), text);
    assert_eq!(Tokenizer::Bytes.decode(&[195, 300]).unwrap(), "\u{FFFD}");
    assert_eq!(Tokenizer::Bytes.vocab_size(), 256);
}

#[test]
fn a_tokenizer_file_encodes_and_decodes() {
    let tokenizer = load(&bpe().to_string()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 261);
    let tokens = tokenizer.encode("x the\n\n").unwrap();
    assert_eq!(tokens, [u32::from(b'x'), 258, 259]);
    assert_eq!(tokenizer.decode(&tokens).unwrap(), "x the\n\n");
}

#[test]
fn truncation_and_padding_of_the_file_are_left_out() {
    let mut json = bpe();
    json["truncation"] =
        json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    json["padding"] = json!({"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"});
    let tokenizer = load(&json.to_string()).unwrap();
    assert_eq!(tokenizer.encode("abcd").unwrap().len(), 4);
}

#[test]
fn tokens_that_would_be_drawn_are_refused() {
    let mut json = bpe();
    json["model"]["dropout"] = json!(0.0);
    load(&json.to_string()).unwrap();
    json["model"]["dropout"] = json!(0.5);
    let error = load(&json.to_string()).unwrap_err();
    assert!(
        matches!(error, TokenizerError::Draws { dropout: 0.5, .. }),
        "{error}"
    );
}

#[test]
fn long_texts_give_the_tokens_of_the_whole() {
    let tokenizer = load(&bpe().to_string()).unwrap();
    let Tokenizer::HuggingFace(whole) = &tokenizer else {
        panic!("not bytes")
    };
    for filler in ["the the", "a\n\nthe  the", "the\nthe", "né  "] {
        let text = filler.repeat(3 * PIECE_BYTES / filler.len());
        let expected = whole.encode_fast(text.as_str(), false).unwrap();
        assert!(
            tokenizer.encode(&text).unwrap() == expected.get_ids(),
            "{filler}"
        );
    }
    // No good place to cut: still the same text.
    let text = "é".repeat(PIECE_BYTES);
    let tokens = tokenizer.encode(&text).unwrap();
    assert!(tokenizer.decode(&tokens).unwrap() == text);
}

#[test]
fn malformed_files_are_typed_errors() {
    let mut truncated = bpe().to_string();
    truncated.truncate(truncated.len() / 2);
    let with = |path: &str, value: Value| {
        let mut json = bpe();
        *json.pointer_mut(path).unwrap() = value;
        json.to_string()
    };
    for text in [
        String::new(),
        "[]".to_owned(),
        "{}".to_owned(),
        truncated,
        with("/model", json!({"type": "Nonesuch"})),
        with("/model/merges", json!(["no such"])),
        with("/model/merges", json!(["one"])),
        with("/model/vocab", json!({"a": -1})),
        with(
            "/pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false}),
        ),
        with(
            "/normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ),
        with(
            "/normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "/////w=="}),
        ),
    ] {
        let error = load(&text).expect_err(&text);
        assert!(matches!(error, TokenizerError::Malformed { .. }), "{error}");
    }
}

#[test]
fn panics_become_errors_and_later_panics_are_told() {
    let problem = guarded(|| -> tokenizers::Result<()> { panic!("number {}", 7) });
    assert_eq!(problem, Err("number 7".to_owned()));
    assert!(!GUARDED.get());
}

#[test]
fn text_that_is_not_utf8_is_named_by_its_byte() {
    let tokenizer = load(&bpe().to_string()).unwrap();
    let mut text = "the ".repeat(PIECE_BYTES / 2).into_bytes();
    text[100_000] = 0xFF;
    let take = |_: &[u32]| Ok::<_, TokenizerError>(());
    let error = tokenizer
        .encode_stream(&mut text.as_slice(), take)
        .unwrap_err();
    assert!(
        matches!(error, TokenizerError::NotUtf8 { at: 100_000 }),
        "{error}"
    );
    Tokenizer::Bytes
        .encode_stream(&mut text.as_slice(), take)
        .unwrap();
}

proptest! {
    #[test]
    fn mutated_files_do_not_panic(at in 0_usize..6000, byte in any::<u8>(), text in ".{0,20}") {
        let mut json = bpe().to_string().into_bytes();
        let at = at % json.len();
        json[at] = byte;
        let json = String::from_utf8_lossy(&json);
        if let Ok(tokenizer) = load(&json) {
            let _ = tokenizer.encode(&text).map(|tokens| tokenizer.decode(&tokens));
        }
    }

    #[test]
    fn decoding_undoes_encoding(text in ".{0,60}") {
        let tokenizer = load(&bpe().to_string()).unwrap();
        let tokens = tokenizer.encode(&text).unwrap();
        prop_assert_eq!(tokenizer.decode(&tokens).unwrap(), text);
    }
}
