//! Layouts of tokens and text, as other programs leave them: widths, orders, and which files are held out.

use super::*;

/// What should come of data: tokens to train on and held out, and what is said of the files; or what a refusal says.
enum Want {
    Found(&'static [u32], &'static [u32], &'static str),
    Refused(&'static str),
}

use Want::{Found, Refused};

const IDS: [u32; 6] = [5, 0, 299, 7, 8, 9];

fn bytes(ids: &[u32], width: usize, is_big: bool) -> Vec<u8> {
    let each = ids.iter().map(|&id| {
        let mut bytes = u64::from(id).to_le_bytes()[..width].to_vec();
        if is_big {
            bytes.reverse();
        }
        bytes
    });
    each.collect::<Vec<_>>().concat()
}

fn little(ids: &[u32], width: usize) -> Vec<u8> {
    bytes(ids, width, false)
}

fn check(name: &str, vocab_size: u32, put: &[(&str, Vec<u8>)], want: &Want) {
    let files = files();
    for (path, bytes) in put {
        super::put(&files, &format!("/d/{path}"), bytes);
    }
    let path = match put {
        [(path, _)] if !path.contains('/') => format!("/d/{path}"),
        _ => "/d".to_owned(),
    };
    let found = open(&files, &path, vocab_size);
    match (found, want) {
        (Ok(tokens), Found(train, held_out, told)) => {
            let all = all(&tokens);
            let cut = tokens.train().unwrap_or(tokens.count()) as usize;
            assert_eq!((&all[..cut], &all[cut..]), (*train, *held_out), "{name}");
            let told_now = tokens.notes().join("; ");
            assert!(told_now.contains(told), "{name}: {told_now}");
        }
        (Err(error), Refused(told)) => {
            let error = error.to_string();
            assert!(error.contains(told), "{name}: {error}");
        }
        (Ok(tokens), Refused(_)) => panic!("{name}: read as {:?}", all(&tokens)),
        (Err(error), Found(..)) => panic!("{name}: {error}"),
    }
}

#[test]
fn arrays_of_every_type_are_read_or_refused_by_name() {
    for (descr, width) in [
        ("u1", 1),
        ("i1", 1),
        ("u2", 2),
        ("i2", 2),
        ("u4", 4),
        ("i4", 4),
        ("u8", 8),
        ("i8", 8),
    ] {
        let ids: &[u32] = if width == 1 {
            &[5, 0, 99, 7, 8, 9]
        } else {
            &IDS
        };
        let want = Found(
            if width == 1 {
                &[5, 0, 99, 7, 8, 9]
            } else {
                &IDS
            },
            &[],
            descr,
        );
        for (order, is_big) in [("<", false), (">", true), ("|", false)] {
            if order == "|" && width > 1 {
                continue;
            }
            let descr = format!("{order}{descr}");
            let data = bytes(ids, width, is_big);
            for (shape, fortran) in [
                ("(6,)", "False"),
                ("(6,)", "True"),
                ("(2, 3)", "False"),
                ("(1, 6)", "True"),
                ("(6, 1)", "True"),
            ] {
                let file = npy_in(fortran, &descr, shape, &data);
                check(&format!("{descr} {shape}"), 300, &[("t.npy", file)], &want);
            }
            // The same rows, stored column after column.
            let turned: Vec<u32> = [0, 3, 1, 4, 2, 5].map(|at| ids[at]).to_vec();
            let file = npy_in("True", &descr, "(2, 3)", &bytes(&turned, width, is_big));
            check(
                &format!("{descr} by columns"),
                300,
                &[("t.npy", file)],
                &want,
            );
        }
    }
    for (descr, size) in [
        ("<f4", 4),
        ("<f8", 8),
        ("|b1", 1),
        ("<c8", 8),
        ("|O", 8),
        ("<U4", 16),
    ] {
        let want = Refused("expected integers");
        check(
            descr,
            300,
            &[("t.npy", npy(descr, "(2,)", &vec![0; 2 * size]))],
            &want,
        );
    }
}

/// A token at each end of its type is the one that is refused, and the largest that a model can have is read.
#[test]
fn tokens_at_the_ends_of_their_types_are_told_as_they_are() {
    let ends: [(&str, usize, i128); 13] = [
        ("u1", 1, u8::MAX.into()),
        ("i1", 1, i8::MIN.into()),
        ("u2", 2, u16::MAX.into()),
        ("i2", 2, i16::MIN.into()),
        ("i2", 2, i16::MAX.into()),
        ("u4", 4, u32::MAX.into()),
        ("i4", 4, i32::MIN.into()),
        ("i4", 4, i32::MAX.into()),
        ("u8", 8, u64::MAX.into()),
        ("u8", 8, 1 << 63),
        ("u8", 8, (1 << 63) - 1),
        ("i8", 8, i64::MIN.into()),
        ("i8", 8, 255),
    ];
    for (kind, width, token) in ends {
        for (order, is_big) in [("<", false), (">", true)] {
            let mut bytes = token.to_le_bytes()[..width].to_vec();
            if is_big {
                bytes.reverse();
            }
            let files = files();
            let array = npy(&format!("{order}{kind}"), "(1,)", &bytes);
            super::put(&files, "/t.npy", &array);
            let error = open(&files, "/t.npy", 255).unwrap_err().to_string();
            let told = format!(
                "token {token} at position 0 is out of range: the model has tokens 0 to 254"
            );
            assert!(error.ends_with(&told), "{order}{kind}: {error}");
            if let Ok(vocab_size) = u32::try_from(token + 1) {
                let tokens = open(&files, "/t.npy", vocab_size).unwrap();
                assert_eq!(all(&tokens), [token as u32], "{order}{kind}");
            }
        }
    }
}

#[test]
fn large_arrays_by_columns_are_those_by_rows() {
    for [rows, columns] in [[3, 5000], [5000, 3], [300, 300], [2, 2], [70_000, 2]] {
        let at = |row: u32, column: u32| (row * 31 + column * 7) % 60_000;
        let of = |pairs: &mut dyn Iterator<Item = (u32, u32)>| -> Vec<u32> {
            pairs.map(|(row, column)| at(row, column)).collect()
        };
        let by_rows = of(&mut (0..rows).flat_map(|row| (0..columns).map(move |it| (row, it))));
        let by_columns = of(&mut (0..columns).flat_map(|it| (0..rows).map(move |row| (row, it))));
        let files = files();
        let shape = format!("({rows}, {columns})");
        put(
            &files,
            "/f.npy",
            &npy_in("True", "<u2", &shape, &little(&by_columns, 2)),
        );
        let tokens = open(&files, "/f.npy", 60_000).unwrap();
        assert_eq!(all(&tokens), by_rows, "{shape}");
        // From anywhere, in any order.
        let last = by_rows.len() - 3;
        for start in [(columns as usize).min(last), 1, last, 0] {
            let mut window = [0; 3];
            tokens.read(start as u64, &mut window).unwrap();
            assert_eq!(window, by_rows[start..start + 3], "{shape}");
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn widths_without_a_header_are_found_and_said() {
    let many: Vec<u32> = (0..200).map(|i| i * 7 % 300).collect();
    let leaked: &'static [u32] = Vec::leak(many.clone());
    let wide: &'static [u32] = Vec::leak((0..200).map(|i| i * 997 % 70_000).collect());
    let megatron = |code: u8| [&b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0"[..], &[code, 0, 0]].concat();
    for (name, vocab_size, put, want) in [
        (
            "nanoGPT",
            300,
            vec![("t.bin", little(&many, 2))],
            Found(leaked, &[], "200 tokens of 16 bits (no header"),
        ),
        (
            "by zeros",
            300,
            vec![("t.bin", little(&many, 4))],
            Found(
                leaked,
                &[],
                "200 tokens of 32 bits (no header: the zeros look like 32 bits",
            ),
        ),
        (
            "many tokens",
            70_000,
            vec![("t.bin", little(wide, 4))],
            Found(
                wide,
                &[],
                "200 tokens of 32 bits (no header: the model's 70000 tokens need 32",
            ),
        ),
        (
            "narrow in a large model",
            70_000,
            vec![("t.bin", little(&[300; 200], 2))],
            Refused("the model has tokens 0 to 69999"),
        ),
        (
            "odd in a large model",
            70_000,
            vec![("t.bin", little(&many[..199], 2))],
            Refused("--token-dtype u16"),
        ),
        (
            "tofile of int64",
            300,
            vec![("t.bin", little(&many, 8))],
            Refused("its tokens have 64 bits"),
        ),
        (
            "int64 in a large model",
            70_000,
            vec![("t.bin", little(wide, 8))],
            Refused("its tokens have 64 bits"),
        ),
        (
            "llm.c of 16 bits",
            300,
            vec![("t.bin", llmc([20_240_520, 1, 200], &little(&many, 2)))],
            Found(leaked, &[], "llm.c"),
        ),
        (
            "llm.c of 32 bits",
            300,
            vec![("t.bin", llmc([20_240_801, 7, 200], &little(&many, 4)))],
            Found(leaked, &[], "llm.c"),
        ),
        (
            "llm.c of 16 bits in a large model",
            70_000,
            vec![("t.bin", llmc([20_240_520, 1, 200], &little(&many, 2)))],
            Found(leaked, &[], "16 bits"),
        ),
        (
            "Megatron of 32 bits",
            300,
            vec![
                ("d_train.bin", little(&IDS, 4)),
                ("d_train.idx", megatron(4)),
            ],
            Found(&IDS, &[], "32 bits (its .idx"),
        ),
        (
            "Megatron of 16 bits",
            300,
            vec![
                ("d_train.bin", little(&IDS, 2)),
                ("d_train.idx", megatron(8)),
            ],
            Found(&IDS, &[], "16 bits (its .idx"),
        ),
        (
            "Megatron of 64 bits",
            300,
            vec![
                ("d_train.bin", little(&IDS, 8)),
                ("d_train.idx", megatron(5)),
            ],
            Found(&IDS, &[], "64 bits (its .idx"),
        ),
        (
            "Megatron of floats",
            300,
            vec![
                ("d_train.bin", little(&IDS, 8)),
                ("d_train.idx", megatron(6)),
            ],
            Refused("none of tokens"),
        ),
        (
            "capital letters",
            300,
            vec![("T.BIN", little(&many, 2))],
            Found(leaked, &[], "16 bits"),
        ),
    ] {
        check(name, vocab_size, &put, &want);
    }
    // What is asked for goes before what the bytes look like.
    let files = files();
    put(&files, "/t.bin", &little(&many, 4));
    let asked = DataOptions {
        width: Some(TokenWidth::U16),
        ..options(&Tokenizer::Bytes, 300)
    };
    let tokens = Tokens::open(&files, Path::new("/t.bin"), &asked).unwrap();
    assert_eq!(tokens.count(), 400);
    assert!(tokens.notes()[0].contains("as asked for"));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn sets_of_files_are_divided_by_their_names() {
    let bin = |ids: &[u32]| little(ids, 2);
    let text = |text: &str| text.as_bytes().to_vec();
    for (name, put, want) in [
        (
            "nanoGPT",
            vec![
                ("train.bin", bin(&[1, 2])),
                ("val.bin", bin(&[3])),
                ("meta.pkl", text("p")),
                ("prepare.py", text("p")),
                ("input.txt", text("x")),
                ("readme.md", text("r")),
            ],
            Found(&[1, 2], &[3], "train.bin: 2 tokens of 16 bits"),
        ),
        (
            "llm.c",
            vec![
                (
                    "fw_train_000001.bin",
                    llmc([20_240_520, 1, 2], &bin(&[1, 2])),
                ),
                ("fw_train_000002.bin", llmc([20_240_520, 1, 1], &bin(&[9]))),
                ("fw_val_000000.bin", llmc([20_240_520, 1, 1], &bin(&[3]))),
            ],
            Found(&[1, 2, 9], &[3], "fw_val_000000.bin: 1 tokens"),
        ),
        (
            "arrays",
            vec![
                ("train.npy", npy("<u2", "(2,)", &bin(&[1, 2]))),
                ("valid.npy", npy("<i4", "(1,)", &little(&[3], 4))),
                ("test.npy", npy("<u2", "(1,)", &bin(&[4]))),
            ],
            Found(&[1, 2], &[3], "valid.npy: 1 tokens of 32 bits"),
        ),
        (
            "shards",
            vec![("a.bin", bin(&[1])), ("b.bin", bin(&[2]))],
            Found(&[1, 2], &[], ""),
        ),
        (
            "folders",
            vec![
                ("train/a.bin", bin(&[1])),
                ("val/a.bin", bin(&[2])),
                ("test/a.bin", bin(&[3])),
            ],
            Found(&[1], &[2], ""),
        ),
        (
            "only to validate",
            vec![("val.bin", bin(&[1])), ("test.bin", bin(&[1]))],
            Refused("no file to train on, by their names: val.bin, test.bin"),
        ),
        (
            "tokens among text",
            vec![("a.bin", bin(&[1])), ("b.txt", text("b"))],
            Refused("tokens in a folder of text (/d/b.txt)"),
        ),
        (
            "texts",
            vec![
                ("train.txt", text("ab")),
                ("valid.txt", text("c")),
                ("test.txt", text("d")),
            ],
            Found(&[97, 98], &[99], ""),
        ),
        (
            "wikitext",
            vec![
                ("wiki.train.tokens", text("a")),
                ("wiki.valid.tokens", text("b")),
                ("wiki.test.tokens", text("c")),
            ],
            Found(&[97], &[98], ""),
        ),
        (
            "folders of texts",
            vec![
                ("train/1.txt", text("a")),
                ("train/2.txt", text("b")),
                ("validation/1.txt", text("c")),
            ],
            Found(&[97, 98], &[99], ""),
        ),
        (
            "text and what is held out",
            vec![("corpus.txt", text("a")), ("val.txt", text("b"))],
            Found(&[97], &[98], ""),
        ),
        (
            "titles",
            vec![
                ("a test of wills.txt", text("a")),
                ("night train.txt", text("b")),
                ("other.txt", text("c")),
            ],
            Found(&[97, 98, 99], &[], ""),
        ),
        (
            "a program",
            vec![
                ("model.py", text("a")),
                ("test.py", text("b")),
                ("train.py", text("c")),
            ],
            Found(&[97, 98, 99], &[], ""),
        ),
        (
            "all to train",
            vec![("train1.txt", text("a")), ("train2.txt", text("b"))],
            Found(&[97, 98], &[], ""),
        ),
        (
            "packed text",
            vec![("a.txt.gz", vec![0x1f, 0x8b, 8, 0, 0])],
            Refused("packed with gzip, not text; unpack it"),
        ),
        (
            "packed among texts",
            vec![
                ("a.txt", text("a")),
                ("b.txt.zst", vec![0x28, 0xb5, 0x2f, 0xfd, 0]),
            ],
            Refused("b.txt.zst: the file is packed with Zstandard"),
        ),
        (
            "arrays in an archive",
            vec![("t.npz", text("PK\x03\x04rest"))],
            Refused("numpy.save"),
        ),
    ] {
        check(name, 300, &put, &want);
    }
}

#[test]
fn tokens_of_divided_texts_are_divided() {
    let files = files();
    let tokenizer = words(&files);
    put(&files, "/d/train.txt", b"a b a");
    put(&files, "/d/valid.txt", b"b b");
    put(&files, "/e.txt", b"a");
    let told = std::cell::RefCell::new(Vec::new());
    let tell = |done, of| told.borrow_mut().push((done, of));
    let open = |spool, held_out, reads| {
        let options = DataOptions {
            held_out,
            reads,
            progress: Progress::to(&tell),
            spool: Path::new(spool),
            ..options(&tokenizer, 3)
        };
        let tokens = Tokens::open(&files, Path::new("/d"), &options).unwrap();
        let again = Tokens::spooled(&files, Path::new(spool), 3).unwrap();
        assert_eq!(
            (again.train(), again.count()),
            (tokens.train(), tokens.count())
        );
        (all(&tokens), tokens.train())
    };
    let found = open("/1.bin", None, Reads::Training);
    assert_eq!(found, (vec![0, 1, 0, 1, 1], Some(3)));
    assert_eq!(told.borrow().last(), Some(&(8, 8)));
    let found = open("/2.bin", Some(Path::new("/e.txt")), Reads::Training);
    assert_eq!(found, (vec![0, 1, 0, 0], Some(3)));
    assert_eq!(open("/3.bin", None, Reads::Evaluation), (vec![1, 1], None));
    let tokens = Tokens::spooled(&files, Path::new("/1.bin"), 3).unwrap();
    assert_eq!(tokens.split(0.0, 1).unwrap(), (0..3, 3..5));
    let error = tokens.split(0.0, 2).unwrap_err().to_string();
    assert!(
        error.starts_with("the held-out split has 2 tokens"),
        "{error}"
    );
}
