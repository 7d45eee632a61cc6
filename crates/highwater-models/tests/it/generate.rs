//! Texts that go on a token at a time, by keys and values that are kept, beside the same model that reads them whole:
//! logits, tokens, plans and room, for each kind of attention and of positions.

use std::cell::Cell;
use std::ops::ControlFlow;

use highwater::nn::{LoraOptions, Visitor, add_adapters};
use highwater::op::WeightFormat;
use highwater::{
    Builder, DType, Engine, Error, Module, Result, Tensor, philox, with_parameter_dtype,
};
use highwater_models::{
    Architecture, CausalLm, Continuation, DecoderConfig, Packed, Sampling, generate,
};
use serde_json::{Value, json};

use crate::families::{FAMILIES, VOCABULARY, stir};

const LONGEST: usize = 200;

/// Dropout is off when texts are continued, whatever the model was made with.
fn architecture(family: &str) -> Box<dyn Architecture> {
    let own = match family {
        "gpt2" => json!({"resid_pdrop": 0.5}),
        "phi3" => json!({"head_dim": 16, "partial_rotary_factor": 0.5}),
        _ => Value::Null,
    };
    crate::families::architecture(family, LONGEST, &own)
}

fn build(builder: Builder, family: &str) -> Box<dyn CausalLm> {
    let engine = builder.threads(2).seed(5).build().unwrap();
    let model = architecture(family).build(&engine).unwrap();
    stir(&*model).unwrap();
    model.eval();
    model
}

/// A model that keeps nothing: texts are read whole.
#[derive(Debug)]
struct Whole<'a>(&'a dyn CausalLm);

impl Module for Whole<'_> {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        self.0.visit(path, visitor);
    }
}

impl CausalLm for Whole<'_> {
    fn engine(&self) -> &Engine {
        self.0.engine()
    }

    fn architecture(&self) -> &dyn Architecture {
        self.0.architecture()
    }

    fn smoothed_loss(&self, tokens: &Tensor, targets: &Tensor, share: f64) -> Result<Tensor> {
        self.0.smoothed_loss(tokens, targets, share)
    }

    fn smoothed_packed_loss(&self, packed: &Packed<'_>, share: f64) -> Result<Tensor> {
        self.0.smoothed_packed_loss(packed, share)
    }

    fn next_logits(&self, tokens: &Tensor, at: usize) -> Result<Tensor> {
        self.0.next_logits(tokens, at)
    }
}

fn random_tokens(seed: u64, count: usize) -> Vec<u32> {
    let mut values = vec![0; count];
    philox::fill_integers(seed, 0, (0, VOCABULARY as i64), &mut values);
    values.into_iter().map(|token| token as u32).collect()
}

/// Logits behind each of some beginnings of a text, one after the other.
fn logits(
    model: &dyn CausalLm,
    tokens: &[u32],
    ends: std::ops::RangeInclusive<usize>,
) -> Vec<Vec<f32>> {
    let mut continuation = Continuation::new(model, usize::MAX);
    let all = ends.map(|end| continuation.logits(&tokens[..end]).unwrap());
    all.collect()
}

fn assert_near(what: &str, found: &[Vec<f32>], expected: &[Vec<f32>], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let scale = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        assert!(scale > 0.0 && found.len() == VOCABULARY);
        for (found, expected) in found.iter().zip(expected) {
            let off = (found - expected).abs();
            assert!(
                off <= tolerance * scale,
                "{what}, text {at}: {found} beside {expected}"
            );
        }
    }
}

fn adapt(model: &dyn CausalLm) {
    let options = LoraOptions {
        r: 2,
        target_modules: vec!["all-linear".into()],
        ..LoraOptions::default()
    };
    add_adapters(model, &options).unwrap();
    stir(model).unwrap();
}

/// A model whose projections are held in few bits.
fn in_few_bits(family: &str) -> Box<dyn CausalLm> {
    let engine = Engine::builder().threads(2).seed(5).build().unwrap();
    let model = architecture(family)
        .build_held(&engine, WeightFormat::Int8)
        .unwrap();
    for (i, (_, layer)) in model.held().iter().enumerate() {
        let fill = |row: usize, to: &mut [f32]| {
            philox::fill_normal(i as u64, (row as u64) << 32, to);
            for x in to {
                *x *= 0.2;
            }
        };
        layer.fill(fill).unwrap();
    }
    model.eval();
    model
}

