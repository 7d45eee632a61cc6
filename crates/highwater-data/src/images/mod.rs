//! Images: folders of them, and what is done to them before training, as `torchvision`.
//!
//! ```no_run
//! use highwater_data::images::{
//!     Compose, ImageFolder, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToTensor,
//! };
//! use highwater_data::{DataLoader, LoaderOptions};
//!
//! # fn main() -> Result<(), highwater_data::DataError> {
//! let transform = Compose::new()
//!     .then(RandomResizedCrop::new(224))
//!     .then(RandomHorizontalFlip::default())
//!     .then(ToTensor)
//!     .then(Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])?);
//! let dataset = ImageFolder::new("flowers/train", transform)?;
//! println!("{:?}", dataset.classes());
//! let options = LoaderOptions { batch_size: 32, shuffle: true, workers: 4, ..Default::default() };
//! let mut loader = DataLoader::new(dataset, options)?;
//! for batch in loader.epoch() {
//!     let (pixels, labels) = batch?;
//!     assert_eq!(pixels.dims()[1..], [3, 224, 224]);
//!     assert_eq!(labels.dims()[0], pixels.dims()[0]);
//! }
//! # Ok(())
//! # }
//! ```

mod decode;
mod folder;
mod format;
mod layout;
mod look;
mod picture;
mod random;
mod resize;
mod transforms;
mod whole;

pub use crate::endings::ENDINGS;
pub use crate::error::LayoutError;
pub use decode::{decode, dimensions};
pub use folder::{ImageFolder, Labelled};
pub use format::Format;
pub use layout::{Found, Layout, LeftOut};
pub use look::{Depth, LOOK_BYTES, Largest, Looked, look_over};
pub use picture::{Picture, Pixels};
pub use random::{RandomCrop, RandomHorizontalFlip, RandomResizedCrop};
pub use transforms::{CenterCrop, Compose, Normalize, Resize, Size, ToTensor, Transform};
pub use whole::Header;
