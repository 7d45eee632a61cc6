//! ResNet-50, batch 16 of 224 x 224.

use super::Sample;
use super::tape::Tape;
use highwater_plan::ValueId;

pub(crate) const BATCH: u64 = 16;

/// An image-like value: its id, channels and side.
#[derive(Clone, Copy)]
pub(crate) struct Image {
    pub(crate) value: ValueId,
    pub(crate) channels: u64,
    pub(crate) side: u64,
    pub(crate) batch: u64,
}

impl Image {
    pub(crate) fn bytes(self) -> u64 {
        4 * self.batch * self.channels * self.side * self.side
    }
}

/// A convolution without bias; `stride` below 0 widens instead.
pub(crate) fn conv(t: &mut Tape, x: Image, channels: u64, kernel: u64, stride: i64) -> Image {
    let side = match stride {
        s if s < 0 => x.side * s.unsigned_abs(),
        s => x.side / s as u64,
    };
    let mut y = Image {
        channels,
        side,
        ..x
    };
    let weight = t.weight(4 * x.channels * channels * kernel * kernel);
    let inner = side.min(x.side);
    let flops = 2 * x.batch * channels * x.channels * kernel * kernel * inner * inner;
    y.value = t.product(x.value, y.bytes(), flops as f64, weight);
    y
}

pub(crate) fn norm(t: &mut Tape, x: Image) -> Image {
    let weight = t.weight(8 * x.channels);
    let value = t.norm(x.value, 8 * x.channels, weight);
    Image { value, ..x }
}

pub(crate) fn relu(t: &mut Tape, x: Image) -> Image {
    let value = t.relu(x.value);
    Image { value, ..x }
}

/// Keeps the largest of each square of `factor` x `factor`.
pub(crate) fn max_pool(t: &mut Tape, x: Image, factor: u64) -> Image {
    let mut y = Image {
        side: x.side / factor,
        ..x
    };
    y.value = t.pool(x.value, y.bytes(), y.bytes() / 4);
    y
}

/// A classifier on the means over each image.
pub(crate) fn classify(t: &mut Tape, x: Image, classes: u64) {
    let pooled = t.pool(x.value, 4 * x.batch * x.channels, 0);
    let weight = t.weight(4 * x.channels * classes);
    let flops = (2 * x.batch * x.channels * classes) as f64;
    t.loss(pooled, flops, weight, 4 * x.batch * classes);
}

/// Convolution and normalisation.
fn unit(t: &mut Tape, x: Image, channels: u64, kernel: u64, stride: i64) -> Image {
    let y = conv(t, x, channels, kernel, stride);
    norm(t, y)
}

fn bottleneck(t: &mut Tape, x: Image, width: u64, stride: i64) -> Image {
    let y = unit(t, x, width, 1, 1);
    let y = relu(t, y);
    let y = unit(t, y, width, 3, stride);
    let y = relu(t, y);
    let y = unit(t, y, 4 * width, 1, 1);
    let way = if x.channels == 4 * width {
        x
    } else {
        unit(t, x, 4 * width, 1, stride)
    };
    let value = t.add(way.value, y.value);
    relu(t, Image { value, ..y })
}

/// A step.
pub(crate) fn resnet() -> Sample {
    let mut t = Tape::default();
    let (channels, side, batch) = (3, 224, BATCH);
    let value = t.input(4 * batch * channels * side * side);
    let x = Image {
        value,
        channels,
        side,
        batch,
    };
    let x = unit(&mut t, x, 64, 7, 2);
    let x = relu(&mut t, x);
    let mut x = max_pool(&mut t, x, 2);
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = t.block(|t| bottleneck(t, x, 64 << stage, stride));
        }
    }
    classify(&mut t, x, 1000);
    t.finish("ResNet-50, 16 x 224 x 224")
}