#[test]
fn logits_are_those_of_texts_read_whole() {
    let tokens = random_tokens(3, LONGEST);
    let check = |what: &str, model: &dyn CausalLm, tolerance| {
        // All that grow, and of what differs in products alone those that pass two lengths.
        let is_plain = FAMILIES.contains(&what);
        let texts = if is_plain { 3..=LONGEST } else { 50..=135 };
        let found = logits(model, &tokens, texts.clone());
        let expected = logits(&Whole(model), &tokens, texts);
        assert_near(what, &found, &expected, tolerance);
        // Sums in `F32` are others: else nothing was kept.
        assert!(
            tolerance > 1e-4 || found != expected,
            "{what}: nothing is kept"
        );
        assert!(found[0] == expected[0], "{what}: prompts are read alike");
    };
    for family in FAMILIES {
        let model = build(Engine::builder(), family);
        check(family, &*model, 1e-4);
        if family != "gpt2" {
            adapt(&*model);
            check(&format!("{family} with adapters"), &*model, 1e-4);
            let few = in_few_bits(family);
            check(&format!("{family} in few bits"), &*few, 1e-4);
            adapt(&*few);
            check(&format!("{family} in few bits with adapters"), &*few, 1e-4);
        }
        // What is kept is as exact as sums are.
        let half = with_parameter_dtype(DType::BF16, || build(Engine::builder(), family));
        check(&format!("{family} in bf16"), &*half, 0.05);
    }
}

fn greedy(model: &dyn CausalLm, prompt: &[u32], count: usize, context: usize) -> Vec<u32> {
    let sampling = Sampling {
        context,
        ..Sampling::default()
    };
    generate(
        model,
        prompt,
        count,
        sampling,
        |_| ControlFlow::Continue(()),
    )
    .unwrap()
}

#[test]
fn tokens_are_those_of_texts_read_whole() {
    for family in FAMILIES {
        let model = build(Engine::builder(), family);
        for (seed, length) in [1, 5, 31, 32, 33, 60, 127].into_iter().enumerate() {
            let prompt = random_tokens(seed as u64, length);
            let found = greedy(&*model, &prompt, 40, usize::MAX);
            assert_eq!(found.len(), length + 40);
            assert_eq!(found[..length], prompt);
            let expected = greedy(&Whole(&*model), &prompt, 40, usize::MAX);
            assert_eq!(found, expected, "{family}, {length}");
        }
    }
}

#[test]
fn beyond_the_context_texts_are_read_whole() {
    for family in FAMILIES {
        let model = build(Engine::builder(), family);
        for (length, count, context) in [
            (LONGEST - 5, 12, usize::MAX),
            (20, 60, 50),
            (70, 3, 50),
            (3, 6, 1),
        ] {
            let prompt = random_tokens(9, length);
            let found = greedy(&*model, &prompt, count, context);
            let expected = greedy(&Whole(&*model), &prompt, count, context);
            assert_eq!(found, expected, "{family}, {length}, {context}");
        }
        // Those that are longer have the very bits.
        model.eval();
        let tokens = random_tokens(4, LONGEST + 3);
        let found = logits(&*model, &tokens, LONGEST + 1..=LONGEST + 3);
        let expected = logits(&Whole(&*model), &tokens, LONGEST + 1..=LONGEST + 3);
        assert!(found == expected);
    }
}

#[test]
fn other_texts_are_read_anew() {
    let model = build(Engine::builder(), "llama");
    let (first, second) = (random_tokens(1, 40), random_tokens(2, 41));
    let mut continuation = Continuation::new(&*model, usize::MAX);
    let mut shorter = first.clone();
    shorter[0] = (shorter[0] + 1) % VOCABULARY as u32;
    let mut expected = Continuation::new(&Whole(&*model), usize::MAX).logits(&second);
    for text in [&first, &second, &first, &shorter, &second] {
        let found = continuation.logits(text).unwrap();
        let fresh = Continuation::new(&*model, usize::MAX).logits(text);
        assert!(found == fresh.unwrap());
    }
    let found = continuation.logits(&second).unwrap();
    assert!(found == *expected.as_mut().unwrap());
}

thread_local! {
    static PLANS: Cell<usize> = const { Cell::new(0) };
}

fn counted(builder: Builder) -> Builder {
    PLANS.set(0);
    builder.on_plan(|_, _| PLANS.set(PLANS.get() + 1))
}

#[test]
fn one_plan_is_for_all_tokens_of_a_length() {
    for family in FAMILIES {
        let model = build(counted(Engine::builder()), family);
        let tokens = random_tokens(6, 140);
        let mut continuation = Continuation::new(&*model, usize::MAX);
        let mut read = |ends: std::ops::Range<usize>| {
            let before = PLANS.get();
            for end in ends {
                continuation.logits(&tokens[..end]).unwrap();
            }
            PLANS.get() - before
        };
        read(10..12);
        assert_eq!(read(12..33), 0, "{family}");
        // The first of the next length finds the latest full.
        let grown = read(33..34);
        assert!((1..=4).contains(&grown), "{family}: {grown}");
        read(34..36);
        assert_eq!(read(36..65), 0, "{family}");
        read(65..100);
        assert_eq!(read(100..129), 0, "{family}");
    }
}

