//! Programs and their answers for another implementation to compare with.

use crate::compare::{check, expected};
use crate::config::PLAIN;
use crate::generate::{self, Size};
use crate::oracle::{Expect, Kind};
use crate::run::Outcome;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

fn floats(bits: &[u32]) -> Vec<f32> {
    bits.iter().map(|&bits| f32::from_bits(bits)).collect()
}

/// What was answered, with how far it may be off.
fn answer(expect: &Expect, outcome: &Outcome) -> Value {
    match (expect, outcome) {
        (Expect::Values(wanted), Outcome::Values(got)) => {
            json!({ "Values": [[floats(got), wanted.error]] })
        }
        (Expect::Moments(wanted, _), Outcome::Moments(got, _)) => {
            let each = wanted
                .iter()
                .zip(got)
                .map(|(wanted, got)| json!([floats(got), wanted.error]));
            json!({ "Values": each.collect::<Vec<_>>() })
        }
        (_, Outcome::Absent) => json!("Absent"),
        (_, Outcome::Flag(flag)) => json!({ "Flag": flag }),
        (_, Outcome::Error(kind, _)) => json!({ "Error": *kind == Kind::Consumed }),
        _ => json!("Done"),
    }
}

#[test]
#[ignore = "writes programs for fixtures/fuzz_pytorch.py"]
fn export() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs.jsonl");
    let mut lines = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    let small = |seed: &u64| matches!(Size::of(*seed), Size::Small | Size::Medium);
    for seed in (2_000_000..).filter(small).take(4_000) {
        let program = generate::program(seed);
        let wanted = expected(&program).expect("what is generated is valid");
        let (log, _) = check(&program, &wanted, &PLAIN)
            .unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        let answers: Vec<Value> = wanted
            .answers
            .iter()
            .zip(&log)
            .map(|(e, o)| answer(e, o))
            .collect();
        let line = json!({ "seed": seed, "program": program, "statements": wanted.statements, "answers": answers });
        writeln!(lines, "{line}").unwrap();
    }
    lines.flush().unwrap();
    println!("{}", path.display());
}
