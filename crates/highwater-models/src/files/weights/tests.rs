use std::collections::BTreeMap;

use highwater_memory::files::{DiskFiles, Files, MemoryFiles};
use highwater_memory::saved::SaveWriter;
use proptest::prelude::*;

use super::*;

const FIXTURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../fixtures/gpt2_nano/model.safetensors"
);

fn spec(name: &str, dtype: Dtype, shape: &[usize]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    }
}

/// A file with that header and so many bytes behind it.
fn file(header: &str, data_bytes: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data_bytes, 0);
    bytes
}

fn put(files: &dyn Files, path: &Path, bytes: &[u8]) {
    let mut file = files.create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

fn open(bytes: &[u8]) -> Result<WeightsReader, WeightsError> {
    let (files, path) = (MemoryFiles::new(), Path::new("/m.safetensors"));
    put(&files, path, bytes);
    WeightsReader::open(&files, path)
}

#[test]
fn reads_what_pytorch_wrote() {
    let mut reader = WeightsReader::open(&DiskFiles, Path::new(FIXTURE)).unwrap();
    assert_eq!(reader.metadata()["format"], "pt");
    let bytes = std::fs::read(FIXTURE).unwrap();
    let reference = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let config = crate::Gpt2Config::preset("gpt2-nano").unwrap();
    assert_eq!(reader.tensors().len(), config.parameters().count());
    for parameter in config.parameters() {
        let mut values = vec![0.0; parameter.numel() as usize];
        let (name, shape) = (&parameter.name, &parameter.shape);
        reader.read_f32(name, shape, &mut values).unwrap();
        let expected = reference.tensor(name).unwrap().data().as_chunks().0.iter();
        let expected = expected.map(|&b| half::bf16::from_le_bytes(b).to_f32());
        assert!(values.iter().copied().eq(expected), "{name}");
    }
}

#[test]
fn what_is_written_is_read_back_and_by_the_reference() {
    let (files, path) = (MemoryFiles::new(), Path::new("/m.safetensors"));
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let dtypes = [Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::F64];
    // More than one window, an empty tensor, a scalar.
    let shapes: [&[usize]; 3] = [&[700, 1000], &[0, 3], &[]];
    let all: Vec<_> = dtypes
        .iter()
        .flat_map(|&dtype| shapes.map(|shape| spec(&format!("{dtype:?}{shape:?}"), dtype, shape)))
        .collect();
    let values: Vec<f32> = (0..700_000).map(|i| (i % 257) as f32 - 128.0).collect();
    let mut writer = WeightsWriter::create(&files, path, all.clone(), &metadata).unwrap();
    for tensor in &all {
        let count = tensor.shape.iter().product();
        for piece in values[..count].chunks(300_001) {
            writer.write_f32(&tensor.name, piece).unwrap();
        }
    }
    writer.finish().unwrap();

    let mut reader = WeightsReader::open(&files, path).unwrap();
    assert_eq!(reader.metadata(), &metadata);
    let mut bytes = vec![0; files.metadata(path).unwrap().unwrap().bytes as usize];
    let mut raw = files.open(path).unwrap();
    raw.read_exact_at(0, &mut bytes).unwrap();
    let reference = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for TensorSpec { name, dtype, shape } in &all {
        let count = shape.iter().product();
        let mut back = vec![f32::NAN; count];
        reader.read_f32(name, shape, &mut back).unwrap();
        assert_eq!(back, values[..count], "{name}");
        let other = reference.tensor(name).unwrap();
        assert_eq!((other.dtype(), other.shape()), (*dtype, &shape[..]));
        let mut raw = vec![0; other.data().len()];
        reader.read_bytes(name, &mut raw).unwrap();
        assert_eq!(raw, other.data(), "{name}");
    }
}

/// A header with one tensor `a` of F32.
fn one(shape: &str, offsets: &str) -> String {
    format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
}

/// A header with two tensors of four bytes.
fn two(names: [&str; 2], offsets: [&str; 2]) -> String {
    let tensor = |offsets| format!(r#"{{"dtype":"U8","shape":[4],"data_offsets":{offsets}}}"#);
    let [a, b] = offsets.map(tensor);
    format!(r#"{{"{}":{a},"{}":{b}}}"#, names[0], names[1])
}

fn assert_refused(bytes: &[u8], expected: &str) {
    let error = open(bytes).expect_err(expected).to_string();
    assert!(error.contains(expected), "{error}\n{expected}");
    assert!(error.starts_with("/m.safetensors: "), "{error}");
}

#[test]
fn malformed_lengths_and_json_are_named() {
    let with_length = |length: u64| {
        let mut bytes = file("{}", 0);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    assert_refused(&[], "only 0 bytes");
    assert_refused(&[0; 7], "only 7 bytes");
    assert_refused(
        &with_length(u64::MAX),
        "a header of 18446744073709551615 bytes",
    );
    assert_refused(&with_length(3), "a header of 3 bytes; at most 2");
    for (json, expected) in [
        ("", "damaged header"),
        ("[]", "damaged header"),
        ("{\"a\":", "damaged header"),
        ("{} {}", "trailing"),
        ("{\"a\":1}", "tensor `a`"),
        ("{\"a\":{}}", "tensor `a`: missing field"),
        (r#"{"__metadata__":{"a":1}}"#, "expected a string"),
        (
            r#"{"a":{"dtype":"F33"}}"#,
            "tensor `a`: unknown variant `F33`",
        ),
        (&one("[-1]", "[0,4]"), "tensor `a`: invalid value"),
        (&one("[1.5]", "[0,4]"), "tensor `a`: invalid type"),
        (&one("[1,1,1,1,1,1,1,1,1]", "[0,4]"), "at most 8 extents"),
        (&one("[1]", "[0,4,8]"), "tensor `a`"),
        (
            &two(["a", "a"], ["[0,4]", "[4,8]"]),
            "tensor `a` is there twice",
        ),
    ] {
        assert_refused(&file(json, 8), expected);
    }
}

#[test]
fn malformed_extents_and_offsets_are_named() {
    let overlap = two(["a", "b"], ["[0,4]", "[2,6]"]);
    let hole = two(["a", "b"], ["[0,4]", "[5,9]"]);
    for (header, data_bytes, expected) in [
        (one("[4294967296,4294967296]", "[0,4]"), 4, "too large"),
        (one("[1]", "[4,0]"), 4, "takes 4 bytes, its offsets 4..0"),
        (one("[2]", "[0,4]"), 4, "takes 8 bytes, its offsets 0..4"),
        (
            one("[1]", "[4,8]"),
            8,
            "starts at byte 4, where the one before it ends at 0",
        ),
        (
            overlap,
            6,
            "`b` starts at byte 2, where the one before it ends at 4",
        ),
        (
            hole,
            9,
            "`b` starts at byte 5, where the one before it ends at 4",
        ),
        (
            one("[1]", "[0,4]"),
            3,
            "3 bytes of tensors, and the header declares 4",
        ),
        (
            one("[1]", "[0,4]"),
            5,
            "5 bytes of tensors, and the header declares 4",
        ),
    ] {
        assert_refused(&file(&header, data_bytes), expected);
    }
}

#[test]
fn many_tensors_are_refused() {
    let entry = |i| format!(r#""{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
    let entries: Vec<_> = (0..=TENSORS_MAX).map(entry).collect();
    let error = open(&file(&format!("{{{}}}", entries.join(",")), 0)).unwrap_err();
    assert!(error.to_string().contains("more than 131072 tensors"));
}

#[test]
fn wrong_requests_are_typed_errors() {
    use WeightsProblem::{Buffer, Missing, NotFloat, Shape};
    let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}}"#;
    let mut reader = open(&file(header, 16)).unwrap();
    let mut two = [0.0; 2];
    let mut problem = |name: &str, shape: &[usize], out: &mut [f32]| {
        reader.read_f32(name, shape, out).unwrap_err().problem
    };
    assert!(matches!(problem("c", &[2], &mut two), Missing { .. }));
    assert!(matches!(problem("a", &[1, 2], &mut two), Shape { .. }));
    assert!(matches!(problem("b", &[1], &mut two), NotFloat { .. }));
    assert!(matches!(
        problem("a", &[2], &mut [0.0; 3]),
        Buffer { found: 12, .. }
    ));
    let missing = WeightsReader::open(&MemoryFiles::new(), Path::new("/none")).unwrap_err();
    assert!(matches!(missing.problem, WeightsProblem::Files(_)));
    assert_eq!(missing.to_string().matches("/none").count(), 1);
}

#[test]
fn a_saved_state_can_hold_weights() {
    let (files, dir) = (MemoryFiles::new(), Path::new("/checkpoints"));
    let mut state = SaveWriter::begin(&files, dir, "step-000001").unwrap();
    let file = state.file("model.safetensors").unwrap();
    let specs = vec![spec("a", Dtype::F32, &[2])];
    let path = Path::new("model.safetensors");
    let mut writer = WeightsWriter::begin(file, path, specs, &BTreeMap::new()).unwrap();
    writer.write_f32("a", &[1.0, 2.0]).unwrap();
    writer.finish().unwrap();
    let saved = state.finish().unwrap();
    let mut reader = WeightsReader::open(&files, &saved.path().join(path)).unwrap();
    let mut back = [0.0; 2];
    reader.read_f32("a", &[2], &mut back).unwrap();
    assert_eq!(back.map(f32::to_bits), [1.0, 2.0].map(f32::to_bits));
}

#[test]
fn a_writer_keeps_to_its_header() {
    let files = MemoryFiles::new();
    let specs = vec![spec("a", Dtype::F32, &[2]), spec("b", Dtype::F32, &[1])];
    let create = |specs| WeightsWriter::create(&files, Path::new("/m"), specs, &BTreeMap::new());
    let start = || create(specs.clone()).unwrap();
    let message = |result: Result<(), WeightsError>| result.unwrap_err().to_string();
    assert!(message(start().write_f32("b", &[0.0])).contains("header has `a`"));
    assert!(message(start().write_f32("a", &[0.0; 3])).contains("takes 8 bytes"));
    let mut short = start();
    short.write_f32("a", &[0.0]).unwrap();
    assert!(message(short.finish()).contains("4 more bytes of `a`"));
    let mut whole = start();
    whole.write_f32("a", &[0.0; 2]).unwrap();
    whole.write_f32("b", &[0.0; 1]).unwrap();
    assert!(message(whole.write_f32("c", &[0.0])).contains("its end"));
    let twice = vec![specs[0].clone(), specs[0].clone()];
    assert!(create(twice).unwrap_err().to_string().contains("already"));
    let huge = vec![spec("a", Dtype::F32, &[usize::MAX, 2])];
    assert!(create(huge).unwrap_err().to_string().contains("too large"));
}

/// Bytes allocated by this thread's parser can only follow from what it returns: every name and
/// shape of a header that is accepted comes from the file's own bytes.
fn held(reader: &WeightsReader) -> usize {
    let tensors = reader.tensors().iter();
    let tensors = tensors.map(|(name, info)| name.len() + 8 * info.shape.capacity());
    let metadata = reader.metadata().iter().map(|(k, v)| k.len() + v.len());
    tensors.sum::<usize>() + metadata.sum::<usize>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn mutated_files_neither_panic_nor_grow(
        changes in proptest::collection::vec((0_usize..400, any::<u8>()), 1..4),
        cut in proptest::option::weighted(0.2, 0_usize..400),
    ) {
        let entry = |name, at: u64| format!(
            r#""{name}":{{"dtype":"F32","shape":[2,3],"data_offsets":[{at},{}]}}"#, at + 24
        );
        let header = format!(
            r#"{{"__metadata__":{{"format":"pt"}},{},{}}}"#, entry("first", 0), entry("second", 24)
        );
        let mut bytes = file(&header, 48);
        let count = bytes.len();
        for (at, value) in changes {
            bytes[at % count] = value;
        }
        bytes.truncate(cut.unwrap_or(count));
        if let Ok(mut reader) = open(&bytes) {
            prop_assert!(held(&reader) <= 64 * bytes.len());
            let infos = reader.tensors().clone();
            for (name, info) in infos {
                let mut out = vec![0; info.bytes() as usize];
                prop_assert!(out.len() <= bytes.len());
                reader.read_bytes(&name, &mut out).unwrap();
            }
        }
    }
}
