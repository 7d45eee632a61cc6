//! Formats of images: what Pillow reads, and files that are cut off, damaged or of another kind.

use highwater_data::images::{
    Depth, Found, LOOK_BYTES, Layout, Pixels, decode, dimensions, look_over,
};
use highwater_data::{Array, read_safetensors};
use highwater_memory::DiskFiles;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats")
}

/// The images of each format, by name.
fn images() -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(fixtures()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let images = paths.filter(|path| path.extension().unwrap() != "safetensors");
    let named = images.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(path).unwrap())
    });
    named.collect()
}

/// How far the decoder of a format may be from Pillow's.
fn tolerance(name: &str) -> u8 {
    match (name, extension(name)) {
        ("smooth.webp", _) => 3,
        (_, "jpg") => 8,
        _ => 0,
    }
}

fn extension(name: &str) -> &str {
    name.rsplit_once('.').unwrap().1
}

fn furthest(pixels: &Pixels, want: &Array) -> u8 {
    assert_eq!([pixels.height(), pixels.width(), 3], want.dims());
    let pairs = pixels.as_bytes().iter().zip(want.as_bytes());
    pairs.map(|(a, b)| a.abs_diff(*b)).max().unwrap()
}

#[test]
fn every_format_has_pillows_pixels() {
    let expected = read_safetensors(fixtures().join("pixels.safetensors")).unwrap();
    let images = images();
    assert_eq!(images.len(), expected.len());
    let mut wrong = Vec::new();
    for (name, bytes) in &images {
        match decode(Path::new(name), bytes) {
            Ok(pixels) => {
                let off = furthest(&pixels, &expected[name]);
                if off > tolerance(name) {
                    wrong.push(format!("{name}: {off} off"));
                }
                let sides = dimensions(Path::new(name), bytes).unwrap();
                assert_eq!(sides, [pixels.width(), pixels.height()], "{name}");
            }
            Err(error) => wrong.push(error.to_string()),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// As many bytes at the end of a file change nothing if they are missing.
fn spare(name: &str, length: usize) -> usize {
    match (name, extension(name)) {
        // What lies behind the end of the JPEG.
        ("more_behind.jpg", _) => 44,
        // A byte that makes the length even.
        (_, "tif" | "tiff") => 1,
        // Numbers of which the last digits may be missing: there is no end to see.
        _ if name.starts_with("text") => length,
        _ => 0,
    }
}

#[test]
fn an_image_cut_off_anywhere_is_refused_without_decoding_it() {
    let mut tried = 0;
    for (name, bytes) in images() {
        for length in 0..bytes.len() - spare(&name, bytes.len()) {
            let found = dimensions(Path::new(&name), &bytes[..length]);
            assert!(found.is_err(), "{name}: {length} of {} bytes", bytes.len());
            tried += 1;
        }
    }
    assert!(tried > 20_000, "{tried}");
}

#[test]
fn damaged_images_end_in_pixels_or_a_refusal() {
    for (name, bytes) in images() {
        let step = bytes.len().div_ceil(20).max(1);
        for at in (0..bytes.len()).step_by(step) {
            for flip in [0x55, 0xff] {
                let mut bad = bytes.clone();
                bad[at] ^= flip;
                if let Err(error) = decode(Path::new(&name), &bad) {
                    assert!(error.to_string().starts_with(&name), "{error}");
                }
            }
        }
    }
}

/// A PNG of black pixels whose header says these sides, with so many bytes of pixels.
fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut png = png::Encoder::new(&mut bytes, width, height);
    png.set_color(png::ColorType::Grayscale);
    png.set_depth(png::BitDepth::One);
    let mut png = png.write_header().unwrap();
    let row = width.div_ceil(8) as usize;
    let pixels = vec![0; row * height as usize];
    png.write_image_data(&pixels).unwrap();
    png.finish().unwrap();
    bytes
}

#[test]
fn what_is_no_image_is_told_by_what_it_is() {
    let bomb = png_of(20_000, 20_000);
    let cases: [(&[u8], &str); 9] = [
        (b"", "empty file"),
        (&[0; 4096], "zeros"),
        (b"<!DOCTYPE html><html>404", "web page"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid",
            "Git LFS",
        ),
        (b"\0\0\0 ftypavif\0\0\0\0", "AVIF"),
        (b"\0\0\0 ftypheic\0\0\0\0", "HEIC"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"hello", "not an image"),
        (&bomb, "20000 x 20000"),
    ];
    for (bytes, told) in cases {
        let refused = decode(Path::new("cat/1.png"), bytes)
            .unwrap_err()
            .to_string();
        assert!(refused.contains(told), "{refused}");
        assert!(refused.starts_with("cat/1.png: "), "{refused}");
    }
}

/// Images of two classes: those of the formats and some that are damaged in ways that show in their pixels alone.
fn album(root: &Path) -> Vec<Found> {
    for class in ["a", "b"] {
        std::fs::create_dir_all(root.join(class)).unwrap();
        for (name, bytes) in images() {
            std::fs::write(root.join(class).join(&name), &bytes).unwrap();
        }
    }
    let mut flipped = images()["bits.png"].clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x40;
    std::fs::write(root.join("b/flipped.png"), flipped).unwrap();
    std::fs::write(root.join("b/empty.png"), "").unwrap();
    std::fs::write(root.join("b/large.png"), png_of(4000, 3000)).unwrap();
    Layout::find(&DiskFiles, root).unwrap().train
}

/// What nothing here reads is refused by what it is, before it is decoded.
#[test]
fn kinds_that_are_not_read_are_named() {
    let folder = fixtures().join("../unread");
    let mut told = Vec::new();
    for name in ["palette.tif", "floats.tif", "arithmetic.jpg"] {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        told.push(dimensions(Path::new(name), &bytes).unwrap_err().to_string());
    }
    assert_eq!(
        told,
        [
            "palette.tif: TIFF with a palette: not read",
            "floats.tif: TIFF of samples that are not whole numbers: not read",
            "arithmetic.jpg: JPEG with arithmetic coding: not read",
        ]
    );
}

#[test]
fn looking_over_finds_the_same_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let found = album(folder.path());
    let name = |place: usize| found[place].path.file_name().unwrap().to_str().unwrap();
    let whole = look_over(&DiskFiles, &found, Depth::Whole, 1).unwrap();
    let decoded = look_over(&DiskFiles, &found, Depth::Decoded, 1).unwrap();
    for threads in [2, 3, 16] {
        assert_eq!(
            look_over(&DiskFiles, &found, Depth::Whole, threads).unwrap(),
            whole
        );
        assert_eq!(
            look_over(&DiskFiles, &found, Depth::Decoded, threads).unwrap(),
            decoded
        );
    }
    let names = |bad: &[(usize, String)]| -> Vec<String> {
        bad.iter()
            .map(|(place, _)| name(*place).to_owned())
            .collect()
    };
    assert_eq!(names(&whole.bad), ["empty.png"]);
    assert_eq!(names(&decoded.bad), ["empty.png", "flipped.png"]);
    let largest = whole.largest.unwrap();
    assert_eq!(
        (name(largest.place), largest.sides),
        ("large.png", [4000, 3000])
    );
    // It is not decoded: that takes more than a thread may use.
    assert!(largest.decoding_bytes > LOOK_BYTES);
}

/// A pipe would have the program wait for ever.
#[test]
fn what_is_not_a_file_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir(root.join("a")).unwrap();
    std::fs::write(root.join("a/1.png"), &images()["bits.png"]).unwrap();
    let pipe = root.join("a/2.png");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    std::os::unix::fs::symlink("nothing", root.join("a/3.png")).unwrap();
    let found = Layout::find(&DiskFiles, root).unwrap().train;
    let looked = look_over(&DiskFiles, &found, Depth::Decoded, 2).unwrap();
    let told: Vec<&str> = looked.bad.iter().map(|(_, told)| told.as_str()).collect();
    assert!(
        told[0].contains("a pipe") && told[1].contains("a broken link"),
        "{told:?}"
    );
}
