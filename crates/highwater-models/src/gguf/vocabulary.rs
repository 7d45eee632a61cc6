//! Tokens, merges and special ones of a `tokenizer.json`, as llama.cpp reads them.

use std::collections::BTreeMap;
use std::path::Path;

use highwater_memory::Files;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::GgufError;
use super::container::Value;
use super::metadata::unsupported;
use crate::tokenizer::Tokenizer;

/// The largest JSON file that is read, in bytes.
const BYTES_MAX: u64 = 256 << 20;

/// The part of a `tokenizer.json` that matters here.
#[derive(Deserialize)]
struct File {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    pre_tokenizer: Json,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    vocab: Json,
    #[serde(default)]
    merges: Vec<Merge>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    unk_token: Option<String>,
}

/// In one text or in two.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Text(String),
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

/// What llama.cpp splits texts by, and what the pattern has that stands for it.
const SPLITS: [(&str, &str); 4] = [
    ("[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}", "tekken"),
    ("\\p{N}{1,3}", "llama-bpe"),
    ("?\\p{L}+|\\p{N}|", "qwen2"),
    ("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+", "gpt-2"),
];

/// What is told of tokens.
pub(super) struct Vocabulary {
    pub(super) metadata: Vec<(String, Value)>,
    pub(super) note: Option<String>,
}

/// The vocabulary of a folder, of so many tokens, and what is to be told of it. Folders without a
/// `tokenizer.json` have none.
pub(super) fn vocabulary(
    files: &dyn Files,
    folder: &Path,
    size: usize,
) -> Result<Vocabulary, GgufError> {
    let path = folder.join("tokenizer.json");
    let mut metadata = Vec::new();
    let mut put = |name: &str, value| metadata.push((format!("tokenizer.ggml.{name}"), value));
    let Some(file) = read::<File>(files, &path)? else {
        put("model", Value::Text("none".to_owned()));
        let note = Some("there is no tokenizer.json: tokens have no texts".to_owned());
        return Ok(Vocabulary { metadata, note });
    };
    if file.model.kind.as_deref().is_some_and(|kind| kind != "BPE") {
        return Err(unsupported("a tokenizer.json that is not BPE"));
    }
    let is_sentences = file.model.byte_fallback;
    let (pre, note) = if is_sentences {
        ("default", None)
    } else {
        splits(&file.pre_tokenizer)
    };
    put(
        "model",
        Value::Text(if is_sentences { "llama" } else { "gpt2" }.to_owned()),
    );
    put("pre", Value::Text(pre.to_owned()));
    let ids = tokens(&file, size)?;
    let merges = merges(&file.model);
    if is_sentences {
        put("scores", Value::Floats(scores(&ids, &file.model)));
    } else {
        put("merges", Value::Texts(merges));
    }
    let specials = specials(files, folder)?;
    let id_of = |token: &str| ids.iter().position(|(text, _)| text == token);
    for (name, field) in [
        ("bos", "bos_token"),
        ("eos", "eos_token"),
        ("unknown", "unk_token"),
        ("padding", "pad_token"),
    ] {
        if let Some(id) = specials.get(field).and_then(|token| id_of(token)) {
            put(&format!("{name}_token_id"), Value::U32(id as u32));
        }
    }
    let before = Tokenizer::load(files, &path)?.before_texts()?;
    put("add_bos_token", Value::Bool(!before.is_empty()));
    let (texts, kinds) = ids.into_iter().unzip();
    put("tokens", Value::Texts(texts));
    put("token_type", Value::Numbers(kinds));
    if let Some(template) = template(files, folder)? {
        metadata.push(("tokenizer.chat_template".to_owned(), Value::Text(template)));
    }
    Ok(Vocabulary { metadata, note })
}

