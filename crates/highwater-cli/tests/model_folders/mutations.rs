//! What can be wrong with a model folder, one thing at a time, and what has to come of it.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::folder::{Folder, HEAD, Tensor, shard};

/// What a folder has to end in.
#[derive(Debug)]
pub(crate) enum Expected {
    /// The loss of the folder without the mutation.
    Right,
    /// The same, with a word about it.
    Said(&'static str),
    /// A refusal that says all of this.
    Refused(Vec<String>),
    /// Either.
    RightOrRefused,
}

/// A change of a folder, and what it has to end in; none where a family has no such thing.
pub(crate) type Mutation = (&'static str, fn(&mut Folder) -> Option<Expected>);

#[expect(clippy::unnecessary_wraps, reason = "it is the answer of a mutation")]
fn refused<const N: usize>(texts: [&str; N]) -> Option<Expected> {
    Some(Expected::Refused(texts.map(str::to_owned).to_vec()))
}

const RIGHT: Option<Expected> = Some(Expected::Right);

fn is_matrix(_: &str, tensor: &Tensor) -> bool {
    tensor.shape.len() == 2
}

/// A tensor that every token goes through.
fn is_used_by_all(name: &str, _: &Tensor) -> bool {
    !(name.contains("embed") || name.contains("wte") || name.contains("wpe"))
}

/// Replaces the file of weights by something else.
fn replace(folder: &mut Folder, name: &'static str, by: fn(&Path)) {
    folder.then(move |dir| {
        let path = dir.join(name);
        let _ = std::fs::remove_file(&path);
        by(&path);
    });
}

fn pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

fn socket(path: &Path) {
    // A path of a socket may only have so many letters: it is made beside the program, and moved.
    let short = std::env::temp_dir().join(format!(
        "hw-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    drop(std::os::unix::net::UnixListener::bind(&short).unwrap());
    if std::fs::rename(&short, path).is_err() {
        std::fs::remove_file(&short).unwrap();
        pipe(path);
    }
}

fn device(path: &Path) {
    symlink("/dev/zero", path).unwrap();
}

fn folder(path: &Path) {
    std::fs::create_dir(path).unwrap();
}

/// Changes a file's bytes.
fn rewrite(path: &Path, change: impl Fn(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

fn set(folder: &mut Folder, field: &'static str, value: Value) {
    let field = folder.field(field);
    folder.config.insert(field.to_owned(), value);
}

/// What a file may be instead, and what a refusal then says of it.
type NoFile = (fn(&Path), &'static str);

const NO_FILES: [NoFile; 4] = [
    (pipe, "pipe"),
    (socket, ""),
    (device, "device"),
    (folder, "directory"),
];

/// Fields of the shape, those of GPT-2 by its names.
const SIZES: [&str; 5] = [
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
];

fn of_text(folder: &mut Folder, change: impl Fn(String) -> String) {
    let text = Value::from(folder.config.clone()).to_string();
    folder.config_text = Some(change(text).into_bytes());
}

/// A copy of the first layer's tensors as those of layer `number`.
fn add_layer(folder: &mut Folder, number: usize) {
    let first = format!("{}0.", folder.layers());
    let copies: Vec<_> = folder
        .tensors
        .iter()
        .filter_map(|(name, tensor)| {
            let rest = name.strip_prefix(&first)?;
            Some((
                format!("{}{number}.{rest}", folder.layers()),
                tensor.clone(),
            ))
        })
        .collect();
    folder.tensors.extend(copies);
}

pub(crate) const MUTATIONS: &[Mutation] = &[
    // Tensors.
    ("a tensor is missing", |f| {
        let name = f.any(|_, _| true);
        f.tensors.remove(&name);
        refused([&name])
    }),
    ("many tensors are missing", |f| {
        f.tensors
            .retain(|name, _| !name.contains("norm") && !name.contains("ln_"));
        refused(["others are missing too"])
    }),
    ("a tensor has another name", |f| {
        let name = f.any(|_, _| true);
        let tensor = f.tensors.remove(&name)?;
        f.tensors.insert(
            name.replace("weight", "wieght").replace("bias", "bais"),
            tensor,
        );
        refused([&name])
    }),
    ("a row is missing", |f| {
        let name = f.any(is_matrix);
        let tensor = f.tensors.get_mut(&name)?;
        tensor.shape[0] -= 1;
        tensor
            .bytes
            .truncate(4 * tensor.shape.iter().product::<usize>());
        refused([&name, "shape"])
    }),
    ("one dimension more", |f| {
        let name = f.any(|_, _| true);
        f.tensors.get_mut(&name)?.shape.insert(0, 1);
        refused([&name, "shape"])
    }),
    ("whole numbers", |f| {
        let name = f.any(|_, _| true);
        let tensor = f.tensors.get_mut(&name)?;
        *tensor = Tensor::zeros(
            ["I8", "U8", "F8_E4M3", "F8_E5M2"][name.len() % 4],
            1,
            &tensor.shape.clone(),
        );
        refused([&name, "expected F32"])
    }),
    ("doubles", |f| {
        for tensor in f.tensors.values_mut() {
            let values = tensor.values().into_iter();
            tensor.bytes = values.flat_map(|x| f64::from(x).to_le_bytes()).collect();
            tensor.dtype = "F64";
        }
        RIGHT
    }),
    ("half precision", |f| {
        for tensor in f.tensors.values_mut() {
            let values = tensor.values().into_iter();
            tensor.bytes = values
                .flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes())
                .collect();
            tensor.dtype = "BF16";
        }
        RIGHT
    }),
    ("some in half precision", |f| {
        let name = f.any(|_, _| true);
        let tensor = f.tensors.get_mut(&name)?;
        let values = tensor.values().into_iter();
        tensor.bytes = values
            .flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes())
            .collect();
        tensor.dtype = "BF16";
        RIGHT
    }),
    ("not a number", |f| {
        let name = f.any(is_used_by_all);
        let at = 4 * f.draw(2, f.tensors[&name].bytes.len() / 4);
        f.tensors.get_mut(&name)?.bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        refused([&name, "NaN", "error[HW1013]"])
    }),
    ("an infinite number", |f| {
        let name = f.any(|name, tensor| is_used_by_all(name, tensor) && is_matrix(name, tensor));
        let at = 4 * f.draw(2, f.tensors[&name].bytes.len() / 4);
        f.tensors.get_mut(&name)?.bytes[at..at + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
        refused([&name, "infinite"])
    }),
    // More tensors than the model has.
    ("buffers of older versions", |f| {
        let first = format!("{}0.", f.layers());
        let names = if f.is_gpt2() {
            ["attn.bias", "attn.masked_bias"]
        } else {
            ["self_attn.rotary_emb.inv_freq", "self_attn.position_ids"]
        };
        for name in names {
            f.tensors
                .insert(format!("{first}{name}"), Tensor::zeros("F32", 4, &[3]));
        }
        RIGHT
    }),
    ("a tensor of something else", |f| {
        let name = [
            "model.extra.weight",
            "vision_tower.patch.weight",
            "score.weight",
            "model.layers.a.weight",
        ];
        let name = name[f.draw(3, name.len())].replace("model.", f.base());
        f.tensors.insert(name, Tensor::zeros("F32", 4, &[3]));
        Some(Expected::Said("1 tensor of the weights is not read"))
    }),
    ("a bias that config.json does not have", |f| {
        let layer = f.draw(4, 2);
        let name = format!("{}{layer}.mlp.extra.bias", f.layers());
        f.tensors
            .insert(name.clone(), Tensor::zeros("F32", 4, &[32]));
        refused([&name, "config.json describes layers without"])
    }),
    ("a scale of a cache", |f| {
        let name = format!("{}1.self_attn.k_scale", f.layers());
        f.tensors.insert(name, Tensor::zeros("F32", 4, &[1]));
        Some(Expected::Said("k_scale"))
    }),
    // Layers.
    ("config.json has fewer layers", |f| {
        set(f, "num_hidden_layers", 1.into());
        f.config.remove("no_rope_layers");
        refused([
            "describes 1 layer, and the weights have 2",
            "would be ignored",
        ])
    }),
    ("config.json has more layers", |f| {
        let more = 3 + f.draw(5, 9);
        set(f, "num_hidden_layers", more.into());
        f.config.remove("no_rope_layers");
        refused([&format!("describes {more} layers, and the weights have 2")])
    }),
    ("the weights have one layer more", |f| {
        add_layer(f, 2);
        refused(["describes 2 layers, and the weights have 3"])
    }),
    ("the weights have a layer far behind", |f| {
        add_layer(f, 61);
        refused(["describes 2 layers, and the weights have 62"])
    }),
    // Heads.
    ("the tied head alone", |f| {
        if !f.is_tied() {
            return None;
        }
        let table = f.tensors.remove(f.embedding())?;
        f.tensors.insert(HEAD.to_owned(), table);
        RIGHT
    }),
    ("the tied head too", |f| {
        if !f.is_tied() {
            return None;
        }
        let table = f.tensors[f.embedding()].clone();
        f.tensors.insert(HEAD.to_owned(), table);
        RIGHT
    }),
    ("another head of a tied model", |f| {
        if !f.is_tied() {
            return None;
        }
        let mut table = f.tensors[f.embedding()].clone();
        let last = table.bytes.len() - 1;
        table.bytes[last] ^= 1;
        f.tensors.insert(HEAD.to_owned(), table);
        refused([HEAD, "tie_word_embeddings"])
    }),
    ("no head", |f| {
        f.tensors.remove(HEAD)?;
        refused([HEAD, "tie_word_embeddings"])
    }),
    ("tied, with a head of its own", |f| {
        if f.is_tied() {
            return None;
        }
        set(f, "tie_word_embeddings", true.into());
        refused([HEAD, "tie_word_embeddings"])
    }),
    ("names of the base model", |f| {
        let base = f.base();
        let all = std::mem::take(&mut f.tensors).into_iter();
        let short = |name: String| name.strip_prefix(base).map_or(name.clone(), str::to_owned);
        f.tensors = all.map(|(name, tensor)| (short(name), tensor)).collect();
        RIGHT
    }),
    // What config.json says of sizes.
    ("another size", |f| {
        let field = SIZES[f.draw(6, SIZES.len())];
        let value = match field {
            "num_hidden_layers" => return None,
            // As many heads of another width can be the same tensors.
            "num_attention_heads" => 5,
            "intermediate_size" => 40,
            "hidden_size" => 64,
            _ => 301,
        };
        set(f, field, value.into());
        refused(["error[HW10"])
    }),
    ("a size that is none", |f| {
        let field = SIZES[f.draw(6, SIZES.len())];
        let all = [
            json!(0),
            json!(-2),
            json!(1u64 << 40),
            json!("x"),
            json!(1.5),
            json!([2]),
            json!(true),
        ];
        set(f, field, all[f.draw(7, all.len())].clone());
        refused([f.field(field)])
    }),
    ("other heads of keys", |f| {
        if f.is_gpt2() {
            return None;
        }
        set(f, "num_key_value_heads", [3, 0, 5, 64][f.draw(8, 4)].into());
        refused(["num_key_value_heads"])
    }),
    ("a field that nobody reads", |f| {
        f.config
            .insert("something_else".to_owned(), json!({"a": [1, null]}));
        RIGHT
    }),
    // config.json as text.
    ("a field twice", |f| {
        of_text(f, |text| text.replacen('{', r#"{"vocab_size": 300, "#, 1));
        refused(["config.json", "`vocab_size` stands there twice"])
    }),
    ("not a number in JSON", |f| {
        let number = ["NaN", "Infinity", "-Infinity"][f.draw(9, 3)];
        of_text(f, |text| {
            text.replacen('{', &format!(r#"{{"initializer_range": {number}, "#), 1)
        });
        refused(["config.json", number])
    }),
    ("half a config.json", |f| {
        let cut = 1 + f.draw(10, 60);
        of_text(f, |text| text[..text.len() - cut].to_owned());
        refused(["config.json"])
    }),
    ("another config.json", |f| {
        let all = [
            "",
            "[]",
            "3",
            "null",
            "{}",
            "\u{feff}{}",
            "{\"model_type\": 3}",
            "hello",
        ];
        let text = all[f.draw(11, all.len())].to_owned();
        of_text(f, |_| text.clone());
        refused(["config.json"])
    }),
    ("config.json is not UTF-8", |f| {
        f.config_text = Some(b"{\"model_type\": \"llama\", \"x\": \"\xff\"}".to_vec());
        refused(["config.json", "UTF-8"])
    }),
    ("a config.json of megabytes", |f| {
        of_text(f, |text| text + &" ".repeat(2 << 20));
        refused(["config.json", "bytes"])
    }),
    ("no config.json", |f| {
        f.then(|dir| std::fs::remove_file(dir.join("config.json")).unwrap());
        refused(["config.json"])
    }),
    // Other models.
    ("another family", |f| {
        let all = ["bert", "qwen3_moe", "mamba", "LLAMA", "", "deepseek_v3"];
        set(f, "model_type", all[f.draw(12, all.len())].into());
        refused(["model_type", "\"qwen3\"", "hint:"])
    }),
    ("quantized", |f| {
        set(
            f,
            "quantization_config",
            json!({"quant_method": "gptq", "bits": 4}),
        );
        refused(if f.is_gpt2() {
            ["quantization_config", "hint:"]
        } else {
            ["quantization_config", "unquantized"]
        })
    }),
    ("other positions", |f| {
        if f.is_gpt2() {
            return None;
        }
        let kind = ["dynamic", "quux", "mrope", "NTK"][f.draw(13, 4)];
        set(f, "rope_scaling", json!({"rope_type": kind, "factor": 2.0}));
        refused(["rope_type", kind, "supported"])
    }),
    ("positions that lack a number", |f| {
        if f.is_gpt2() {
            return None;
        }
        let kind = ["linear", "yarn", "llama3", "longrope"][f.draw(13, 4)];
        set(f, "rope_scaling", json!({"rope_type": kind}));
        refused(["config.json", "rope"])
    }),
    ("another activation", |f| {
        let field = match f.family {
            "gpt2" => "activation_function",
            "gemma2" => "hidden_activation",
            _ => "hidden_act",
        };
        f.config.insert(field.to_owned(), "quick_silu".into());
        refused([field, "quick_silu", "function"])
    }),
    // Several files.
    ("several files", |f| {
        f.shards = 2 + f.draw(14, 4);
        RIGHT
    }),
    ("several files and a single one", |f| {
        f.shards = 2;
        let tensors = f.tensors.clone();
        f.then(move |dir| {
            let all = tensors.iter().collect();
            std::fs::write(
                dir.join("model.safetensors"),
                crate::folder::safetensors(all),
            )
            .unwrap();
        });
        RIGHT
    }),
    ("a file more than the index names", |f| {
        f.shards = 2;
        f.then(|dir| {
            let one = dir.join(shard(0, 2));
            std::fs::copy(one, dir.join("model-00009-of-00009.safetensors")).unwrap();
        });
        RIGHT
    }),
    ("a file is missing", |f| {
        f.shards = 3;
        let which = shard(f.draw(15, 3), 3);
        let gone = which.clone();
        f.then(move |dir| std::fs::remove_file(dir.join(&gone)).unwrap());
        refused([&which])
    }),
    ("the index is missing", |f| {
        f.shards = 2;
        f.then(|dir| std::fs::remove_file(dir.join("model.safetensors.index.json")).unwrap());
        refused(["model.safetensors"])
    }),
    ("the index lacks a tensor", |f| {
        f.shards = 2;
        f.index = Some(|map| {
            map.shift_remove("lm_head.weight");
            let last = map.keys().next_back().unwrap().clone();
            map.shift_remove(&last);
        });
        RIGHT
    }),
    ("the index names another file", |f| {
        f.shards = 2;
        f.index = Some(|map| *map.values_mut().next().unwrap() = shard(1, 2).into());
        RIGHT
    }),
    ("the index names a tensor that is nowhere", |f| {
        f.shards = 2;
        f.index = Some(|map| {
            map.insert("model.extra.weight".to_owned(), shard(1, 2).into());
        });
        refused(["model.extra.weight", &shard(1, 2)])
    }),
    ("the index leaves the folder", |f| {
        f.shards = 2;
        let all: [fn(&mut serde_json::Map<String, Value>); 4] = [
            |map| {
                *map.values_mut().next().unwrap() = "../m/model-00001-of-00002.safetensors".into();
            },
            |map| *map.values_mut().next().unwrap() = "/etc/passwd".into(),
            |map| *map.values_mut().next().unwrap() = "a/b.safetensors".into(),
            |map| *map.values_mut().next().unwrap() = "..".into(),
        ];
        f.index = Some(all[f.draw(16, 4)]);
        refused([
            "model.safetensors.index.json",
            "not the name of a file in its folder",
        ])
    }),
    ("a damaged index", |f| {
        f.shards = 2;
        let all = [
            "",
            "{",
            "[]",
            "{}",
            r#"{"weight_map": 3}"#,
            r#"{"weight_map": {"x": 3}}"#,
        ];
        let text = all[f.draw(17, all.len())];
        f.then(move |dir| std::fs::write(dir.join("model.safetensors.index.json"), text).unwrap());
        refused(["model.safetensors.index.json"])
    }),
    ("a tensor in two files", |f| {
        f.shards = 2;
        let (first, tensor) = f
            .tensors
            .iter()
            .next()
            .map(|(name, tensor)| (name.clone(), tensor.clone()))?;
        let rest: Vec<_> = f
            .tensors
            .clone()
            .into_iter()
            .skip(f.tensors.len().div_ceil(2))
            .collect();
        let name = first.clone();
        f.then(move |dir| {
            let all = rest
                .iter()
                .map(|(name, tensor)| (name, tensor))
                .chain([(&name, &tensor)]);
            std::fs::write(
                dir.join(shard(1, 2)),
                crate::folder::safetensors(all.collect()),
            )
            .unwrap();
        });
        refused([&first, "also in"])
    }),
    // Damage.
    ("a file is cut", |f| {
        let cut = 1 + f.draw(18, 4000);
        f.then(move |dir| {
            rewrite(&dir.join("model.safetensors"), |bytes| {
                bytes.truncate(bytes.len().saturating_sub(cut));
            });
        });
        refused(["model.safetensors"])
    }),
    ("a file is longer", |f| {
        f.then(|dir| rewrite(&dir.join("model.safetensors"), |bytes| bytes.extend([0; 5])));
        refused(["model.safetensors"])
    }),
    ("an empty file", |f| {
        let length = f.draw(19, 12);
        f.then(move |dir| {
            rewrite(&dir.join("model.safetensors"), |bytes| {
                bytes.truncate(length);
            });
        });
        refused(["model.safetensors"])
    }),
    ("a header of absurd length", |f| {
        let length = [u64::MAX, 1 << 62, 1 << 40, 0, 7][f.draw(20, 5)];
        f.then(move |dir| {
            rewrite(&dir.join("model.safetensors"), |bytes| {
                bytes[..8].copy_from_slice(&length.to_le_bytes());
            });
        });
        refused(["model.safetensors"])
    }),
    ("a byte of the header is another", |f| {
        let (at, bit) = (8 + f.draw(21, 2000), f.draw(22, 7));
        f.then(move |dir| {
            rewrite(&dir.join("model.safetensors"), |bytes| {
                bytes[at] ^= 1 << bit;
            });
        });
        Some(Expected::RightOrRefused)
    }),
    ("another format", |f| {
        f.then(|dir| {
            let weights = dir.join("model.safetensors");
            std::fs::rename(weights, dir.join("pytorch_model.bin")).unwrap();
        });
        refused(["pickle", "save_pretrained"])
    }),
    ("no weights", |f| {
        f.then(|dir| std::fs::remove_file(dir.join("model.safetensors")).unwrap());
        refused(["model.safetensors"])
    }),
    // Things that are no files.
    ("a link", |f| {
        f.then(|dir| {
            std::fs::rename(dir.join("model.safetensors"), dir.join("../blob")).unwrap();
            symlink("../blob", dir.join("model.safetensors")).unwrap();
        });
        RIGHT
    }),
    ("a link to nothing", |f| {
        replace(f, "model.safetensors", |path| {
            symlink("none", path).unwrap();
        });
        refused(["model.safetensors"])
    }),
    ("a link to itself", |f| {
        replace(f, "model.safetensors", |path| {
            symlink("model.safetensors", path).unwrap();
        });
        refused(["model.safetensors"])
    }),
    ("weights that are no file", |f| {
        let (kind, told) = NO_FILES[f.draw(23, 4)];
        replace(f, "model.safetensors", kind);
        refused(["model.safetensors", told])
    }),
    ("config.json is no file", |f| {
        let (kind, told) = NO_FILES[f.draw(23, 4)];
        replace(f, "config.json", kind);
        refused(["config.json", told])
    }),
    ("an index that is a pipe", |f| {
        f.shards = 2;
        replace(f, "model.safetensors.index.json", pipe);
        refused(["index.json", "pipe"])
    }),
    ("a shard that is a pipe", |f| {
        f.shards = 2;
        replace(f, "model-00002-of-00002.safetensors", pipe);
        refused(["model-00002-of-00002.safetensors", "pipe"])
    }),
    ("data that is a pipe", |f| {
        f.data = ["ids.jsonl", "text.jsonl"][f.draw(24, 2)];
        let name = f.data;
        f.then(move |dir| {
            let path = dir.join("..").join(name);
            std::fs::remove_file(&path).unwrap();
            pipe(&path);
        });
        refused([name, "pipe"])
    }),
    // Beside the weights.
    ("half a tokenizer", |f| {
        f.data = "text.jsonl";
        let cut = 1 + f.draw(25, 3000);
        f.then(move |dir| {
            rewrite(&dir.join("tokenizer.json"), |bytes| {
                bytes.truncate(bytes.len().saturating_sub(cut));
            });
        });
        refused(["tokenizer.json"])
    }),
    ("another tokenizer.json", |f| {
        f.data = "text.jsonl";
        let text = ["", "{}", "[]", "{\"model\": {}}"][f.draw(26, 4)];
        f.then(move |dir| std::fs::write(dir.join("tokenizer.json"), text).unwrap());
        refused(["tokenizer.json"])
    }),
    ("a tokenizer that is no file", |f| {
        f.data = "text.jsonl";
        let kinds: [NoFile; 2] = [(pipe, "pipe"), (folder, "directory")];
        let (kind, told) = kinds[f.draw(27, 2)];
        replace(f, "tokenizer.json", kind);
        refused(["tokenizer.json", told])
    }),
    ("no tokenizer, and conversations", |f| {
        f.data = "chat.jsonl";
        f.then(|dir| std::fs::remove_file(dir.join("tokenizer.json")).unwrap());
        refused(["tokenizer.json", "hint:"])
    }),
    ("no template, and conversations", |f| {
        f.data = "chat.jsonl";
        f.then(|dir| std::fs::remove_file(dir.join("chat_template.jinja")).unwrap());
        refused(["template", "--chat-template"])
    }),
    ("a broken template", |f| {
        f.data = "chat.jsonl";
        let text = [
            "{% for m in messages %}{{ m.content }}",
            "{{ messages[0].nope.foo }}",
            "{% nonsense %}",
            "{{ ",
        ];
        let text = text[f.draw(28, text.len())];
        f.then(move |dir| std::fs::write(dir.join("chat_template.jinja"), text).unwrap());
        refused(["template"])
    }),
    ("a template that is a pipe", |f| {
        f.data = "chat.jsonl";
        replace(f, "chat_template.jinja", pipe);
        refused(["chat_template.jinja", "pipe"])
    }),
];
