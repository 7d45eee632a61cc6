//! ResNets, DenseNet and vision transformers beside torchvision's, U-Nets and diffusion transformers beside their
//! authors': see `fixtures/make_vision.py`.

use highwater::nn::{BatchNorm2d, BatchNormOptions, Visitor};
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{Engine, Module, Parameter, Tensor};
use highwater_models::vision::{
    DenseNet, DenseNetConfig, Dit, DitConfig, ImageClassifier, ResNet, ResNetConfig, UNet,
    UNetConfig, Vit, VitConfig, load_pretrained, top_k_accuracy,
};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::Path;

const BATCH: usize = 4;
const CLASSES: usize = 10;
const SHOWN: usize = 8;

struct Fixture {
    file: Vec<u8>,
    case: &'static str,
}

impl Fixture {
    fn new(case: &'static str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/vision.safetensors");
        let file = std::fs::read(path).unwrap();
        Self { file, case }
    }

    fn numbers(&self, name: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(&self.file).unwrap();
        let view = tensors
            .tensor(&format!("{}.{name}", self.case))
            .expect(name);
        let (chunks, _) = view.data().as_chunks();
        chunks
            .iter()
            .map(|&chunk| f32::from_le_bytes(chunk))
            .collect()
    }

    /// Compares with what torchvision had, relative to the largest.
    fn close(&self, name: &str, got: &[f32], tolerance: f32) {
        let expected = self.numbers(name);
        assert_eq!(got.len(), expected.len(), "{}.{name}", self.case);
        let size = expected.iter().fold(0.0_f32, |size, x| size.max(x.abs()));
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let off = (got - expected).abs();
            assert!(
                off <= tolerance * (1.0 + size),
                "{}.{name}[{i}]: {got} instead of {expected}",
                self.case
            );
        }
    }
}

/// Hashes of `(k, i)`, from -1 to below 1.
fn numbers(k: u32, count: usize) -> Vec<f32> {
    let one = |i: u32| {
        let mut x = i
            .wrapping_mul(2_654_435_761)
            .wrapping_add(k.wrapping_mul(40503).wrapping_add(12345));
        x ^= x >> 16;
        x = x.wrapping_mul(0x85EB_CA6B);
        x ^= x >> 13;
        x = x.wrapping_mul(0xC2B2_AE35);
        x ^= x >> 16;
        (x >> 8) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    (0..count as u32).map(one).collect()
}

fn fill(name: &str, k: u32, parameter: &Parameter) {
    let dims = parameter.dims();
    let numbers = numbers(k, parameter.shape().numel()).into_iter();
    let values: Vec<f32> = if dims.len() >= 2 && name.ends_with("weight") {
        let fan = parameter.shape().numel() / dims[0];
        let scale = (2.0 / (fan as f64).sqrt()) as f32;
        numbers.map(|x| x * scale).collect()
    } else if name.ends_with("weight") {
        numbers.map(|x| 1.0 + 0.25 * x).collect()
    } else {
        numbers.map(|x| 0.125 * x).collect()
    };
    parameter.copy_from_slice(&values).unwrap();
}

/// Norm, a sum with weights of a pattern, and some elements.
fn summary(tensor: &Tensor) -> Vec<f32> {
    let flat: Vec<f64> = tensor
        .to_vec::<f32>()
        .unwrap()
        .iter()
        .map(|&x| x.into())
        .collect();
    let norm = flat.iter().map(|x| x * x).sum::<f64>().sqrt();
    let weighted = flat.iter().enumerate();
    let sum: f64 = weighted.map(|(i, x)| x * ((i % 7) as f64 - 3.0)).sum();
    let shown = flat.iter().step_by((flat.len() / SHOWN).max(1)).take(SHOWN);
    let all = [norm, sum].into_iter().chain(shown.copied());
    all.map(|x| x as f32).collect()
}

fn check<M: ImageClassifier>(
    case: &'static str,
    side: usize,
    build: impl FnOnce(&Engine) -> highwater::Result<M>,
) {
    let fixture = Fixture::new(case);
    let engine = Engine::builder().memory(6 << 30).build().unwrap();
    let model = build(&engine).unwrap();
    let mut named = model.named_parameters();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    for (k, (name, parameter)) in named.iter().enumerate() {
        fill(name, k as u32, parameter);
    }
    let images = numbers(99_991, BATCH * 3 * side * side);
    let images = engine.tensor(&images, [BATCH, 3, side, side]).unwrap();
    let labels = engine.indices(&[3, 7, 0, 3], [BATCH]).unwrap();
    let options = SgdOptions {
        lr: fixture.numbers("lr")[0].into(),
        momentum: 0.9,
        weight_decay: 1e-4,
        ..SgdOptions::default()
    };
    let mut optimizer = Sgd::new(model.parameters(), options).unwrap();
    // Where PyTorch's own f32 is further off than that, no further than four times as far.
    let slack = fixture.numbers("slack");
    let tolerance = (4.0 * slack[0]).max(1e-4);
    let mut losses = Vec::new();
    for step in 0..5 {
        let logits = model.logits(&images).unwrap();
        let loss = logits.cross_entropy(&labels).unwrap();
        loss.backward().unwrap();
        if step == 0 {
            assert_eq!(logits.dims(), [BATCH, CLASSES]);
            fixture.close("logits", &logits.to_vec::<f32>().unwrap(), 1e-4);
            for (name, parameter) in &named {
                let grad = parameter.grad().expect(name);
                fixture.close(&format!("grad.{name}"), &summary(&grad), tolerance);
            }
        }
        losses.push(loss.item().unwrap());
        optimizer.step().unwrap();
        if step == 0 {
            for (name, buffer) in model.named_buffers() {
                if name.contains("running") {
                    fixture.close(&format!("buffer.{name}"), &summary(&buffer), 1e-4);
                }
            }
        }
    }
    fixture.close("losses", &losses, (4.0 * slack[1]).max(1e-3));
}

#[test]
fn resnet18_is_torchvisions() {
    check("resnet18", 64, |engine| {
        ResNet::new(engine, &ResNetConfig::resnet18(CLASSES))
    });
}

#[test]
fn resnet50_is_torchvisions() {
    check("resnet50", 64, |engine| {
        ResNet::new(engine, &ResNetConfig::resnet50(CLASSES))
    });
}

#[test]
fn densenet121_is_torchvisions() {
    check("densenet121", 64, |engine| {
        DenseNet::new(engine, &DenseNetConfig::densenet121(CLASSES))
    });
}

#[test]
fn vision_transformers_are_torchvisions() {
    let config = VitConfig {
        image: 32,
        patch: 8,
        layers: 3,
        heads: 4,
        width: 48,
        mlp: 96,
        classes: CLASSES,
    };
    check("vit", 32, |engine| Vit::new(engine, &config));
}

/// Logits of a model that answers images: their pixels times a matrix of hashes.
fn pooled(images: &Tensor) -> highwater::Result<Tensor> {
    let x = images.flatten(1, 3)?;
    let width = x.dims()[1];
    let scale = 1.0 / (width as f64).sqrt();
    let matrix = numbers(77_777, width * CLASSES).into_iter();
    let matrix: Vec<f32> = matrix.map(|x| (f64::from(x) * scale) as f32).collect();
    x.matmul(&x.engine().tensor(&matrix, [width, CLASSES])?)
}

#[derive(Debug)]
struct PooledUNet(UNet);

impl Module for PooledUNet {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        self.0.visit(path, visitor);
    }
}