/// How llama.cpp calls what texts are split by before tokens are found.
fn splits(pre_tokenizer: &Json) -> (&'static str, Option<String>) {
    let text = pre_tokenizer.to_string().replace("\\\\", "\\");
    if text.contains("\"Digits\"") {
        return ("smollm", None);
    }
    if let Some((_, name)) = SPLITS.into_iter().find(|(part, _)| text.contains(part)) {
        return (name, None);
    }
    if text.contains("\"use_regex\":true") {
        return ("gpt-2", None);
    }
    let note = "llama.cpp may split texts otherwise than this tokenizer.json does: its pre_tokenizer is none of GPT-2, \
                Llama 3, Qwen 2, Mistral or SmolLM";
    ("default", Some(note.to_owned()))
}

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Texts and kinds of tokens, by their numbers.
fn tokens(file: &File, size: usize) -> Result<Vec<(String, i32)>, GgufError> {
    let unused = |id| (format!("[PAD{id}]"), UNUSED);
    let mut tokens: Vec<(String, i32)> = (0..size).map(unused).collect();
    let model = &file.model;
    let Some(vocabulary) = model.vocab.as_object() else {
        return Err(unsupported("a tokenizer.json whose vocab is not an object"));
    };
    for (text, id) in vocabulary {
        let kind = if !model.byte_fallback {
            NORMAL
        } else if model.unk_token.as_deref() == Some(text) {
            UNKNOWN
        } else if is_byte(text) {
            BYTE
        } else {
            NORMAL
        };
        if let Some(token) = id.as_u64().and_then(|id| tokens.get_mut(id as usize)) {
            *token = (text.clone(), kind);
        }
    }
    for added in &file.added_tokens {
        let Some(token) = tokens.get_mut(added.id as usize) else {
            continue;
        };
        if token.1 == UNKNOWN || token.1 == BYTE {
            continue;
        }
        let kind = if added.special { CONTROL } else { USER_DEFINED };
        let is_spaced = model.byte_fallback && !added.special;
        let text = if is_spaced {
            added.content.replace('\u{2581}', " ")
        } else {
            added.content.clone()
        };
        *token = (text, kind);
    }
    Ok(tokens)
}

/// Whether a token is one byte, such as `<0x0A>`.
fn is_byte(text: &str) -> bool {
    let digits = text
        .strip_prefix("<0x")
        .and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}

/// Each as two texts with a space between; spaces within are written as a letter that stands for none.
fn merges(model: &Model) -> Vec<String> {
    let whole = |part: &String| part.replace(' ', "\u{120}");
    let text = |merge: &Merge| match merge {
        Merge::Pair(a, b) => format!("{} {}", whole(a), whole(b)),
        Merge::Text(text) => text.clone(),
    };
    model.merges.iter().map(text).collect()
}

/// How early tokens are merged: what an earlier merge makes scores higher.
fn scores(tokens: &[(String, i32)], model: &Model) -> Vec<f32> {
    let mut ranks: BTreeMap<String, usize> = BTreeMap::new();
    for (rank, merge) in model.merges.iter().enumerate() {
        let text = match merge {
            Merge::Pair(a, b) => format!("{a}{b}"),
            Merge::Text(text) => text.replacen(' ', "", 1),
        };
        ranks.entry(text).or_insert(rank);
    }
    let last = ranks.len();
    let score = |(text, kind): &(String, i32)| match kind {
        &NORMAL => -(ranks.get(text).copied().unwrap_or(last) as f32),
        _ => 0.0,
    };
    tokens.iter().map(score).collect()
}

/// Special tokens by what they are for.
fn specials(files: &dyn Files, folder: &Path) -> Result<BTreeMap<String, String>, GgufError> {
    let mut found = BTreeMap::new();
    for name in ["special_tokens_map.json", "tokenizer_config.json"] {
        let fields: Option<Map<String, Json>> = read(files, &folder.join(name))?;
        for (name, value) in fields.into_iter().flatten() {
            let content = value.as_str().or_else(|| value.get("content")?.as_str());
            if let Some(content) = content {
                found.insert(name, content.to_owned());
            }
        }
    }
    Ok(found)
}

/// The chat template of a folder, in a file of its own or in `tokenizer_config.json`.
fn template(files: &dyn Files, folder: &Path) -> Result<Option<String>, GgufError> {
    if let Some(bytes) = bytes(files, &folder.join("chat_template.jinja"))? {
        return Ok(String::from_utf8(bytes).ok());
    }
    let fields: Option<Map<String, Json>> = read(files, &folder.join("tokenizer_config.json"))?;
    let template =
        fields.and_then(|fields| Some(fields.get("chat_template")?.as_str()?.to_owned()));
    Ok(template)
}

fn bytes(files: &dyn Files, path: &Path) -> Result<Option<Vec<u8>>, GgufError> {
    if files.metadata(path)?.is_none() {
        return Ok(None);
    }
    let mut file = files.open(path)?;
    if file.bytes() > BYTES_MAX {
        return Err(GgufError::Json {
            path: path.to_owned(),
            problem: format!(
                "it has {} bytes; at most {BYTES_MAX} are read",
                file.bytes()
            ),
        });
    }
    let mut bytes = vec![0; file.bytes() as usize];
    file.read_exact_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// A JSON file; none where there is none.
fn read<T: DeserializeOwned>(files: &dyn Files, path: &Path) -> Result<Option<T>, GgufError> {
    let Some(bytes) = bytes(files, path)? else {
        return Ok(None);
    };
    let parsed = serde_json::from_slice(&bytes).map_err(|error| GgufError::Json {
        path: path.to_owned(),
        problem: error.to_string(),
    });
    parsed.map(Some)
}
