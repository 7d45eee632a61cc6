//! A small residual network (He et al., 2016) on folders of pictures, which the example paints first: squares
//! and diamonds, read by two workers.
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::data::images::{ImageFolder, ToTensor};
use highwater::data::{DataLoader, Dataset, Draws, LoaderOptions, ToTensors};
use highwater::nn::{BatchNorm2d, BatchNormOptions, Conv2d, ConvSettings, Forward, Sequential};
use highwater::{DType, prelude::*};
use std::{error::Error, fs, path::Path};

fn conv(e: &Engine, [inputs, outputs, stride]: [usize; 3]) -> Result<Sequential> {
    let mut settings = ConvSettings::default();
    (settings.stride, settings.padding) = ([stride; 2], [1; 2]);
    let conv = Conv2d::new(e, inputs, outputs, [3; 2], settings, false)?;
    let norm = BatchNorm2d::new(e, outputs, BatchNormOptions::default())?;
    Ok(Sequential::new().then(conv).then(norm))
}

#[derive(Module)]
struct Residual(Sequential, Sequential);

impl Forward for Residual {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (&self.1.forward(&self.0.forward(x)?.relu()?)? + x)?.relu()
    }
}

/// Paints pictures of 20 x 20, of a square or a diamond anywhere, in a folder for each class.
fn paint(root: &Path, count: usize) -> Result<(), Box<dyn Error>> {
    for i in 0..count {
        let (mut draws, class) = (Draws::new(1, 0, i as u64), i % 2);
        let [x, y, r] = [(7, 6), (7, 6), (3, 4)].map(|(low, n)| low + draws.below(n));
        let pixel = |p: usize| {
            let (dx, dy) = ((p % 20).abs_diff(x), (p / 20).abs_diff(y));
            255 * u8::from([dx.max(dy), dx + dy][class] <= r)
        };
        let folder = root.join(["square", "diamond"][class]);
        fs::create_dir_all(&folder)?;
        let file = fs::File::create(folder.join(format!("{i}.png")))?;
        let mut png = png::Encoder::new(file, 20, 20).write_header()?;
        png.write_image_data(&(0..400).map(pixel).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (folder, mut o) = (tempfile::tempdir()?, LoaderOptions::default());
    paint(folder.path(), 240)?;
    (o.batch_size, o.shuffle, o.workers, o.prefetch_bytes) = (48, true, 2, 1 << 20);
    let images = || ImageFolder::new(folder.path(), ToTensor);
    let [train, held_out] = images()?.split(0.2, 1)?;
    let mut train = DataLoader::new(images()?.subset(train)?, o.clone())?;
    let mut held_out = DataLoader::new(images()?.subset(held_out)?, o)?;
    let e = Engine::builder().arena(24 << 20).seed(1).build()?;
    let block = |c| -> Result<_> { Ok(Residual(conv(&e, [c, c, 1])?, conv(&e, [c, c, 1])?)) };
    let model = conv(&e, [3, 12, 1])?.then_fn(Tensor::relu).then(block(12)?);
    let model = model.then(conv(&e, [12, 24, 2])?).then_fn(Tensor::relu);
    let model = model.then(block(24)?);
    let model = model.then_fn(|x| x.mean_dims(&[2, 3], false));
    let model = model.then(Linear::new(&e, 24, 2, true)?);
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default())?;
    for epoch in 1..=12 {
        optimizer.set_lr(0.02 / f64::from(epoch * epoch))?;
        for batch in train.epoch() {
            let (pictures, classes) = batch?.to_tensors(&e)?;
            let loss = model.forward(&pictures)?.cross_entropy(&classes)?;
            loss.backward()?;
            optimizer.step()?;
            println!("epoch {epoch:2}  loss {:.3}", loss.item()?);
        }
    }
    model.eval();
    let (pictures, classes) = held_out.next_batch()?.ok_or("none")?.to_tensors(&e)?;
    let told = no_grad(|| model.forward(&pictures)?.argmax_dim(1, false))?;
    let right = told.eq(&classes)?.to_dtype(DType::F32)?.sum()?.item()?;
    println!("held out: {:.0}% are right", right / 0.48);
    assert!(right > 40.0, "the shapes were not learnt");
    Ok(())
}
