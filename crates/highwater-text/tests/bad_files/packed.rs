//! Packed files.

use super::Want::{Bad, Fine};
use super::{check, make};

const TWO: &str = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";

/// Lines that do not pack to nothing.
fn many() -> String {
    let mut seed = 1_u64;
    let line = |at: u32| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{{\"text\": \"{at} {seed:x}\"}}\n")
    };
    (0..10_000).map(line).collect()
}

fn flipped(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at] ^= 0x40;
    bytes
}

#[test]
fn packed_files_that_are_read() {
    let parts = [make::gz(&TWO[..14]), make::gz(&TWO[14..])].concat();
    let frames = [make::zst(&TWO[..20]), make::zst(""), make::zst(&TWO[20..])].concat();
    let skippable = [&b"\x50\x2a\x4d\x18\x03\0\0\0abc"[..], &make::zst(TWO)].concat();
    check(cases! { "a.jsonl.gz";
        "gzip", make::gz(TWO) => Fine(2);
        "several members", parts => Fine(2);
        "an empty member", [make::gz(""), make::gz(TWO)].concat() => Fine(2);
        "Zstandard, named otherwise", make::zst(TWO) => Fine(2);
        "much", make::gz(many()) => Fine(10_000);
    });
    check(cases! { "a.jsonl.zst";
        "Zstandard", make::zst(TWO) => Fine(2);
        "several frames", frames => Fine(2);
        "what is to be skipped", skippable => Fine(2);
        "gzip, named otherwise", make::gz(TWO) => Fine(2);
        "much", make::zst(many()) => Fine(10_000);
        "packed hard", make::zst_with(many().as_bytes(), 19, None) => Fine(10_000);
        "looks back 8 MiB", make::zst_with(many().as_bytes(), 3, Some(23)) => Fine(10_000);
    });
    check(cases! { "a.json.gz";
        "a list", make::gz("[{}, {}]") => Fine(2);
    });
    check(cases! { "A.JSONL.GZ";
        "capital letters", make::gz(TWO) => Fine(2);
    });
}

#[test]
fn packed_files_that_are_damaged() {
    const CUT: &[&str] = &[
        "the compressed data ends in the middle",
        "copy the file again",
    ];
    const DAMAGED: &[&str] = &["the compressed data is damaged", "copy the file again"];
    let (g, z) = (make::gz(many()), make::zst(many()));
    let (g_end, z_end) = (g.len(), z.len());
    let small = make::gz(TWO);
    let long = make::zst_with(&vec![b' '; 40 << 20], 3, Some(27));
    check(cases! { "a.jsonl.gz";
        "cut at the end", &g[..g_end - 1] => Bad(10_000, CUT);
        "cut before the checksum", &g[..g_end - 8] => Bad(10_000, CUT);
        "cut in the header", &small[..9] => Bad(0, CUT);
        "cut after the header", &small[..10] => Bad(0, CUT);
        "cut in its first bytes", &small[..2] => Bad(0, &["packed in an unknown way"]);
        "another checksum", flipped(small.clone(), small.len() - 6) => Bad(0, DAMAGED);
        "another length", flipped(small.clone(), small.len() - 2) => Bad(0, DAMAGED);
        "something after it", [&small[..], b"x"].concat() => Bad(0, &["the compressed data"]);
        "zeros after it", [&small[..], &[0; 512]].concat() => Bad(0, DAMAGED);
        "not packed", TWO => Bad(0, &["the file is not packed with gzip", "remove .gz from its name"]);
        "nothing", "" => Bad(0, &["a.jsonl.gz: the file is empty"]);
        "packed nothing", make::gz("") => Bad(0, &["the file is empty"]);
        "packed twice", make::gz(&small) => Bad(0, &["packed with gzip once more", "unpack it once"]);
        "packed in both ways", make::gz(make::zst(TWO)) => Bad(0, &["packed with Zstandard once more"]);
        "a web page", "<html>404</html>" => Bad(0, &["a web page"]);
        "Git LFS", "version https://git-lfs.github.com/spec/v1\n" => Bad(0, &["git lfs pull"]);
    });
    check(cases! { "a.jsonl.zst";
        "cut at the end", &z[..z_end - 1] => Bad(10_000, CUT);
        "cut in the header", &z[..5] => Bad(0, CUT);
        "flipped", flipped(make::zst(TWO), 12) => Bad(0, DAMAGED);
        "another checksum", flipped(z.clone(), z_end - 2) => Bad(10_000, DAMAGED);
        "not packed", TWO => Bad(0, &["the file is not packed with Zstandard", "remove .zst"]);
        "something after it", [make::zst(TWO), b"more".to_vec()].concat() => Bad(0, DAMAGED);
        "looks back too far", long => Bad(0, &["more than 8 MiB to look back", "zstd -19"]);
    });
    check(cases! { "a.parquet.gz";
        "Parquet", make::gz("PAR1") => Bad(0, &["packed as a whole", "gunzip"]);
    });
    check(cases! { "a.parquet.zst";
        "Parquet otherwise", make::zst("PAR1") => Bad(0, &["packed as a whole", "unzstd"]);
    });
}

/// Files that are a thousand times as large once they are unpacked.
#[test]
fn packed_files_that_are_too_much() {
    let zeros = vec![b'0'; 64 << 20];
    let blank = vec![b'\n'; 32 << 20];
    let list = format!("{{\"a\": [{}0]}}\n", "0,".repeat(130_000));
    let header = format!("text,label\n{}", ",".repeat(4 << 20));
    check(cases! { "a.jsonl.gz";
        "one line", make::gz(&zeros) => Bad(0, &["line 1: the line is longer than 8 MiB"]);
        "blank lines", make::gz(&blank) => Bad(0, &["there are no examples in it"]);
        "long lists", make::gz(list.repeat(3)) => Fine(3);
        "brackets", make::gz("[".repeat(7 << 20)) => Bad(0, &["more than 127 levels", "line 1"]);
    });
    check(cases! { "a.jsonl.zst";
        "one line", make::zst(&zeros) => Bad(0, &["line 1: the line is longer than 8 MiB"]);
    });
    check(cases! { "a.json.gz";
        "an element", make::gz(["[\"".as_bytes(), &zeros].concat()) => Bad(0, &["element 1", "longer"]);
    });
    check(cases! { "a.csv.gz";
        "a row", make::gz(&zeros) => Bad(0, &["line 1: the row that begins here is longer"]);
        "a quote", make::gz(["\"".as_bytes(), &zeros].concat()) => Bad(0, &["line 1: the row"]);
    });
    check(cases! { "a.csv.zst";
        "commas", make::zst(header) => Bad(0, &["line 2: the row that begins here has more"]);
    });
    check(cases! { "a.txt.gz";
        "blanks", make::gz(vec![b' '; 32 << 20]) => Bad(0, &["there are no examples in it"]);
        "text", make::gz(&zeros) => Fine(64);
    });
}
