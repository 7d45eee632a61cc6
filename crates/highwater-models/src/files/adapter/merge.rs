//! Adapters added to the weights of their model, from files to files: a few rows are in memory at a time, whatever the
//! model takes. Every tensor keeps its type in the files, unless another one is asked for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use highwater_memory::{Files, FilesError};
use safetensors::Dtype;
use thiserror::Error;

use super::files::{Part, parts};
use super::layers::Layers;
use super::low_rank::{LowRank, Side};
use super::settings::Settings;
use super::{CONFIG, WEIGHTS};
use crate::CausalLm;
use crate::files::module_folder::{file_name, shards, write_index};
use crate::files::weights::{
    HEAD, Layout, TensorSpec, WeightsError, WeightsFolder, WeightsReader, WeightsWriter, are_equal,
    checked_bytes,
};
use crate::language::config::{ConfigError, read};

/// Numbers of a weight that are in memory at once, about.
const PIECE: usize = 1 << 18;
/// What else is: headers, and windows of files.
const BESIDE: u64 = 16 << 20;

/// Why adapters cannot be merged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// Of the adapters' settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Of weights, the model's or the adapters'.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Of files as such.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Of the model, which is asked for its layers.
    #[error(transparent)]
    Engine(#[from] highwater::Error),
    /// Adapters that are not for the model, or not what their settings say.
    #[error("{}: {problem}", path.display())]
    Adapters {
        /// The file of adapters.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Numbers of a merged weight that are not finite.
    #[error("`{tensor}` of the merged model has numbers that are not finite")]
    NotFinite {
        /// Its name.
        tensor: String,
    },
}

/// One tensor of the merged model.
#[derive(Debug)]
struct Job {
    spec: TensorSpec,
    /// Its name in the model's files, or in that of adapters.
    from: String,
    is_of_adapters: bool,
    /// What is added to it.
    low: Option<Low>,
}

/// What the adapter of a layer is.
#[derive(Debug)]
struct Low {
    part: Part,
    /// Of the weight.
    dims: [usize; 2],
    side: Side,
    rank: usize,
    scaling: f64,
}

/// A merge that is known to be possible.
#[derive(Debug)]
pub struct Merge<'a> {
    files: &'a dyn Files,
    model: PathBuf,
    adapters: PathBuf,
    jobs: Vec<Job>,
    unties: bool,
    note: Option<String>,
}

impl<'a> Merge<'a> {
    /// Looks at the headers of a model's folder and of a folder of adapters, as PEFT writes it. `model` says which
    /// parameters the model has: nothing reads its values. With `dtype` all weights of the merged model have that type.
    ///
    /// # Errors
    /// [`MergeError`] for adapters of another kind or another model, and for files that are damaged.
    pub fn new(
        files: &'a dyn Files,
        [folder, adapters]: [&Path; 2],
        model: &dyn CausalLm,
        dtype: Option<Dtype>,
    ) -> Result<Self, MergeError> {
        let settings = read(files, &adapters.join(CONFIG), Settings::of)?;
        let path = adapters.join(WEIGHTS);
        let refused = |problem: String| MergeError::Adapters {
            path: path.clone(),
            problem,
        };
        let mut added = WeightsFolder::of_file(files, &path)?;
        let found = added.look_over()?;
        let parts = parts(found.keys()).map_err(|name| {
            refused(format!(
                "`{name}` is of no kind of adapters that is merged here"
            ))
        })?;
        let mut weights = WeightsFolder::open(files, folder)?;
        let layers = Layers::of(model)?;
        let layout = Layout::of(&mut weights, model.architecture(), &layers.expected)?;
        layout.check_tied(&mut weights)?;
        let parts = layers.named(parts).map_err(refused)?;
        let unties = layers.is_tied() && sets_apart(&layers, &parts, &mut added)?;
        let stored = weights.look_over()?;
        let head = layers.shape(layers.embedding).map(|shape| {
            let shape = shape.to_vec();
            (HEAD.to_owned(), shape)
        });
        let mut jobs = Vec::new();
        for (name, shape) in layers.expected.iter().chain(head.iter().filter(|_| unties)) {
            let is_apart = unties && name == HEAD;
            let own = if is_apart { layers.embedding } else { name };
            let own = layout.stored(own);
            let kept = stored
                .get(own)
                .map_or(Dtype::F32, |stored| stored.info.dtype);
            let spec = TensorSpec {
                name: name.clone(),
                dtype: dtype.unwrap_or(kept),
                shape: shape.clone(),
            };
            let shape_of = |name: &String| found.get(name).map(|stored| &stored.info.shape[..]);
            let job = job(spec, own, (&layers, &parts, &settings), &shape_of);
            jobs.push(job.map_err(refused)?);
        }
        layers.check_complete(&settings, &parts).map_err(refused)?;
        Ok(Self {
            files,
            model: folder.to_owned(),
            adapters: path.clone(),
            jobs,
            unties,
            note: layout.note(),
        })
    }

