//! Models of images, as torchvision or their authors have them: the same layers, names and numbers, so that a
//! `state_dict` saved as safetensors loads by name. [`UNet`] tells a class of each pixel; [`Dit`] makes images.
//!
//! Fine-tuning on a folder of pictures, within 2 GiB for all of the process:
//!
//! ```no_run
//! use highwater::data::images::{
//!     Compose, ImageFolder, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToTensor,
//! };
//! use highwater::data::{DataLoader, Dataset, LoaderOptions, ToTensors};
//! use highwater::optim::{AdamW, AdamWOptions, Optimizer};
//! use highwater::Engine;
//! use highwater_models::vision::{image_model, load_pretrained, top_k_accuracy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let normal = Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])?;
//! let cut = Compose::new().then(RandomResizedCrop::new(224)).then(RandomHorizontalFlip::default());
//! let flowers = ImageFolder::new("flowers", cut.then(ToTensor).then(normal))?;
//! let (classes, [train, _held_out]) = (flowers.classes().len(), flowers.split(0.1, 0)?);
//! let options = LoaderOptions { batch_size: 32, shuffle: true, workers: 2, ..Default::default() };
//! let mut loader = DataLoader::new(flowers.subset(train)?, options)?;
//!
//! let engine = Engine::builder().memory(2 << 30).build()?;
//! let _room = engine.set_aside(loader.options().prefetch_bytes)?;
//! let model = image_model(&engine, "resnet50", classes, 224)?.ok_or("no such model")?;
//! println!("not loaded: {:?}", load_pretrained(&*model, "resnet50.safetensors")?);
//! let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default())?;
//! for batch in loader.epoch() {
//!     let (images, labels) = batch?.to_tensors(&engine)?;
//!     let logits = model.logits(&images)?;
//!     let (loss, right) = (logits.cross_entropy(&labels)?, top_k_accuracy(&logits, &labels, 1)?);
//!     loss.backward()?;
//!     optimizer.step()?;
//!     println!("loss {:.4}, {:.0}% right", loss.item()?, 100.0 * right.item()?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Who trains a few parameters beside a frozen model (`Parameter::set_requires_grad(false)`) keeps no gradients
//! or moments of the rest. With a disk below memory (`Builder::disk`), frozen weights are cells as others are: a
//! plan fetches each before it is read, forward and backward, and drops it without writing it back, as no
//! update made another version. A block is a scope, so that a forecast tells what each of them moves.

mod accuracy;
mod densenet;
mod dit;
mod resnet;
mod unet;
mod vit;

pub use accuracy::top_k_accuracy;
pub use densenet::{DenseNet, DenseNetConfig};
pub use dit::{Dit, DitConfig};
pub use resnet::{ResNet, ResNetBlock, ResNetConfig};
pub use unet::{UNet, UNetConfig};
pub use vit::{Vit, VitConfig};

use std::path::Path;

use highwater::nn::{BatchNorm2d, BatchNormOptions, Conv2d, ConvSettings, Module};
use highwater::{Engine, Result, Tensor};
use highwater_memory::DiskFiles;

use crate::files::module_file::{Head, load_in};

/// A model that tells the class of an image.
pub trait ImageClassifier: Module {
    /// Logits `[N, classes]` of images `[N, 3, H, W]`.
    ///
    /// # Errors
    /// [`highwater::Error`] if the images do not fit.
    fn logits(&self, images: &Tensor) -> Result<Tensor>;

    /// What the names of the last layer's parameters begin with: those that depend on the classes.
    fn head(&self) -> &'static str;
}

/// Loads a file of weights in torchvision's names into a model for classes of its own, as fine-tuning begins: where
/// the file's last layer is for another number of classes, or is not there, the model's keeps its initial weights.
/// Answers the names of those; none where all was loaded.
///
/// # Errors
/// As [`crate::load`]; nothing was loaded then.
pub fn load_pretrained(model: &dyn ImageClassifier, path: impl AsRef<Path>) -> Result<Vec<String>> {
    load_in(&DiskFiles, model, path.as_ref(), Head::IfSame(model.head()))
}

/// Loads a file of weights as [`load_pretrained`], but for the last layer, which keeps its initial weights: for classes
/// that are others than the file's, though they may be as many. Returns the names of its parameters.
///
/// # Errors
/// As [`crate::load`]; nothing was loaded then.
pub fn load_backbone(model: &dyn ImageClassifier, path: impl AsRef<Path>) -> Result<Vec<String>> {
    load_in(&DiskFiles, model, path.as_ref(), Head::Kept(model.head()))
}

/// The models that are known by name: `resnet18`, `resnet34`, `resnet50`, `densenet121`, `vit_b_16`.
pub const PRESETS: [&str; 5] = [
    "resnet18",
    "resnet34",
    "resnet50",
    "densenet121",
    "vit_b_16",
];

/// A model by torchvision's name, with initial weights; `None` for a name that is not known. `size` is the side
/// of images, which `vit_b_16` alone asks for.
///
/// # Errors
/// [`highwater::Error::State`] if there is no room.
pub fn image_model(
    engine: &Engine,
    name: &str,
    classes: usize,
    size: usize,
) -> Result<Option<Box<dyn ImageClassifier>>> {
    Ok(Some(match name {
        "resnet18" => Box::new(ResNet::new(engine, &ResNetConfig::resnet18(classes))?),
        "resnet34" => Box::new(ResNet::new(engine, &ResNetConfig::resnet34(classes))?),
        "resnet50" => Box::new(ResNet::new(engine, &ResNetConfig::resnet50(classes))?),
        "densenet121" => Box::new(DenseNet::new(
            engine,
            &DenseNetConfig::densenet121(classes),
        )?),
        "vit_b_16" => {
            let config = VitConfig {
                image: size,
                ..VitConfig::vit_b_16(classes)
            };
            Box::new(Vit::new(engine, &config)?)
        }
        _ => return Ok(None),
    }))
}

/// A convolution without a bias, of a square kernel that leaves images as large as the stride says.
fn conv(
    engine: &Engine,
    [inputs, outputs]: [usize; 2],
    kernel: usize,
    stride: usize,
) -> Result<Conv2d> {
    let settings = ConvSettings {
        stride: [stride; 2],
        padding: [kernel / 2; 2],
        ..ConvSettings::default()
    };
    Conv2d::new(engine, inputs, outputs, [kernel; 2], settings, false)
}

fn batch_norm(engine: &Engine, channels: usize) -> Result<BatchNorm2d> {
    BatchNorm2d::new(engine, channels, BatchNormOptions::default())
}
