//! Classifiers of pictures: a run learns, keeps its bits under any budget and where it is stopped, and is what
//! another goes on from.

use std::fs::File;
use std::path::Path;

use crate::outcome::{assert_same, outcome};
use crate::program::{end, floor, highwater, news};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const SETTINGS: &str = "--task image-classification --data shapes --model resnet18 --size 32 --batch 6 \
                        --schedule constant --warmup 0 --seed 3 --held-out 0.25";

/// Bright bars, upright or level, in a folder of each: 16 pictures of 40 x 36.
pub(crate) fn paint(root: &Path) {
    for (class, upright) in [("level", false), ("upright", true)] {
        std::fs::create_dir_all(root.join(class)).unwrap();
        for i in 0..16_u32 {
            let light = |p: u32| {
                let at = if upright { p % 40 } else { p / 40 };
                let dark = (p * (i + 7)) % 60;
                [if at.abs_diff(8 + i) < 4 {
                    240
                } else {
                    dark as u8
                }; 3]
            };
            let pixels: Vec<u8> = (0..40 * 36).flat_map(light).collect();
            let file = File::create(root.join(class).join(format!("{i}.png"))).unwrap();
            let mut png = png::Encoder::new(file, 40, 36);
            png.set_color(png::ColorType::Rgb);
            let mut png = png.write_header().unwrap();
            png.write_image_data(&pixels).unwrap();
        }
    }
}

/// Runs the program to an end, and answers what it printed.
pub(crate) fn run(dir: &Path, line: &str, code: i32) -> String {
    let printed = dir.join("printed");
    let mut command = highwater(dir, line);
    let child = command.stdout(File::create(&printed).unwrap()).spawn();
    assert_eq!(end(child.unwrap()), Some(code), "{line}\n{}", news(dir));
    std::fs::read_to_string(printed).unwrap()
}

#[test]
fn budgets_threads_and_stops_change_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    paint(&dir.join("shapes"));
    let least = floor(dir, SETTINGS);
    let train = |out: &str, more: &str| {
        let line = format!("train {SETTINGS} --out {out} --save-every 3 {more}");
        run(dir, &line, 0)
    };
    let whole = train("whole", "--memory 2GiB --steps 6 --json");
    let expected = outcome(&dir.join("whole"), 6);
    let whole: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(
        (&whole["train_tokens"], &whole["tokens_per_step"]),
        (&24.into(), &6.into())
    );
    let accuracy = whole["held_out_accuracy_after"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&accuracy));
    // The settings that it wrote begin the same run again.
    run(dir, "train --config whole/config.toml --out again", 0);
    assert_same(
        &outcome(&dir.join("again"), 6),
        &expected,
        "by its settings",
    );

    let few = format!("--memory {} --threads 1 --steps 6", least + 2 * MIB);
    train("few", &few);
    assert_same(&outcome(&dir.join("few"), 6), &expected, "at the floor");

    // The running averages of batch norms are saved too: without them the rest would be the same, and its end not.
    train("stopped", "--memory 2GiB --steps 3");
    run(
        dir,
        &format!("resume stopped --steps 6 --memory {}", least + 2 * MIB),
        0,
    );
    assert_same(
        &outcome(&dir.join("stopped"), 6),
        &expected,
        "stopped and resumed",
    );

    let less = format!(
        "train {SETTINGS} --out refused --memory {} --steps 6",
        least - 8 * MIB
    );
    run(dir, &less, 3);
    assert!(news(dir).contains("--size"), "{}", news(dir));
    assert!(!dir.join("refused").exists());
}

/// Photographs of a camera take a hundred times what the pictures that are cut of them do.
#[test]
fn large_pictures_are_decoded_within_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    paint(&dir.join("shapes"));
    let small = floor(dir, SETTINGS);
    for i in 0..6_u32 {
        let noise = |k: u32| (k.wrapping_mul(2_654_435_761) >> 13) as u8;
        let pixels: Vec<u8> = (0..3 * 2400 * 1800).map(|k| noise(k + i)).collect();
        let file = File::create(dir.join(format!("shapes/level/{i}.png"))).unwrap();
        let mut png = png::Encoder::new(file, 2400, 1800);
        png.set_color(png::ColorType::Rgb);
        png.set_compression(png::Compression::Fast);
        let mut png = png.write_header().unwrap();
        png.write_image_data(&pixels).unwrap();
    }
    let least = floor(dir, SETTINGS);
    // Two workers, and three bytes for each pixel at least.
    assert!(least > small + 2 * 3 * 2400 * 1800, "{small} {least}");
    let budget = least + 2 * MIB;
    let line = format!("train {SETTINGS} --out run --memory {budget} --steps 8 --json");
    let told: Value = serde_json::from_str(&run(dir, &line, 0)).unwrap();
    let peak = told["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak <= budget, "{peak} of {budget}");
}

