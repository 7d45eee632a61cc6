//! Recurrent layers, attention and transformer blocks beside PyTorch's, and what holds modules.

use crate::models::Random;
use highwater::DType;
use highwater::nn::{
    Activation, ConvSettings, Gru, GruCell, Lstm, LstmCell, Module, MultiheadAttention,
    Nonlinearity, PackedSequence, PixelShuffle, PixelUnshuffle, RecurrentOptions, Rnn, RnnCell,
    Sees, Sequential, SpectralNorm, SpectralNormOptions, TransformerDecoderLayer,
    TransformerEncoderLayer, TransformerOptions, WeightNorm,
};
use highwater::prelude::*;
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::Path;

/// What PyTorch made: see `fixtures/make_modules.py`.
struct Fixture {
    file: Vec<u8>,
    case: String,
    engine: Engine,
}

impl Fixture {
    fn new(case: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/modules.safetensors");
        Self {
            file: std::fs::read(path).unwrap(),
            case: case.to_owned(),
            engine: Engine::builder().memory(256 << 20).build().unwrap(),
        }
    }

    /// Shape and numbers of an entry, if there is one.
    fn find(&self, what: &str, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        let tensors = SafeTensors::deserialize(&self.file).unwrap();
        let view = tensors
            .tensor(&format!("{}.{what}.{name}", self.case))
            .ok()?;
        let (chunks, _) = view.data().as_chunks();
        let numbers = chunks.iter().map(|&chunk| f32::from_le_bytes(chunk));
        Some((view.shape().to_vec(), numbers.collect()))
    }

    fn tensor(&self, what: &str, name: &str) -> Tensor {
        let (shape, numbers) = self.find(what, name).unwrap();
        self.engine.tensor(&numbers, shape).unwrap()
    }

    fn input(&self, name: &str) -> Tensor {
        self.tensor("input", name).requires_grad_().unwrap()
    }

    fn lengths(&self) -> Vec<usize> {
        let tensors = SafeTensors::deserialize(&self.file).unwrap();
        let view = tensors.tensor("lengths").unwrap();
        let (chunks, _) = view.data().as_chunks();
        chunks
            .iter()
            .map(|&chunk| i64::from_le_bytes(chunk) as usize)
            .collect()
    }

    /// Gives a module PyTorch's parameters, whose names must be the module's.
    fn load(&self, module: &dyn Module) {
        let names = module.state_dict();
        let values: BTreeMap<String, Vec<f32>> = names
            .keys()
            .map(|name| (name.clone(), self.find("param", name).expect(name).1))
            .collect();
        module.load_state_dict(&values).unwrap();
    }

    /// Compares outputs, then all gradients.
    fn check(&self, module: &dyn Module, inputs: &[(&str, &Tensor)], outputs: &[(&str, &Tensor)]) {
        let mut total: Option<Tensor> = None;
        for (name, output) in outputs {
            self.close("output", name, output);
            let part = output.mul(&self.tensor("factor", name)).unwrap();
            let part = part.sum().unwrap();
            total = Some(match total {
                Some(total) => total.add(&part).unwrap(),
                None => part,
            });
        }
        total.unwrap().backward().unwrap();
        for (name, input) in inputs {
            self.close("grad_input", name, &input.grad().unwrap());
        }
        for (name, parameter) in module.named_parameters() {
            self.close("grad", &name, &parameter.grad().unwrap());
        }
    }

    fn close(&self, what: &str, name: &str, got: &Tensor) {
        let (shape, expected) = self.find(what, name).unwrap();
        assert_eq!(got.dims(), shape, "{}.{what}.{name}", self.case);
        for (i, (got, expected)) in got
            .to_vec::<f32>()
            .unwrap()
            .iter()
            .zip(expected)
            .enumerate()
        {
            let off = (got - expected).abs();
            assert!(
                off <= 2e-5 + 2e-5 * expected.abs(),
                "{}.{what}.{name}[{i}]: {got} instead of {expected}",
                self.case
            );
        }
    }
}

