//! The files of the cases: a model, data and runs, and copies of them in which something is wrong.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use highwater::Engine;
use highwater_models::{Decoder, DecoderConfig, save};
use serde_json::{Value, json};

use crate::program::{end, highwater, news};
use crate::{byte_tokenizer, pictures, records};

const RUN: &str = "train --model ./base --seq 64 --batch 2 --steps 1 --threads 1 --memory 1GiB";
/// Most of it is weights: 12 MB.
const LARGE: &str = r#"{"model_type": "llama", "vocab_size": 2000, "hidden_size": 192, "intermediate_size": 512,
    "num_hidden_layers": 30, "num_attention_heads": 4, "num_key_value_heads": 4, "torch_dtype": "float32",
    "max_position_embeddings": 64, "tie_word_embeddings": false}"#;
const WEIGHTS: &str = "model.safetensors";
const ADAPTERS: &str = "final/adapter_model.safetensors";
const RECORD: &str =
    "{\"text\": \"water runs over stones and under bridges, and stones lie under water\"}\n";

/// Makes all of them.
pub(super) fn make(dir: &Path) {
    records::base(dir);
    data(dir);
    images(dir);
    configurations(dir);
    folders(dir);
    large(dir);
    runs(dir);
}

fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    fs::write(path, bytes).unwrap();
}

fn data(dir: &Path) {
    let tokens: Vec<u8> = (0..500_u16).flat_map(u16::to_le_bytes).collect();
    let robot = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n\
                 {\"messages\": [{\"role\": \"robot\", \"content\": \"a\"}]}\n";
    let files: [(&str, &[u8]); 14] = [
        ("empty.txt", b""),
        ("short.txt", b"a few words"),
        ("latin.txt", b"caf\xe9 and more"),
        ("tokens.bin", &tokens),
        ("model.npy", b"no numbers"),
        ("nonsense.json", b"{\"model\": 7}"),
        ("robot.jsonl", robot.as_bytes()),
        ("field.jsonl", b"{\"text\": \"a\"}\n{\"text\": 5}\n"),
        ("half.jsonl", b"{\"text\": \"a\"\n"),
        ("table.csv", b"prompt,completion\na\n"),
        ("wide.jsonl", b"\xff\xfe{\0"),
        ("unknown.toml", b"[training]\nbach = 2\n"),
        (
            "negative.toml",
            b"[training]\nbatch = 2\n\n[optimizer]\nlr = -1\n",
        ),
        ("torn.toml", b"[training\nbatch = 2\n"),
    ];
    for (name, bytes) in files {
        write(dir.join(name), bytes);
    }
    std::os::unix::fs::symlink("/dev/zero", dir.join("device")).unwrap();
    write(dir.join("text.txt"), "water runs over stones. ".repeat(100));
    write(dir.join("many.jsonl"), RECORD.repeat(100_000));
    fs::copy(dir.join("chats.jsonl"), dir.join("changed.jsonl")).unwrap();
}

fn images(dir: &Path) {
    pictures::paint(&dir.join("shapes"));
    fs::create_dir_all(dir.join("broken/level")).unwrap();
    write(dir.join("broken/level/a.png"), "no image");
    fs::create_dir(dir.join("nothing")).unwrap();
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let new = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &new);
        } else {
            fs::copy(path, new).unwrap();
        }
    }
}

/// A copy of a folder under another name.
fn copied(dir: &Path, from: &str, name: &str) -> PathBuf {
    let folder = dir.join(name);
    copy(&dir.join(from), &folder);
    folder
}

/// Changes a field of a file of JSON.
fn set(path: &Path, field: &str, value: Value) {
    let mut json: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    json[field] = value;
    write(path, json.to_string());
}

/// Models whose `config.json` is not theirs, or not possible.
fn configurations(dir: &Path) {
    let yarn = json!({"rope_type": "yarn", "factor": 2.0, "beta_fast": 16.0});
    for (name, field, value) in [
        ("family", "model_type", json!("qwen3_moe")),
        (
            "rope",
            "rope_scaling",
            json!({"rope_type": "dynamic", "factor": 2.0}),
        ),
        ("yarn", "rope_scaling", yarn),
        ("quantized", "quantization_config", json!({"bits": 4})),
        ("heads", "num_attention_heads", json!(5)),
        ("type", "num_hidden_layers", json!("two")),
        ("fewer", "num_hidden_layers", json!(1)),
        ("more", "num_hidden_layers", json!(3)),
        ("wide", "intermediate_size", json!(64)),
    ] {
        let folder = copied(dir, "base", name);
        set(&folder.join("config.json"), field, value);
    }
    write(copied(dir, "base", "torn-config").join("config.json"), "{");
}

