//! Adapters of every kind that `merge` reads, in PEFT's files: the merged model answers what PEFT's model with them
//! does, and keeps the types of its weights. `fixtures/make_merge.py` says what is compared with.

use std::collections::BTreeMap;
use std::path::Path;

use highwater::{Engine, Module, Tensor, no_grad};
use highwater_memory::files::MemoryFiles;
use highwater_memory::{DiskFiles, Files};
use highwater_models::adapter::{CONFIG, WEIGHTS};
use highwater_models::module_file::read_tensor;
use highwater_models::{
    Architecture, CausalLm, DecoderConfig, Dtype, Gpt2Config, Layout, Merge, MergeError,
    TensorSpec, WeightsFolder, WeightsReader, WeightsWriter,
};
use serde_json::Value;

const BASE: &str = "/base";
const ADAPTERS: &str = "/adapters";
const MERGED: &str = "/merged";

fn fixture() -> (WeightsReader, Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/merge.safetensors");
    let file = WeightsReader::open(&DiskFiles, &path).unwrap();
    let about: Value = serde_json::from_str(&file.metadata()["merge"]).unwrap();
    (file, about["variants"].clone())
}

fn floats(file: &mut WeightsReader, name: &str) -> Vec<f32> {
    let shape = file.tensors()[name].shape.clone();
    let mut values = vec![0.0; shape.iter().product()];
    file.read_f32(name, &shape, &mut values).unwrap();
    values
}

fn write(files: &MemoryFiles, path: &str, bytes: &[u8]) {
    let mut file = files.create(Path::new(path)).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

/// Copies the tensors whose names begin with `prefix` into a file of their own.
fn copy(reader: &mut WeightsReader, files: &MemoryFiles, prefix: &str, path: &str) {
    let all = reader.tensors().clone();
    let own: Vec<_> = all
        .iter()
        .filter(|(name, _)| name.starts_with(prefix))
        .collect();
    let spec = |(name, info): &(&String, &highwater_models::weights::TensorInfo)| TensorSpec {
        name: name[prefix.len()..].to_owned(),
        dtype: info.dtype,
        shape: info.shape.clone(),
    };
    let specs = own.iter().map(spec).collect();
    let path = Path::new(path);
    let mut writer = WeightsWriter::create(files, path, specs, &BTreeMap::new()).unwrap();
    for (name, info) in own {
        let mut bytes = vec![0; info.bytes() as usize];
        reader.read_bytes(name, &mut bytes).unwrap();
        writer.write_bytes(&name[prefix.len()..], &bytes).unwrap();
    }
    writer.finish().unwrap();
}

/// The folders of a variant.
fn folders(variant: &str) -> (MemoryFiles, Box<dyn Architecture>) {
    let (mut reader, about) = fixture();
    let files = MemoryFiles::new();
    for folder in [BASE, ADAPTERS, MERGED] {
        files.create_dir_all(Path::new(folder)).unwrap();
    }
    let base = format!("{BASE}/model.safetensors");
    copy(&mut reader, &files, &format!("{variant}.base."), &base);
    let adapters = format!("{ADAPTERS}/{WEIGHTS}");
    copy(
        &mut reader,
        &files,
        &format!("{variant}.adapter."),
        &adapters,
    );
    let settings = about[variant]["adapter"].as_str().unwrap();
    write(&files, &format!("{ADAPTERS}/{CONFIG}"), settings.as_bytes());
    (files, architecture(&about[variant]["config"]))
}

fn architecture(config: &Value) -> Box<dyn Architecture> {
    let text = config.to_string();
    match config["model_type"].as_str() {
        Some("gpt2") => Box::new(Gpt2Config::from_json(&text).unwrap()),
        _ => Box::new(DecoderConfig::from_json(&text).unwrap()),
    }
}

fn dry(architecture: &dyn Architecture) -> Box<dyn CausalLm> {
    let engine = Engine::builder().arena(1 << 40).dry_run().build().unwrap();
    architecture.build(&engine).unwrap()
}

fn merge<'a>(
    files: &'a MemoryFiles,
    architecture: &dyn Architecture,
    dtype: Option<Dtype>,
) -> Result<Merge<'a>, MergeError> {
    let folders = [Path::new(BASE), Path::new(ADAPTERS)];
    Merge::new(files, folders, &*dry(architecture), dtype)
}

