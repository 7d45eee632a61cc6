//! DenseNet-121, batch 16 of 224 x 224: each layer reads a concatenation of all before it.

use super::Sample;
use super::resnet::{BATCH, Image, classify, conv, max_pool, norm, relu};
use super::tape::Tape;

const GROWTH: u64 = 32;

fn cat(t: &mut Tape, parts: &[Image]) -> Image {
    if let [only] = parts {
        return *only;
    }
    let values: Vec<_> = parts.iter().map(|p| p.value).collect();
    Image {
        value: t.cat(&values),
        channels: parts.iter().map(|p| p.channels).sum(),
        ..parts[0]
    }
}

fn layer(t: &mut Tape, parts: &[Image]) -> Image {
    let x = cat(t, parts);
    let x = norm(t, x);
    let x = relu(t, x);
    let x = conv(t, x, 4 * GROWTH, 1, 1);
    let x = norm(t, x);
    let x = relu(t, x);
    conv(t, x, GROWTH, 3, 1)
}

fn transition(t: &mut Tape, x: Image) -> Image {
    let x = norm(t, x);
    let x = relu(t, x);
    let x = conv(t, x, x.channels / 2, 1, 1);
    let mut y = Image {
        side: x.side / 2,
        ..x
    };
    y.value = t.pool(x.value, y.bytes(), 0);
    y
}

/// A step.
pub(crate) fn densenet() -> Sample {
    let mut t = Tape::default();
    let (channels, side, batch) = (3, 224, BATCH);
    let value = t.input(4 * batch * channels * side * side);
    let x = conv(
        &mut t,
        Image {
            value,
            channels,
            side,
            batch,
        },
        64,
        7,
        2,
    );
    let x = norm(&mut t, x);
    let x = relu(&mut t, x);
    let mut x = max_pool(&mut t, x, 2);
    for (stage, layers) in [6, 12, 24, 16].into_iter().enumerate() {
        let mut parts = vec![x];
        for _ in 0..layers {
            let y = t.block(|t| layer(t, &parts));
            parts.push(y);
        }
        x = t.block(|t| {
            let x = cat(t, &parts);
            if stage < 3 {
                transition(t, x)
            } else {
                norm(t, x)
            }
        });
    }
    let x = relu(&mut t, x);
    classify(&mut t, x, 1000);
    t.finish("DenseNet-121, 16 x 224 x 224")
}
