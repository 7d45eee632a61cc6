//! Tokens, merges and special ones of a `tokenizer.json`, as llama.cpp reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use highwater_memory::Files;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::GgufError;
use super::container::Value;
use super::metadata::unsupported;

/// The largest JSON file that is read, in bytes.
const BYTES_MAX: u64 = 256 << 20;

/// The part of a `tokenizer.json` that matters here.
#[derive(Deserialize)]
struct File {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Json,
    #[serde(default)]
    pre_tokenizer: Json,
    #[serde(default)]
    post_processor: Json,
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
    ignore_merges: bool,
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

/// What texts are split by, and how llama.cpp calls it.
const SPLITS: [(&str, &str); 4] = [
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "llama-bpe",
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "qwen2",
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "tekken",
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "gpt-4o",
    ),
];

/// What is told of tokens.
pub(super) struct Vocabulary {
    pub(super) metadata: Vec<(String, Value)>,
    pub(super) note: Option<String>,
}

/// Names by which llama.cpp knows models whose tokens it treats in a way of its own, what is written instead, and the
/// tokens: where one of these is not there, it does not read the file.
const KNOWN: [(&str, &str, &[&str]); 3] = [
    ("phi-3", "phi_3", &PHI3),
    ("phi3", "phi_3", &PHI3),
    ("modern-bert", "modern_bert", &["[MASK]"]),
];
const PHI3: [&str; 4] = ["</s>", "<unk>", "<s>", "<|endoftext|>"];

impl Vocabulary {
    /// What a model of that name is called in a file, and a note if that is something else.
    pub(super) fn called(&self, name: &str) -> (String, Option<String>) {
        let texts = self.metadata.iter().find_map(|(key, value)| match value {
            Value::Texts(texts) if key == "tokenizer.ggml.tokens" => Some(&texts[..]),
            _ => None,
        });
        let texts = texts.unwrap_or_default();
        let has = |token: &&str| texts.iter().any(|text| text == token);
        let mut called = name.to_owned();
        for (known, instead, tokens) in KNOWN {
            if tokens.iter().all(has) {
                continue;
            }
            // Letters of any case; ASCII alone, so that places stay what they are.
            while let Some(at) = called.to_ascii_lowercase().find(known) {
                let split = known.len() - known.trim_start_matches(char::is_alphabetic).len();
                let same = called[at..at + split].to_owned();
                let rest = &instead[split..];
                called.replace_range(at..at + known.len(), &format!("{same}{rest}"));
            }
        }
        let note = (called != name).then(|| {
            format!(
                "general.name is {called}, not {name}: of a file with that name llama.cpp expects tokens that this \
                 model does not have"
            )
        });
        (called, note)
    }
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
    let (pre, mut note) = if is_sentences {
        ("default", None)
    } else {
        splits(&file)?
    };
    let kind = if is_sentences { "llama" } else { "gpt2" };
    put("model", Value::Text(kind.to_owned()));
    put("pre", Value::Text(pre.to_owned()));
    let ids = tokens(&file, size)?;
    if is_sentences {
        put("scores", Value::Floats(scores(&ids, &file.model)));
        put("add_space_prefix", Value::Bool(adds_space(&file)));
    } else {
        put("merges", Value::Texts(merges(&file.model)));
    }
    let specials = specials(files, folder, &ids)?;
    for (name, id) in &specials {
        put(&format!("{name}_token_id"), Value::U32(*id));
    }
    let first = first_before(&file.post_processor);
    let bos = specials.get("bos").map(|&id| u64::from(id));
    put("add_bos_token", Value::Bool(bos.is_some() && first == bos));
    let (texts, kinds) = ids.into_iter().unzip();
    put("tokens", Value::Texts(texts));
    put("token_type", Value::Numbers(kinds));
    match template(files, folder)? {
        Template::One(text) => {
            metadata.push(("tokenizer.chat_template".to_owned(), Value::Text(text)));
        }
        Template::Unread => {
            note = note.or(Some(
                "the chat template is not exported: there are several, and none is `default`"
                    .to_owned(),
            ));
        }
        Template::None => {}
    }
    Ok(Vocabulary { metadata, note })
}

/// The first of the tokens that a `tokenizer.json` puts before a text.
fn first_before(processor: &Json) -> Option<u64> {
    match processor["type"].as_str()? {
        "TemplateProcessing" => {
            let name = processor["single"][0]["SpecialToken"]["id"].as_str()?;
            processor["special_tokens"][name]["ids"][0].as_u64()
        }
        "BertProcessing" | "RobertaProcessing" => processor["cls"][1].as_u64(),
        // The last one puts its tokens before those of the others.
        "Sequence" => {
            let all = processor["processors"].as_array()?;
            all.iter().rev().find_map(first_before)
        }
        _ => None,
    }
}

