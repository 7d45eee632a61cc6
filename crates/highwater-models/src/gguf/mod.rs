//! GGUF: a model folder as the one file that llama.cpp and what is built on it read.
//!
//! Names, layouts and settings are those of llama.cpp's `convert_hf_to_gguf.py`. Tensors are read and written a few
//! rows at a time: memory stays small whatever the model takes.

mod container;
mod metadata;
mod tensors;
mod vocabulary;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use highwater_memory::files::Draft;
use highwater_memory::{FileWrite, Files, FilesError};
use highwater_text::TokenizerError;
use thiserror::Error;

pub use container::GgufType;
use container::{TensorInfo, TensorSink, Value, head};
use metadata::{Told, family, unsupported};
use tensors::{Change, Entry, interleaved, of_decoder, of_gpt2};

use crate::Architecture;
use crate::files::weights::{Layout, WeightsError, WeightsFolder};
use crate::language::config::{ConfigError, DecoderConfig, Gpt2Config, read};

/// Numbers that are in memory at once, about, beside a matrix that is turned.
const PIECE: usize = 1 << 18;

/// What is wrong with an export.
#[derive(Debug, Error)]
pub enum GgufError {
    /// Of the model's settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Of its weights.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Of its tokens.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Of files as such.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// A file that is no JSON, or has other fields.
    #[error("{}: {problem}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What.
        problem: String,
    },
    /// Numbers that the file cannot hold.
    #[error("`{tensor}` has {what}")]
    Range {
        /// Its name in the model's folder.
        tensor: String,
        /// Which.
        what: &'static str,
    },
    /// What llama.cpp does not compute.
    #[error("a GGUF file cannot hold {what}")]
    Unsupported {
        /// What that is.
        what: String,
    },
}

/// What was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Exported {
    /// How many tensors.
    pub tensors: usize,
    /// What is not as it was, or may not be: a line each.
    pub notes: Vec<String>,
}

/// A model as it is exported.
struct Model {
    architecture: &'static str,
    told: Told,
    entries: Vec<Entry>,
    config: Box<dyn Architecture>,
}

/// Where a model is that is to be exported.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its folder, with `config.json` and the tokenizer.
    pub folder: &'a Path,
    /// The folder of its weights.
    pub weights: &'a Path,
    /// The folder that it is called by.
    pub called: &'a Path,
}

impl<'a> Source<'a> {
    /// A folder that has all of it.
    pub fn folder(folder: &'a Path) -> Self {
        Self {
            folder,
            weights: folder,
            called: named(folder),
        }
    }
}

/// Writes a model as a GGUF file, all of it or nothing. Matrices are held as `kind`, vectors as `F32`.
///
/// # Errors
/// [`GgufError`], naming the file, the field or the tensor.
pub fn export(
    files: &dyn Files,
    source: &Source<'_>,
    out: &Path,
    kind: GgufType,
) -> Result<Exported, GgufError> {
    let folder = source.folder;
    let model = read_model(files, folder)?;
    let tokens = vocabulary::vocabulary(files, folder, model.config.vocab_size())?;
    let mut weights = WeightsFolder::open(files, source.weights)?;
    let expected = model.entries.iter();
    let expected: Vec<_> = expected
        .map(|entry| (entry.from.clone(), entry.shape.clone()))
        .collect();
    let layout = Layout::of(&mut weights, &*model.config, &expected)?;
    layout.check_tied(&mut weights)?;
    let made = model.told.made.iter().map(|(name, values)| TensorInfo {
        name: (*name).to_owned(),
        shape: vec![values.len()],
        kind: GgufType::F32,
    });
    let infos: Vec<TensorInfo> = made
        .chain(model.entries.iter().map(|entry| info(entry, kind)))
        .collect();
    let name = source
        .called
        .file_name()
        .map_or("model".into(), |name| name.to_string_lossy());
    let (name, renamed) = tokens.called(&name);
    let mut metadata = vec![
        (
            "general.architecture".to_owned(),
            Value::Text(model.architecture.to_owned()),
        ),
        ("general.type".to_owned(), Value::Text("model".to_owned())),
        ("general.name".to_owned(), Value::Text(name)),
        ("general.file_type".to_owned(), Value::U32(kind.file_type())),
        ("general.quantization_version".to_owned(), Value::U32(2)),
    ];
    metadata.extend(model.told.metadata.iter().cloned());
    metadata.extend(tokens.metadata);

    let (draft, mut file) = Draft::file(files, out)?;
    file.write_all(&head(&metadata, &infos))?;
    let (made, own) = infos.split_at(model.told.made.len());
    for (info, (_, values)) in made.iter().zip(&model.told.made) {
        TensorSink::new(&mut *file, info).write(values)?;
    }
    for (info, entry) in own.iter().zip(&model.entries) {
        write_tensor(&mut *file, &mut weights, (info, entry), &layout)?;
    }
    file.sync_all()?;
    draft.persist()?;
    let mut notes = model.told.notes;
    notes.extend(layout.note());
    notes.extend(renamed);
    notes.extend(tokens.note);
    Ok(Exported {
        tensors: infos.len(),
        notes,
    })
}

