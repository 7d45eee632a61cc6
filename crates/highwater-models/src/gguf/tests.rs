//! Files read back by a reader that is too simple to be wrong.

use std::collections::BTreeMap;
use std::path::Path;

use half::{bf16, f16};
use highwater_memory::files::MemoryFiles;
use highwater_memory::saved::write_atomic;
use serde_json::{Value as Json, json};

use super::*;
use crate::files::module_file::write_tensors;
use crate::read_architecture;
use highwater::{Engine, Module, philox};

const VOCABULARY: usize = 40;

/// A file as it was read: metadata as JSON, tensors with their extents as the file has them.
struct Read {
    metadata: BTreeMap<String, Json>,
    tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
}

struct Bytes<'a>(&'a [u8], usize);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        self.1 += N;
        self.0[self.1 - N..self.1].try_into().unwrap()
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> usize {
        u64::from_le_bytes(self.take()) as usize
    }

    fn text(&mut self) -> String {
        let length = self.u64();
        self.1 += length;
        String::from_utf8(self.0[self.1 - length..self.1].to_vec()).unwrap()
    }

    fn value(&mut self, kind: u32) -> Json {
        match kind {
            4 => json!(self.u32()),
            5 => json!(i32::from_le_bytes(self.take())),
            6 => json!(f32::from_le_bytes(self.take())),
            7 => json!(self.take::<1>() == [1]),
            8 => json!(self.text()),
            9 => {
                let (of, count) = (self.u32(), self.u64());
                (0..count).map(|_| self.value(of)).collect()
            }
            kind => panic!("a value of kind {kind}"),
        }
    }
}

fn read(bytes: &[u8]) -> Read {
    let mut file = Bytes(bytes, 0);
    assert_eq!(file.take(), *b"GGUF");
    assert_eq!(file.u32(), 3);
    let (tensors, values) = (file.u64(), file.u64());
    let metadata = (0..values).map(|_| {
        let name = file.text();
        let kind = file.u32();
        (name, file.value(kind))
    });
    let metadata: BTreeMap<String, Json> = metadata.collect();
    assert_eq!(metadata.len(), values);
    let table: Vec<_> = (0..tensors)
        .map(|_| {
            let name = file.text();
            let count = file.u32();
            let extents: Vec<usize> = (0..count).map(|_| file.u64()).collect();
            (name, extents, file.u32(), file.u64())
        })
        .collect();
    let start = file.1.next_multiple_of(32);
    let mut end = start;
    let found = table.into_iter().map(|(name, extents, kind, offset)| {
        assert_eq!(start + offset, end, "{name}");
        let count: usize = extents.iter().product();
        let mut data = Bytes(bytes, end);
        let mut values = Vec::with_capacity(count);
        while values.len() < count {
            match kind {
                0 => values.push(f32::from_le_bytes(data.take())),
                1 => values.push(f16::from_le_bytes(data.take()).to_f32()),
                30 => values.push(bf16::from_le_bytes(data.take()).to_f32()),
                8 => {
                    let scale = f16::from_le_bytes(data.take()).to_f32();
                    let codes = data.take::<32>();
                    values.extend(codes.map(|code| f32::from(code as i8) * scale));
                }
                kind => panic!("{name} of kind {kind}"),
            }
        }
        end = data.1.next_multiple_of(32);
        (name, (extents, values))
    });
    let tensors: BTreeMap<_, _> = found.collect();
    assert_eq!(end, bytes.len());
    Read { metadata, tensors }
}