/// A model with the weights of a folder.
fn loaded(files: &MemoryFiles, folder: &str, architecture: &dyn Architecture) -> Box<dyn CausalLm> {
    let engine = Engine::builder().threads(1).build().unwrap();
    let model = architecture.build(&engine).unwrap();
    model.eval();
    let mut weights = WeightsFolder::open(files, Path::new(folder)).unwrap();
    let named = model.named_parameters();
    let expected: Vec<_> = named
        .iter()
        .map(|(name, parameter)| (name.clone(), parameter.dims().to_vec()))
        .collect();
    let layout = Layout::of(&mut weights, architecture, &expected).unwrap();
    assert!(layout.unread().is_empty(), "{:?}", layout.unread());
    for (name, parameter) in &named {
        let name = layout.stored(name);
        let reader = weights.reader(name).unwrap();
        read_tensor(reader, name, parameter).unwrap().unwrap();
    }
    model
}

/// Logits of what follows each token.
fn logits(model: &dyn CausalLm, tokens: &[u32], length: usize) -> Vec<f32> {
    // GPT-2's settings have dropout.
    model.eval();
    let mut all = Vec::new();
    for row in tokens.chunks(length) {
        for at in 0..length {
            let tokens = model.engine().indices(row, [1, length]).unwrap();
            let found: Tensor = no_grad(|| model.next_logits(&tokens, at)).unwrap();
            all.extend(found.to_vec::<f32>().unwrap());
        }
    }
    all
}

fn tokens() -> Vec<u32> {
    let (mut reader, _) = fixture();
    let count: usize = reader.tensors()["tokens"].shape.iter().product();
    let mut bytes = vec![0; 8 * count];
    reader.read_bytes("tokens", &mut bytes).unwrap();
    let (words, _) = bytes.as_chunks();
    words
        .iter()
        .map(|&word| i64::from_le_bytes(word) as u32)
        .collect()
}

#[test]
fn merged_models_answer_what_pefts_do() {
    let (mut reader, about) = fixture();
    let variants: Vec<String> = about.as_object().unwrap().keys().cloned().collect();
    assert_eq!(variants.len(), 17);
    for variant in variants {
        let (files, architecture) = folders(&variant);
        let merge =
            merge(&files, &*architecture, None).unwrap_or_else(|e| panic!("{variant}: {e}"));
        merge.write(Path::new(MERGED), u64::MAX).unwrap();
        let unties = [
            "head-tied",
            "table-tied",
            "table-scaled",
            "whole-head",
            "gpt2",
        ]
        .contains(&&*variant);
        assert_eq!(merge.unties(), unties, "{variant}");
        let mut config = about[&variant]["config"].clone();
        if unties {
            config["tie_word_embeddings"] = false.into();
        }
        if variant == "gpt2" {
            // A head of its own is built of no GPT-2 here.
            continue;
        }
        let model = loaded(&files, MERGED, &*self::architecture(&config));
        let found = logits(&*model, &tokens(), 12);
        let expected = floats(&mut reader, &format!("{variant}.logits"));
        let scale = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let tolerance = if variant == "half" { 3e-2 } else { 1e-5 };
        for (found, expected) in found.iter().zip(&expected) {
            assert!(
                (found - expected).abs() <= tolerance * scale,
                "{variant}: {found} for {expected}"
            );
        }
    }
}

