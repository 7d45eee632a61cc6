//! The weights of a model folder: one file, or several that an index names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use highwater_memory::{Files, SharedFile};
use serde_json::Value;

use super::{TENSORS_MAX, TensorInfo, WeightsError, WeightsProblem, WeightsReader};
use crate::json;

/// The only file of weights, as Hugging Face names it.
pub const SINGLE: &str = "model.safetensors";
/// The file that says which of several a tensor is in.
pub const INDEX: &str = "model.safetensors.index.json";
/// The largest index that is read, in bytes.
pub const INDEX_BYTES_MAX: u64 = 16 << 20;

/// Weights in one file or several, one of which is read at a time: whatever there is of them, one header and one
/// window are in memory, and the index.
#[derive(Debug)]
pub struct WeightsFolder<'a> {
    files: &'a dyn Files,
    folder: PathBuf,
    /// The file of each tensor; none for a single file.
    index: Option<BTreeMap<String, String>>,
    /// Its name in the folder.
    open: Option<(String, WeightsReader)>,
    /// Those that were read from, by name: open once, however often they are come back to.
    opened: BTreeMap<String, SharedFile>,
}

/// A tensor in one of the files.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) info: TensorInfo,
    /// The file.
    pub(crate) path: PathBuf,
}

impl<'a> WeightsFolder<'a> {
    /// Opens a model folder: its `model.safetensors` if it is there, else what `model.safetensors.index.json` names.
    ///
    /// # Errors
    /// [`WeightsError`], naming the file.
    pub fn open(files: &'a dyn Files, folder: &Path) -> Result<Self, WeightsError> {
        let path = folder.join(INDEX);
        let has = |path: &Path| files.metadata(path).map(|found| found.is_some());
        let of_files = |error| WeightsProblem::from(error).at(&path);
        if has(&folder.join(SINGLE)).map_err(of_files)? || !has(&path).map_err(of_files)? {
            return Self::of_file(files, &folder.join(SINGLE));
        }
        let index = read_index(files, &path).map_err(|problem| problem.at(&path))?;
        Ok(Self {
            files,
            folder: folder.to_owned(),
            index: Some(index),
            open: None,
            opened: BTreeMap::new(),
        })
    }

    /// Opens a single file.
    ///
    /// # Errors
    /// [`WeightsError`], naming the file.
    pub fn of_file(files: &'a dyn Files, path: &Path) -> Result<Self, WeightsError> {
        Ok(Self {
            files,
            folder: PathBuf::new(),
            index: None,
            open: Some((String::new(), WeightsReader::open(files, path)?)),
            opened: BTreeMap::new(),
        })
    }

    /// The files of weights, by their names.
    pub fn paths(&self) -> Vec<PathBuf> {
        if let Some(index) = &self.index {
            let names: BTreeSet<&String> = index.values().collect();
            let paths = names.into_iter().map(|name| self.folder.join(name));
            return paths.collect();
        }
        let open = self.open.iter();
        open.map(|(_, reader)| reader.path().to_owned()).collect()
    }

    /// What is said to be wrong with the folder: its index, or its file.
    pub(crate) fn place(&self) -> PathBuf {
        match (&self.index, &self.open) {
            (None, Some((_, reader))) => reader.path().to_owned(),
            _ => self.folder.join(INDEX),
        }
    }

    /// The tensors by the headers of all files. Those are what is there and read from then on, as in transformers,
    /// whichever of the files the index names for them.
    ///
    /// # Errors
    /// [`WeightsError`] for a file that cannot be read, a tensor that two files have, and one that the index names and
    /// no file has.
    pub(crate) fn look_over(&mut self) -> Result<BTreeMap<String, Stored>, WeightsError> {
        let mut found = BTreeMap::new();
        let index = self.index.clone();
        let files: BTreeSet<&String> = index.iter().flat_map(BTreeMap::values).collect();
        for file in &files {
            self.open_file(file)?;
            self.add_tensors(&mut found)?;
        }
        if index.is_none() {
            self.add_tensors(&mut found)?;
        }
        let mut index = index.iter().flatten();
        if let Some((tensor, file)) = index.find(|(tensor, _)| !found.contains_key(*tensor)) {
            let tensor = tensor.clone();
            return Err(WeightsProblem::Missing { tensor }.at(&self.folder.join(file)));
        }
        if self.index.is_some() {
            let file = |stored: &Stored| {
                let name = stored.path.file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            };
            let files = found
                .iter()
                .map(|(name, stored)| (name.clone(), file(stored)));
            self.index = Some(files.collect());
        }
        Ok(found)
    }

