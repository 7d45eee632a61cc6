//! Classifiers on images as people have them: classes in a model's order, splits, links, and files that are bad.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::pictures::{paint, run};
use crate::program::news;
use serde_json::{Value, json};

const TRAIN: &str = "train --task image-classification --size 32 --batch 4 --memory 1GiB --seed 3 --schedule constant \
                     --warmup 0";

/// The classes of a run's model, in the order of its outputs.
fn classes(model: &Path) -> Vec<String> {
    let config = fs::read(model.join("config.json")).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    let classes = config["id2label"].as_object().unwrap();
    (0..classes.len())
        .map(|number| classes[&number.to_string()].as_str().unwrap().to_owned())
        .collect()
}

/// Writes the `config.json` of a model.
fn configure(model: &Path, config: &Value) {
    fs::write(model.join("config.json"), config.to_string()).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The accuracy on what is held out before anything is trained, and what was said.
fn before(dir: &Path, data: &str) -> (f64, String) {
    let line = format!(
        "{TRAIN} --model model --data {data} --val 0.25 --steps 0 --out out --force --json"
    );
    let told: Value = serde_json::from_str(&run(dir, &line, 0)).unwrap();
    let accuracy = told["held_out_accuracy_before"].as_f64().unwrap();
    (accuracy, news(dir))
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one set of images, tried in many ways"
)]
fn classes_of_the_data_have_the_numbers_of_the_models_classes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    paint(&dir.join("shapes"));
    let line = format!("{TRAIN} --data shapes --val 0.25 --steps 30 --lr 1e-3 --out first");
    run(dir, &line, 0);
    let model = dir.join("model");
    copy(&dir.join("first/final"), &model);
    // The outputs of level and upright, under names whose order is the other way round.
    let own = json!({"model_type": "resnet18", "image_size": 32, "id2label": {"0": "z", "1": "a"}});
    configure(&model, &own);
    let shapes = dir.join("shapes");
    let data = |name: &str, folders: &[(&str, &str)]| {
        for (class, shape) in folders {
            copy(&shapes.join(shape), &dir.join(name).join(class));
        }
    };
    data("same", &[("z", "level"), ("a", "upright")]);
    let (accuracy, _) = before(dir, "same");
    assert!(accuracy > 0.6, "{accuracy}");
    assert_eq!(classes(&dir.join("out/final")), ["z", "a"]);

    // Some of the classes keep all outputs.
    data("some", &[("a", "upright")]);
    let (accuracy, told) = before(dir, "some");
    assert!(accuracy > 0.6, "{accuracy}");
    assert!(
        told.contains("1 of the model's 2 classes have no images: z"),
        "{told}"
    );
    assert_eq!(classes(&dir.join("out/final")), ["z", "a"]);

    // Others are drawn anew, also where there are as many, and one is named.
    data("others", &[("x", "level"), ("y", "upright")]);
    data("more", &[("z", "level"), ("a", "upright"), ("m", "level")]);
    data("case", &[("Z", "level"), ("a", "upright")]);
    for (data, named) in [
        ("others", "no class `x`"),
        ("more", "no class `m`"),
        ("case", "no class `Z` (it has `z`"),
    ] {
        let (_, told) = before(dir, data);
        assert!(told.contains(named) && told.contains("fc.bias"), "{told}");
    }
    let drawn = classes(&dir.join("out/final"));
    assert_eq!(drawn, ["Z", "a"]);

    // What else says which output is which: label2id, and timm's label_names.
    for config in [
        json!({"model_type": "resnet18", "label2id": {"z": 0, "a": 1}}),
        json!({"architecture": "resnet18", "num_classes": 2, "label_names": ["z", "a"]}),
    ] {
        configure(&model, &config);
        let (accuracy, _) = before(dir, "same");
        assert!(accuracy > 0.6, "{config}: {accuracy}");
    }
    // A file that says nothing of classes: a word on that.
    configure(&model, &json!({"model_type": "resnet18"}));
    assert!(before(dir, "same").1.contains("has no id2label"));

    // What cannot be meant is refused by name.
    for (config, code, named) in [
        (
            json!({"model_type": "resnet18", "id2label": {"0": "z", "2": "a"}}),
            2,
            "none of the number 1",
        ),
        (
            json!({"architecture": "convnext_tiny", "num_classes": 2}),
            2,
            "convnext_tiny",
        ),
        (
            json!({"model_type": "resnet18", "id2label": {"0": "z", "1": "a", "2": "b"}}),
            4,
            "`fc.bias` is missing or not for the 3 classes",
        ),
        (
            json!({"model_type": "resnet18", "id2label": {"0": "z", "1": "a", "2": "a"}}),
            4,
            "`a` is output 1 of the model and output 2",
        ),
    ] {
        configure(&model, &config);
        let line = format!("{TRAIN} --model model --data same --steps 0 --out refused");
        run(dir, &line, code);
        assert!(news(dir).contains(named), "{config}: {}", news(dir));
        assert!(!dir.join("refused").exists(), "{config}");
    }
}

