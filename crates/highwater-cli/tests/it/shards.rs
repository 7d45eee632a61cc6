//! Model folders whose weights are several files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::started::highwater;
use highwater_memory::DiskFiles;
use highwater_memory::Files;
use highwater_models::{TensorSpec, WeightsReader, WeightsWriter};
use serde_json::json;

const TRAIN: &str = "--batch 1 --seq 16 --threads 2 --steps 2 --out";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/gpt2_nano")
        .join(name)
}

/// Cuts the fixture's weights into files of some tensors each, under another folder.
fn cut(to: &Path, each: usize) {
    std::fs::create_dir_all(to).expect("a folder");
    std::fs::copy(fixture("config.json"), to.join("config.json")).expect("a copy");
    let mut reader = WeightsReader::open(&DiskFiles, &fixture("model.safetensors")).expect("it");
    let tensors: Vec<TensorSpec> = (reader.tensors().iter())
        .map(|(name, info)| TensorSpec {
            name: name.clone(),
            dtype: info.dtype,
            shape: info.shape.clone(),
        })
        .collect();
    let mut map = BTreeMap::new();
    for (i, part) in tensors.chunks(each).enumerate() {
        let name = format!("model-{i:05}.safetensors");
        let path = to.join(&name);
        let file = DiskFiles.create(&path).expect("a file");
        let mut writer =
            WeightsWriter::begin(file, &path, part.to_vec(), &BTreeMap::new()).expect("a header");
        for tensor in part {
            let info = &reader.tensors()[&tensor.name];
            let mut bytes = vec![0; (info.end - info.start) as usize];
            reader
                .read_bytes(&tensor.name, &mut bytes)
                .expect("a tensor");
            writer.write_bytes(&tensor.name, &bytes).expect("a tensor");
            map.insert(tensor.name.clone(), name.clone());
        }
        writer.finish().expect("a whole file");
    }
    assert!(map.len() > 3 * each, "several files");
    let index = json!({"metadata": {"total_size": 0}, "weight_map": map}).to_string();
    std::fs::write(to.join("model.safetensors.index.json"), index).expect("an index");
}

#[test]
fn several_files_train_and_go_on_as_one() {
    let dir = tempfile::tempdir().expect("a folder");
    cut(&dir.path().join("cut"), 7);
    let run = |line: &str| highwater(dir.path(), line);
    let whole = fixture("");
    let (code, _, news) = run(&format!("train --model {} {TRAIN} whole", whole.display()));
    assert_eq!(code, 0, "{news}");
    let (code, _, news) = run(&format!("train --model ./cut {TRAIN} parts"));
    assert_eq!(code, 0, "{news}");
    let weights = |run: &str| {
        std::fs::read(dir.path().join(run).join("final/model.safetensors")).expect("weights")
    };
    assert!(weights("whole") == weights("parts"), "other weights");
    // What was not read again has not changed.
    let (code, _, news) = run("resume parts --steps 3");
    assert_eq!(code, 0, "{news}");
    let (code, ours, news) = run("generate --model ./cut --prompt x --tokens 5 --temperature 0");
    assert_eq!(code, 0, "{news}");
    let line = format!(
        "generate --model {} --prompt x --tokens 5 --temperature 0",
        whole.display()
    );
    assert_eq!(ours, run(&line).1);
}

#[test]
fn a_model_is_written_in_files_of_a_size() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let run = |line: &str| {
        let (code, results, news) = highwater(dir, line);
        assert_eq!(code, 0, "{line}\n{news}");
        results
    };
    let train = "train --steps 2 --threads 2 --out";
    run(&format!("{train} whole"));
    run(&format!("{train} parts --max-shard-size 1MB"));
    let files = |name: &str| {
        let of = std::fs::read_dir(dir.join(name).join("final")).unwrap();
        let of = of.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        of.filter(|name| name.contains("safetensors")).count()
    };
    assert_eq!(files("whole"), 1);
    let count = files("parts");
    assert!(count > 3, "{count}");
    for name in ["whole", "parts"] {
        std::fs::remove_dir_all(dir.join(name).join("checkpoints")).unwrap();
    }
    // Whoever reads a run's model reads the same.
    let sample = "--prompt of --tokens 8 --temperature 0";
    let whole = run(&format!("generate whole {sample}"));
    assert_eq!(run(&format!("generate parts {sample}")), whole);
    assert_eq!(
        run(&format!("generate --model parts/final {sample}")),
        whole
    );
    std::fs::write(dir.join("text.txt"), "as often as one likes ".repeat(20)).unwrap();
    let eval = |name: &str| {
        let found = run(&format!("eval {name} --data text.txt --json"));
        serde_json::from_str::<serde_json::Value>(&found).unwrap()["loss"].clone()
    };
    assert_eq!(eval("parts"), eval("whole"));
    run(&format!(
        "{train} again --model parts/final --max-shard-size 2MB"
    ));
    assert!(files("again") < count);
    // A part that is missing is told, and nothing older is read for it.
    let second = std::fs::read_dir(dir.join("parts/final")).unwrap();
    let second = second.map(|entry| entry.unwrap().path());
    let second = second.filter(|path| path.to_string_lossy().contains("model-00002-of"));
    second.for_each(|path| std::fs::remove_file(path).unwrap());
    for line in [
        format!("generate parts {sample}"),
        "eval parts --data text.txt".to_owned(),
    ] {
        let (code, _, news) = highwater(dir, &line);
        assert_ne!(code, 0);
        assert!(news.contains("model-00002-of"), "{news}");
    }
}

#[test]
fn a_file_that_is_missing_or_elsewhere_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("cut");
    cut(&folder, 7);
    let train = || highwater(dir.path(), &format!("train --model ./cut {TRAIN} run"));
    std::fs::remove_file(folder.join("model-00002.safetensors")).expect("it is there");
    let (code, _, news) = train();
    assert_ne!(code, 0);
    assert!(news.contains("model-00002.safetensors"), "{news}");
    assert!(!dir.path().join("run").exists());
    let index = folder.join("model.safetensors.index.json");
    let text = std::fs::read_to_string(&index).expect("it");
    let hostile = text.replace("model-00001.safetensors", "../../secret");
    std::fs::write(&index, hostile).expect("an index");
    let (code, _, news) = train();
    assert_ne!(code, 0);
    assert!(
        news.contains("`../../secret`") && news.contains("HW1013"),
        "{news}"
    );
}