/// Models of which another file is wrong.
fn folders(dir: &Path) {
    let path = |name: &str, file: &str| copied(dir, "base", name).join(file);
    cut(&path("cut", WEIGHTS), 1000);
    write(path("empty", WEIGHTS), "");
    fs::remove_file(path("no-weights", WEIGHTS)).unwrap();
    let pickled = path("pickled", WEIGHTS);
    fs::rename(&pickled, pickled.with_file_name("pytorch_model.bin")).unwrap();
    let norm = "model.layers.1.input_layernorm.weight";
    overwrite(&path("nan", WEIGHTS), norm, &[f32::NAN]);
    overwrite(&path("overflow", WEIGHTS), "model.norm.weight", &[3e38; 32]);
    fs::remove_file(path("no-tokenizer", "tokenizer.json")).unwrap();
    write(path("bad-tokenizer", "tokenizer.json"), "{\"model\": 7}");
    let special: Vec<String> = (0..300).map(|i| format!("<{i}>")).collect();
    let special: Vec<&str> = special.iter().map(String::as_str).collect();
    write(
        path("mixed", "tokenizer.json"),
        byte_tokenizer::json(&special),
    );
    let template = "{% for message in messages %}{{ message.content }";
    write(path("torn-template", "chat_template.jinja"), template);
    write(
        path("hot", "generation_config.json"),
        "{\"temperature\": \"hot\"}",
    );
    write(
        path("frozen", "generation_config.json"),
        "{\"temperature\": -1}",
    );
}

/// Cuts so many bytes off a file.
fn cut(path: &Path, bytes: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes)
        .unwrap();
}

/// Overwrites the first numbers of a tensor.
fn overwrite(path: &Path, tensor: &str, values: &[f32]) {
    let mut bytes = fs::read(path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let fields: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let at = fields[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    let numbers = bytes[8 + header + at..].chunks_exact_mut(4);
    for (number, value) in numbers.zip(values) {
        number.copy_from_slice(&value.to_le_bytes());
    }
    write(path, bytes);
}

/// A model whose weights are read from its file while it is used.
fn large(dir: &Path) {
    let folder = dir.join("large");
    fs::create_dir(&folder).unwrap();
    let engine = Engine::builder().threads(1).seed(1).build().unwrap();
    let model = Decoder::new(&engine, DecoderConfig::from_json(LARGE).unwrap()).unwrap();
    save(&model, folder.join(WEIGHTS)).unwrap();
    write(folder.join("config.json"), LARGE);
    fs::copy(
        dir.join("base/tokenizer.json"),
        folder.join("tokenizer.json"),
    )
    .unwrap();
}

/// Runs the program, which has to end well.
fn run(dir: &Path, line: &str) {
    let code = end(highwater(dir, line).stdin(Stdio::null()).spawn().unwrap());
    assert_eq!(code, Some(0), "{line}\n{}", news(dir));
}

fn runs(dir: &Path) {
    run(dir, &format!("{RUN} --data chats.jsonl --out run"));
    run(
        dir,
        &format!("{RUN} --data chats.jsonl --lora 2 --out lora"),
    );
    run(dir, &format!("{RUN} --data changed.jsonl --out changed"));
    write(dir.join("changed.jsonl"), RECORD);
    let model = copied(dir, "base", "moved");
    fs::copy(dir.join("chats.jsonl"), dir.join("moved.jsonl")).unwrap();
    let moved = RUN.replace("./base", "./moved");
    run(
        dir,
        &format!("{moved} --data chats.jsonl --lora 2 --out strayed"),
    );
    run(dir, &format!("{RUN} --data moved.jsonl --out dry"));
    fs::remove_dir_all(model).unwrap();
    fs::remove_file(dir.join("moved.jsonl")).unwrap();
    let images = "train --model resnet18 --data shapes --size 32 --batch 4 --steps 0 --threads 1 --memory 1GiB";
    run(dir, &format!("{images} --out images"));

    let path = |from: &str, name: &str, file: &str| copied(dir, from, name).join(file);
    cut(
        &path(
            "run",
            "damaged",
            "checkpoints/step-000001/model.safetensors",
        ),
        1000,
    );
    write(path("run", "edited", "config.toml"), "version = 1\n");
    write(path("run", "edited-model", "model.json"), "{}");
    let log = path("run", "full", "run.log");
    fs::remove_file(&log).unwrap();
    std::os::unix::fs::symlink("/dev/full", log).unwrap();
    cut(&path("lora", "torn", ADAPTERS), 1000);
    replace(&path("lora", "hidden", ADAPTERS));
    cut(
        &path("images", "torn-images", "final/model.safetensors"),
        1000,
    );
    replace(&path("images", "hidden-images", "final/model.safetensors"));
    let settings = |name: &str| path("lora/final", name, "adapter_config.json");
    set(&settings("loha"), "peft_type", json!("LOHA"));
    set(&settings("other-rank"), "r", json!(4));
}

/// Puts a folder in the place of a file.
fn replace(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
}