/// The bits of logits of a text that grows through three lengths.
fn bits(builder: Builder, threads: usize, family: &str) -> Result<Vec<u32>> {
    let engine = builder.threads(threads).seed(5).build()?;
    let model = architecture(family).build(&engine)?;
    stir(&*model)?;
    model.eval();
    let tokens = random_tokens(8, LONGEST);
    let mut continuation = Continuation::new(&*model, usize::MAX);
    let mut bits = Vec::new();
    for end in 20..140 {
        let logits = continuation.logits(&tokens[..end])?;
        bits.extend(logits.into_iter().map(f32::to_bits));
    }
    Ok(bits)
}

/// The least arena that something runs in, to so many bytes.
fn floor(step: u64, mut fits: impl FnMut(u64) -> bool) -> u64 {
    let (mut least, mut most) = (0, 16 << 20);
    assert!(fits(most));
    while most - least > step {
        let middle = u64::midpoint(least, most);
        if fits(middle) {
            most = middle;
        } else {
            least = middle;
        }
    }
    most
}

#[test]
fn budgets_and_threads_change_no_bit() {
    for family in ["gpt2", "gemma2", "phi3-long"] {
        let run = |budget, threads| bits(Engine::builder().arena(budget), threads, family);
        let plenty = run(64 << 20, 1).unwrap();
        for threads in [2, 3, 4] {
            assert!(
                run(64 << 20, threads).unwrap() == plenty,
                "{family}, {threads}"
            );
        }
        // With less, texts are read whole at some length, and sums are others.
        let least = floor(4 << 10, |budget| {
            run(budget, 2).is_ok_and(|bits| bits == plenty)
        });
        for more in [0, 10 << 10, 100 << 10, 1 << 20] {
            assert!(run(least + more, 2).unwrap() == plenty, "{family}, {more}");
        }
    }
}