    /// Adds the tensors of the file that is open.
    fn add_tensors(&self, found: &mut BTreeMap<String, Stored>) -> Result<(), WeightsError> {
        let Some((_, reader)) = &self.open else {
            return Ok(());
        };
        for (name, info) in reader.tensors() {
            let (info, path) = (info.clone(), reader.path().to_owned());
            if let Some(other) = found.insert(name.clone(), Stored { info, path }) {
                let (tensor, file) = (name.clone(), other.path.display().to_string());
                return Err(WeightsProblem::Twice { tensor, file }.at(reader.path()));
            }
        }
        Ok(())
    }

    /// Whether there is a tensor of that name, as far as index or header say.
    pub fn has(&self, name: &str) -> bool {
        match (&self.index, &self.open) {
            (Some(index), _) => index.contains_key(name),
            (None, Some((_, reader))) => reader.tensors().contains_key(name),
            (None, None) => false,
        }
    }

    /// The file that has a tensor, opened if it is another than the last one.
    ///
    /// # Errors
    /// [`WeightsError`] for a tensor that is nowhere, and for a file that cannot be read.
    pub fn reader(&mut self, name: &str) -> Result<&mut WeightsReader, WeightsError> {
        if let Some(index) = &self.index {
            let Some(file) = index.get(name).cloned() else {
                let tensor = name.to_owned();
                return Err(WeightsProblem::Missing { tensor }.at(&self.folder.join(INDEX)));
            };
            self.open_file(&file)?;
        }
        let tensor = name.to_owned();
        let open = self.open.as_mut().map(|(_, reader)| reader);
        open.ok_or_else(|| WeightsProblem::Missing { tensor }.at(&self.folder))
    }

    /// Opens one of the files that the index names, if it is another than the last one.
    fn open_file(&mut self, file: &str) -> Result<(), WeightsError> {
        if self.open.as_ref().is_some_and(|(open, _)| open == file) {
            return Ok(());
        }
        // The last one's window goes before there is another.
        if let Some((_, last)) = self.open.take() {
            last.file().forget();
        }
        let path = self.folder.join(file);
        let reader = match self.opened.get(file) {
            Some(open) => WeightsReader::of_file(open.clone(), &path)?,
            None => WeightsReader::open(self.files, &path)?,
        };
        self.opened.insert(file.to_owned(), reader.file().clone());
        self.open = Some((file.to_owned(), reader));
        Ok(())
    }
}

