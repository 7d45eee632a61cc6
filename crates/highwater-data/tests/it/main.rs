//! Arrays, images, folders of them, and the loader, beside NumPy's, Pillow's and torchvision's.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod files;
#[cfg(feature = "images")]
mod images;
#[cfg(feature = "images")]
mod layouts;
mod loader;
mod samplers;
