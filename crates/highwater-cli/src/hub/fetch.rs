//! What is asked of the hub, and where it is put.

use std::path::{Path, PathBuf};

use highwater_memory::saved::{rename_durably, write_atomic};
use highwater_memory::{DiskFiles, Files};
use serde::Deserialize;

use super::curl::{Answer, Curl};
use super::name::{FOLDER, Name, is_name};
use crate::error::{Code, Failure};
use crate::terminal::output;

/// What there may be of a model beside its weights.
const SETTINGS: [&str; 8] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    INDEX,
    // Last: where it is, all is.
    "config.json",
];

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
/// The largest index, in bytes.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// The status of a request that begins behind a file's end.
const NOT_IN_RANGE: u16 = 416;
/// What the end of a file's name is while it is written.
const PARTIAL: &str = ".incomplete";

/// A hub, and the cache of what it has.
pub(super) struct Hub {
    endpoint: String,
    cache: PathBuf,
    /// Whether nothing may be asked.
    is_offline: bool,
    curl: Curl,
}

/// What the hub says of a model.
#[derive(Deserialize)]
struct Model {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

#[derive(Deserialize)]
struct Index {
    weight_map: std::collections::BTreeMap<String, String>,
}

/// Whether a folder has all files of weights that it names.
pub(super) fn has_weights(folder: &Path) -> bool {
    if folder.join(SINGLE).exists() {
        return true;
    }
    shards(folder)
        .is_ok_and(|files| !files.is_empty() && files.iter().all(|file| folder.join(file).exists()))
}

/// The files that an index names; none where there is none.
fn shards(folder: &Path) -> Result<Vec<String>, Failure> {
    let path = folder.join(INDEX);
    if DiskFiles.metadata(&path)?.is_none() {
        return Ok(Vec::new());
    }
    let mut file = DiskFiles.open(&path)?;
    let mut json = vec![0; file.bytes().min(INDEX_BYTES_MAX) as usize];
    file.read_exact_at(0, &mut json)?;
    let damaged =
        |problem: String| Failure::new(Code::Files, format!("{}: {problem}", path.display()));
    let index: Index = serde_json::from_slice(&json).map_err(|error| damaged(error.to_string()))?;
    let mut files: Vec<String> = index.weight_map.into_values().collect();
    files.sort_unstable();
    files.dedup();
    match files
        .iter()
        .find(|file| !is_name(file) || !file.ends_with(".safetensors"))
    {
        Some(file) => Err(damaged(format!("{file:?} is not a weights file"))),
        None => Ok(files),
    }
}

impl Hub {
    /// The one that the environment names, as `huggingface_hub` reads it.
    #[expect(
        clippy::disallowed_methods,
        reason = "where its cache is and who asks is told to all programs of the hub by the environment"
    )]
    pub(super) fn of_environment() -> Result<Self, Failure> {
        let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = || {
            let cache = of("XDG_CACHE_HOME").map(PathBuf::from);
            let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache")));
            of("HF_HOME")
                .map(PathBuf::from)
                .or_else(|| Some(cache?.join("huggingface")))
        };
        let cache = of("HF_HUB_CACHE")
            .map(PathBuf::from)
            .or_else(|| Some(home()?.join("hub")));
        let cache = cache.ok_or_else(|| {
            Failure::usage("there is no folder for downloads").hint("set one with HF_HOME")
        })?;
        let saved = || {
            let path = of("HF_TOKEN_PATH").map(PathBuf::from);
            std::fs::read_to_string(path.or_else(|| Some(home()?.join("token")))?).ok()
        };
        let token = of("HF_TOKEN")
            .or_else(saved)
            .and_then(|token| Some(token.split_whitespace().next()?.to_owned()));
        let endpoint = of("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let mut hub = Self::new(&endpoint, token, cache);
        let is_set = |name: &str| of(name).is_some_and(|value| value != "0");
        hub.is_offline = is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE");
        Ok(hub)
    }

    fn new(endpoint: &str, token: Option<String>, cache: PathBuf) -> Self {
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache,
            is_offline: false,
            curl: Curl { token },
        }
    }

    fn model_folder(&self, name: &Name) -> PathBuf {
        let folder = name.repository.replace('/', "--");
        self.cache.join(format!("{FOLDER}{folder}"))
    }

    /// Fetches all of a model but its weights, where that is not there.
    pub(super) fn settings(&self, name: &Name) -> Result<PathBuf, Failure> {
        let model = self.model_folder(name);
        let (reference, snapshots) = (
            model.join("refs").join(&name.revision),
            model.join("snapshots"),
        );
        let is_commit =
            name.revision.len() == 40 && name.revision.bytes().all(|b| b.is_ascii_hexdigit());
        let there = |commit: &str| {
            Some(snapshots.join(commit)).filter(|folder| folder.join("config.json").exists())
        };
        if let Some(folder) = there(&name.revision).filter(|_| is_commit) {
            return Ok(folder);
        }
        let revision = name.revision.replace('/', "%2F");
        let url = format!(
            "{}/api/models/{}/revision/{revision}",
            self.endpoint, name.repository
        );
        let found = match self
            .get(&url, None, false)
            .and_then(|answer| self.model(name, answer))
        {
            Ok(found) => found,
            Err(failure) => {
                // As it was when it was fetched last.
                let last = std::fs::read_to_string(&reference).ok();
                let Some(folder) = last.and_then(|commit| there(commit.trim())) else {
                    return Err(failure);
                };
                let why = failure.message();
                output::news(&format!("note: {why}: using {}", folder.display()));
                return Ok(folder);
            }
        };
        let folder = snapshots.join(&found.sha);
        DiskFiles.create_dir_all(&folder)?;
        for file in SETTINGS {
            if found
                .siblings
                .iter()
                .any(|sibling| sibling.rfilename == file)
            {
                self.fetch((name, &found.sha), &folder, file)?;
            }
        }
        if let Some(parent) = reference.parent() {
            DiskFiles.create_dir_all(parent)?;
        }
        write_atomic(&DiskFiles, &reference, found.sha.as_bytes())?;
        Ok(folder)
    }

    /// Whether a folder is one of its cache.
    pub(super) fn has(&self, folder: &Path) -> bool {
        folder.starts_with(&self.cache)
    }

    /// Fetches the weights of a commit.
    pub(super) fn weights(&self, name: &Name, folder: &Path) -> Result<(), Failure> {
        let mut files = shards(folder)?;
        if files.is_empty() {
            files.push(SINGLE.to_owned());
        }
        files
            .iter()
            .try_for_each(|file| self.fetch((name, &name.revision), folder, file))
    }

    fn model(&self, name: &Name, answer: Answer) -> Result<Model, Failure> {
        let told = format!("hf:{}@{}", name.repository, name.revision);
        let answer = self.expected(answer, &told)?;
        let model: Model = serde_json::from_slice(&answer.body).map_err(|error| {
            Failure::new(Code::Files, format!("{told}: {}: {error}", self.endpoint))
        })?;
        if !is_name(&model.sha) {
            return Err(Failure::new(
                Code::Files,
                format!("{told}: {:?} is not a commit", model.sha),
            ));
        }
        Ok(model)
    }

    /// Asks for a URL; with `to`, for what that file lacks.
    fn get(&self, url: &str, to: Option<&Path>, is_long: bool) -> Result<Answer, Failure> {
        if self.is_offline {
            return Err(Failure::new(
                Code::Files,
                format!("{url}: HF_HUB_OFFLINE forbids downloads"),
            )
            .id("HW1044")
            .hint("models in the cache need no network: give their folder"));
        }
        self.curl.get(url, to, is_long)
    }

    /// An answer that is what was asked for.
    fn expected(&self, answer: Answer, what: &str) -> Result<Answer, Failure> {
        let status = answer.status;
        if (200..300).contains(&status) {
            return Ok(answer);
        }
        let failure = Failure::new(
            Code::Files,
            format!("{what}: {} says {status}", self.endpoint),
        )
        .id("HW1044");
        Err(match status {
            401 | 403 => failure
                .hint("accept the model's terms on its page, and set HF_TOKEN to a token of yours"),
            404 => failure.hint("look for the name, the revision and the file on the hub"),
            _ => failure.hint("try again later: the download continues where it ended"),
        })
    }

    /// Fetches a file, from where an earlier try ended.
    fn fetch(
        &self,
        (name, commit): (&Name, &str),
        folder: &Path,
        file: &str,
    ) -> Result<(), Failure> {
        let path = folder.join(file);
        // Who comes second waits, and finds what the first has fetched.
        let _alone = alone(folder)?;
        if DiskFiles.metadata(&path)?.is_some() {
            return Ok(());
        }
        let draft = folder.join(format!("{file}{PARTIAL}"));
        let url = format!(
            "{}/{}/resolve/{commit}/{file}",
            self.endpoint, name.repository
        );
        let is_long = file.ends_with(".safetensors");
        if is_long {
            output::news(&format!("downloading {file}"));
        }
        let mut answer = self.get(&url, Some(&draft), is_long)?;
        if answer.has_no_range || answer.status == NOT_IN_RANGE {
            DiskFiles.remove_file(&draft)?;
            answer = self.get(&url, Some(&draft), is_long)?;
        }
        self.expected(answer, &format!("hf:{}: {file}", name.repository))?;
        DiskFiles.append(&draft)?.sync_all()?;
        Ok(rename_durably(&DiskFiles, &draft, &path)?)
    }
}

/// A lock on a folder of the cache, until it is dropped.
fn alone(folder: &Path) -> Result<std::fs::File, Failure> {
    let path = folder.join(".highwater.lock");
    let locked = std::fs::File::create(&path).and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| Failure::new(Code::Files, format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests;