const BOTH_WAYS: RecurrentOptions = RecurrentOptions {
    num_layers: 2,
    bias: true,
    bidirectional: true,
    dropout: 0.0,
};

#[test]
fn rnn_is_pytorchs() {
    let deep = RecurrentOptions {
        num_layers: 2,
        bias: false,
        ..RecurrentOptions::default()
    };
    for (case, nonlinearity, options) in [
        ("rnn_tanh", Nonlinearity::Tanh, RecurrentOptions::default()),
        ("rnn_relu", Nonlinearity::Relu, deep),
    ] {
        let fixture = Fixture::new(case);
        let rnn = Rnn::new(&fixture.engine, 7, 4, nonlinearity, options).unwrap();
        fixture.load(&rnn);
        let x = fixture.input("x");
        let packed = PackedSequence::pack(&x, &fixture.lengths()).unwrap();
        let (y, h) = rnn.forward(&packed, None).unwrap();
        let y = y.pad().unwrap();
        fixture.check(&rnn, &[("x", &x)], &[("y", &y), ("last_h", &h)]);
    }
}

#[test]
fn lstm_is_pytorchs() {
    for (case, options) in [
        ("lstm", RecurrentOptions::default()),
        ("lstm_both_ways", BOTH_WAYS),
    ] {
        let fixture = Fixture::new(case);
        let lstm = Lstm::new(&fixture.engine, 7, 4, options).unwrap();
        fixture.load(&lstm);
        let x = fixture.input("x");
        let packed = PackedSequence::pack(&x, &fixture.lengths()).unwrap();
        let mut inputs = vec![("x", &x)];
        let first = fixture
            .find("input", "h")
            .map(|_| (fixture.input("h"), fixture.input("c")));
        let states = first.as_ref().map(|(h, c)| (h, c));
        inputs.extend(states.iter().flat_map(|&(h, c)| [("h", h), ("c", c)]));
        let (y, (h, c)) = lstm.forward(&packed, states).unwrap();
        let y = y.pad().unwrap();
        fixture.check(&lstm, &inputs, &[("y", &y), ("last_h", &h), ("last_c", &c)]);
    }
}

#[test]
fn gru_is_pytorchs() {
    for (case, options) in [
        ("gru", RecurrentOptions::default()),
        ("gru_both_ways", BOTH_WAYS),
    ] {
        let fixture = Fixture::new(case);
        let gru = Gru::new(&fixture.engine, 7, 4, options).unwrap();
        fixture.load(&gru);
        let x = fixture.input("x");
        let packed = PackedSequence::pack(&x, &fixture.lengths()).unwrap();
        let first = fixture.find("input", "h").map(|_| fixture.input("h"));
        let mut inputs = vec![("x", &x)];
        inputs.extend(first.iter().map(|h| ("h", h)));
        let (y, h) = gru.forward(&packed, first.as_ref()).unwrap();
        let y = y.pad().unwrap();
        fixture.check(&gru, &inputs, &[("y", &y), ("last_h", &h)]);
    }
}

/// Any lengths: packed and padded again, sequences are what they were, and so are their lengths.
#[test]
fn packing_loses_nothing() {
    let engine = Engine::builder().memory(256 << 20).build().unwrap();
    let mut random = Random(5);
    for _ in 0..50 {
        let (batch, steps, width) = (
            1 + random.below(5),
            1 + random.below(6),
            1 + random.below(3),
        );
        let lengths: Vec<usize> = (0..batch).map(|_| 1 + random.below(steps)).collect();
        let longest = *lengths.iter().max().unwrap();
        let count = batch * steps * width;
        let numbers: Vec<f32> = (1..=count).map(|i| i as f32).collect();
        let x = engine.tensor(&numbers, [batch, steps, width]).unwrap();
        let packed = PackedSequence::pack(&x, &lengths).unwrap();
        assert_eq!(packed.lengths(), lengths);
        assert_eq!(packed.data.dims(), [lengths.iter().sum(), width]);
        let padded = packed.pad().unwrap();
        assert_eq!(padded.dims(), [batch, longest, width]);
        let padded = padded.to_vec::<f32>().unwrap();
        for (i, &got) in padded.iter().enumerate() {
            let (row, step, column) = (i / (longest * width), i / width % longest, i % width);
            let is_there = step < lengths[row];
            let kept = numbers[(row * steps + step) * width + column];
            assert_eq!(got, if is_there { kept } else { 0.0 });
        }
    }
}

