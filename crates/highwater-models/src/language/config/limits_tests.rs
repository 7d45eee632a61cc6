//! Mutants of a sound configuration, as damaged or hostile files have them.

use super::*;
use serde_json::{Map, json};

const FIXTURE: &str = include_str!("../../../../../fixtures/gpt2_nano/config.json");
const EXTENTS: [&str; 6] = [
    "vocab_size",
    "n_positions",
    "n_embd",
    "n_layer",
    "n_head",
    "n_inner",
];
const OTHERS: [&str; 12] = [
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "layer_norm_epsilon",
    "initializer_range",
    "tie_word_embeddings",
    "activation_function",
    "model_type",
    "architectures",
    "bos_token_id",
    "torch_dtype",
    "quantization_config",
];

/// The same numbers every time (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % bound as u64) as usize
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// A number of any length in bits, so that small ones are as frequent as absurd ones.
    fn number(&mut self) -> u64 {
        let bits = self.below(64);
        let low = self.below(1 << 20) as u64;
        ((1 << bits) | low) & (u64::MAX >> (63 - bits))
    }

    fn value(&mut self) -> Value {
        let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
        let absurd = [
            json!(0),
            json!(-1),
            json!(-(1_i64 << 62)),
            json!(1_u64 << 63),
            json!(u64::MAX),
            json!(1e300),
            json!(1e-300),
            json!(-0.5),
            json!(256.5),
            json!(1.0),
            json!("768"),
            json!("NaN"),
            json!("x".repeat(100_000)),
            json!(true),
            json!(null),
            json!([]),
            json!([1, [2, {"a": null}]]),
            json!({"n_layer": {"n_layer": 3}}),
            deep,
        ];
        match self.below(3) {
            0 => self.pick(&absurd).clone(),
            1 => json!(self.number()),
            _ => json!(1_u64 << self.below(24)),
        }
    }

    /// A file with one to four fields changed or gone, now and then torn; the fields that it was.
    fn mutant(&mut self) -> (String, Vec<&'static str>) {
        let mut fields: Map<String, Value> = serde_json::from_str(FIXTURE).unwrap();
        let mut changed = Vec::new();
        for _ in 0..=self.below(4) {
            let names: &[&str] = if self.below(4) > 0 { &EXTENTS } else { &OTHERS };
            let name = *self.pick(names);
            changed.push(name);
            if self.below(8) == 0 {
                fields.remove(name);
            } else {
                fields.insert(name.to_owned(), self.value());
            }
        }
        let mut text = Value::from(fields).to_string();
        match self.below(20) {
            0 => text.truncate(self.below(text.len().min(300))),
            1 => text.replace_range(10..11, "\u{0}"),
            // What no number of this language can hold.
            2 => text = text.replace(":256", ":99999999999999999999999999"),
            3 => text = text.replace(":128", ":1e999"),
            _ => return (text, changed),
        }
        (text, Vec::new())
    }
}

/// Whether a model is small enough for all that is counted of it.
fn is_bounded(config: &Gpt2Config) -> bool {
    let listed = config.parameters().fold(0_u64, |sum, parameter| {
        sum.checked_add(parameter.numel()).expect("a sum in range")
    });
    assert_eq!(listed, config.parameter_count());
    listed <= PARAMETERS_MAX
        && config.n_layer <= 1 << 10
        && config.head_width() <= HEAD_WIDTH_MAX
        && config.head_width() * config.n_head == config.n_embd
        && config.inner() <= 1 << 18
}

#[test]
fn mutants_are_refused_by_name_or_within_limits() {
    let mut numbers = Numbers(7);
    let (mut taken, mut refused) = (0, 0);
    for index in 0..1500 {
        let (text, changed) = numbers.mutant();
        let shown: String = text.chars().take(2000).collect();
        match Gpt2Config::from_json(&text) {
            Ok(config) => {
                taken += 1;
                assert!(is_bounded(&config), "mutant {index}: {shown}");
                assert_eq!(Gpt2Config::from_json(&config.to_json()).unwrap(), config);
            }
            Err(error) => {
                refused += 1;
                let said = error.to_string();
                assert!(said.len() < 400, "mutant {index}: {said}");
                // A width may make the number of heads wrong.
                let named = ["n_head", "n_embd"].into_iter().chain(changed.clone());
                let named = named
                    .into_iter()
                    .any(|name| said.contains(&format!("`{name}`")));
                assert!(
                    named || changed.is_empty(),
                    "mutant {index}: {said}: {shown}"
                );
            }
        }
    }
    assert!(taken > 150 && refused > 700, "{taken} and {refused}");
}

fn refused(change: impl FnOnce(&mut Gpt2Config)) -> String {
    let mut config = Gpt2Config::default();
    change(&mut config);
    config.validate().expect_err("absurd").to_string()
}

#[test]
fn what_is_refused_says_value_limit_and_what_would_do() {
    assert_eq!(
        refused(|config| config.n_layer = 1 << 40),
        "`n_layer` is 1099511627776; expected a number from 1 to 1024"
    );
    assert_eq!(
        refused(|config| (config.n_embd, config.n_head) = (2048, 4)),
        "`n_head` is 4; expected a divisor of n_embd, 2048, of at least 8: a head is at most 256 wide"
    );
    assert_eq!(
        refused(|config| (config.n_embd, config.n_head, config.n_layer) = (32_768, 128, 100)),
        "`n_embd` is 32768; expected less: with n_layer 100, n_inner 131072, vocab_size 50257 and \
         n_positions 1024 the model has 1290213228544 parameters, and may have 137438953472"
    );
    let of = |text: &str| Gpt2Config::from_json(text).unwrap_err().to_string();
    assert_eq!(
        of(r#"{"model_type": "gpt2", "n_embd": -768}"#),
        "`n_embd`: invalid value: integer `-768`; expected a non-negative integer"
    );
    assert_eq!(
        of(r#"{"model_type": "gpt2", "attn_pdrop": "none"}"#),
        "`attn_pdrop`: invalid type: string \"none\"; expected a number"
    );
}

#[test]
fn counting_never_overflows() {
    let most = usize::MAX;
    for n_inner in [None, Some(most)] {
        let config = Gpt2Config {
            vocab_size: most,
            n_positions: most,
            n_embd: most,
            n_layer: most,
            n_inner,
            ..Gpt2Config::default()
        };
        assert_eq!(config.parameter_count(), u64::MAX);
        let first = config
            .parameters()
            .take(20)
            .map(|parameter| parameter.numel());
        assert_eq!(first.max(), Some(u64::MAX));
        assert!(config.validate().is_err());
    }
}

/// The limit is that of the operation.
#[test]
fn the_widest_head_is_the_widest_that_is_computed() {
    let engine = highwater::Engine::builder().threads(1).arena(1 << 20);
    let engine = engine.build().unwrap();
    let attend = |width: usize| {
        let x = engine.tensor(&vec![0.0; width], [1, 1, 1, width])?;
        x.scaled_dot_product_attention(&x, &x, true)
    };
    attend(HEAD_WIDTH_MAX).unwrap();
    assert!(attend(HEAD_WIDTH_MAX + 1).is_err());
}
