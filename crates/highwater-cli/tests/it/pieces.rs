//! Training with parameters that are updated in pieces: the bits of whole updates, also where a run
//! was saved and went on.

use std::collections::BTreeMap;
use std::path::Path;

use highwater::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions};
use highwater::{Engine, Module, Parameter};
use highwater_cli::model::tensors::read_tensors;
use highwater_memory::{Files, files::MemoryFiles};
use highwater_models::WeightsFolder;
use highwater_models::module_file::write_tensors;
use highwater_models::{Gpt2, Gpt2Config};

const MODEL: &str = "/model.safetensors";
const MOMENTS: &str = "/moments.safetensors";

type Make = fn(Vec<Parameter>) -> highwater::Result<Box<dyn Optimizer>>;

fn adamw(parameters: Vec<Parameter>) -> highwater::Result<Box<dyn Optimizer>> {
    Ok(Box::new(AdamW::new(parameters, AdamWOptions::default())?))
}

fn sgd(parameters: Vec<Parameter>) -> highwater::Result<Box<dyn Optimizer>> {
    let options = SgdOptions {
        lr: 0.1,
        momentum: 0.9,
        nesterov: true,
        ..SgdOptions::default()
    };
    Ok(Box::new(Sgd::new(parameters, options)?))
}

/// A small model, whose token embedding of 32 KiB is by far its largest parameter.
struct Run {
    engine: Engine,
    model: Gpt2,
    optimizer: Box<dyn Optimizer>,
}

impl Run {
    fn new(make: Make, piece_bytes: u64, seed: u64) -> Self {
        let config = Gpt2Config {
            n_embd: 32,
            n_layer: 2,
            n_head: 2,
            n_positions: 16,
            ..Gpt2Config::preset("gpt2-nano").unwrap()
        };
        let engine = Engine::builder().threads(2).piece_bytes(piece_bytes);
        let engine = engine.seed(seed).build().unwrap();
        let model = Gpt2::new(&engine, config).unwrap();
        let optimizer = make(model.parameters()).unwrap();
        Self {
            engine,
            model,
            optimizer,
        }
    }

    fn train(&mut self, steps: std::ops::Range<u32>) {
        for step in steps {
            let tokens: Vec<u32> = (0..33).map(|i| (i * 41 + step * 7) % 256).collect();
            let x = self.engine.indices(&tokens[..32], [2, 16]).unwrap();
            let y = self.engine.indices(&tokens[1..], [2, 16]).unwrap();
            self.model.loss(&x, &y).unwrap().backward().unwrap();
            self.optimizer.step().unwrap();
        }
    }

    /// The parameters' bytes, and the moments' of each kind.
    fn bits(&self) -> BTreeMap<String, Vec<u8>> {
        let mut bits: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let state = self.model.named_parameters().into_iter();
        for (name, tensor) in state.chain(self.optimizer.state_dict()) {
            let name = name.split('[').next().unwrap();
            let own = bits.entry(name.to_owned()).or_default();
            tensor.with_bytes(|bytes| own.extend(bytes)).unwrap();
        }
        bits
    }

    fn save(&self, files: &dyn Files) {
        let write = |path, tensors: Vec<(String, Parameter)>| {
            let file = files.create(Path::new(path)).unwrap();
            write_tensors(file, Path::new(path), &tensors)
                .unwrap()
                .unwrap();
        };
        write(MODEL, self.model.named_parameters());
        write(MOMENTS, self.optimizer.state_dict());
    }

    fn load(&mut self, files: &dyn Files, steps: u64) {
        let open = |path| WeightsFolder::of_file(files, Path::new(path)).unwrap();
        read_tensors(&mut open(MODEL), &self.model.named_parameters(), "").unwrap();
        read_tensors(&mut open(MOMENTS), &self.optimizer.state_dict(), "").unwrap();
        self.optimizer.set_steps(steps).unwrap();
    }
}

#[test]
fn pieces_have_the_bits_of_whole_updates_and_are_saved_and_loaded() {
    for make in [adamw, sgd] {
        let mut whole = Run::new(make, 1 << 20, 1);
        let mut pieces = Run::new(make, 10_000, 1);
        assert!(pieces.optimizer.state_dict().len() > whole.optimizer.state_dict().len());
        let (kind, _) = pieces.optimizer.state_dict().swap_remove(0);
        let kind = kind.split('.').next().unwrap();
        let all = pieces.optimizer.state_dict();
        for rows in ["[0:64]", "[64:128]", "[128:192]", "[192:256]"] {
            let name = format!("{kind}.transformer.wte.weight{rows}");
            let (_, piece) = all.iter().find(|(own, _)| *own == name).unwrap();
            assert_eq!(piece.dims(), [64, 32]);
        }
        whole.train(0..3);
        pieces.train(0..3);
        assert!(pieces.bits() == whole.bits());
        let files = MemoryFiles::new();
        pieces.save(&files);
        let mut resumed = Run::new(make, 10_000, 2);
        resumed.load(&files, 3);
        for run in [&mut whole, &mut pieces, &mut resumed] {
            run.train(3..6);
        }
        assert!(pieces.bits() == whole.bits());
        assert!(resumed.bits() == whole.bits());
    }
}