/// Labels are packed beside what they belong to.
#[test]
fn whole_numbers_are_packed_and_padded() {
    let engine = Engine::builder().memory(256 << 20).build().unwrap();
    let labels: Vec<i64> = (0..24).map(|i| (1 << 40) + i).collect();
    let x = Tensor::from_slice(&engine, &labels, [3, 4, 2]).unwrap();
    let packed = PackedSequence::pack(&x, &[2, 4, 1]).unwrap();
    assert_eq!(packed.data.dims(), [7, 2]);
    let padded = packed.pad().unwrap().to_vec::<i64>().unwrap();
    let want = |i: usize| {
        let (row, step) = (i / 8, i / 2 % 4);
        if step < [2, 4, 1][row] { labels[i] } else { 0 }
    };
    assert_eq!(padded, (0..24).map(want).collect::<Vec<_>>());
}

#[test]
fn lengths_that_do_not_fit_are_told() {
    let engine = Engine::builder().memory(256 << 20).build().unwrap();
    let x = Tensor::randn(&engine, [2, 3, 4]).unwrap();
    for lengths in [&[1, 4][..], &[0, 2], &[3]] {
        let error = PackedSequence::pack(&x, lengths).unwrap_err().to_string();
        assert!(error.contains("2 lengths from 1 to 3"), "{error}");
    }
}

#[test]
fn attention_is_pytorchs() {
    for (case, heads, bias) in [("attention", 3, true), ("attention_masked", 2, false)] {
        let fixture = Fixture::new(case);
        let attention = MultiheadAttention::new(&fixture.engine, 12, heads, bias).unwrap();
        fixture.load(&attention);
        let [q, k, v] = ["q", "k", "v"].map(|name| fixture.input(name));
        let hidden = (0..5 * 7).map(|i| {
            if i % 7 > i / 7 {
                f32::NEG_INFINITY
            } else {
                0.0
            }
        });
        let mask = fixture
            .engine
            .tensor(&hidden.collect::<Vec<_>>(), [5, 7])
            .unwrap();
        let sees = if bias { Sees::All } else { Sees::Mask(&mask) };
        let y = attention.forward(&q, &k, &v, sees).unwrap();
        fixture.check(&attention, &[("q", &q), ("k", &k), ("v", &v)], &[("y", &y)]);
    }
}

/// True at two of five pairs, and at all keys of the third query: as in the fixture.
fn hiding(queries: usize, keys: usize) -> Vec<bool> {
    let pairs = (0..queries * keys).map(|i| (i / keys, i % keys));
    let hidden = pairs.map(|(query, key)| (query * 3 + key) % 5 < 2 || query == 2);
    hidden.collect()
}

