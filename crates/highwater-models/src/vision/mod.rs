//! Models of images, as torchvision has them: the same layers, names and numbers, so that a `state_dict` saved
//! as safetensors loads by name.

mod accuracy;
mod densenet;
mod resnet;
mod vit;

pub use accuracy::top_k_accuracy;
pub use densenet::{DenseNet, DenseNetConfig};
pub use resnet::{ResNet, ResNetBlock, ResNetConfig};
pub use vit::{Vit, VitConfig};

use std::path::Path;

use highwater::nn::{BatchNorm2d, BatchNormOptions, Conv2d, ConvSettings, Module};
use highwater::{Engine, Result, Tensor};
use highwater_memory::DiskFiles;

use crate::module_file::load_in;

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
    load_in(&DiskFiles, model, path.as_ref(), Some(model.head()))
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
