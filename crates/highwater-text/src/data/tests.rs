use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_memory::files::MemoryFiles;
use proptest::prelude::*;

use super::*;
use crate::Tokenizer;

mod layouts;

pub(super) fn files() -> Arc<dyn Files> {
    Arc::new(MemoryFiles::new())
}

pub(super) fn put(files: &Arc<dyn Files>, path: &str, bytes: &[u8]) {
    let path = Path::new(path);
    files.create_dir_all(path.parent().unwrap()).unwrap();
    files.create(path).unwrap().write_all(bytes).unwrap();
}

/// A tokenizer of the words `a` and `b`, from a file.
fn words(files: &Arc<dyn Files>) -> Tokenizer {
    let vocab = r#"{"a": 0, "b": 1, "[UNK]": 2}"#;
    let model = format!(r#"{{"type": "WordLevel", "vocab": {vocab}, "unk_token": "[UNK]"}}"#);
    let json = format!(
        r#"{{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {{"type": "Whitespace"}},
        "post_processor": null, "decoder": null, "model": {model}}}"#
    );
    put(files, "/tokenizer.json", json.as_bytes());
    Tokenizer::load(&**files, Path::new("/tokenizer.json")).unwrap()
}

pub(super) fn open(
    files: &Arc<dyn Files>,
    path: &str,
    vocab_size: u32,
) -> Result<Tokens, DataError> {
    Tokens::open(
        files,
        Path::new(path),
        &options(&Tokenizer::Bytes, vocab_size),
    )
}

pub(super) fn options(tokenizer: &Tokenizer, vocab_size: u32) -> DataOptions<'_> {
    DataOptions {
        tokenizer,
        vocab_size,
        width: None,
        held_out: None,
        reads: Reads::Training,
        progress: Progress::default(),
        spool: Path::new("/spool.bin"),
    }
}

pub(super) fn all(tokens: &Tokens) -> Vec<u32> {
    let mut out = vec![0; tokens.count() as usize];
    tokens.read(0, &mut out).unwrap();
    out
}

pub(super) fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    npy_in("False", descr, shape, data)
}

