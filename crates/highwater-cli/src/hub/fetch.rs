//! What is asked of the hub, and where it is put.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater::Bytes;
use highwater_memory::saved::{rename_durably, write_atomic};
use highwater_memory::{DiskFiles, FileWrite, Files};
use serde::Deserialize;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

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
/// The largest answer that is no file, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// What the end of a file's name is while it is written.
const PARTIAL: &str = ".incomplete";

/// A hub, and the cache of what it has.
pub(super) struct Hub {
    endpoint: String,
    token: Option<String>,
    cache: PathBuf,
    /// Whether nothing may be asked.
    is_offline: bool,
    agent: Agent,
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
    let mut json = vec![0; file.bytes().min(ANSWER_BYTES_MAX) as usize];
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
            .map(|token| token.trim().to_owned());
        let endpoint = of("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let mut hub = Self::new(&endpoint, token, cache);
        let is_set = |name: &str| of(name).is_some_and(|value| value != "0");
        hub.is_offline = is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE");
        Ok(hub)
    }

    fn new(endpoint: &str, token: Option<String>, cache: PathBuf) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_recv_response(Some(Duration::from_mins(1)))
            .build();
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token,
            cache,
            is_offline: false,
            agent: agent.into(),
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
            .get(&url, 0)
            .and_then(|answer| self.model(name, answer))
        {
            Ok(found) => found,
            Err(failure) => {
                // As it was when it was fetched last.
                let last = std::fs::read_to_string(&reference).ok();
                let Some(folder) = last.and_then(|commit| there(commit.trim())) else {
                    return Err(failure);
                };
                output::news(&format!("note: {failure}: taking {}", folder.display()));
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

    fn model(&self, name: &Name, answer: Response<Body>) -> Result<Model, Failure> {
        let told = format!("hf:{}@{}", name.repository, name.revision);
        let answer = self.expected(answer, &told)?;
        let mut json = Vec::new();
        let read = answer
            .into_body()
            .into_reader()
            .take(ANSWER_BYTES_MAX)
            .read_to_end(&mut json);
        read.map_err(|error| Failure::new(Code::Files, format!("{told}: {error}")))?;
        let model: Model = serde_json::from_slice(&json).map_err(|error| {
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

    /// Asks for a URL, from some byte on.
    fn get(&self, url: &str, from: u64) -> Result<Response<Body>, Failure> {
        let failed = |problem: String| {
            Failure::new(Code::Files, format!("{url}: {problem}"))
                .id("HW1044")
                .hint("models in the cache need no network: give their folder")
        };
        if self.is_offline {
            return Err(failed("HF_HUB_OFFLINE is set".to_owned()));
        }
        let mut request = self.agent.get(url).header("User-Agent", "highwater");
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        request.call().map_err(|error| failed(error.to_string()))
    }

    /// An answer that is what was asked for.
    fn expected(&self, answer: Response<Body>, what: &str) -> Result<Response<Body>, Failure> {
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let failure = Failure::new(
            Code::Files,
            format!("{what}: {} says {status}", self.endpoint),
        )
        .id("HW1044");
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => failure
                .hint("accept the model's terms on its page, and set HF_TOKEN to a token of yours"),
            StatusCode::NOT_FOUND => {
                failure.hint("look for the name, the revision and the file on the hub")
            }
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
        let before = DiskFiles.metadata(&draft)?.map_or(0, |found| found.bytes);
        let url = format!(
            "{}/{}/resolve/{commit}/{file}",
            self.endpoint, name.repository
        );
        let mut answer = self.get(&url, before)?;
        let (start, whole) = range(&answer);
        if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            if whole == Some(before) {
                return Ok(rename_durably(&DiskFiles, &draft, &path)?);
            }
            DiskFiles.remove_file(&draft)?;
            answer = self.get(&url, 0)?;
        }
        if answer.status() == StatusCode::PARTIAL_CONTENT && start != Some(before) {
            DiskFiles.remove_file(&draft)?;
            answer = self.get(&url, 0)?;
        }
        let answer = self.expected(answer, &format!("hf:{}: {file}", name.repository))?;
        let mut to = if answer.status() == StatusCode::PARTIAL_CONTENT {
            DiskFiles.append(&draft)?
        } else {
            DiskFiles.create(&draft)?
        };
        let length = answer.headers().get("content-length");
        let length: Option<u64> = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if let Some(length) = length.filter(|&length| length > 1 << 20) {
            output::news(&format!("fetching {file}: {}", Bytes(length)));
        }
        let count = copy(answer, &mut *to).map_err(|error| {
            Failure::new(Code::Files, format!("{url}: {error}"))
                .id("HW1044")
                .hint("run the same command again: it continues the download")
        })?;
        to.sync_all()?;
        if length.is_some_and(|length| length != count) {
            let message = format!("{url}: {count} bytes came, of {}", length.unwrap_or(0));
            return Err(Failure::new(Code::Files, message)
                .id("HW1044")
                .hint("run the same command again: it continues the download"));
        }
        Ok(rename_durably(&DiskFiles, &draft, &path)?)
    }
}

/// The first byte that an answer has, and how many there are in all, as far as it says.
fn range(answer: &Response<Body>) -> (Option<u64>, Option<u64>) {
    let told = answer.headers().get("content-range");
    let told = told.and_then(|told| told.to_str().ok()?.strip_prefix("bytes "));
    let Some((range, whole)) = told.and_then(|told| told.split_once('/')) else {
        return (None, None);
    };
    let start = range.split('-').next().and_then(|start| start.parse().ok());
    (start, whole.parse().ok())
}

/// A lock on a folder of the cache, until it is dropped.
fn alone(folder: &Path) -> Result<std::fs::File, Failure> {
    let path = folder.join(".highwater.lock");
    let locked = std::fs::File::create(&path).and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| Failure::new(Code::Files, format!("{}: {error}", path.display())))
}

/// Writes what an answer has to say, and counts it.
fn copy(answer: Response<Body>, to: &mut dyn FileWrite) -> std::io::Result<u64> {
    let mut from = answer
        .into_body()
        .into_with_config()
        .limit(u64::MAX)
        .reader();
    let (mut buffer, mut count) = (vec![0; 1 << 18], 0);
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            return Ok(count);
        }
        to.write_all(&buffer[..length])
            .map_err(std::io::Error::other)?;
        count += length as u64;
    }
}

#[cfg(test)]
mod tests;
