//! Learning from pairs of answers, beside PyTorch's numbers: `fixtures/make_preferences.py` says what is compared.

use std::path::Path;

use highwater::nn::{LoraOptions, add_adapters, without_adapters};
use highwater::optim::{AdamW, Optimizer};
use highwater::{Engine, Module, Parameter, Tensor, no_grad};
use highwater_memory::DiskFiles;
use highwater_models::adapter::adapter_parameters;
use highwater_models::data::{Entry, PackedBatch};
use highwater_models::preference::{Answer, DpoLoss, DpoOptions, PairLoss, dpo_loss, orpo_loss};
use highwater_models::{Decoder, DecoderConfig, Packed, WeightsReader};
use serde_json::Value;

const STEPS: usize = 20;
const LENGTH: usize = 40;

fn fixture(name: &str) -> (WeightsReader, Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let file = WeightsReader::open(&DiskFiles, &path.join(format!("{name}.safetensors"))).unwrap();
    let about = serde_json::from_str(&file.metadata()[name]).unwrap();
    (file, about)
}

fn words(file: &mut WeightsReader, name: &str) -> Vec<[u8; 8]> {
    let count: usize = file.tensors()[name].shape.iter().product();
    let mut bytes = vec![0; 8 * count];
    file.read_bytes(name, &mut bytes).unwrap();
    bytes.as_chunks().0.to_vec()
}

fn integers(name: &str) -> Vec<usize> {
    let words = words(&mut fixture("preferences").0, name).into_iter();
    words
        .map(|word| i64::from_le_bytes(word) as usize)
        .collect()
}

fn fill(file: &mut WeightsReader, name: &str, parameter: &Parameter) {
    let shape = file.tensors()[name].shape.clone();
    let mut values = vec![0.0; shape.iter().product()];
    file.read_f32(name, &shape, &mut values).unwrap();
    parameter.copy_from_slice(&values).unwrap();
}

fn decoder(engine: &Engine, model: &str) -> Decoder {
    let (mut file, about) = fixture("decoders");
    let config = DecoderConfig::from_json(&about["variants"][model].to_string()).unwrap();
    let decoder = Decoder::new(engine, config).unwrap();
    for (name, parameter) in decoder.named_parameters() {
        fill(&mut file, &format!("{model}.weight.{name}"), &parameter);
    }
    decoder
}

/// The model that learns, what of it does, and the one that it is compared with if that is another.
fn models(engine: &Engine, variant: &Value) -> (Decoder, Vec<Parameter>, Option<Decoder>) {
    let Some(lora) = variant["lora"].as_str() else {
        let model = variant["model"].as_str().unwrap();
        let (policy, before) = (decoder(engine, model), decoder(engine, model));
        before.requires_grad_(false);
        let trained = policy.parameters();
        return (policy, trained, Some(before));
    };
    let (mut file, about) = fixture("lora");
    let settings = &about["variants"][lora];
    let policy = decoder(engine, settings["model"].as_str().unwrap());
    let options = LoraOptions {
        r: settings["r"].as_u64().unwrap() as usize,
        lora_alpha: settings["lora_alpha"].as_f64().unwrap(),
        use_rslora: settings["use_rslora"].as_bool().unwrap(),
        ..LoraOptions::default()
    };
    add_adapters(&policy, &options).unwrap();
    let adapters = adapter_parameters(&policy);
    for (name, parameter) in &adapters {
        fill(&mut file, &format!("{lora}.weight.{name}"), parameter);
    }
    let trained = adapters.into_iter().map(|(_, parameter)| parameter);
    (policy, trained.collect(), None)
}

/// The answers of a pair as rows.
fn rows(pair: usize) -> [PackedBatch; 2] {
    let (tokens, asked, lengths) = (integers("tokens"), integers("asked"), integers("lengths"));
    [0, 1].map(|answer| {
        let at = 2 * pair + answer;
        let tokens = &tokens[at * LENGTH..][..LENGTH];
        let entry = |i: usize| Entry::new(tokens[i] as u32, i >= asked[pair], i == 0);
        let mut row: Vec<_> = (0..lengths[at]).map(entry).collect();
        row.resize(LENGTH, Entry::new(0, false, false));
        let mut batch = PackedBatch::default();
        batch.push(&row);
        batch
    })
}