#[test]
fn splits_and_links_are_what_torchvision_and_timm_have_them_be() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    paint(&dir.join("shapes"));
    for class in ["level", "upright"] {
        let shape = dir.join("shapes").join(class);
        copy(&shape, &dir.join("data/val").join(class));
        copy(&shape, &dir.join("data/test").join(class));
        fs::create_dir_all(dir.join("data/train")).unwrap();
        symlink(&shape, dir.join("data/train").join(class)).unwrap();
    }
    fs::write(dir.join("data/train/README.md"), "words").unwrap();
    run(dir, &format!("{TRAIN} --data data --steps 1 --out run"), 0);
    let told = news(dir);
    for line in [
        "2 classes: level, upright",
        "the loss is measured on val/",
        "test/ is left unread",
        "1 .md",
        "32 training images, 32 held out",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert_eq!(classes(&dir.join("run/final")), ["level", "upright"]);
    // Its own settings begin the same run again.
    run(dir, "train --config run/config.toml --out again", 0);
    run(
        dir,
        &format!("{TRAIN} --data data --val 0.2 --steps 1 --out refused"),
        2,
    );
    assert!(
        news(dir).contains("is already the held-out data"),
        "{}",
        news(dir)
    );
    copy(&dir.join("shapes/level"), &dir.join("data/val/other"));
    run(
        dir,
        &format!("{TRAIN} --data data --steps 1 --out refused"),
        4,
    );
    assert!(
        news(dir).contains("val/other: a class that `train` does not have"),
        "{}",
        news(dir)
    );
}

/// A PNG of one bit a pixel.
fn png_of(path: &Path, side: u32) {
    let file = fs::File::create(path).unwrap();
    let mut png = png::Encoder::new(file, side, side);
    png.set_color(png::ColorType::Grayscale);
    png.set_depth(png::BitDepth::One);
    let mut png = png.write_header().unwrap();
    let pixels = vec![0x5a; side.div_ceil(8) as usize * side as usize];
    png.write_image_data(&pixels).unwrap();
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one set of images, tried in many ways"
)]
fn bad_images_are_found_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    paint(&dir.join("shapes"));
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("../highwater-data/tests/fixtures");
    let cut = |name: &str, to: &str| {
        let bytes = fs::read(formats.join(name)).unwrap();
        fs::write(dir.join("shapes").join(to), &bytes[..bytes.len() / 2]).unwrap();
    };
    // One of each format is as good as a PNG.
    for name in [
        "smooth.webp",
        "palette.gif",
        "rgb.bmp",
        "lzw.tiff",
        "binary.ppm",
    ] {
        fs::copy(
            formats.join("formats").join(name),
            dir.join("shapes/level").join(name),
        )
        .unwrap();
    }
    let name = OsStr::from_bytes(b"caf\xe9.png");
    let odd = dir.join("shapes/level").join(name);
    fs::copy(dir.join("shapes/level/1.png"), odd).unwrap();
    run(
        dir,
        &format!("{TRAIN} --data shapes --steps 2 --out good"),
        0,
    );
    assert!(
        news(dir).contains("34 training images, 4 held out"),
        "{}",
        news(dir)
    );

    let bad = [
        ("smooth.jpg", "level/cut.jpg", "cut off"),
        ("colours.png", "level/cut.png", "cut off"),
        ("formats/smooth.webp", "level/cut.webp", "cut off"),
        ("formats/animated.gif", "upright/cut.gif", "cut off"),
        ("formats/rgb.bmp", "upright/cut.bmp", "cut off"),
        ("formats/rgb.tif", "upright/cut.tif", "cut off"),
        ("formats/binary.ppm", "upright/cut.ppm", "cut off"),
    ];
    for (from, to, _) in bad {
        cut(from, to);
    }
    fs::write(dir.join("shapes/upright/empty.png"), "").unwrap();
    fs::write(dir.join("shapes/upright/page.jpg"), "<!DOCTYPE html>").unwrap();
    symlink("nothing", dir.join("shapes/upright/link.jpg")).unwrap();
    png_of(&dir.join("shapes/upright/bomb.png"), 20_000);
    run(
        dir,
        &format!("{TRAIN} --data shapes --steps 2 --out refused"),
        4,
    );
    let told = news(dir);
    assert!(told.contains("shapes: 11 images cannot be used"), "{told}");
    assert!(
        told.contains("and 1 more") && told.contains("--skip-bad"),
        "{told}"
    );
    for (_, to, problem) in bad {
        assert!(told.contains(&format!("{to}: {problem}")), "{told}");
    }
    assert!(
        told.contains("bomb.png: its header says 20000 x 20000"),
        "{told}"
    );
    assert!(!dir.join("refused").exists());
    run(
        dir,
        &format!(
            "plan {} --data shapes",
            TRAIN
                .trim_start_matches("train")
                .replace("--batch 4", "--batch 6")
        ),
        0,
    );
    assert!(
        news(dir).contains("11 images cannot be used"),
        "{}",
        news(dir)
    );

    run(
        dir,
        &format!("{TRAIN} --data shapes --steps 2 --skip-bad --out skipped"),
        0,
    );
    let told = news(dir);
    assert!(told.contains("skipped by --skip-bad: 11 images"), "{told}");
    assert!(told.contains("34 training images, 4 held out"), "{told}");
    let log = fs::read_to_string(dir.join("skipped/run.log")).unwrap();
    for name in [
        "page.jpg: a web page",
        "link.jpg: a broken link",
        "empty.png: empty file",
    ] {
        assert!(log.contains(name), "{name}: {log}");
    }
    assert!(
        fs::read_to_string(dir.join("skipped/config.toml"))
            .unwrap()
            .contains("skip_bad = true")
    );
    run(dir, "resume skipped --steps 3", 0);
    // Of nothing there is no loss.
    for class in fs::read_dir(dir.join("shapes")).unwrap() {
        let class = dir.join("none").join(class.unwrap().file_name());
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join("empty.png"), "").unwrap();
    }
    run(dir, "eval skipped --data none --skip-bad", 4);
    let told = news(dir);
    assert!(told.contains("none: "), "{told}");
}