#[test]
fn masks_hide_what_pytorchs_hide() {
    let fixture = Fixture::new("attention_hidden");
    let engine = &fixture.engine;
    let attention = MultiheadAttention::new(engine, 12, 3, true).unwrap();
    fixture.load(&attention);
    let [q, k, v] = ["q", "k", "v"].map(|name| fixture.input(name));
    let mask = Tensor::from_bools(engine, &hiding(5, 7), [5, 7]).unwrap();
    let y = attention.forward(&q, &k, &v, Sees::Mask(&mask)).unwrap();
    fixture.check(&attention, &[("q", &q), ("k", &k), ("v", &v)], &[("y", &y)]);

    let fixture = Fixture::new("attention_padded");
    let engine = &fixture.engine;
    let attention = MultiheadAttention::new(engine, 12, 3, true).unwrap();
    fixture.load(&attention);
    let [q, k, v] = ["q", "k", "v"].map(|name| fixture.input(name));
    let padding: Vec<bool> = (0..14).map(|i| (5..9).contains(&i)).collect();
    let padding = Tensor::from_bools(engine, &padding, [2, 7]).unwrap();
    let sees = Sees::Unpadded {
        padding: &padding,
        causal: true,
    };
    let y = attention.forward(&q, &k, &v, sees).unwrap();
    fixture.check(&attention, &[("q", &q), ("k", &k), ("v", &v)], &[("y", &y)]);
}

#[test]
fn masks_of_products_show_or_are_added() {
    let fixture = Fixture::new("scaled_dot_product");
    let engine = &fixture.engine;
    let [q, k, v] = ["q", "k", "v"].map(|name| fixture.input(name));
    let hidden = Tensor::from_bools(engine, &hiding(5, 7), [5, 7]).unwrap();
    let shown = q.masked_attention(&k, &v, &hidden.logical_not().unwrap());
    let numbers = Tensor::arange(engine, 0.0, 7.0, 1.0, DType::F32).unwrap();
    let numbers = numbers.div_scalar(4.0).unwrap().expand([5, 7]).unwrap();
    let added = numbers.masked_fill(&hidden, f64::NEG_INFINITY).unwrap();
    let added = q.masked_attention(&k, &v, &added).unwrap();
    let outputs = [("shown", &shown.unwrap()), ("added", &added)];
    fixture.check(
        &Vec::<Parameter>::new(),
        &[("q", &q), ("k", &k), ("v", &v)],
        &outputs,
    );

    let whole = Tensor::ones(engine, [5, 7], DType::I64).unwrap();
    let refused = q.masked_attention(&k, &v, &whole).unwrap_err().to_string();
    assert!(refused.contains("a mask is of Bool"), "{refused}");
}

fn block(norm_first: bool, activation: Activation) -> TransformerOptions {
    TransformerOptions {
        feedforward: 20,
        dropout: 0.0,
        activation,
        norm_first,
        ..TransformerOptions::new(12, 3)
    }
}

#[test]
fn encoder_layers_are_pytorchs() {
    for (case, options) in [
        ("encoder", block(false, Activation::Relu)),
        ("encoder_norm_first", block(true, Activation::Gelu)),
    ] {
        let fixture = Fixture::new(case);
        let layer = TransformerEncoderLayer::new(&fixture.engine, options).unwrap();
        fixture.load(&layer);
        let x = fixture.input("x");
        let y = layer.forward(&x, Sees::Causal).unwrap();
        fixture.check(&layer, &[("x", &x)], &[("y", &y)]);
    }
}

#[test]
fn decoder_layers_are_pytorchs() {
    for (case, norm_first) in [("decoder", false), ("decoder_norm_first", true)] {
        let fixture = Fixture::new(case);
        let options = block(norm_first, Activation::Relu);
        let layer = TransformerDecoderLayer::new(&fixture.engine, options).unwrap();
        fixture.load(&layer);
        let (x, memory) = (fixture.input("x"), fixture.input("memory"));
        let y = layer.forward(&x, &memory, Sees::Causal, Sees::All).unwrap();
        fixture.check(&layer, &[("x", &x), ("memory", &memory)], &[("y", &y)]);
    }
}