impl ImageClassifier for PooledUNet {
    fn logits(&self, images: &Tensor) -> highwater::Result<Tensor> {
        pooled(&self.0.forward(images)?)
    }

    fn head(&self) -> &'static str {
        "outc.conv"
    }
}

/// Sides of 34 are padded on the way up.
#[test]
fn unets_are_as_in_pytorch() {
    for (case, bilinear) in [("unet", false), ("unet_bilinear", true)] {
        let config = UNetConfig {
            width: 4,
            ..UNetConfig::new(3, 5, bilinear)
        };
        check(case, 34, |engine| {
            Ok(PooledUNet(UNet::new(engine, &config)?))
        });
    }
}

#[derive(Debug)]
struct PooledDit(Dit);

impl Module for PooledDit {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        self.0.visit(path, visitor);
    }
}

impl ImageClassifier for PooledDit {
    fn logits(&self, images: &Tensor) -> highwater::Result<Tensor> {
        let engine = images.engine();
        let times = engine.tensor(&[0.0, 17.0, 250.5, 999.0], [BATCH])?;
        let classes = engine.indices(&[3, 10, 0, 3], [BATCH])?;
        pooled(&self.0.forward(images, &times, &classes)?)
    }

    fn head(&self) -> &'static str {
        "final_layer.linear"
    }
}

#[test]
fn diffusion_transformers_are_as_in_pytorch() {
    let config = DitConfig {
        image: 16,
        patch: 4,
        channels: 3,
        width: 48,
        depth: 2,
        heads: 4,
        ..DitConfig::s_2(CLASSES)
    };
    check("dit", 16, |engine| {
        Ok(PooledDit(Dit::new(engine, &config)?))
    });
}

/// The parameters of the full models, as their authors count them.
#[test]
fn full_sizes_are_the_originals() {
    let count = |module: &dyn Module| -> usize {
        let parameters = module.parameters().into_iter();
        parameters.map(|parameter| parameter.shape().numel()).sum()
    };
    let engine = Engine::builder().memory(2 << 30).build().unwrap();
    let unet = UNet::new(&engine, &UNetConfig::new(3, 2, false)).unwrap();
    assert_eq!(count(&unet), 31_037_698);
    let unet = UNet::new(&engine, &UNetConfig::new(3, 2, true)).unwrap();
    assert_eq!(count(&unet), 17_263_042);
}

