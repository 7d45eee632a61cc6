//! All images of a folder, batch by batch.

use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_models::vision::{ImageClassifier, load_pretrained};

use crate::config::RunConfig;
use crate::data::ImageData;
use crate::error::{Code, Failure};
use crate::folder::state;
use crate::model::classifier::listed;
use crate::model::{Batch, Classifier};
use crate::terminal::output;

/// Opens the images, of which each class has to be the model's.
pub(super) fn open(
    files: &Arc<dyn Files>,
    config: &RunConfig,
    (classifier, shape): (&Classifier, &Path),
) -> Result<ImageData, Failure> {
    let own = Classifier::read(&**files, shape)?;
    let own = own.map_or_else(Default::default, |own| own.classes);
    // Those of the data were taken on where one is not the model's.
    let other = classifier
        .classes
        .values()
        .find(|name| !own.values().any(|own| own == *name));
    if let Some(other) = other.filter(|_| !own.is_empty()) {
        let data = config.data.path.as_deref().unwrap_or(Path::new(""));
        let names: Vec<&String> = own.values().collect();
        let message = format!(
            "{}: the model has no class `{other}`; it has {}",
            data.display(),
            listed(&names)
        );
        let hint = "name the folders as the model's config.json names its classes (id2label)";
        return Err(Failure::new(Code::Files, message).id("HW1024").hint(hint));
    }
    let data = ImageData::to_evaluate(files, config, classifier)?;
    output::news(&data.summary());
    Ok(data)
}

/// Does something with each batch.
pub(super) fn each(
    images: &ImageData,
    config: &RunConfig,
    look: &mut impl FnMut(&Batch, usize, f64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let [_, count] = images.counts();
    let mut at = 0;
    for batch in images.all(config)? {
        let batch = batch?;
        at += batch.units() as u64;
        look(&batch, config.training.seq, at as f64 / count.max(1) as f64)?;
    }
    Ok(())
}

/// Reads the weights of a folder, all of them.
pub(super) fn load(model: &dyn ImageClassifier, folder: &Path) -> Result<(), Failure> {
    let path = folder.join(state::MODEL);
    let left = load_pretrained(model, &path).map_err(Failure::of_weights)?;
    let Some(name) = left.first() else {
        return Ok(());
    };
    let message = format!(
        "{}: `{name}` is missing, or for another number of classes than the data has",
        path.display()
    );
    let hint = "give the model's config.json an id2label, and the images of each class a folder of that name";
    Err(Failure::new(Code::Files, message).id("HW1013").hint(hint))
}