#[test]
fn recurrent_cells_are_pytorchs() {
    let fixture = Fixture::new("rnn_cell");
    let cell = RnnCell::new(&fixture.engine, 7, 4, true, Nonlinearity::Tanh).unwrap();
    fixture.load(&cell);
    let (x, h) = (fixture.input("x"), fixture.input("h"));
    let next = cell.forward(&x, Some(&h)).unwrap();
    fixture.check(&cell, &[("x", &x), ("h", &h)], &[("h", &next)]);

    let fixture = Fixture::new("rnn_cell_relu");
    let cell = RnnCell::new(&fixture.engine, 7, 4, false, Nonlinearity::Relu).unwrap();
    fixture.load(&cell);
    let x = fixture.input("x");
    let next = cell.forward(&x, None).unwrap();
    fixture.check(&cell, &[("x", &x)], &[("h", &next)]);

    let fixture = Fixture::new("lstm_cell");
    let cell = LstmCell::new(&fixture.engine, 7, 4, true).unwrap();
    fixture.load(&cell);
    let [x, h, c] = ["x", "h", "c"].map(|name| fixture.input(name));
    let next = cell.forward(&x, Some((&h, &c))).unwrap();
    let inputs = [("x", &x), ("h", &h), ("c", &c)];
    fixture.check(&cell, &inputs, &[("h", &next.0), ("c", &next.1)]);

    let fixture = Fixture::new("lstm_cell_first");
    let cell = LstmCell::new(&fixture.engine, 7, 4, false).unwrap();
    fixture.load(&cell);
    let x = fixture.input("x");
    let next = cell.forward(&x, None).unwrap();
    fixture.check(&cell, &[("x", &x)], &[("h", &next.0), ("c", &next.1)]);

    let fixture = Fixture::new("gru_cell");
    let cell = GruCell::new(&fixture.engine, 7, 4, true).unwrap();
    fixture.load(&cell);
    let (x, h) = (fixture.input("x"), fixture.input("h"));
    let next = cell.forward(&x, Some(&h)).unwrap();
    fixture.check(&cell, &[("x", &x), ("h", &h)], &[("h", &next)]);

    let told = cell.forward(&x, Some(&x)).unwrap_err().to_string();
    assert!(told.contains("a state [5, 7] is given"), "{told}");
    let row = x.select(0, 0).unwrap();
    let told = cell.forward(&row, None).unwrap_err().to_string();
    assert!(told.contains("takes [B, inputs]"), "{told}");
    assert!(GruCell::new(&fixture.engine, 0, 4, true).is_err());
}

#[test]
fn pixels_are_shuffled_as_in_pytorch() {
    for (case, factor, back) in [
        ("pixel_shuffle", 2, false),
        ("pixel_shuffle_alone", 3, false),
        ("pixel_unshuffle", 2, true),
    ] {
        let fixture = Fixture::new(case);
        // As a part of a sequence.
        let shuffle = if back {
            Sequential::new().then(PixelUnshuffle::new(factor))
        } else {
            Sequential::new().then(PixelShuffle::new(factor))
        };
        let x = fixture.input("x");
        let y = shuffle.forward(&x).unwrap();
        fixture.check(&shuffle, &[("x", &x)], &[("y", &y)]);
    }
    let x = Fixture::new("pixel_shuffle").input("x");
    for (told, what) in [
        (
            PixelShuffle::new(3).forward(&x),
            "8 channels are no multiple of 9",
        ),
        (PixelUnshuffle::new(2).forward(&x), "images of 3 x 5"),
        (PixelShuffle::new(0).forward(&x), "pixel_shuffle by 0"),
        (
            PixelShuffle::new(2).forward(&x.flatten(1, -1).unwrap()),
            "takes [.., C, H, W]",
        ),
    ] {
        let told = told.unwrap_err().to_string();
        assert!(told.contains(what), "{told}");
    }
}

/// A layer whose weight is computed, with PyTorch's names.
#[derive(Module)]
struct Computed<W: Module> {
    bias: Parameter,
    #[module(rename = "parametrizations.weight")]
    weight: W,
}

