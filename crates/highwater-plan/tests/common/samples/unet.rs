//! A U-Net of five levels, batch 4 of 256 x 256: the way up reads what the way down made.

use super::Sample;
use super::resnet::{Image, conv, max_pool, norm, relu};
use super::tape::Tape;

fn twice(t: &mut Tape, x: Image, channels: u64) -> Image {
    let mut x = x;
    for _ in 0..2 {
        x = conv(t, x, channels, 3, 1);
        x = norm(t, x);
        x = relu(t, x);
    }
    x
}

fn up(t: &mut Tape, x: Image, skip: Image) -> Image {
    let wide = conv(t, x, skip.channels, 2, -2);
    let value = t.cat(&[skip.value, wide.value]);
    let both = Image {
        value,
        channels: 2 * skip.channels,
        ..wide
    };
    twice(t, both, skip.channels)
}

/// A step.
pub(crate) fn unet() -> Sample {
    let mut t = Tape::default();
    let (channels, side, batch) = (3, 256, 4);
    let value = t.input(4 * batch * channels * side * side);
    let mut x = Image {
        value,
        channels,
        side,
        batch,
    };
    let mut skips = Vec::new();
    for level in 0..4 {
        let skip = t.block(|t| twice(t, x, 64 << level));
        skips.push(skip);
        x = max_pool(&mut t, skip, 2);
    }
    x = t.block(|t| twice(t, x, 1024));
    while let Some(skip) = skips.pop() {
        x = t.block(|t| up(t, x, skip));
    }
    let weight = t.weight(4 * 64 * 21);
    let pixels = x.batch * x.side * x.side;
    t.loss(
        x.value,
        (2 * pixels * 64 * 21) as f64,
        weight,
        4 * pixels * 21,
    );
    t.finish("U-Net, 4 x 256 x 256")
}