/// Fields of a small model of a family.
fn config(family: &str) -> Json {
    let mut all = json!({"model_type": family, "vocab_size": VOCABULARY, "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "tie_word_embeddings": family.starts_with("gemma") || family == "gpt2", "head_dim": 16,
        "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64});
    let own = match family {
        "gemma2" => json!({"query_pre_attn_scalar": 16, "sliding_window": 8}),
        "gemma3_text" => {
            json!({"query_pre_attn_scalar": 16, "sliding_window": 8, "num_hidden_layers": 6})
        }
        "phi3" | "smollm3" => json!({"pad_token_id": null}),
        _ => json!({}),
    };
    for (name, value) in own.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

/// A folder with a model of these fields, and its tensors by name.
fn folder(files: &MemoryFiles, fields: &Json) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let folder = Path::new("/model");
    files.create_dir_all(folder).unwrap();
    let path = folder.join("config.json");
    write_atomic(files, &path, fields.to_string().as_bytes()).unwrap();
    let engine = Engine::builder().build().unwrap();
    let model = read_architecture(files, &path)
        .unwrap()
        .build(&engine)
        .unwrap();
    let mut tensors = BTreeMap::new();
    for (i, (name, parameter)) in model.named_parameters().into_iter().enumerate() {
        let mut values = vec![0.0; parameter.shape().numel()];
        philox::fill_normal(3, (i as u64) << 32, &mut values);
        parameter.copy_from_slice(&values).unwrap();
        tensors.insert(name, (parameter.dims().to_vec(), values));
    }
    let path = folder.join("model.safetensors");
    write_tensors(
        files.create(&path).unwrap(),
        &path,
        &model.named_parameters(),
    )
    .unwrap()
    .unwrap();
    tensors
}

fn exported(files: &MemoryFiles, kind: GgufType) -> (Read, Vec<String>) {
    let out = Path::new("/model.gguf");
    let done = export(files, &Source::folder(Path::new("/model")), out, kind).unwrap();
    let mut file = files.open(out).unwrap();
    let mut bytes = vec![0; file.bytes() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    let found = read(&bytes);
    assert_eq!(found.tensors.len(), done.tensors);
    (found, done.notes)
}

/// Why the model is not exported.
fn refusal(files: &MemoryFiles) -> String {
    let out = Path::new("/out.gguf");
    let exported = export(
        files,
        &Source::folder(Path::new("/model")),
        out,
        GgufType::F16,
    );
    exported.unwrap_err().to_string()
}

#[test]
fn every_tensor_of_every_family_is_there_once() {
    for family in [
        "gpt2",
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma2",
        "gemma3_text",
        "phi3",
        "smollm3",
    ] {
        let files = MemoryFiles::new();
        let tensors = folder(&files, &config(family));
        let (found, _) = exported(&files, GgufType::F32);
        let total = |all: &BTreeMap<String, (Vec<usize>, Vec<f32>)>| -> (usize, f64) {
            let values = all.values().map(|(_, values)| values);
            let sums = values
                .clone()
                .map(|values| values.iter().map(|&x| f64::from(x)).sum::<f64>());
            (values.map(Vec::len).sum(), sums.sum())
        };
        let ((count, sum), (before, was)) = (total(&found.tensors), total(&tensors));
        assert_eq!(count, before, "{family}");
        let norms = tensors
            .iter()
            .filter(|(name, _)| name.contains("norm.weight"));
        let ones: usize = if family.starts_with("gemma") {
            norms.map(|(_, (dims, _))| dims[0]).sum()
        } else {
            0
        };
        assert!(
            (sum - was - ones as f64).abs() < 0.05,
            "{family}: {sum} {was} {ones}"
        );
        let name = &found.metadata["general.architecture"];
        let name = name.as_str().unwrap();
        let layers = config(family)[if family == "gpt2" {
            "n_layer"
        } else {
            "num_hidden_layers"
        }]
        .clone();
        assert_eq!(
            found.metadata[&format!("{name}.block_count")],
            layers,
            "{family}"
        );
    }
}

#[test]
fn rows_and_columns_are_where_llama_cpp_looks_for_them() {
    let files = MemoryFiles::new();
    let tensors = folder(&files, &config("llama"));
    let (found, _) = exported(&files, GgufType::F32);
    let (dims, of) = &tensors["model.layers.2.self_attn.k_proj.weight"];
    let (extents, values) = &found.tensors["blk.2.attn_k.weight"];
    assert_eq!((&dims[..], &extents[..]), (&[32, 64][..], &[64, 32][..]));
    for row in 0..32 {
        // Numbers i and i + 8 of a head are rotated together: neighbours in the file.
        let (head, at) = (row / 16, row % 16);
        let to = head * 16 + if at < 8 { 2 * at } else { 2 * (at - 8) + 1 };
        assert_eq!(values[to * 64..][..64], of[row * 64..][..64], "{row}");
    }
    for (from, to) in [
        (
            "model.layers.3.self_attn.v_proj.weight",
            "blk.3.attn_v.weight",
        ),
        (
            "model.layers.0.post_attention_layernorm.weight",
            "blk.0.ffn_norm.weight",
        ),
        ("lm_head.weight", "output.weight"),
    ] {
        assert_eq!(tensors[from].1, found.tensors[to].1, "{from}");
    }

    let tensors = folder(&files, &config("gpt2"));
    files.remove_file(Path::new("/model.gguf")).unwrap();
    let (found, _) = exported(&files, GgufType::F32);
    let (_, of) = &tensors["transformer.h.1.attn.c_attn.weight"];
    let (extents, values) = &found.tensors["blk.1.attn_qkv.weight"];
    assert_eq!(extents[..], [64, 192]);
    for (i, value) in values.iter().enumerate() {
        assert_eq!(value.to_bits(), of[i % 64 * 192 + i / 64].to_bits());
    }
}

#[test]
fn few_bits_are_near_and_vectors_whole() {
    for (kind, bound) in [
        (GgufType::F16, 1e-3),
        (GgufType::Bf16, 8e-3),
        (GgufType::Q8_0, 2e-2),
    ] {
        let files = MemoryFiles::new();
        let mut fields = config("qwen3");
        // Rows of 40 numbers are no whole blocks.
        fields["intermediate_size"] = json!(40);
        let tensors = folder(&files, &fields);
        let (found, _) = exported(&files, kind);
        for (from, to, bound) in [
            (
                "model.layers.1.mlp.up_proj.weight",
                "blk.1.ffn_up.weight",
                bound,
            ),
            (
                "model.layers.1.mlp.down_proj.weight",
                "blk.1.ffn_down.weight",
                bound,
            ),
            (
                "model.layers.1.self_attn.q_norm.weight",
                "blk.1.attn_q_norm.weight",
                0.0,
            ),
        ] {
            for (a, b) in tensors[from].1.iter().zip(&found.tensors[to].1) {
                assert!((a - b).abs() <= bound * a.abs().max(1.0), "{to}: {a} {b}");
            }
        }
    }
}

/// A tokenizer of bytes.
fn of_bytes() -> Json {
    json!({"added_tokens": [{"id": 6, "content": "<s>", "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false},
            {"id": 7, "content": "<tool>", "special": false, "single_word": false, "lstrip": false,
             "rstrip": false, "normalized": false}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "abc": 4, "\u{120}": 5},
            "merges": [["a", "b"], ["ab", "c"]]}})
}

/// Puts a file beside the model.
fn put(files: &MemoryFiles, name: &str, value: &Json) {
    let path = Path::new("/model").join(name);
    write_atomic(files, &path, value.to_string().as_bytes()).unwrap();
}

#[test]
fn tokens_have_their_kinds() {
    let files = MemoryFiles::new();
    folder(&files, &config("llama"));
    put(&files, "tokenizer.json", &of_bytes());
    let settings = json!({"bos_token": {"content": "<s>"}, "eos_token": "<tool>", "chat_template": "{{ messages }}"});
    put(&files, "tokenizer_config.json", &settings);
    let (found, notes) = exported(&files, GgufType::F16);
    let of = |name: &str| found.metadata[&format!("tokenizer.ggml.{name}")].clone();
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!((of("model"), of("pre")), (json!("gpt2"), json!("gpt-2")));
    let tokens = of("tokens");
    assert_eq!(tokens.as_array().unwrap().len(), VOCABULARY);
    assert_eq!(
        tokens.as_array().unwrap()[4..9],
        ["abc", "\u{120}", "<s>", "<tool>", "[PAD8]"]
    );
    assert_eq!(of("token_type").as_array().unwrap()[5..9], [1, 3, 4, 5]);
    assert_eq!(of("merges"), json!(["a b", "ab c"]));
    assert_eq!(
        (of("bos_token_id"), of("eos_token_id")),
        (json!(6), json!(7))
    );
    assert_eq!(
        found.metadata["tokenizer.chat_template"],
        json!("{{ messages }}")
    );
}

#[test]
fn tokens_that_files_do_not_name_or_name_twice() {
    let files = MemoryFiles::new();
    folder(&files, &config("llama"));
    put(&files, "tokenizer.json", &of_bytes());
    // By config.json where the tokenizer's files do not say; one that begins texts is there or none does.
    put(&files, "tokenizer_config.json", &json!({"eos_token": null}));
    let mut fields = config("llama");
    fields["eos_token_id"] = json!([7, 3]);
    put(&files, "config.json", &fields);
    let (found, _) = exported(&files, GgufType::F16);
    assert_eq!(found.metadata["tokenizer.ggml.eos_token_id"], json!(7));
    assert_eq!(found.metadata["tokenizer.ggml.add_bos_token"], json!(false));

    for (field, value, told) in [
        (
            "model",
            json!({"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}),
            "two tokens of one number",
        ),
        (
            "model",
            json!({"type": "BPE", "vocab": {"a": 0, "b": 40}, "merges": []}),
            "vocab_size, 40",
        ),
        (
            "model",
            json!({"type": "WordPiece", "vocab": {}, "unk_token": "a"}),
            "not BPE",
        ),
        (
            "pre_tokenizer",
            json!({"type": "Metaspace", "replacement": "_"}),
            "ByteLevel",
        ),
    ] {
        let mut other = of_bytes();
        other[field] = value;
        put(&files, "tokenizer.json", &other);
        let error = refusal(&files);
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn pieces_with_spaces_have_scores() {
    let files = MemoryFiles::new();
    folder(&files, &config("llama"));
    // Pieces with spaces and bytes, as Llama 2 has them.
    let tokenizer = json!({"added_tokens": [], "normalizer": {"type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "\u{2581}"}]},
        "model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>",
            "vocab": {"<unk>": 0, "<0x0A>": 1, "\u{2581}": 2, "a": 3, "\u{2581}a": 4, "b": 5, "\u{2581}ab": 6},
            "merges": ["\u{2581} a", "\u{2581}a b"]}});
    put(&files, "tokenizer.json", &tokenizer);
    let (found, _) = exported(&files, GgufType::F16);
    let of = |name: &str| found.metadata[&format!("tokenizer.ggml.{name}")].clone();
    assert_eq!(of("model"), json!("llama"));
    assert_eq!(of("add_space_prefix"), json!(true));
    assert_eq!(
        of("token_type").as_array().unwrap()[..8],
        [2, 6, 1, 1, 1, 1, 1, 5]
    );
    let scores: Vec<f64> = serde_json::from_value(of("scores")).unwrap();
    assert!(scores[4] > scores[6] && scores[6] > scores[3], "{scores:?}");
}

#[test]
fn what_llama_cpp_has_no_place_for_is_refused_by_name() {
    for (family, field, value, told) in [
        ("qwen3", "attention_bias", json!(true), "attention_bias"),
        ("llama", "hidden_act", json!("gelu"), "hidden_act"),
        (
            "gemma2",
            "query_pre_attn_scalar",
            json!(24),
            "query_pre_attn_scalar",
        ),
        (
            "gemma2",
            "final_logit_softcapping",
            json!(null),
            "softcapping",
        ),
        (
            "gemma2",
            "layer_types",
            json!([
                "full_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention"
            ]),
            "layer_types",
        ),
        (
            "smollm3",
            "no_rope_layers",
            json!([1, 0, 1, 0]),
            "no_rope_layers",
        ),
        (
            "qwen2",
            "rope_scaling",
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 32}),
            "rope_scaling",
        ),
        (
            "gpt2",
            "activation_function",
            json!("relu"),
            "activation_function",
        ),
    ] {
        let (files, mut fields) = (MemoryFiles::new(), config(family));
        fields[field] = value;
        folder(&files, &fields);
        let error = refusal(&files);
        assert!(error.contains(told), "{family}: {error}");
        assert!(files.metadata(Path::new("/out.gguf")).unwrap().is_none());
    }
}

#[test]
fn numbers_that_a_file_cannot_hold_are_refused() {
    for (kind, value, told) in [
        (GgufType::F16, 1e6, Some("too large for an F16")),
        (GgufType::Bf16, 1e6, None),
        (GgufType::Q8_0, f32::NAN, Some("NaN or infinite")),
        (GgufType::F32, f32::INFINITY, Some("NaN or infinite")),
    ] {
        let files = MemoryFiles::new();
        let tensors = folder(&files, &config("llama"));
        let name = "model.layers.1.mlp.up_proj.weight";
        let (dims, _) = &tensors[name];
        // In place of one number of the file.
        let path = Path::new("/model/model.safetensors");
        let reader = crate::WeightsReader::open(&files, path).unwrap();
        assert_eq!(reader.tensors()[name].shape, *dims);
        let start = reader.tensors()[name].start as usize;
        let mut file = files.open(path).unwrap();
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_exact_at(0, &mut bytes).unwrap();
        bytes[start + 40..start + 44].copy_from_slice(&value.to_le_bytes());
        write_atomic(&files, path, &bytes).unwrap();
        let found = export(
            &files,
            &Source::folder(Path::new("/model")),
            Path::new("/out.gguf"),
            kind,
        );
        match told {
            Some(told) => {
                let error = found.unwrap_err().to_string();
                assert!(error.contains(told) && error.contains("mlp."), "{error}");
            }
            None => assert!(found.is_ok()),
        }
    }
}

#[test]
fn nothing_is_left_where_weights_are_damaged() {
    let (files, fields) = (MemoryFiles::new(), config("llama"));
    folder(&files, &fields);
    let path = Path::new("/model/config.json");
    let mut other = fields;
    other["intermediate_size"] = json!(95);
    write_atomic(&files, path, other.to_string().as_bytes()).unwrap();
    let error = export(
        &files,
        &Source::folder(Path::new("/model")),
        Path::new("/out.gguf"),
        GgufType::F16,
    )
    .unwrap_err();
    assert!(error.to_string().contains("mlp.gate_proj"), "{error}");
    let left = files.list_dir(Path::new("/")).unwrap();
    assert!(
        left.iter().all(|entry| !entry.name.contains("gguf")),
        "{left:?}"
    );
}

/// llama.cpp looks for tokens of Phi-3 in files of that name, and stops where there are none.
#[test]
fn names_promise_no_tokens_that_are_not_there() {
    let of = |texts: &[&str]| {
        let texts = texts.iter().map(|&text| text.to_owned()).collect();
        let tokens = ("tokenizer.ggml.tokens".to_owned(), Value::Texts(texts));
        vocabulary::Vocabulary {
            metadata: vec![tokens],
            note: None,
        }
    };
    let phi3 = of(&["<unk>", "<s>", "</s>", "<|endoftext|>", "a"]);
    assert_eq!(phi3.called("Phi-3-mini"), ("Phi-3-mini".to_owned(), None));
    let other = of(&["<unk>", "a"]);
    for (name, called) in [
        ("phi3", "phi_3"),
        ("My-Phi-3-mini-phi3", "My-Phi_3-mini-phi_3"),
        ("ModernBERT-phi4", "ModernBERT-phi4"),
        ("Modern-Bert", "Modern_bert"),
        ("llama", "llama"),
    ] {
        let (found, note) = other.called(name);
        assert_eq!(found, called);
        assert_eq!(note.is_some(), name != called, "{note:?}");
    }
}