/// As `safetensors.torch.save_file(model.state_dict())` has a batch norm: batches are counted in a whole number.
#[test]
fn counts_of_batches_are_loaded() {
    let engine = Engine::builder().memory(256 << 20).build().unwrap();
    let norm = BatchNorm2d::new(&engine, 2, BatchNormOptions::default()).unwrap();
    let floats: Vec<u8> = [2.0_f32, 3.0]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let count = 7_i64.to_le_bytes();
    let tensors = norm.state_dict().into_keys().map(|name| {
        let view = if name == "num_batches_tracked" {
            TensorView::new(Dtype::I64, Vec::new(), &count)
        } else {
            TensorView::new(Dtype::F32, vec![2], &floats)
        };
        (name, view.unwrap())
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("norm.safetensors");
    safetensors::serialize_to_file(tensors, None, &path).unwrap();
    highwater_models::load(&norm, &path).unwrap();
    let buffers = norm.named_buffers();
    let counted = buffers
        .iter()
        .find(|(name, _)| name == "num_batches_tracked");
    assert_eq!(counted.unwrap().1.to_vec::<f32>().unwrap(), [7.0]);
    assert_eq!(
        norm.running_var.unwrap().to_vec::<f32>().unwrap(),
        [2.0, 3.0]
    );
}

#[test]
fn weights_for_other_classes_are_loaded_but_for_the_head() {
    let engine = Engine::builder().arena(256 << 20).build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let resnet = |classes| {
        let mut config = ResNetConfig::resnet18(classes);
        config.width = 8;
        ResNet::new(&engine, &config).unwrap()
    };
    let dense = |classes| {
        let mut config = DenseNetConfig::densenet121(classes);
        (config.blocks, config.growth, config.first) = (vec![2, 2], 8, 16);
        DenseNet::new(&engine, &config).unwrap()
    };
    let vit = |classes| {
        let mut config = VitConfig::vit_b_16(classes);
        (config.layers, config.image, config.mlp) = (1, 32, 64);
        Vit::new(&engine, &config).unwrap()
    };
    let models: [[Box<dyn ImageClassifier>; 3]; 3] = [
        [5, 5, 3].map(|classes| Box::new(resnet(classes)) as Box<dyn ImageClassifier>),
        [5, 5, 3].map(|classes| Box::new(dense(classes)) as Box<dyn ImageClassifier>),
        [5, 5, 3].map(|classes| Box::new(vit(classes)) as Box<dyn ImageClassifier>),
    ];
    let values = |model: &dyn ImageClassifier| {
        let values = |(name, own): (String, Parameter)| (name, own.to_vec::<f32>().unwrap());
        let named = model.state_dict().into_iter().map(values);
        named.collect::<BTreeMap<String, Vec<f32>>>()
    };
    for [from, same, other] in &models {
        highwater_models::save(&**from, &path).unwrap();
        assert_eq!(load_pretrained(&**same, &path).unwrap(), [""; 0]);
        let there = values(&**from);
        assert_eq!(values(&**same), there);
        let before = values(&**other);
        let head = from.head();
        let left = load_pretrained(&**other, &path).unwrap();
        assert_eq!(left, ["bias", "weight"].map(|end| format!("{head}{end}")));
        for (name, own) in values(&**other) {
            let loaded = if name.starts_with(head) {
                &before
            } else {
                &there
            };
            assert_eq!(own, loaded[&name], "{name}");
        }
    }
    // What is not of the head has to fit.
    let refused = load_pretrained(&*models[0][2], &path)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("unexpected"), "{refused}");
}

#[test]
fn accuracy_counts_classes_among_the_highest_logits() {
    let engine = Engine::builder().arena(1 << 20).build().unwrap();
    let logits = [
        0.1, 0.9, 0.5, 2.0, -1.0, 1.0, 0.0, 3.0, 1.0, -5.0, -4.0, -3.0,
    ];
    let logits = engine.tensor(&logits, [4, 3]).unwrap();
    let classes = highwater::data::Array::from_slice(&[1_i64, 2, 0, 1], [4]).unwrap();
    let classes = Tensor::from_array(&engine, &classes).unwrap();
    for (k, share) in [(1, 0.25), (2, 0.75), (3, 1.0), (5, 1.0)] {
        let told = top_k_accuracy(&logits, &classes, k).unwrap();
        assert_eq!(
            told.item().unwrap().to_bits(),
            f32::to_bits(share),
            "of {k}"
        );
    }
    for (logits, classes) in [(&logits, &logits), (&classes, &classes)] {
        assert!(top_k_accuracy(logits, classes, 1).is_err());
    }
}
