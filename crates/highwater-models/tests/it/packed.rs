//! Documents packed in rows train as by themselves: losses and gradients of small random models of each kind of
//! attention and of positions; no document sees another; the same bits in every budget, and one plan for all
//! packings.

use highwater::nn::{LoraOptions, add_adapters};
use highwater::op::WeightFormat;
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{Builder, DType, Engine, Error, Parameter, Tensor, philox};
use highwater_models::{Architecture, CausalLm, Packed};
use serde_json::{Value, json};

use crate::families::{FAMILIES, VOCABULARY, stir};

const ROWS: usize = 2;
const LENGTH: usize = 150;
/// Lengths that are given for each row; the rest of it is padding.
const DOCUMENTS: usize = 5;

fn architecture(family: &str) -> Box<dyn Architecture> {
    let own = match family {
        // Documents fit, rows do not.
        "gpt2" => json!({"n_positions": 120}),
        _ => Value::Null,
    };
    crate::families::architecture(family, 256, &own)
}

fn build(builder: Builder, family: &str) -> Box<dyn CausalLm> {
    let engine = builder.threads(2).seed(5).build().unwrap();
    let model = architecture(family).build(&engine).unwrap();
    stir(&*model).unwrap();
    model
}

/// Numbers below a bound.
fn integers(seed: u64, stream: u64, below: i64, count: usize) -> Vec<i64> {
    let mut values = vec![0; count];
    philox::fill_integers(seed, stream << 32, (0, below), &mut values);
    values
}

/// Rows of documents, and where each of them is among the tokens.
#[derive(Clone)]
struct Rows {
    tokens: Vec<i64>,
    targets: Vec<i64>,
    lengths: Vec<i64>,
    positions: Vec<i64>,
    documents: Vec<std::ops::Range<usize>>,
}

impl Rows {
    fn random(seed: u64) -> Self {
        let mut rows = Self {
            tokens: integers(seed, 0, VOCABULARY as i64, ROWS * LENGTH),
            targets: vec![-100; ROWS * LENGTH],
            lengths: integers(seed, 1, 60, ROWS * DOCUMENTS),
            positions: Vec::new(),
            documents: Vec::new(),
        };
        let learnt = integers(seed, 2, 5, ROWS * LENGTH);
        for (row, lengths) in rows.lengths.chunks_mut(DOCUMENTS).enumerate() {
            // One row's documents end before it does; another's may fill it.
            let mut left = LENGTH - 10 * row;
            for length in lengths {
                *length = (*length).min(left as i64);
                let (start, end) = (
                    rows.positions.len(),
                    rows.positions.len() + *length as usize,
                );
                left -= *length as usize;
                rows.positions.extend(0..*length);
                // Of the last token nothing is learnt, of others mostly.
                for at in (start + 1..end).filter(|&at| learnt[at] > 0) {
                    rows.targets[at - 1] = rows.tokens[at];
                }
                rows.documents.push(start..end);
            }
            let rest = (row + 1) * LENGTH - rows.positions.len();
            rows.positions.extend(0..rest as i64);
        }
        rows
    }

    fn counted(targets: &[i64]) -> usize {
        targets.iter().filter(|&&target| target != -100).count()
    }

    /// The loss of these rows; lengths and positions of one dtype or the other.
    fn packed_loss(&self, model: &dyn CausalLm, unsigned: bool) -> highwater::Result<Tensor> {
        let engine = model.engine();
        let whole = |data: &[i64], width: usize| {
            Tensor::from_slice(engine, data, [data.len() / width, width])
        };
        let small = |data: &[i64], width: usize| {
            if !unsigned {
                return whole(data, width);
            }
            let data: Vec<u32> = data.iter().map(|&x| x as u32).collect();
            engine.indices(&data, [data.len() / width, width])
        };
        model.packed_loss(&Packed {
            tokens: &small(&self.tokens, LENGTH)?,
            targets: &whole(&self.targets, LENGTH)?,
            lengths: &small(&self.lengths, DOCUMENTS)?,
            positions: &small(&self.positions, LENGTH)?,
        })
    }

    /// The mean of the losses of documents alone, each by how many targets it has.
    fn apart_loss(&self, model: &dyn CausalLm) -> Tensor {
        let all = Self::counted(&self.targets) as f64;
        let documents = self.documents.iter().cloned();
        let parts = documents.filter_map(|document| {
            let targets = &self.targets[document.clone()];
            let weight = Self::counted(targets) as f64 / all;
            let of = |data: &[i64]| {
                Tensor::from_slice(model.engine(), data, [1, document.len()]).unwrap()
            };
            let loss = || model.loss(&of(&self.tokens[document.clone()]), &of(targets));
            (weight > 0.0).then(|| loss().unwrap().mul_scalar(weight).unwrap())
        });
        parts.reduce(|a, b| a.add(&b).unwrap()).unwrap()
    }
}