    /// How many layers have an adapter.
    pub fn layers(&self) -> usize {
        self.jobs.iter().filter(|job| job.low.is_some()).count()
    }

    /// How many tensors the adapters' file has in place of the model's: of modules that were trained whole.
    pub fn replaced(&self) -> usize {
        self.jobs.iter().filter(|job| job.is_of_adapters).count()
    }

    /// Whether the head, which was the token embedding, is another tensor in the merged model.
    pub fn unties(&self) -> bool {
        self.unties
    }

    /// What is to be said of the model's files.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The memory that it takes, about.
    pub fn bytes(&self) -> u64 {
        let matrices = self.jobs.iter().filter_map(|job| {
            let sides = job.spec.shape.iter().sum::<usize>();
            job.low
                .as_ref()
                .map(|low| 2 * 4 * (sides * low.rank) as u64)
        });
        let widest = self.jobs.iter().filter_map(|job| job.spec.shape.last());
        let widest = widest.max().copied().unwrap_or(0);
        let pieces = 4 * 4 * PIECE.max(widest) as u64;
        matrices.max().unwrap_or(0) + pieces + BESIDE
    }

    /// Writes the weights of the merged model into a folder, in files of at most `most` bytes of tensors each, unless
    /// one tensor alone has more.
    ///
    /// # Errors
    /// [`MergeError`] for files that cannot be read or written, and for numbers that are not finite.
    pub fn write(&self, out: &Path, most: u64) -> Result<(), MergeError> {
        let size = |job: &Job| checked_bytes(job.spec.dtype, &job.spec.shape).unwrap_or(u64::MAX);
        let shards = shards(&self.jobs, size, most);
        let mut weights = WeightsFolder::open(self.files, &self.model)?;
        let mut added = WeightsFolder::of_file(self.files, &self.adapters)?;
        let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        let mut map = BTreeMap::new();
        for (i, shard) in shards.iter().enumerate() {
            let name = file_name(i, shards.len());
            let specs = shard.iter().map(|job| job.spec.clone()).collect();
            let mut writer = WeightsWriter::create(self.files, &out.join(&name), specs, &metadata)?;
            for job in *shard {
                let from = if job.is_of_adapters {
                    &mut added
                } else {
                    &mut weights
                };
                write(
                    job,
                    from.reader(&job.from)?,
                    (self.files, &self.adapters),
                    &mut writer,
                )?;
                map.insert(job.spec.name.clone(), name.clone());
            }
            writer.finish()?;
        }
        if shards.len() > 1 {
            let total = self.jobs.iter().map(size).sum();
            write_index(self.files, out, &map, total)?;
        }
        Ok(())
    }
}

impl Low {
    fn read(&self, files: &dyn Files, path: &Path) -> Result<LowRank, WeightsError> {
        let mut reader = WeightsReader::open(files, path)?;
        let how = (self.side, self.scaling);
        let extents = (self.side.extents(self.dims), self.rank);
        LowRank::read(&mut reader, &self.part, how, extents)
    }
}

/// Whether the adapters of a tied model are for its head alone, or for its token embedding alone, or differ.
fn sets_apart(
    layers: &Layers,
    parts: &BTreeMap<String, Part>,
    added: &mut WeightsFolder<'_>,
) -> Result<bool, WeightsError> {
    let of = |layer: &str| parts.get(layer).cloned().unwrap_or_default();
    let [head, table] = [of(Layers::head()), of(layers.table())];
    if head.has_low() || table.has_low() {
        return Ok(true);
    }
    match (&head.whole[0], &table.whole[0]) {
        (None, None) => Ok(false),
        (Some(one), Some(other)) => Ok(!are_equal(added, [one, other])?),
        _ => Ok(true),
    }
}