#[test]
fn what_decoding_needs_and_what_a_class_lacks_are_told_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    paint(&dir.join("shapes"));
    png_of(&dir.join("shapes/level/huge.png"), 6000);
    let line = format!(
        "{} --data shapes --steps 1 --out refused",
        TRAIN.replace("1GiB", "400MiB")
    );
    run(dir, &line, 3);
    let told = news(dir);
    assert!(
        told.contains("level/huge.png is the largest image (6000 x 6000 pixels)"),
        "{told}"
    );
    fs::create_dir(dir.join("shapes/alone")).unwrap();
    fs::copy(
        dir.join("shapes/level/1.png"),
        dir.join("shapes/alone/1.png"),
    )
    .unwrap();
    fs::remove_file(dir.join("shapes/level/huge.png")).unwrap();
    let line = format!("{TRAIN} --data shapes --steps 1 --out refused");
    run(dir, &line, 2);
    let told = news(dir);
    assert!(
        told.contains("class alone has only one image") && told.contains("--val 0"),
        "{told}"
    );
    run(
        dir,
        &format!("{TRAIN} --data shapes --steps 1 --val 0 --out run"),
        0,
    );
}

fn evaluated(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&run(dir, &format!("eval {line} --json"), 0)).unwrap()
}

/// A run with images to measure on in a folder of their own, and what it told.
fn divided(dir: &Path) -> Value {
    paint(&dir.join("shapes"));
    for class in fs::read_dir(dir.join("shapes")).unwrap() {
        let class = class.unwrap();
        for part in ["train", "val"] {
            copy(
                &class.path(),
                &dir.join("split").join(part).join(class.file_name()),
            );
        }
    }
    let line = format!(
        "{TRAIN} --model resnet18 --data split --steps 3 --save-every 2 --lr 1e-3 --out run --json"
    );
    serde_json::from_str(&run(dir, &line, 0)).unwrap()
}