fn read_index(files: &dyn Files, path: &Path) -> Result<BTreeMap<String, String>, WeightsProblem> {
    let mut file = files.open(path)?;
    let bytes = file.bytes();
    if bytes > INDEX_BYTES_MAX {
        return Err(WeightsProblem::IndexLength { bytes });
    }
    let mut json = vec![0; bytes as usize];
    file.read_exact_at(0, &mut json)?;
    let wrong = |problem: String| WeightsProblem::Index { problem };
    let index = json::value_of(&json).map_err(wrong)?;
    let map = match index {
        Value::Object(mut fields) => fields.shift_remove("weight_map"),
        _ => return Err(wrong("it is invalid: not an object".to_owned())),
    };
    let map = map.ok_or_else(|| wrong("it has no `weight_map`".to_owned()))?;
    let map: BTreeMap<String, String> =
        serde_json::from_value(map).map_err(|error| wrong(format!("`weight_map`: {error}")))?;
    let tensors = map.len();
    if tensors > TENSORS_MAX {
        let problem = format!("{tensors} tensors; at most {TENSORS_MAX} are read");
        return Err(WeightsProblem::Index { problem });
    }
    for (tensor, file) in &map {
        let mut parts = Path::new(file).components();
        let is_name = matches!(parts.next(), Some(Component::Normal(_))) && parts.next().is_none();
        // Elsewhere a separator of another system is part of a name.
        if !is_name || file.contains('\\') {
            let told = |text: &str| text.chars().take(120).collect();
            return Err(WeightsProblem::IndexPath {
                tensor: told(tensor),
                file: told(file),
            });
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::weights::{TensorSpec, WeightsWriter};
    use highwater_memory::files::MemoryFiles;
    use safetensors::Dtype;

    fn shard(files: &MemoryFiles, name: &str, tensors: &[(&str, f32)]) {
        files.create_dir_all(Path::new("/m")).unwrap();
        let path = Path::new("/m").join(name);
        let spec = |&(name, _): &(&str, f32)| TensorSpec {
            name: name.to_owned(),
            dtype: Dtype::F32,
            shape: vec![1],
        };
        let specs = tensors.iter().map(spec).collect();
        let file = files.create(&path).unwrap();
        let mut writer = WeightsWriter::begin(file, &path, specs, &BTreeMap::new()).unwrap();
        for (name, value) in tensors {
            writer.write_bytes(name, &value.to_le_bytes()).unwrap();
        }
        writer.finish().unwrap();
    }

    fn index(files: &MemoryFiles, json: &str) {
        files.create_dir_all(Path::new("/m")).unwrap();
        let mut file = files.create(Path::new("/m").join(INDEX).as_path()).unwrap();
        file.write_all(json.as_bytes()).unwrap();
        file.sync_all().unwrap();
    }

    fn value(weights: &mut WeightsFolder<'_>, name: &str) -> Result<f32, WeightsError> {
        let mut value = [0.0];
        weights.reader(name)?.read_f32(name, &[1], &mut value)?;
        Ok(value[0])
    }

    #[test]
    fn tensors_are_read_from_the_file_that_the_index_names() {
        let files = MemoryFiles::new();
        shard(&files, "a.safetensors", &[("x", 1.0), ("y", 2.0)]);
        shard(&files, "b.safetensors", &[("z", 3.0)]);
        index(
            &files,
            r#"{"metadata": {"total_size": 12}, "weight_map": {"x": "a.safetensors", "y": "a.safetensors",
                "z": "b.safetensors", "w": "b.safetensors", "v": "c.safetensors"}}"#,
        );
        let mut weights = WeightsFolder::open(&files, Path::new("/m")).unwrap();
        for (name, expected) in [("x", 1.0), ("z", 3.0), ("y", 2.0), ("x", 1.0)] {
            assert!(weights.has(name));
            assert_eq!(
                value(&mut weights, name).unwrap().to_bits(),
                f32::to_bits(expected)
            );
        }
        assert!(!weights.has("u"));
        for (name, told) in [
            ("u", "model.safetensors.index.json: there is no tensor `u`"),
            ("w", "b.safetensors: there is no tensor `w`"),
            ("v", "c.safetensors"),
        ] {
            let error = value(&mut weights, name).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        // One that failed leaves the others readable.
        assert_eq!(
            value(&mut weights, "z").unwrap().to_bits(),
            3.0_f32.to_bits()
        );
    }

    #[test]
    fn a_single_file_goes_before_an_index() {
        let files = MemoryFiles::new();
        shard(&files, SINGLE, &[("x", 4.0)]);
        index(&files, "{}");
        let mut weights = WeightsFolder::open(&files, Path::new("/m")).unwrap();
        assert!(weights.has("x") && !weights.has("y"));
        assert_eq!(
            value(&mut weights, "x").unwrap().to_bits(),
            4.0_f32.to_bits()
        );
        let error = value(&mut weights, "y").unwrap_err().to_string();
        assert!(error.contains("there is no tensor `y`"), "{error}");
    }

    #[test]
    fn damaged_and_hostile_indices_are_named() {
        let deep = format!(r#"{{"metadata": {}"#, "[".repeat(100_000));
        for (json, told) in [
            ("", "line 1"),
            ("{", "line 1"),
            ("[]", "invalid"),
            ("{}", "weight_map"),
            (r#"{"weight_map": {"x": 3}}"#, "string"),
            (r#"{"weight_map": {"x": ["a"]}}"#, "string"),
            (r#"{"weight_map": {"x": "../secret"}}"#, "`../secret`"),
            (r#"{"weight_map": {"x": "/etc/passwd"}}"#, "`/etc/passwd`"),
            (r#"{"weight_map": {"x": "a/b"}}"#, "`a/b`"),
            (r#"{"weight_map": {"x": "a\\b"}}"#, r"`a\b`"),
            (r#"{"weight_map": {"x": ".."}}"#, "`..`"),
            (r#"{"weight_map": {"x": ""}}"#, "``"),
            (&deep, "line 1"),
        ] {
            let files = MemoryFiles::new();
            index(&files, json);
            let error = WeightsFolder::open(&files, Path::new("/m")).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains(INDEX) && error.contains(told),
                "{json:.40}: {error}"
            );
        }
        let error = WeightsFolder::open(&MemoryFiles::new(), Path::new("/m")).unwrap_err();
        assert!(error.to_string().contains(SINGLE), "{error}");
    }
}