/// A loss, and the gradients of all that trains by name.
type Learnt = (f32, Vec<(String, Vec<f32>)>);

fn learnt(model: &dyn CausalLm, loss: &Tensor) -> Learnt {
    let named = model.named_parameters().into_iter();
    let trained: Vec<_> = named
        .filter(|(_, parameter)| parameter.requires_grad().unwrap())
        .collect();
    let parameters = trained.iter().map(|(_, parameter)| parameter.clone());
    // Nothing is updated.
    let mut sgd = optimizer(parameters.collect(), 0.0);
    loss.backward().unwrap();
    sgd.step_keep_grads().unwrap();
    let gradients = trained.into_iter().map(|(name, parameter)| {
        let gradient = parameter.grad().unwrap();
        (name, gradient.to_vec().unwrap())
    });
    let learnt = (loss.item().unwrap(), gradients.collect());
    sgd.zero_grad();
    learnt
}

fn optimizer(parameters: Vec<Parameter>, lr: f64) -> Sgd {
    let options = SgdOptions {
        lr,
        ..SgdOptions::default()
    };
    Sgd::new(parameters, options).unwrap()
}

/// That a model learns from packed rows what it learns from each of their documents.
fn assert_learns_as_apart(what: &str, model: &dyn CausalLm, rows: &Rows) {
    let packed = learnt(model, &rows.packed_loss(model, false).unwrap());
    let apart = learnt(model, &rows.apart_loss(model));
    let off = (packed.0 - apart.0).abs() / apart.0;
    assert!(off < 1e-5, "{what}: {} beside {}", packed.0, apart.0);
    assert!(!packed.1.is_empty());
    for ((name, packed), (_, apart)) in packed.1.iter().zip(&apart.1) {
        let scale = apart.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        assert!(scale > 0.0, "{what}: nothing is learnt by {name}");
        for (packed, apart) in packed.iter().zip(apart) {
            let off = (packed - apart).abs();
            assert!(
                off <= 1e-4 * scale,
                "{what}, {name}: {packed} beside {apart}"
            );
        }
    }
}

#[test]
fn packed_documents_train_as_by_themselves() {
    for family in FAMILIES {
        let model = build(Engine::builder(), family);
        for seed in 0..3 {
            let rows = Rows::random(seed);
            assert_learns_as_apart(&format!("{family}, {seed}"), &*model, &rows);
        }
        let rows = Rows::random(3);
        let item = |unsigned| rows.packed_loss(&*model, unsigned).unwrap().item().unwrap();
        assert_eq!(item(true).to_bits(), item(false).to_bits(), "{family}");
    }
}

#[test]
fn no_document_sees_another() {
    for family in FAMILIES {
        let model = build(Engine::builder(), family);
        let rows = Rows::random(1);
        for document in rows.documents.iter().filter(|document| document.len() > 1) {
            let mut own = rows.clone();
            // Somewhere in it, whatever may have been left out.
            own.targets.fill(-100);
            own.targets[document.end - 2] = 3;
            own.targets[document.start] = 4;
            let mut others = own.clone();
            for (at, token) in others.tokens.iter_mut().enumerate() {
                if !document.contains(&at) {
                    *token = (*token + 1) % VOCABULARY as i64;
                }
            }
            let learnt = |rows: &Rows| learnt(&*model, &rows.packed_loss(&*model, false).unwrap());
            assert!(learnt(&own) == learnt(&others), "{family}, {document:?}");
            own.tokens[document.start] = (own.tokens[document.start] + 1) % VOCABULARY as i64;
            assert!(learnt(&own) != learnt(&others), "{family}, {document:?}");
        }
    }
}

#[test]
fn positions_are_those_that_are_given() {
    // Capped attention tells documents by them.
    for family in FAMILIES.into_iter().filter(|&family| family != "gemma2") {
        let model = build(Engine::builder(), family);
        let loss = |rows: &Rows| rows.packed_loss(&*model, false).unwrap().item().unwrap();
        let (rows, mut wide) = (Rows::random(1), Rows::random(1));
        for position in &mut wide.positions {
            *position = 2 * *position % 120;
        }
        let (loss, wide) = (loss(&rows), loss(&wide));
        // Far more than rounding comes to.
        assert!(
            (loss - wide).abs() > 1e-4 * loss,
            "{family}: {loss}, {wide}"
        );
    }
}