/// What a linear layer or a convolution of the fixtures makes, and its bias.
fn layer(fixture: &Fixture, is_conv: bool) -> (Parameter, Parameter) {
    let shape: &[usize] = if is_conv { &[4, 3, 2, 2] } else { &[4, 5] };
    let weight = Parameter::normal(&fixture.engine, shape, 1.0).unwrap();
    (
        weight,
        Parameter::new(&fixture.engine, [4], |_| {}).unwrap(),
    )
}

fn applied(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    if weight.dims().len() == 2 {
        return x.linear(weight, Some(bias)).unwrap();
    }
    x.conv2d(weight, Some(bias), ConvSettings::default())
        .unwrap()
}

#[test]
fn weight_norm_is_pytorchs() {
    for (case, dim, is_conv) in [
        ("weight_norm", Some(0), false),
        ("weight_norm_whole", None, false),
        ("weight_norm_conv", Some(0), true),
    ] {
        let fixture = Fixture::new(case);
        let (weight, bias) = layer(&fixture, is_conv);
        let norm = WeightNorm::new(&weight, dim).unwrap();
        // The weight that it was made from.
        let made = norm.weight().unwrap().to_vec::<f32>().unwrap();
        for (made, was) in made.iter().zip(weight.to_vec::<f32>().unwrap()) {
            assert!((made - was).abs() < 1e-6, "{case}: {made} for {was}");
        }
        let layer = Computed { bias, weight: norm };
        fixture.load(&layer);
        let x = fixture.input("x");
        let y = applied(&x, &layer.weight.weight().unwrap(), &layer.bias);
        fixture.check(&layer, &[("x", &x)], &[("y", &y)]);
    }
    let engine = Engine::builder().arena(1 << 20).build().unwrap();
    let weight = Parameter::normal(&engine, [4, 5], 1.0).unwrap();
    assert!(WeightNorm::new(&weight, Some(2)).is_err());
}

#[test]
fn spectral_norm_is_pytorchs() {
    for (case, is_conv) in [("spectral_norm", false), ("spectral_norm_conv", true)] {
        let fixture = Fixture::new(case);
        let (weight, bias) = layer(&fixture, is_conv);
        let weight = SpectralNorm::new(&weight, SpectralNormOptions::default()).unwrap();
        let layer = Computed { bias, weight };
        fixture.load(&layer);
        let x = fixture.input("x");
        let y = applied(&x, &layer.weight.weight().unwrap(), &layer.bias);
        fixture.check(&layer, &[("x", &x)], &[("y", &y)]);
        for (name, buffer) in layer.named_buffers() {
            let short = name.rsplit('_').next().unwrap();
            fixture.close("output", short, &buffer);
        }
        // In evaluation mode the vectors stay.
        layer.eval();
        let before = layer.named_buffers()[0].1.to_vec::<f32>().unwrap();
        let first = layer.weight.weight().unwrap().to_vec::<f32>().unwrap();
        assert_eq!(
            layer.weight.weight().unwrap().to_vec::<f32>().unwrap(),
            first
        );
        assert_eq!(layer.named_buffers()[0].1.to_vec::<f32>().unwrap(), before);
    }
    // From the start the largest singular value is about 1.
    let engine = Engine::builder().arena(4 << 20).seed(3).build().unwrap();
    let weight = Parameter::new(&engine, [2, 3], |w| {
        w.copy_from_slice(&[3.0, 0.0, 0.0, 0.0, 0.5, 0.0]);
    })
    .unwrap();
    let norm = SpectralNorm::new(&weight, SpectralNormOptions::default()).unwrap();
    let first = norm.weight().unwrap().to_vec::<f32>().unwrap();
    assert!((first[0] - 1.0).abs() < 1e-5, "{first:?}");
    let vector = Parameter::new(&engine, [3], |_| {}).unwrap();
    assert!(SpectralNorm::new(&vector, SpectralNormOptions::default()).is_err());
}
