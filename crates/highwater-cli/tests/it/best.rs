//! The state of a run that did best on what is held out: it is kept, and taken where that is asked for.

use std::path::Path;

use serde_json::Value;

use crate::records::base;
use crate::started::highwater;

fn run(dir: &Path, line: &str) -> (Value, String) {
    let (code, results, news) = highwater(dir, line);
    assert_eq!(code, 0, "{line}\n{news}");
    (serde_json::from_str(&results).unwrap_or_default(), news)
}

fn texts(path: &Path, lines: impl Iterator<Item = String>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let lines: Vec<_> = lines
        .map(|text| format!("{{\"text\": \"{text}\"}}\n"))
        .collect();
    std::fs::write(path, lines.concat()).unwrap();
}

/// What was measured while a run went on, by step.
fn measured(run: &Path) -> Vec<(u64, f64)> {
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let records = metrics
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let loss = |record: Value| Some((record["step"].as_u64()?, record["held_out_loss"].as_f64()?));
    records.filter_map(loss).collect()
}

fn states(run: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(run.join("checkpoints")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut states: Vec<_> = names.filter(|name| name.starts_with("step-")).collect();
    states.sort();
    states
}

#[test]
fn the_state_that_did_best_is_kept_and_taken_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    base(dir);
    // Learnt by heart, what is held out becomes less likely.
    texts(
        &dir.join("d/train.jsonl"),
        (0..8).map(|_| "pages of memory".to_owned()),
    );
    texts(
        &dir.join("d/valid.jsonl"),
        (0..8).map(|i| format!("{i} ways to go on, and of pages")),
    );
    let train = "train --model ./base --data d --seq 64 --batch 1 --threads 2 --memory 1GiB --lr 3e-2 --warmup 0 \
                 --schedule constant --steps 16 --eval-every 2 --keep 1 --json";
    for (name, more) in [("whole", ""), ("beside", "--lora 4")] {
        let (told, _) = run(dir, &format!("{train} {more} --out {name}"));
        let path = dir.join(name);
        let mut all = measured(&path);
        assert_eq!(all.len(), 7, "{all:?}");
        all.push((16, told["held_out_loss_after"].as_f64().unwrap()));
        let (step, loss) = *all.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert!(step < 16, "nothing was learnt by heart: {all:?}");
        assert_eq!(told["best_step"].as_u64(), Some(step), "{all:?}");
        assert!((told["best_held_out_loss"].as_f64().unwrap() - loss).abs() < 1e-6);
        assert_eq!(
            states(&path),
            [format!("step-{step:06}"), "step-000016".to_owned()]
        );
        let eval = |more: &str| {
            let line = format!(
                "eval {name} --data d/valid.jsonl --batch 1 --seq 64 --memory 1GiB --json {more}"
            );
            run(dir, &line).0["loss"].as_f64().unwrap()
        };
        let (best, last) = (eval("--best"), eval(""));
        assert!((best - loss).abs() < 1e-3 * loss, "{best}, {loss}");
        assert!(
            (last - all[7].1).abs() < 1e-3 * last && last > best,
            "{last}, {all:?}"
        );
        let text = |more: &str| {
            highwater(
                dir,
                &format!("generate {name} --prompt page --tokens 12 --temperature 0 {more}"),
            )
        };
        assert_ne!(text("").1, text("--best").1);
        let command = if more.is_empty() { "export" } else { "merge" };
        let end = if more.is_empty() { "gguf" } else { "hf" };
        run(dir, &format!("{command} {name} --out {name}.{end}"));
        run(
            dir,
            &format!("{command} {name} --best --out {name}-best.{end}"),
        );
        // What goes on still keeps it, and stays with what it was.
        let (_, news) = run(dir, &format!("resume {name} --steps 18"));
        assert!(news.contains("resuming after step 16"), "{news}");
        assert!(
            states(&path).contains(&format!("step-{step:06}")),
            "{:?}",
            states(&path)
        );
        assert!((eval("--best") - best).abs() < 1e-9);
        run(
            dir,
            &format!("{train} {more} --steps 2 --out {name} --force").replace("--steps 16 ", ""),
        );
        assert_eq!(states(&path), ["step-000002"]);
    }
}

#[test]
fn of_records_a_few_are_held_out_and_each_epoch_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    base(dir);
    texts(
        &dir.join("many.jsonl"),
        (0..40).map(|i| format!("{i} pages of memory")),
    );
    texts(
        &dir.join("few.jsonl"),
        (0..5).map(|i| format!("{i} pages of memory")),
    );
    let train = "train --model ./base --seq 32 --batch 2 --no-packing --threads 2 --memory 1GiB";
    let (_, news) = run(dir, &format!("{train} --data many.jsonl --out many"));
    assert!(news.contains(", 64 held out"), "{news}");
    let steps: Vec<u64> = measured(&dir.join("many"))
        .into_iter()
        .map(|it| it.0)
        .collect();
    assert_eq!(steps, [19, 38], "{news}");
    assert!(dir.join("many/best.json").exists());
    for (data, more, told) in [
        ("few.jsonl", "--epochs 2", "too few to hold any out"),
        ("many.jsonl", "--held-out 0 --steps 2", "40 examples"),
    ] {
        let (_, news) = run(
            dir,
            &format!("{train} --data {data} {more} --out other --force"),
        );
        assert!(news.contains(told), "{told}: {news}");
        assert!(!news.contains("held-out loss"), "{news}");
        assert!(!dir.join("other/best.json").exists());
    }
    let (code, _, news) = highwater(dir, "eval other --best --data few.jsonl");
    assert!(code == 2 && news.contains("known to be the best"), "{news}");
    let (code, _, news) = highwater(dir, "eval --model base --best --data few.jsonl");
    assert!(
        code == 2 && news.contains("needs a run, and this is a model folder"),
        "{news}"
    );
}