/// How llama.cpp calls what texts are split by before tokens are found.
fn splits(file: &File) -> Result<(&'static str, Option<String>), GgufError> {
    let all = match file.pre_tokenizer["pretokenizers"].as_array() {
        Some(all) => &all[..],
        None => std::slice::from_ref(&file.pre_tokenizer),
    };
    let Some((last, before)) = all
        .split_last()
        .filter(|(last, _)| last["type"] == "ByteLevel")
    else {
        return Err(unsupported(
            "a tokenizer.json whose tokens are neither of bytes (ByteLevel) nor fall back to them",
        ));
    };
    // What is left out is so.
    let by_words = last["use_regex"].as_bool().unwrap_or(true);
    let name = match before {
        [] if by_words => Some("gpt-2"),
        [digits]
            if by_words && digits["type"] == "Digits" && digits["individual_digits"] == true =>
        {
            Some("smollm")
        }
        [split] if !by_words && split["type"] == "Split" => {
            let pattern = split["pattern"]["Regex"].as_str();
            let found = SPLITS.iter().find(|(known, _)| pattern == Some(known));
            found.map(|(_, name)| match *name {
                // That one has whole words as tokens before merges are looked at.
                "llama-bpe" if !file.model.ignore_merges => "dbrx",
                name => name,
            })
        }
        _ => None,
    };
    let note = "llama.cpp may tokenize differently from this tokenizer.json: its pre_tokenizer is not that of GPT-2, \
                Llama 3's, Qwen 2's, Mistral's or SmolLM's";
    Ok(name.map_or_else(|| ("default", Some(note.to_owned())), |name| (name, None)))
}

/// Whether texts get a space before them.
fn adds_space(file: &File) -> bool {
    let prepends = |step: &Json| {
        step["type"] == "Prepend"
            || step["type"] == "Metaspace"
                && step["prepend_scheme"] != "never"
                && step["add_prefix_space"] != false
    };
    [
        ("normalizers", &file.normalizer),
        ("pretokenizers", &file.pre_tokenizer),
    ]
    .into_iter()
    .any(|(list, step)| {
        prepends(step)
            || step[list]
                .as_array()
                .is_some_and(|steps| steps.iter().any(prepends))
    })
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
        let token = id.as_u64().and_then(|id| tokens.get_mut(id as usize));
        match token {
            Some(token) if token.1 == UNUSED => *token = (text.clone(), kind),
            Some(_) => {
                return Err(unsupported(
                    "a tokenizer.json that has two tokens of one number",
                ));
            }
            None => return Err(too_many(size)),
        }
    }
    for added in &file.added_tokens {
        let token = tokens.get_mut(added.id as usize);
        let token = token.ok_or_else(|| too_many(size))?;
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
    let distinct: BTreeSet<&String> = tokens.iter().map(|(text, _)| text).collect();
    if distinct.len() < tokens.len() {
        return Err(unsupported(
            "a tokenizer.json that has two tokens of one text",
        ));
    }
    Ok(tokens)
}

fn too_many(size: usize) -> GgufError {
    unsupported(&format!(
        "a tokenizer.json with more tokens than the model's vocab_size, {size}"
    ))
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

/// Numbers of special tokens by what they are for: by their texts where the tokenizer's files have those, else as
/// `config.json` has them.
fn specials(
    files: &dyn Files,
    folder: &Path,
    ids: &[(String, i32)],
) -> Result<BTreeMap<&'static str, u32>, GgufError> {
    let of = |name: &str| read::<Map<String, Json>>(files, &folder.join(name));
    let told = [of("tokenizer_config.json")?, of("special_tokens_map.json")?];
    let config = of("config.json")?.unwrap_or_default();
    let mut found = BTreeMap::new();
    for (name, short) in [
        ("bos", "bos"),
        ("eos", "eos"),
        ("unknown", "unk"),
        ("padding", "pad"),
    ] {
        let text = told.iter().flatten().find_map(|fields| {
            let value = fields.get(&format!("{short}_token"))?;
            value.as_str().or_else(|| value.get("content")?.as_str())
        });
        let by_text = text.and_then(|text| ids.iter().position(|(token, _)| token == text));
        let by_number = || {
            let value = config.get(&format!("{short}_token_id"))?;
            let id = value.as_u64().or_else(|| value.get(0)?.as_u64())?;
            Some(id as usize).filter(|&id| id < ids.len())
        };
        if let Some(id) = by_text.or_else(by_number) {
            found.insert(name, id as u32);
        }
    }
    Ok(found)
}

/// The chat template of a folder.
enum Template {
    None,
    One(String),
    /// Several, none of which is the usual one.
    Unread,
}

/// That in a file of its own or in `tokenizer_config.json`.
fn template(files: &dyn Files, folder: &Path) -> Result<Template, GgufError> {
    let path = folder.join("chat_template.jinja");
    if let Some(bytes) = bytes(files, &path)? {
        let text = String::from_utf8(bytes).map_err(|error| GgufError::Json {
            path,
            problem: error.to_string(),
        });
        return text.map(Template::One);
    }
    let fields: Option<Map<String, Json>> = read(files, &folder.join("tokenizer_config.json"))?;
    Ok(
        match fields.and_then(|mut fields| fields.remove("chat_template")) {
            None | Some(Json::Null) => Template::None,
            Some(Json::String(text)) => Template::One(text),
            Some(all) => {
                let usual = all
                    .as_array()
                    .and_then(|all| all.iter().find(|one| one["name"] == "default"));
                let text = usual.and_then(|usual| usual["template"].as_str());
                text.map_or(Template::Unread, |text| Template::One(text.to_owned()))
            }
        },
    )
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