/// What a run measures of the same images, of its end and of a saved state, and under any budget.
#[test]
fn eval_tells_loss_and_accuracy() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let told = divided(dir);
    let whole = evaluated(dir, "run --data split");
    for (name, of_run) in [
        ("loss", "held_out_loss_after"),
        ("accuracy", "held_out_accuracy_after"),
    ] {
        let [found, expected] = [&whole[name], &told[of_run]].map(|value| value.as_f64().unwrap());
        assert!(
            (found - expected).abs() < 1e-5 * expected.max(1.0),
            "{whole}, {told}"
        );
    }
    assert_eq!(whole["images"], 32);
    assert!(news(dir).contains("the loss is measured on val/"));
    for line in [
        "run --data split/val",
        "run --data shapes",
        "--model run/final --data shapes --batch 4",
    ] {
        let found = evaluated(dir, line);
        let mut same = ["loss", "accuracy", "images"].into_iter();
        assert!(
            same.all(|name| found[name] == whole[name]),
            "{line}: {found}, {whole}"
        );
    }
    let few = evaluated(dir, "run --data split --batch 3 --memory 200MiB");
    let loss = |found: &Value| found["loss"].as_f64().unwrap();
    assert!((loss(&few) - loss(&whole)).abs() < 1e-5, "{few}, {whole}");
    assert_eq!(few["accuracy"], whole["accuracy"]);
    for half in ["bf16", "fp16"] {
        let found = evaluated(dir, &format!("run --data split --precision {half}"));
        assert!(
            (loss(&found) - loss(&whole)).abs() < 0.05,
            "{half}: {found}, {whole}"
        );
    }
    fs::remove_dir_all(dir.join("run/final")).unwrap();
    assert_eq!(evaluated(dir, "run --data split")["images"], 32);
}

#[test]
fn half_precision_measures_what_is_held_out() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    paint(&dir.join("shapes"));
    for (model, half) in [
        ("resnet18", "bf16"),
        ("resnet18", "fp16"),
        ("densenet121", "bf16"),
    ] {
        let line = format!(
            "{TRAIN} --model {model} --data shapes --steps 1 --precision {half} --out run --force --json"
        );
        let told: Value = serde_json::from_str(&run(dir, &line, 0)).unwrap();
        assert!(
            told["held_out_loss_after"].is_number(),
            "{model}, {half}: {told}"
        );
    }
}

#[test]
fn eval_refuses_images_of_other_classes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    divided(dir);
    fs::rename(dir.join("shapes/level"), dir.join("shapes/slanted")).unwrap();
    for (line, code, said) in [
        (
            "eval run --data shapes",
            4,
            "the model has no class `slanted`",
        ),
        (
            "eval run --data split --seq 8",
            2,
            "--seq has no effect on image-classification",
        ),
        (
            "eval run --data split --memory 20MiB",
            3,
            "a smaller --batch",
        ),
        (
            "eval run --data missing",
            4,
            "missing: there is no such file",
        ),
    ] {
        run(dir, line, code);
        assert!(news(dir).contains(said), "{line}\n{}", news(dir));
    }
}

/// What a folder of a model says, or lacks as files of older programs do.
#[test]
fn folders_of_classifiers_are_read_as_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    divided(dir);
    let whole = evaluated(dir, "--model run/final --data shapes");
    copy(&dir.join("run/final"), &dir.join("old"));
    let weights = dir.join("old/model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let kept = tensors
        .tensors()
        .into_iter()
        .filter(|(name, _)| !name.ends_with("num_batches_tracked"));
    let kept = safetensors::serialize(kept, None).unwrap();
    fs::write(&weights, kept).unwrap();
    assert_eq!(
        evaluated(dir, "--model ./old --data shapes")["loss"],
        whole["loss"]
    );
    let names =
        json!({"model_type": "resnet18", "image_size": 32, "label2id": {"level": 1, "upright": 0}});
    configure(&dir.join("old"), &names);
    let turned = evaluated(dir, "--model ./old --data shapes");
    assert!(turned["loss"] != whole["loss"], "{turned}, {whole}");
    let mean = json!({"model_type": "resnet18", "image_size": 32, "image_mean": [0.5, 0.5, 0.5]});
    configure(&dir.join("old"), &mean);
    run(dir, "eval --model ./old --data shapes", 2);
    assert!(news(dir).contains("`image_mean` is"), "{}", news(dir));
    fs::remove_dir_all(dir.join("split/val/level")).unwrap();
    evaluated(dir, "run --data split");
    assert!(
        news(dir).contains("val/ has no images of level"),
        "{}",
        news(dir)
    );
    run(
        dir,
        "train --model resnet18 --data shapes --sample hello",
        2,
    );
    assert!(
        news(dir).contains("--sample has no effect on"),
        "{}",
        news(dir)
    );
}