/// The same, by columns where `fortran` is `True`.
pub(super) fn npy_in(fortran: &str, descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

pub(super) fn llmc(header: [u32; 3], data: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = header.iter().flat_map(|n| n.to_le_bytes()).collect();
    bytes.resize(1024, 0);
    bytes.extend(data);
    bytes
}

#[test]
fn every_kind_of_file_gives_its_tokens() {
    let files = files();
    let wide = |ids: &[i64], width: usize| -> Vec<u8> {
        let bytes = ids.iter().map(|id| id.to_le_bytes()[..width].to_vec());
        bytes.collect::<Vec<_>>().concat()
    };
    let ids = [5, 0, 299, 7];
    put(&files, "/u2.npy", &npy("<u2", "(4,)", &wide(&ids, 2)));
    put(&files, "/u4.npy", &npy("<u4", "(4,)", &wide(&ids, 4)));
    put(&files, "/i4.npy", &npy("<i4", "(4,)", &wide(&ids, 4)));
    put(&files, "/i8.npy", &npy("<i8", "(4,)", &wide(&ids, 8)));
    put(&files, "/raw.bin", &wide(&ids, 2));
    put(
        &files,
        "/gpt2.bin",
        &llmc([20_240_520, 1, 4], &wide(&ids, 2)),
    );
    put(
        &files,
        "/llama.bin",
        &llmc([20_240_801, 7, 4], &wide(&ids, 4)),
    );
    for path in [
        "/u2.npy",
        "/u4.npy",
        "/i4.npy",
        "/i8.npy",
        "/raw.bin",
        "/gpt2.bin",
        "/llama.bin",
    ] {
        assert_eq!(
            all(&open(&files, path, 300).unwrap()),
            [5, 0, 299, 7],
            "{path}"
        );
        let error = open(&files, path, 299).unwrap_err();
        assert!(
            matches!(
                error,
                DataError::Token {
                    index: 2,
                    token: 299,
                    ..
                }
            ),
            "{path}: {error}"
        );
    }
    put(
        &files,
        "/negative.npy",
        &npy("<i4", "(2,)", &wide(&[1, -1], 4)),
    );
    let error = open(&files, "/negative.npy", 300).unwrap_err().to_string();
    assert_eq!(
        error,
        "/negative.npy: token -1 at position 1 is out of range: the model has tokens 0 to 299"
    );
}

#[test]
fn a_folder_of_text_is_its_files_in_order() {
    let files = files();
    put(&files, "/d/b.txt", b"second ");
    put(&files, "/d/a/z.txt", b"first ");
    put(&files, "/d/c", b"third");
    put(&files, "/d/empty.txt", b"");
    put(&files, "/d/.hidden", b"no");
    put(&files, "/d/.git/x", b"no");
    let tokens = open(&files, "/d", 256).unwrap();
    let text: Vec<u8> = all(&tokens).into_iter().map(|t| t as u8).collect();
    assert_eq!(String::from_utf8(text).unwrap(), "first second third");
    let mut middle = [0; 8];
    tokens.read(4, &mut middle).unwrap();
    assert_eq!(middle.map(|t| t as u8), *b"t second");
    put(&files, "/d/tokens.bin", b"no");
    let error = open(&files, "/d", 256).unwrap_err();
    assert!(
        matches!(error, DataError::TokensAmongText { .. }),
        "{error}"
    );
}

#[test]
fn what_is_wrong_with_data_is_said() {
    let files = files();
    put(&files, "/empty.txt", b"");
    put(&files, "/empty.bin", b"");
    put(&files, "/odd.bin", b"abc");
    put(&files, "/text.txt", b"text");
    put(&files, "/v2.bin", &llmc([20_240_520, 2, 1], &[0, 0]));
    put(&files, "/short.bin", &llmc([20_240_520, 1, 2], &[0, 0]));
    put(&files, "/short.npy", &npy("<u2", "(3,)", &[0; 4]));
    put(
        &files,
        "/huge.npy",
        &npy("<i8", "(4611686018427387904,)", &[0; 4]),
    );
    put(&files, "/float.npy", &npy("<f4", "(1,)", &[0; 4]));
    put(&files, "/cube.npy", &npy("<u2", "(2, 1, 2)", &[0; 8]));
    put(&files, "/scalar.npy", &npy("<u2", "()", &[0; 2]));
    put(&files, "/text.npy", b"this is not a NumPy file");
    put(&files, "/tiny.npy", b"\x93NUMPY");
    put(&files, "/cut.npy", &npy("<u2", "(1,)", &[])[..40]);
    files.create_dir_all(Path::new("/none")).unwrap();
    for (path, expected) in [
        ("/missing", "no such file"),
        ("/none", "it is empty"),
        ("/empty.txt", "it is empty"),
        ("/empty.bin", "it is empty"),
        ("/odd.bin", "not a multiple of the token size, 2"),
        ("/v2.bin", "version 2; only version 1"),
        ("/short.bin", "2 tokens by its header, but 1026 bytes long"),
        ("/short.npy", "3 tokens by its header"),
        ("/huge.npy", "4611686018427387904 tokens by its header"),
        ("/float.npy", "element type <f4"),
        ("/cube.npy", "shape [2, 1, 2]; expected one dimension"),
        ("/scalar.npy", "expected one dimension"),
        ("/text.npy", "not a NumPy file"),
        ("/tiny.npy", "not a NumPy file"),
        ("/cut.npy", "truncated"),
    ] {
        let error = open(&files, path, 256).expect_err(path).to_string();
        assert!(error.contains(path) && error.contains(expected), "{error}");
    }
    let error = open(&files, "/text.txt", 255).unwrap_err();
    assert!(matches!(
        error,
        DataError::Vocabulary {
            tokenizer: 256,
            model: 255
        }
    ));
}

#[test]
fn a_tokenizer_file_spools_its_tokens_once() {
    let files = files();
    let tokenizer = words(&files);
    put(&files, "/run/text.txt", b"a b c b");
    let open = |path, vocab_size| {
        let options = DataOptions {
            spool: Path::new(path),
            ..options(&tokenizer, vocab_size)
        };
        Tokens::open(&files, Path::new("/run/text.txt"), &options)
    };
    assert_eq!(all(&open("/run/narrow.bin", 3).unwrap()), [0, 1, 2, 1]);
    assert_eq!(all(&open("/run/wide.bin", 100_000).unwrap()), [0, 1, 2, 1]);
    let bytes = |path| {
        files
            .metadata(Path::new(path))
            .unwrap()
            .map(|found| found.bytes)
    };
    assert_eq!(bytes("/run/narrow.bin"), Some(8));
    assert_eq!(bytes("/run/wide.bin"), Some(16));
    assert_eq!(files.list_dir(Path::new("/run")).unwrap().len(), 3);
    put(&files, "/run/text.txt", b"b b");
    assert_eq!(all(&open("/run/narrow.bin", 3).unwrap()), [0, 1, 2, 1]);
    assert!(matches!(
        open("/run/narrow.bin", 2),
        Err(DataError::Vocabulary { .. })
    ));
}

const SHAPE: BatchShape = BatchShape { batch: 2, seq: 3 };

/// Tokens 0, 1, 2, ...
fn counting(count: u32) -> Tokens {
    let files = files();
    let bytes: Vec<u8> = (0..count as u16).flat_map(u16::to_le_bytes).collect();
    put(&files, "/counting.bin", &bytes);
    open(&files, "/counting.bin", count).unwrap()
}

fn batches(range: Range<u64>, order: Order) -> Result<Batches, DataError> {
    Batches::new(counting(range.end as u32), range, SHAPE, order, 7)
}

fn next(batches: &mut Batches) -> Vec<u32> {
    let (mut tokens, mut targets) = ([0; 6], [0; 6]);
    batches.next_batch(&mut tokens, &mut targets).unwrap();
    assert_eq!(targets, tokens.map(|token| token + 1));
    tokens.to_vec()
}

#[test]
fn sequential_batches_wrap_as_in_llm_c() {
    // 13 tokens: two batches and the last target fit exactly.
    let mut exact = batches(0..13, Order::Sequential).unwrap();
    assert_eq!(exact.per_epoch(), 2);
    assert_eq!(next(&mut exact), [0, 1, 2, 3, 4, 5]);
    assert_eq!(next(&mut exact), [6, 7, 8, 9, 10, 11]);
    assert_eq!(next(&mut exact), [0, 1, 2, 3, 4, 5]);
    assert_eq!(
        exact.cursor(),
        Cursor {
            epoch: 1,
            position: 6
        }
    );
    // 12 tokens: the second has no last target.
    let mut short = batches(0..12, Order::Sequential).unwrap();
    assert_eq!(next(&mut short), next(&mut short));
    let mut offset = batches(5..13, Order::Sequential).unwrap();
    assert_eq!(next(&mut offset), [5, 6, 7, 8, 9, 10]);
}

#[test]
fn shuffled_epochs_have_each_sequence_once() {
    let mut shuffled = batches(2..30, Order::Shuffled).unwrap();
    // Nine sequences, of which an odd one is left for the next epoch's first batch.
    let starts: Vec<_> = (0..9)
        .flat_map(|_| next(&mut shuffled))
        .step_by(3)
        .collect();
    for epoch in starts.chunks(9) {
        let mut epoch = epoch.to_vec();
        epoch.sort_unstable();
        assert!(epoch.into_iter().eq((2..29).step_by(3)));
    }
    assert_ne!(starts[..9], starts[9..]);
}

#[test]
fn too_little_data_and_wrong_buffers_are_refused() {
    assert!(batches(0..7, Order::Sequential).is_ok());
    assert!(batches(0..4, Order::Shuffled).is_ok());
    for (count, order) in [(6, Order::Sequential), (3, Order::Shuffled)] {
        let error = batches(0..count, order).unwrap_err();
        assert!(matches!(error, DataError::TooShort { .. }), "{error}");
    }
    for (batch, seq) in [(0, 3), (3, 0), (usize::MAX, 2)] {
        let shape = BatchShape { batch, seq };
        let error = Batches::new(counting(9), 0..9, shape, Order::Shuffled, 0).unwrap_err();
        assert!(matches!(error, DataError::BatchShape { .. }), "{error}");
    }
    let mut good = batches(0..20, Order::Sequential).unwrap();
    assert!(matches!(
        good.next_batch(&mut [0; 6], &mut [0; 5]),
        Err(DataError::Buffer {
            expected: 6,
            found: 5
        })
    ));
    let far = Cursor {
        epoch: 0,
        position: 21,
    };
    assert!(matches!(good.seek(far), Err(DataError::Cursor { .. })));
    assert_eq!(good.cursor(), Cursor::default());
}

#[test]
fn the_held_out_share_is_the_end() {
    let tokens = counting(100);
    assert_eq!(tokens.split(0.0, 8).unwrap(), (0..100, 100..100));
    assert_eq!(tokens.split(0.1, 8).unwrap(), (0..90, 90..100));
    for share in [0.05, 0.95, 1.0] {
        let error = tokens.split(share, 8).unwrap_err();
        assert!(matches!(error, DataError::TooShort { .. }), "{error}");
    }
}

#[test]
fn embedded_text_is_bytes() {
    let tokens = Tokens::embedded("abc", 256).unwrap();
    assert_eq!(all(&tokens), [97, 98, 99]);
    assert!(Tokens::embedded("abc", 100).is_err());
    assert!(tokens.read(1, &mut [0; 3]).is_err());
    assert!(tokens.read(u64::MAX, &mut [0; 3]).is_err());
}

proptest! {
    #[test]
    fn a_cursor_resumes_exactly(
        count in 8_u64..200, before in 0_usize..40, shuffled in any::<bool>(), seed in any::<u64>(),
    ) {
        let order = if shuffled { Order::Shuffled } else { Order::Sequential };
        let tokens = counting(count as u32);
        let start = || Batches::new(tokens.clone(), 0..count, SHAPE, order, seed).unwrap();
        let mut whole = start();
        for _ in 0..before {
            next(&mut whole);
        }
        let stored = serde_json::to_string(&whole.cursor()).unwrap();
        let mut resumed = start();
        resumed.seek(serde_json::from_str(&stored).unwrap()).unwrap();
        for _ in 0..20 {
            prop_assert_eq!(next(&mut whole), next(&mut resumed));
            prop_assert_eq!(whole.cursor(), resumed.cursor());
        }
    }

    #[test]
    fn text_reads_the_same_in_any_pieces(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 1..6),
        cuts in proptest::collection::vec(1_usize..30, 1..20),
    ) {
        let files = files();
        for (i, part) in parts.iter().enumerate() {
            put(&files, &format!("/d/{i}"), part);
        }
        let whole = parts.concat();
        prop_assume!(!whole.is_empty());
        // A file that begins as a packed one does is refused.
        let is_text = |i| super::text::check(&*files, format!("/d/{i}").as_ref()).is_ok();
        prop_assume!((0..parts.len()).all(is_text));
        let tokens = open(&files, "/d", 256).unwrap();
        let (mut at, mut read) = (0, Vec::new());
        for cut in cuts.iter().cycle() {
            let mut piece = vec![0; (*cut).min(whole.len() - at)];
            tokens.read(at as u64, &mut piece).unwrap();
            at += piece.len();
            read.extend(piece.iter().map(|&token| token as u8));
            if at == whole.len() {
                break;
            }
        }
        prop_assert_eq!(read, whole);
    }

    #[test]
    fn mutated_npy_files_do_not_panic(
        changes in proptest::collection::vec((0_usize..128, any::<u8>()), 1..4), cut in 0_usize..200,
    ) {
        let mut bytes = npy("<u2", "(4,)", &[1, 0, 2, 0, 3, 0, 4, 0]);
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.truncate(cut.max(1));
        let files = files();
        put(&files, "/a.npy", &bytes);
        if let Ok(tokens) = open(&files, "/a.npy", 1000) {
            prop_assert!(tokens.count() <= bytes.len() as u64);
        }
    }
}