/// Losses of some steps, and the gradients of the last.
fn train(builder: Builder, family: &str, steps: u64) -> (Box<dyn CausalLm>, Vec<u32>) {
    let model = build(builder, family);
    let mut sgd = optimizer(model.parameters(), 0.1);
    let (mut losses, dry) = (Vec::new(), model.engine().is_dry_run());
    for seed in 0..steps {
        let loss = Rows::random(seed).packed_loss(&*model, true).unwrap();
        loss.backward().unwrap();
        sgd.step().unwrap();
        if !dry {
            losses.push(loss.item().unwrap());
        }
    }
    if !dry {
        let values = model.parameters().into_iter();
        losses.extend(values.flat_map(|p| p.to_vec::<f32>().unwrap()));
    }
    (model, losses.into_iter().map(f32::to_bits).collect())
}

#[test]
fn budgets_change_no_bit() {
    for family in ["gpt2", "mistral", "gemma2", "gemma3_text"] {
        let (dry, _) = train(Engine::builder().arena(1 << 40).dry_run(), family, 1);
        let plan = dry.engine().forecast().unwrap();
        let (least, most) = (plan.floor_bytes, plan.peak_bytes);
        assert!(least < most);
        let run = |budget| train(Engine::builder().arena(budget), family, 2);
        let plenty = run(most).1;
        for i in 0..4 {
            let (model, found) = run(least + (most - least) * i / 4);
            assert!(found == plenty, "{family} at {i} quarters");
            let recomputed = model.engine().last_step().recomputed_nodes;
            assert!(
                i > 0 || recomputed > 0,
                "nothing is recomputed at the floor"
            );
        }
    }
}

#[test]
fn one_plan_is_for_all_packings() {
    for family in FAMILIES {
        let (model, _) = train(Engine::builder(), family, 3);
        assert!(model.engine().is_settled(), "{family}");
    }
}

#[test]
fn adapters_and_weights_in_few_bits_learn_from_packed_documents() {
    let options = LoraOptions {
        r: 2,
        lora_dropout: 0.0,
        target_modules: vec!["all-linear".into()],
        ..LoraOptions::default()
    };
    for family in ["llama", "gemma2", "phi3"] {
        let rows = Rows::random(2);
        let whole = build(Engine::builder(), family);
        let engine = Engine::builder().threads(2).seed(5).build().unwrap();
        let few = architecture(family)
            .build_held(&engine, WeightFormat::Int8)
            .unwrap();
        for (i, (_, layer)) in few.held().iter().enumerate() {
            let fill = |row: usize, to: &mut [f32]| {
                philox::fill_normal(i as u64, (row as u64) << 32, to);
                for x in to {
                    *x *= 0.2;
                }
            };
            layer.fill(fill).unwrap();
        }
        for (what, model) in [("whole", whole), ("few bits", few)] {
            add_adapters(&*model, &options).unwrap();
            stir(&*model).unwrap();
            assert_learns_as_apart(&format!("{family}, {what}"), &*model, &rows);
        }
    }
}

#[test]
fn packed_documents_are_read_in_half_precision() {
    for family in FAMILIES {
        let model = build(Engine::builder(), family);
        let rows = Rows::random(4);
        let loss = || rows.packed_loss(&*model, true);
        let (low, whole) = (
            highwater::autocast(DType::BF16, loss).unwrap(),
            loss().unwrap(),
        );
        let [low, whole] = [low, whole].map(|loss| loss.item().unwrap());
        assert!(
            (low - whole).abs() < 0.02 * whole,
            "{family}: {low}, {whole}"
        );
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    for family in FAMILIES {
        let model = build(Engine::builder(), family);
        let stops = |rows: &Rows| {
            let stopped = rows.packed_loss(&*model, false).unwrap().item();
            matches!(stopped, Err(Error::Kernel { .. }))
        };
        let rows = Rows::random(0);
        assert!(!stops(&rows), "{family}");
        let mut long = rows.clone();
        long.lengths[0] = LENGTH as i64 + 1;
        // Capped attention goes by positions.
        assert_eq!(stops(&long), family != "gemma2", "{family}");
        let mut far = rows.clone();
        far.positions[3] = LENGTH as i64;
        assert!(stops(&far), "{family}");
        let mut nothing = rows.clone();
        nothing.targets.fill(-100);
        let loss = nothing.packed_loss(&*model, false).unwrap();
        assert!(loss.item().unwrap().is_nan(), "{family}");
    }
}
