//! Endings of the names of image files.

/// Endings of names that are read: torchvision's `IMG_EXTENSIONS`, and `.gif`.
pub const ENDINGS: [&str; 10] = [
    "jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp", "gif",
];
/// Endings of images that nothing here reads. Somebody who has such files should hear of it.
const UNREAD: [&str; 26] = [
    "arw", "avif", "cr2", "dds", "dng", "eps", "exr", "hdr", "heic", "heif", "ico", "j2k", "jfif",
    "jp2", "jpe", "jpx", "jxl", "nef", "pbm", "pcx", "pnm", "psd", "qoi", "raw", "svg", "tga",
];

/// Whether a name with this ending is an image that is read.
pub(crate) fn is_read(ending: &str) -> bool {
    ENDINGS
        .iter()
        .any(|known| ending.eq_ignore_ascii_case(known))
}

/// Whether a name with this ending is an image that is not read.
pub(crate) fn is_unread(ending: &str) -> bool {
    UNREAD
        .iter()
        .any(|known| ending.eq_ignore_ascii_case(known))
}