/// A Llama whose layers keep 64 KiB and more at a length of 128.
fn wide(builder: Builder) -> Result<Box<dyn CausalLm>> {
    let text = json!({"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 128,
        "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})
    .to_string();
    let engine = builder.threads(2).seed(5).build()?;
    let model = DecoderConfig::from_json(&text).unwrap().build(&engine)?;
    stir(&*model)?;
    model.eval();
    Ok(model)
}

#[test]
fn what_is_kept_may_wait_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = random_tokens(8, 130);
    let run = |builder: Builder| -> Result<(Vec<Vec<f32>>, u64)> {
        let model = wide(builder)?;
        let mut continuation = Continuation::new(&*model, usize::MAX);
        let all = (125..=130).map(|end| continuation.logits(&tokens[..end]));
        let all = all.collect::<Result<_>>()?;
        Ok((all, model.engine().totals().io.bytes_read))
    };
    let (plenty, _) = run(Engine::builder().arena(64 << 20)).unwrap();
    let with = |budget| {
        let builder = Engine::builder().arena(budget);
        run(builder.disk(folder.path(), 64 << 20))
    };
    let alone = floor(64 << 10, |budget| {
        let found = run(Engine::builder().arena(budget));
        found.is_ok_and(|(found, _)| found == plenty)
    });
    let least = floor(64 << 10, |budget| {
        with(budget).is_ok_and(|(found, _)| found == plenty)
    });
    assert!(least < alone / 2, "{least} of {alone}");
    for budget in [least, least + (100 << 10), alone / 2] {
        let (found, read) = with(budget).unwrap();
        assert!(found == plenty, "{budget}");
        assert!(read > 0, "{budget}: nothing waited on disk");
    }
}

#[test]
fn without_room_for_keys_texts_are_read_whole() {
    let prompt = random_tokens(2, 70);
    let run = |budget, length: usize, whole: bool| -> Result<(Vec<u32>, u64)> {
        let model = wide(Engine::builder().arena(budget))?;
        let before = model.engine().totals().evaluations;
        let own = Whole(&*model);
        let model: &dyn CausalLm = if whole { &own } else { &*model };
        let sampling = Sampling::default();
        let prompt = &prompt[..length];
        let tokens = generate(model, prompt, 40, sampling, |_| ControlFlow::Continue(()))?;
        Ok((tokens, model.engine().totals().evaluations - before))
    };
    // The first is longer than half its buffers from the start, the other grows.
    for length in [70, 50] {
        let (expected, evaluations) = run(64 << 20, length, true).unwrap();
        assert_eq!(evaluations, 40);
        let least = floor(4 << 10, |budget| run(budget, length, true).is_ok());
        for more in [0, 100 << 10, 1 << 20, 4 << 20] {
            let (found, evaluations) = run(least + more, length, false).unwrap();
            assert_eq!(found, expected, "{length}, {more}");
            // Latest tokens join the past once: a plan for each pair of a layer's buffers.
            let all = 40 + 4;
            match more {
                0 => assert!(evaluations < all, "{length}: all was kept at the floor"),
                _ if more >= 1 << 20 => assert_eq!(evaluations, all, "{length}, {more}"),
                _ => {}
            }
        }
        assert!(matches!(
            run(least - (8 << 10), length, false),
            Err(Error::OverBudget { .. } | Error::State { .. })
        ));
    }
}

#[test]
fn nothing_stays_behind() {
    let model = build(Engine::builder(), "gpt2");
    let engine = model.engine();
    let loss = || {
        let tokens = engine.indices(&random_tokens(1, 20), [2, 10]).unwrap();
        let loss = model.loss(&tokens, &tokens).unwrap();
        loss.item().unwrap().to_bits()
    };
    let evaluated = loss();
    let drawn = greedy(&*model, &random_tokens(1, 20), 100, usize::MAX);
    // In training mode dropout draws other numbers each time.
    assert!(loss() != loss());
    model.eval();
    assert!(loss() == evaluated);
    let unknown = [3, VOCABULARY as u32];
    for prompt in [&unknown[..], &[]] {
        let sampling = Sampling::default();
        let refused = generate(&*model, prompt, 3, sampling, |_| ControlFlow::Continue(()));
        assert!(matches!(
            refused,
            Err(Error::Kernel { .. } | Error::Saved(_))
        ));
        assert!(loss() != loss());
        model.eval();
    }
    // And it goes on.
    let again = greedy(&*model, &random_tokens(1, 20), 100, usize::MAX);
    assert_eq!(again, drawn);
    for family in FAMILIES {
        let model = build(Engine::builder(), family);
        let held = || {
            // Takes up what was dropped.
            model.engine().totals();
            model.engine().state_bytes()
        };
        let before = held();
        greedy(&*model, &random_tokens(1, 20), 100, usize::MAX);
        assert_eq!(held(), before, "{family}");
        greedy(&*model, &random_tokens(1, 20), 40, 30);
        greedy(&Whole(&*model), &random_tokens(1, 20), 2, 30);
        let tables = held() - before;
        assert!(tables <= 8 << 10, "{family}: {tables} bytes");
    }
}

#[test]
fn what_is_pending_stays_pending() {
    let gradient = |generates: bool| {
        let model = build(Engine::builder(), "llama");
        let tokens = model
            .engine()
            .indices(&random_tokens(1, 20), [2, 10])
            .unwrap();
        let loss = model.loss(&tokens, &tokens).unwrap();
        if generates {
            greedy(&*model, &random_tokens(2, 10), 30, usize::MAX);
        }
        loss.backward().unwrap();
        if generates {
            greedy(&*model, &random_tokens(2, 10), 30, usize::MAX);
        }
        let parameters = model.parameters().into_iter();
        let of = |p: highwater::Parameter| p.grad().unwrap().to_vec::<f32>().unwrap();
        parameters.flat_map(of).collect::<Vec<f32>>()
    };
    assert!(gradient(false) == gradient(true));
}

#[test]
fn eager_engines_and_half_precision_keep_too() {
    let tokens = random_tokens(3, 80);
    for family in ["gpt2", "gemma3_text"] {
        let model = build(Engine::builder(), family);
        let eager = build(Engine::eager(), family);
        let found = logits(&*eager, &tokens, 20..=80);
        assert!(found == logits(&*model, &tokens, 20..=80), "{family}");
        let low = highwater::autocast(DType::BF16, || logits(&*model, &tokens, 20..=80));
        assert_near(family, &low, &found, 0.05);
    }
}

#[test]
fn drawing_stops_when_it_is_told_to() {
    let model = build(Engine::builder(), "llama");
    let prompt = random_tokens(1, 10);
    let sampling = Sampling {
        temperature: 1.0,
        seed: 4,
        ..Sampling::default()
    };
    let (mut seen, mut left) = (Vec::new(), 6);
    let drawn = generate(&*model, &prompt, 20, sampling, |token| {
        seen.push(token);
        left -= 1;
        if left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let drawn = drawn.unwrap();
    assert_eq!(drawn[10..], seen);
    assert_eq!(seen.len(), 6);
    let none = generate(&*model, &prompt, 0, sampling, |_| ControlFlow::Continue(()));
    assert_eq!(none.unwrap(), prompt);
    let nothing = generate(&*model, &[], 0, sampling, |_| ControlFlow::Continue(()));
    assert!(matches!(nothing, Err(Error::Saved(_))));
}