/// What becomes of one tensor, which is called `own` in the model's files.
fn job<'a>(
    spec: TensorSpec,
    own: &str,
    (layers, parts, settings): (&Layers, &BTreeMap<String, Part>, &Settings),
    shape_of: &dyn Fn(&String) -> Option<&'a [usize]>,
) -> Result<Job, String> {
    let (layer, which) = match (
        spec.name.strip_suffix(".weight"),
        spec.name.strip_suffix(".bias"),
    ) {
        (Some(layer), _) => (layer, 0),
        (None, Some(layer)) => (layer, 1),
        (None, None) => ("", 0),
    };
    let part = parts.get(layer);
    let whole = part.and_then(|part| part.whole[which].as_ref());
    let check = |name: &String, shape: &[usize]| match shape_of(name) {
        Some(found) if found == shape => Ok(()),
        found => Err(format!(
            "`{name}` has the shape {found:?}; the model needs {shape:?}",
            found = found.unwrap_or_default()
        )),
    };
    if let Some(whole) = whole {
        check(whole, &spec.shape)?;
    }
    let has_low = part.filter(|part| which == 0 && part.has_low());
    let low = has_low.map(|part| {
        let side = layers.side(layer, part)?;
        let &[rows, width] = &spec.shape[..] else {
            return Err(format!("`{layer}` is not a layer that can have adapters"));
        };
        if !settings.is_targeted(layer, layers.is_linear(layer)) {
            return Err(format!(
                "{layer} has an adapter that {CONFIG} does not list"
            ));
        }
        let rank = settings.rank(layer);
        let [outputs, inputs] = side.extents([rows, width]);
        for (name, shape) in part.low.iter().zip([[rank, inputs], [outputs, rank]]) {
            let name = name.as_ref();
            check(
                name.ok_or_else(|| format!("{layer} has one half of an adapter"))?,
                &shape,
            )?;
        }
        match &part.magnitude {
            Some(name) => check(name, &[outputs])?,
            None if settings.options.use_dora => {
                return Err(format!(
                    "{layer} has no lora_magnitude_vector, though use_dora is true"
                ));
            }
            None => {}
        }
        if part.magnitude.is_some() && !settings.options.use_dora {
            return Err(format!(
                "{layer} has a lora_magnitude_vector, though use_dora is false"
            ));
        }
        Ok(Low {
            part: part.clone(),
            dims: [rows, width],
            side,
            rank,
            scaling: settings.scaling(layer),
        })
    });
    Ok(Job {
        from: whole.map_or(own, String::as_str).to_owned(),
        is_of_adapters: whole.is_some(),
        low: low.transpose()?,
        spec,
    })
}

/// Takes some rows of a tensor, from the row of that number on.
type TakeRows<'a> = dyn FnMut(usize, &mut [f32]) -> Result<(), MergeError> + 'a;

/// Writes one tensor.
fn write(
    job: &Job,
    reader: &mut WeightsReader,
    (files, adapters): (&dyn Files, &Path),
    writer: &mut WeightsWriter,
) -> Result<(), MergeError> {
    let name = &job.spec.name;
    let not_finite = || MergeError::NotFinite {
        tensor: name.clone(),
    };
    let is_finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
    let Some(low) = &job.low else {
        let same = reader.tensors().get(&job.from).map(|info| info.dtype) == Some(job.spec.dtype);
        let (mut written, mut finite) = (Ok(()), true);
        reader.each_piece(&job.from, |bytes, values| {
            finite &= is_finite(values);
            if written.is_ok() && finite {
                written = if same {
                    writer.write_bytes(name, bytes)
                } else {
                    writer.write_f32(name, values)
                };
            }
        })?;
        written?;
        return if finite { Ok(()) } else { Err(not_finite()) };
    };
    let [rows, width] = low.dims;
    let mut product = low.read(files, adapters)?;
    let at_once = (PIECE / width.max(1)).clamp(1, rows.max(1));
    let mut values = vec![0.0; at_once * width];
    let mut each = |take: &mut TakeRows<'_>| {
        for first in (0..rows).step_by(at_once) {
            let values = &mut values[..at_once.min(rows - first) * width];
            reader.read_f32_rows(&job.from, [rows, width], first, values)?;
            take(first, values)?;
        }
        Ok::<_, MergeError>(())
    };
    if product.needs_squares() {
        each(&mut |first, values| {
            product.count(first, values, width);
            Ok(())
        })?;
    }
    each(&mut |first, values| {
        product.merge(first, values, width);
        if !is_finite(values) {
            return Err(not_finite());
        }
        Ok(writer.write_f32(name, values)?)
    })
}