fn pair_loss(
    (policy, before): (&Decoder, Option<&Decoder>),
    variant: &Value,
    pair: usize,
    beta: f64,
) -> PairLoss {
    let engine = policy.engine();
    let inputs = rows(pair).map(|row| {
        let shape = [1, LENGTH];
        let lengths = [1, row.lengths.len()];
        (
            engine.indices(&row.tokens, shape).unwrap(),
            Tensor::from_slice(engine, &row.targets, shape).unwrap(),
            engine.indices(&row.lengths, lengths).unwrap(),
            Tensor::from_slice(engine, &row.positions, shape).unwrap(),
            engine.tensor(&[row.learned as f32], []).unwrap(),
        )
    });
    let answers = [0, 1].map(|i| {
        let (tokens, targets, lengths, positions, learned) = &inputs[i];
        let row = Packed {
            tokens,
            targets,
            lengths,
            positions,
        };
        Answer { row, learned }
    });
    let asked = |row: &Packed<'_>| policy.packed_loss(row);
    let reference = |row: &Packed<'_>| {
        no_grad(|| match before {
            Some(before) => before.packed_loss(row),
            None => without_adapters(|| policy.packed_loss(row)),
        })
    };
    if variant["method"] == "orpo" {
        return orpo_loss(&asked, answers, beta).unwrap();
    }
    let options = DpoOptions {
        loss_type: serde_json::from_value(variant["loss_type"].clone()).unwrap(),
        beta,
        label_smoothing: variant["label_smoothing"].as_f64().unwrap_or(0.0),
    };
    dpo_loss(&asked, &reference, answers, options).unwrap()
}

/// Losses and margins of some steps, with so much memory, what the last of them was planned to take, and the
/// least that would do.
fn train(variant: &Value, memory: u64) -> (Vec<[f32; 2]>, [u64; 2]) {
    let engine = Engine::builder().arena(memory).threads(2).build().unwrap();
    let (policy, trained, before) = models(&engine, variant);
    let number = |value: &Value| value.as_f64().unwrap();
    let options = crate::adamw::options(&fixture("decoders").1);
    let mut optimizer = AdamW::new(trained, options).unwrap();
    let beta = number(&fixture("preferences").1["beta"]);
    let pairs = integers("asked").len();
    let step = |step: usize| {
        let models = (&policy, before.as_ref());
        let found = pair_loss(models, variant, step % pairs, beta);
        let margin = found.margin.detach().unwrap();
        found.loss.backward().unwrap();
        optimizer.step().unwrap();
        [found.loss.item().unwrap(), margin.item().unwrap()]
    };
    let found = (0..STEPS).map(step).collect();
    let forecast = engine.forecast().unwrap();
    (found, [forecast.peak_bytes, forecast.floor_bytes])
}

#[test]
fn losses_and_margins_are_as_in_pytorch() {
    let (mut file, about) = fixture("preferences");
    let variants = about["variants"].as_object().unwrap();
    for loss in DpoLoss::ALL {
        let is_tried = |variant: &Value| variant["loss_type"] == loss.name();
        assert!(variants.values().any(is_tried), "{}", loss.name());
    }
    for (name, variant) in variants {
        let (found, _) = train(variant, 64 << 20);
        for (kind, what) in ["losses", "margins"].into_iter().enumerate() {
            let expected = words(&mut file, &format!("{name}.{what}")).into_iter();
            for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
                let expected = f64::from_le_bytes(expected);
                let off = (f64::from(found[kind]) - expected).abs();
                assert!(
                    off <= 1e-3 * expected.abs().max(0.05),
                    "{name}, {what}[{step}]: {}, expected {expected}",
                    found[kind]
                );
            }
        }
    }
}

#[test]
fn any_budget_has_the_same_bits() {
    let about = fixture("preferences").1;
    for (name, variant) in about["variants"].as_object().unwrap() {
        let (most, [peak, floor]) = train(variant, 64 << 20);
        assert!(floor < peak, "{name}: {floor} of {peak}");
        for memory in [floor, floor.midpoint(peak)] {
            let (found, [planned, _]) = train(variant, memory);
            assert_eq!(found, most, "{name} in {memory} bytes");
            assert!(planned <= memory);
        }
    }
}
