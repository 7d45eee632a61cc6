//! A tokenizer of bytes: a `tokenizer.json` that any text can be read by.

use std::fmt::Write;

/// The file: the tokens `special`, then one for each byte.
pub(crate) fn json(special: &[&str]) -> String {
    let plain = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    let letters = (0..256_u32).map(|byte| {
        let letter = if plain(&byte) {
            byte
        } else {
            others.next().unwrap()
        };
        char::from_u32(letter).unwrap().to_string()
    });
    let special = special.iter().map(|&token| token.to_owned());
    let mut vocabulary = String::new();
    for (number, token) in special.chain(letters).enumerate() {
        let comma = if number == 0 { "" } else { "," };
        let token = serde_json::to_string(&token).unwrap();
        write!(vocabulary, "{comma}{token}:{number}").unwrap();
    }
    let level =
        r#"{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}"#;
    format!(
        r#"{{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{level},
        "post_processor":null,"decoder":{level},
        "model":{{"type":"BPE","unk_token":null,"vocab":{{{vocabulary}}},"merges":[]}}}}"#
    )
}