/// The folder that a model is called by: of a run's `final` the run's, of a folder of the hub's cache the model's.
fn named(folder: &Path) -> &Path {
    let up = |levels: usize| folder.ancestors().nth(levels).unwrap_or(folder);
    let called = |path: &Path, name: &str| path.file_name().is_some_and(|found| found == name);
    if called(folder, "final") {
        up(1)
    } else if called(up(1), "snapshots") {
        up(2)
    } else {
        folder
    }
}

fn read_model(files: &dyn Files, folder: &Path) -> Result<Model, GgufError> {
    let path = folder.join("config.json");
    let read = read(files, &path, |text| {
        let name = crate::language::config::family(text).unwrap_or_default();
        Ok(if name == "gpt2" {
            Read::Gpt2(Gpt2Config::from_json(text)?)
        } else {
            Read::Decoder(name, DecoderConfig::from_json(text)?)
        })
    })?;
    match read {
        Read::Gpt2(config) => Ok(Model {
            architecture: "gpt2",
            told: Told::of_gpt2(&config)?,
            entries: of_gpt2(&config),
            config: Box::new(config),
        }),
        Read::Decoder(name, config) => {
            let family =
                family(&name).ok_or_else(|| unsupported(&format!("the model_type {name}")))?;
            let shape = config.shape();
            Ok(Model {
                architecture: family.name,
                told: Told::of_decoder(&family, shape)?,
                entries: of_decoder(shape, family.interleave),
                config: Box::new(config),
            })
        }
    }
}

/// A configuration, with the name of its family.
enum Read {
    Gpt2(Gpt2Config),
    Decoder(String, DecoderConfig),
}

/// A tensor as it is written.
fn info(entry: &Entry, kind: GgufType) -> TensorInfo {
    let mut shape = entry.shape.clone();
    if entry.change == Change::Transpose {
        shape.reverse();
    }
    let kind = match &shape[..] {
        // As llama.cpp's own converter has it.
        _ if entry.to == "position_embd.weight" => GgufType::F32,
        &[_, width] => kind.of_rows(width),
        _ => GgufType::F32,
    };
    TensorInfo {
        name: entry.to.clone(),
        shape,
        kind,
    }
}

/// Where the numbers of one tensor go, as far as it can hold them.
struct Sink<'a> {
    to: TensorSink<'a>,
    entry: &'a Entry,
}

impl Sink<'_> {
    fn write(&mut self, values: &[f32]) -> Result<(), GgufError> {
        let what = if values.iter().any(|x| !x.is_finite()) {
            "numbers that are NaN or infinite: download or train the weights again"
        } else if self.to.overflows(values) {
            "numbers that are too large for an F16: --dtype bf16 or f32 holds them"
        } else {
            return Ok(self.to.write(values)?);
        };
        let tensor = self.entry.from.clone();
        Err(GgufError::Range { tensor, what })
    }
}

/// Reads a tensor and writes it, some rows at a time.
fn write_tensor(
    file: &mut dyn FileWrite,
    weights: &mut WeightsFolder<'_>,
    (info, entry): (&TensorInfo, &Entry),
    layout: &Layout,
) -> Result<(), GgufError> {
    let name = layout.stored(&entry.from);
    let reader = weights.reader(name)?;
    let mut sink = Sink {
        to: TensorSink::new(file, info),
        entry,
    };
    let &[rows, width] = &entry.shape[..] else {
        let mut values = vec![0.0; entry.shape.iter().product()];
        reader.read_f32(name, &entry.shape, &mut values)?;
        match entry.change {
            Change::AddOne => values.iter_mut().for_each(|x| *x += 1.0),
            Change::Interleave(heads) => {
                let row = |row| values[interleaved(row, values.len(), heads)];
                values = (0..values.len()).map(row).collect();
            }
            Change::None | Change::Transpose => {}
        }
        return sink.write(&values);
    };
    match entry.change {
        Change::Transpose => {
            let mut values = vec![0.0; rows * width];
            reader.read_f32(name, &entry.shape, &mut values)?;
            for column in 0..width {
                let turned: Vec<f32> = values.iter().skip(column).step_by(width).copied().collect();
                sink.write(&turned)?;
            }
        }
        Change::Interleave(heads) => {
            let mut values = vec![0.0; width];
            for row in 0..rows {
                let from = interleaved(row, rows, heads);
                reader.read_f32_rows(name, [rows, width], from, &mut values)?;
                sink.write(&values)?;
            }
        }
        Change::None | Change::AddOne => {
            let at_once = (PIECE / width.max(1)).clamp(1, rows.max(1));
            let mut values = vec![0.0; at_once * width];
            for first in (0..rows).step_by(at_once) {
                let values = &mut values[..at_once.min(rows - first) * width];
                reader.read_f32_rows(name, [rows, width], first, values)?;
                sink.write(values)?;
            }
        }
    }
    Ok(())
}
