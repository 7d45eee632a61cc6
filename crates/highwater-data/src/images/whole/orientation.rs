//! Which way up a TIFF is: its tag 274, which Pillow follows.

use std::io::{Read, Seek};

use tiff::decoder::Decoder;
use tiff::tags::Tag;

/// How what is stored is to be turned.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Orientation {
    /// Whether rows are columns.
    transposed: bool,
    /// Whether it is mirrored, after that, from left to right and from top to bottom.
    mirrored: [bool; 2],
}

impl Orientation {
    /// That of a file; upright where it says nothing, or something that there is not.
    pub(in super::super) fn read<R: Read + Seek>(decoder: &mut Decoder<R>) -> Result<Self, String> {
        let tag = decoder.find_tag_unsigned_vec::<u16>(Tag::Orientation);
        let tag = tag.map_err(|error| format!("TIFF: {error}"))?;
        let tag = tag.and_then(|tag| tag.first().copied());
        let (transposed, mirrored) = match tag {
            Some(2) => (false, [true, false]),
            Some(3) => (false, [true, true]),
            Some(4) => (false, [false, true]),
            Some(5) => (true, [false, false]),
            Some(6) => (true, [true, false]),
            Some(7) => (true, [true, true]),
            Some(8) => (true, [false, true]),
            _ => (false, [false, false]),
        };
        Ok(Self {
            transposed,
            mirrored,
        })
    }

    /// Width and height of the upright image, from those of what is stored.
    pub(in super::super) fn sides(self, [width, height]: [usize; 2]) -> [usize; 2] {
        if self.transposed {
            [height, width]
        } else {
            [width, height]
        }
    }

    /// The upright image of so many stored pixels of three bytes.
    pub(in super::super) fn upright(self, stored: [usize; 2], bytes: Vec<u8>) -> Vec<u8> {
        if !self.transposed && self.mirrored == [false; 2] {
            return bytes;
        }
        let [width, height] = self.sides(stored);
        let pixels = bytes.as_chunks::<3>().0;
        let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let from = |(x, y)| {
            let x = if self.mirrored[0] { width - 1 - x } else { x };
            let y = if self.mirrored[1] { height - 1 - y } else { y };
            let (column, row) = if self.transposed { (y, x) } else { (x, y) };
            pixels[row * stored[0] + column]
        };
        places.flat_map(from).collect()
    }
}