#[test]
fn a_run_goes_on_from_another_ones_weights() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    paint(&dir.join("shapes"));
    run(
        dir,
        &format!("train {SETTINGS} --out first --memory 1GiB --steps 30 --lr 1e-3"),
        0,
    );
    let told = std::fs::read_to_string(dir.join("first/final/config.json")).unwrap();
    assert!(
        told.contains("\"resnet18\"") && told.contains("\"upright\""),
        "{told}"
    );
    // Of the same classes: all that was learnt is there before the first step.
    let go_on = "--data shapes --model first/final --batch 6 --seed 3 --held-out 0.25 --steps 0 --memory 1GiB --json";
    let same: Value =
        serde_json::from_str(&run(dir, &format!("train {go_on} --out same"), 0)).unwrap();
    let learnt = std::fs::read_to_string(dir.join("first/run.log")).unwrap();
    let loss = same["held_out_loss_before"].as_f64().unwrap();
    assert!(
        learnt.contains(&format!("held-out loss after: {loss:.4}")),
        "{loss}: {learnt}"
    );
    assert!(
        same["held_out_accuracy_before"].as_f64().unwrap() > 0.8,
        "{same}"
    );
    // Of other classes: the last layer is drawn anew, and the run says so.
    std::fs::create_dir(dir.join("shapes/blank")).unwrap();
    for i in 0..4 {
        let copy = dir.join(format!("shapes/blank/{i}.png"));
        std::fs::copy(dir.join(format!("shapes/level/{i}.png")), copy).unwrap();
    }
    run(dir, &format!("train {go_on} --out other"), 0);
    assert!(news(dir).contains("fc.weight"), "{}", news(dir));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn what_cannot_be_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    paint(&dir.join("shapes"));
    std::fs::create_dir(dir.join("empty")).unwrap();
    let train = "train --memory 1GiB --size 32 --steps 1";
    for (more, code, told) in [
        ("--model resnet18", 2, "needs --data"),
        (
            "--model resnet18 --data nowhere",
            4,
            "nowhere: there is no such folder",
        ),
        ("--model resnet18 --data empty", 4, "no folders of images"),
        (
            "--model resnet18 --data shapes --seq 8",
            2,
            "--seq has no effect on image-classification",
        ),
        (
            "--model resnet18 --data shapes --task text-generation",
            2,
            "not for text-generation",
        ),
        (
            "--model resnet18 --data shapes --batch 99",
            4,
            "fewer than a batch of 99",
        ),
        (
            "--model gpt2-nano",
            2,
            "--size has no effect on text-generation",
        ),
    ] {
        run(dir, &format!("{train} {more}"), code);
        assert!(news(dir).contains(told), "{more}: {}", news(dir));
    }
    // What the run began with is looked at by the names and lengths of its files.
    run(
        dir,
        "train --memory 1GiB --size 32 --steps 1 --batch 4 --model resnet18 --data shapes --out run",
        0,
    );
    let good = std::fs::read(dir.join("shapes/level/0.png")).unwrap();
    std::fs::copy(
        dir.join("shapes/upright/3.png"),
        dir.join("shapes/level/0.png"),
    )
    .unwrap();
    assert_ne!(
        good.len(),
        std::fs::read(dir.join("shapes/level/0.png")).unwrap().len()
    );
    run(dir, "resume run --steps 2", 4);
    assert!(news(dir).contains("has changed"), "{}", news(dir));
    run(dir, "generate run --prompt a", 2);
    assert!(
        news(dir).contains("is an image classifier, not a language model"),
        "{}",
        news(dir)
    );
    // A file that is no picture is named, before the first step.
    std::fs::write(dir.join("shapes/level/0.png"), "no picture").unwrap();
    run(
        dir,
        "train --memory 1GiB --size 32 --steps 12 --batch 4 --model resnet18 --data shapes --out bad",
        4,
    );
    assert!(
        news(dir).contains("level/0.png: not an image"),
        "{}",
        news(dir)
    );
    assert!(!dir.join("bad").exists());
}
