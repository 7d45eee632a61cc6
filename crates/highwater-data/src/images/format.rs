//! Formats of image files, by their first bytes.

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Portable Network Graphics.
    Png,
    /// JPEG, baseline or progressive.
    Jpeg,
    /// WebP, lossy or lossless; of an animation the first image.
    WebP,
    /// GIF; of an animation the first image.
    Gif,
    /// A bitmap of Windows or OS/2.
    Bmp,
    /// TIFF; of several pages the first.
    Tiff,
    /// PBM, PGM or PPM, in ASCII or in binary.
    Pnm,
}

/// As many bytes tell the format.
pub(super) const MAGIC_BYTES: usize = 32;

impl Format {
    /// The format of a file that begins like this.
    pub(super) fn of(beginning: &[u8]) -> Result<Self, String> {
        let starts = |with: &[u8]| beginning.starts_with(with);
        if starts(b"\x89PNG\r\n\x1a\n") {
            return Ok(Self::Png);
        }
        if starts(b"\xff\xd8\xff") {
            return Ok(Self::Jpeg);
        }
        if starts(b"RIFF") && beginning.get(8..12) == Some(b"WEBP") {
            return Ok(Self::WebP);
        }
        if starts(b"GIF87a") || starts(b"GIF89a") {
            return Ok(Self::Gif);
        }
        if starts(b"II*\0") || starts(b"MM\0*") || starts(b"II+\0") || starts(b"MM\0+") {
            return Ok(Self::Tiff);
        }
        if let &[b'P', b'1'..=b'6', after, ..] = beginning
            && (after.is_ascii_whitespace() || after == b'#')
        {
            return Ok(Self::Pnm);
        }
        if starts(b"BM") {
            return Ok(Self::Bmp);
        }
        Err(foreign(beginning).to_owned())
    }
}

/// What a file is that is no image of these formats: what downloads that went wrong mostly leave.
fn foreign(beginning: &[u8]) -> &'static str {
    let text = beginning.trim_ascii_start().to_ascii_lowercase();
    let brand = beginning.get(4..12);
    match &text[..] {
        _ if beginning.is_empty() => "empty file",
        _ if beginning.iter().all(|&byte| byte == 0) => "zeros, not an image",
        text if text.starts_with(b"<!doctype") || text.starts_with(b"<html") => {
            "a web page, not an image"
        }
        text if text.starts_with(b"version https://git-lfs") => "a Git LFS pointer, not an image",
        text if text.starts_with(b"<svg") || text.starts_with(b"<?xml") => "SVG or XML, not read",
        _ if brand == Some(b"ftypavif") => "AVIF, not read",
        _ if brand.is_some_and(|brand| brand.starts_with(b"ftyp")) => "HEIC or video, not read",
        _ => "not an image of a format that is read (PNG, JPEG, WebP, GIF, BMP, TIFF, PPM)",
    }
}