#[test]
fn types_are_kept_unless_another_is_asked_for() {
    let kinds = |files: &MemoryFiles| -> Vec<Dtype> {
        let path = Path::new(MERGED).join("model.safetensors");
        let reader = WeightsReader::open(files, &path).unwrap();
        let mut kinds: Vec<_> = reader.tensors().values().map(|info| info.dtype).collect();
        kinds.dedup();
        kinds
    };
    for (variant, dtype, expected) in [
        ("half", None, Dtype::BF16),
        ("head", None, Dtype::F32),
        ("half", Some(Dtype::F32), Dtype::F32),
        ("head", Some(Dtype::F16), Dtype::F16),
    ] {
        let (files, architecture) = folders(variant);
        let merge = merge(&files, &*architecture, dtype).unwrap();
        merge.write(Path::new(MERGED), u64::MAX).unwrap();
        assert_eq!(kinds(&files), [expected], "{variant}");
    }
    // In several files they are the same.
    let (files, architecture) = folders("head");
    let whole = merge(&files, &*architecture, None).unwrap();
    whole.write(Path::new(MERGED), u64::MAX).unwrap();
    let one = logits(&*loaded(&files, MERGED, &*architecture), &tokens(), 12);
    files
        .remove_file(&Path::new(MERGED).join("model.safetensors"))
        .unwrap();
    whole.write(Path::new(MERGED), 4096).unwrap();
    assert!(files.list_dir(Path::new(MERGED)).unwrap().len() > 3);
    assert_eq!(
        one,
        logits(&*loaded(&files, MERGED, &*architecture), &tokens(), 12)
    );
}

/// Adapters of a name, a field of theirs, what is done to it, and what is said.
type Change = (&'static str, &'static str, fn(&mut Value), &'static str);

#[test]
#[expect(clippy::too_many_lines, reason = "a table of changes")]
fn what_is_not_for_the_model_is_refused_by_name() {
    let settings = |files: &MemoryFiles, change: &dyn Fn(&mut Value)| {
        let path = format!("{ADAPTERS}/{CONFIG}");
        let mut file = files.open(Path::new(&path)).unwrap();
        let mut text = vec![0; file.bytes() as usize];
        file.read_exact_at(0, &mut text).unwrap();
        let mut fields: Value = serde_json::from_slice(&text).unwrap();
        change(&mut fields);
        write(files, &path, fields.to_string().as_bytes());
    };
    let changes: [Change; 8] = [
        (
            "head",
            "rank",
            |f| f["r"] = 8.into(),
            "has the shape [4, 16]; the model needs [8, 16]",
        ),
        (
            "head",
            "targets",
            |f| f["target_modules"] = serde_json::json!(["q_proj"]),
            "lm_head has an adapter that",
        ),
        (
            "head",
            "more targets",
            |f| f["target_modules"] = serde_json::json!(["q_proj", "k_proj", "lm_head"]),
            "k_proj has no adapter in it",
        ),
        (
            "head",
            "dora",
            |f| f["use_dora"] = true.into(),
            "no lora_magnitude_vector, though use_dora is true",
        ),
        (
            "head-dora",
            "no dora",
            |f| f["use_dora"] = false.into(),
            "a lora_magnitude_vector, though use_dora is false",
        ),
        (
            "blocks",
            "blocks",
            |f| f["layers_to_transform"] = serde_json::json!([0]),
            "model.layers.1.",
        ),
        (
            "head",
            "kind",
            |f| f["peft_type"] = "IA3".into(),
            "`peft_type` is \"IA3\"",
        ),
        (
            "head",
            "bias",
            |f| f["bias"] = "lora_only".into(),
            "`bias` is \"lora_only\"",
        ),
    ];
    for (variant, what, change, told) in changes {
        let (files, architecture) = folders(variant);
        settings(&files, &change);
        let error = merge(&files, &*architecture, None).unwrap_err().to_string();
        assert!(error.contains(told), "{what}: {error}");
        assert!(!error.contains(".rs:"), "{what}: {error}");
    }
    // Of another model.
    let (files, _) = folders("head");
    let (_, about) = fixture();
    let mut config = about["head"]["config"].clone();
    config["num_hidden_layers"] = 1.into();
    let error = merge(&files, &*architecture(&config), None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("config.json describes 1 layer"), "{error}");
}
