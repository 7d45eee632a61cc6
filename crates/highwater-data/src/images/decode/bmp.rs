//! Bitmaps of Windows and OS/2: palettes, masks and runs.

use super::super::picture::Pixels;
use super::picture;

/// What a header says.
struct Bitmap {
    /// Where pixels begin.
    offset: usize,
    width: usize,
    height: usize,
    /// Whether the first row is the top one.
    is_top_down: bool,
    bits: usize,
    compression: u32,
    /// Colours of a palette.
    palette: Vec<[u8; 3]>,
    /// Bits of red, green and blue.
    masks: [u32; 3],
}

pub(super) fn bmp(bytes: &[u8]) -> Result<Pixels, String> {
    let bitmap = Bitmap::read(bytes)?;
    let data = bytes.get(bitmap.offset..).unwrap_or(&[]);
    let rows = match (bitmap.compression, bitmap.bits) {
        (1, 8) | (2, 4) => bitmap.runs(data),
        (1 | 2, _) => return Err("damaged: runs of other pixels".to_owned()),
        _ => bitmap.rows(data),
    };
    let row = 3 * bitmap.width;
    let held = if bitmap.is_top_down {
        rows
    } else {
        rows.chunks(row.max(1)).rev().flatten().copied().collect()
    };
    picture(bitmap.width, bitmap.height, held)
}

fn number(bytes: &[u8], at: usize) -> Result<u32, String> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    let found = found.ok_or("cut off in its header")?;
    Ok(u32::from_le_bytes(*found))
}

impl Bitmap {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let short = |at: usize| Ok::<_, String>(number(bytes, at)? & 0xffff);
        let size = number(bytes, 14)? as usize;
        let is_old = size == 12;
        let (width, height, bits, compression) = if is_old {
            (
                short(18)?,
                short(20)?.cast_signed(),
                number(bytes, 22)? >> 16,
                0,
            )
        } else {
            let height = number(bytes, 22)?.cast_signed();
            (number(bytes, 18)?, height, short(28)?, number(bytes, 30)?)
        };
        let has_masks = compression == 3 || compression == 6;
        let masks = match (has_masks, bits) {
            (true, _) => [number(bytes, 54)?, number(bytes, 58)?, number(bytes, 62)?],
            (false, 16) => [0x7c00, 0x03e0, 0x001f],
            (false, _) => [0xff_0000, 0xff00, 0xff],
        };
        let mut palette = Vec::new();
        if bits <= 8 {
            let said = if is_old { 0 } else { number(bytes, 46)? };
            let most = 1 << bits;
            let count = if (1..=most).contains(&said) {
                said
            } else {
                most
            };
            let each = if is_old { 3 } else { 4 };
            let table = bytes.get(14 + size..).unwrap_or(&[]);
            let colours = table.chunks_exact(each).take(count as usize);
            palette.extend(colours.map(|colour| [colour[2], colour[1], colour[0]]));
        }
        Ok(Self {
            offset: number(bytes, 10)? as usize,
            width: width as usize,
            height: height.unsigned_abs() as usize,
            is_top_down: height < 0,
            bits: bits as usize,
            compression,
            palette,
            masks,
        })
    }

    /// The colour of an index; black for none.
    fn colour(&self, index: usize) -> [u8; 3] {
        self.palette.get(index).copied().unwrap_or_default()
    }

    /// Plain rows, in the order of the file.
    fn rows(&self, data: &[u8]) -> Vec<u8> {
        let length = (self.width * self.bits).div_ceil(32) * 4;
        let mut held = Vec::with_capacity(3 * self.width * self.height);
        for row in data.chunks(length.max(1)).take(self.height) {
            for x in 0..self.width {
                held.extend(self.pixel(row, x));
            }
        }
        held.resize(3 * self.width * self.height, 0);
        held
    }

    fn pixel(&self, row: &[u8], x: usize) -> [u8; 3] {
        let bytes = self.bits / 8;
        let value = |count: usize| {
            let bytes = (0..count).rev().map(|i| row.get(x * count + i).copied());
            bytes.fold(0, |all, byte| all << 8 | u32::from(byte.unwrap_or(0)))
        };
        match self.bits {
            1 | 4 | 8 => {
                let place = x * self.bits;
                let byte = row.get(place / 8).copied().unwrap_or(0);
                let shift = 8 - self.bits - place % 8;
                self.colour(usize::from(byte >> shift & (u8::MAX >> (8 - self.bits))))
            }
            _ => {
                let value = value(bytes);
                self.masks.map(|mask| masked(value, mask))
            }
        }
    }

    /// Runs of indices, in the order of the file.
    fn runs(&self, data: &[u8]) -> Vec<u8> {
        let mut held = self.colour(0).repeat(self.width * self.height);
        let (mut x, mut y, mut at) = (0, 0, 0);
        let mut put = |x: usize, y: usize, index: usize| {
            let place = 3 * (y * self.width + x);
            if x < self.width
                && y < self.height
                && let Some(pixel) = held.get_mut(place..place + 3)
            {
                pixel.copy_from_slice(&self.colour(index));
            }
        };
        // Of pixels of four bits the first is the upper half of a byte.
        let index = |bytes: &[u8], i: usize| {
            let byte = |at: usize| usize::from(bytes.get(at).copied().unwrap_or(0));
            match self.bits {
                4 if i.is_multiple_of(2) => byte(i / 2) >> 4,
                4 => byte(i / 2) & 15,
                _ => byte(i),
            }
        };
        while let Some(&[count, value]) = data.get(at..at + 2) {
            at += 2;
            match (count, value) {
                (0, 0) => (x, y) = (0, y + 1),
                (0, 1) => break,
                (0, 2) => {
                    let by = data.get(at..at + 2).unwrap_or(&[0, 0]);
                    (x, y) = (x + usize::from(by[0]), y + usize::from(by[1]));
                    at += 2;
                }
                (0, count) => {
                    let count = usize::from(count);
                    let bytes = data.get(at..).unwrap_or(&[]);
                    (0..count).for_each(|i| put(x + i, y, index(bytes, i)));
                    x += count;
                    // Whole words of 16 bits.
                    at += (count * self.bits).div_ceil(16) * 2;
                }
                (count, _) => {
                    let pair = [value; 128];
                    (0..usize::from(count)).for_each(|i| put(x + i, y, index(&pair, i % 2)));
                    x += usize::from(count);
                }
            }
        }
        held
    }
}

/// The bits of a mask, of 255.
fn masked(value: u32, mask: u32) -> u8 {
    if mask == 0 {
        return 0;
    }
    let shift = mask.trailing_zeros();
    let (value, most) = (u64::from((value & mask) >> shift), u64::from(mask >> shift));
    (value * 255 / most) as u8
}
