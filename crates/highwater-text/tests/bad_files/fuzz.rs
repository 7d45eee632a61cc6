//! Files that are changed at random: whatever comes of them, they take no more memory than they should, and the
//! program goes on.

use std::path::Path;

use parquet::basic::{Compression as Codec, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterVersion as Version;

use super::make::{gz, parquet, properties, texts, zst};
use super::{BLOCK_BYTES, alloc, files, read};

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// A stretch of so many bytes at most.
    fn stretch(&mut self, bytes: usize, most: usize) -> std::ops::Range<usize> {
        let start = self.below(bytes);
        let end = bytes.min(start + self.below(most) + 1);
        start..end
    }
}

/// Numbers that files state: lengths, counts, markers.
const TELLING: [&[u8]; 8] = [
    &[0xff, 0xff, 0xff, 0x7f],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0, 0, 0, 0],
    &[0x80, 0x80, 0x80, 0x80, 0x10],
    b"\"",
    b"[{",
    b"}]",
    b",\n",
];

fn mutate(random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            break;
        }
        let stretch = random.stretch(bytes.len(), 40);
        match random.below(7) {
            0 => bytes[stretch.start] ^= 1 << random.below(8),
            1 => bytes[stretch.start] = random.next() as u8,
            2 => drop(bytes.drain(stretch)),
            3 => {
                let copy = bytes[stretch].to_vec();
                let at = random.below(bytes.len());
                bytes.splice(at..at, copy);
            }
            4 => {
                let from = random.stretch(other.len(), 60);
                bytes.splice(stretch, other[from].iter().copied());
            }
            5 => bytes.truncate(stretch.start),
            _ => {
                let telling = TELLING[random.below(TELLING.len())];
                let end = bytes.len().min(stretch.start + telling.len());
                bytes.splice(stretch.start..end, telling.iter().copied());
            }
        }
    }
    bytes
}

/// Files of each kind, small enough that a change hits something.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let line = r#"{"messages": [{"role": "user", "content": "h\u00e9llo \"x\""}], "n": [1, -2.5e3, null, true]}"#;
    let lines = format!("{line}\n{{\"text\": \"a\"}}\n\n{line}\r\n");
    let list = format!("[\n{line},\n {{}}, {line}\n]");
    let table = "text,label\n\"a, \"\"b\"\"\n\",1\nplain,2\n,\n";
    let words: Vec<String> = (0..40)
        .map(|at| format!("word {at} {}", "x".repeat(at % 7)))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let with = |codec, dictionary, version| {
        let properties = properties()
            .set_compression(codec)
            .set_dictionary_enabled(dictionary)
            .set_writer_version(version)
            .set_data_page_row_count_limit(16);
        parquet(
            super::parquet::TEXT,
            properties,
            &[vec![texts(&words).all()], vec![texts(&words).all()]],
        )
    };
    vec![
        ("a.jsonl", lines.clone().into_bytes()),
        ("a.json", list.into_bytes()),
        ("a.json", lines.clone().into_bytes()),
        ("a.csv", table.into()),
        ("a.tsv", table.replace(',', "\t").into_bytes()),
        (
            "a.txt",
            "some text\n\u{65e5}\u{672c}\u{8a9e}\n"
                .repeat(9)
                .into_bytes(),
        ),
        ("a.jsonl.gz", gz(&lines)),
        ("a.jsonl.zst", zst(&lines)),
        ("a.csv.gz", gz(table)),
        ("a.parquet", super::parquet::small()),
        ("a.parquet", super::parquet::conversations()),
        ("a.parquet", with(Codec::SNAPPY, true, Version::PARQUET_1_0)),
        (
            "a.parquet",
            with(
                Codec::ZSTD(ZstdLevel::default()),
                false,
                Version::PARQUET_2_0,
            ),
        ),
        (
            "a.parquet",
            with(
                Codec::GZIP(GzipLevel::default()),
                true,
                Version::PARQUET_2_0,
            ),
        ),
        (
            "a.parquet",
            with(Codec::LZ4_RAW, false, Version::PARQUET_1_0),
        ),
    ]
}

fn fuzz(each: u64, start: u64) {
    let seeds = seeds();
    let (mut tried, mut fine) = (0, 0);
    for (of_kind, (name, seed)) in seeds.iter().enumerate() {
        for number in 0..each {
            let key = start ^ (of_kind as u64) << 48 ^ number;
            let mut random = Random(key);
            let other = &seeds[random.below(seeds.len())].1;
            let bytes = mutate(&mut random, seed, other);
            let files = files(name, &bytes);
            let (read, needed) = alloc::measure(|| read(&files, Path::new(name), 0));
            let most = 4 * bytes.len() + BLOCK_BYTES;
            assert!(
                needed.peak <= most && needed.largest <= most,
                "{name}, {key}: {needed:?} of {}",
                bytes.len()
            );
            tried += 1;
            fine += usize::from(read.error.is_none());
        }
    }
    assert!(
        fine > 0 && fine < tried,
        "{fine} of {tried} without an error"
    );
}

#[test]
fn changed_files() {
    fuzz(2000, 0);
}

#[test]
#[ignore = "takes long: for changes to what reads files"]
fn many_changed_files() {
    fuzz(200_000, 1 << 40);
}
