//! Whether what a run goes on with is what it began with.

use std::path::Path;

use highwater_memory::Files;
use highwater_memory::saved::Digest;

use crate::config::{ModelSource, Origin, RunConfig};
use crate::data::{RunData, held_out, tokenizer};
use crate::error::{Code, Failure};
use crate::folder::RunDir;
use crate::folder::digest::weights_digest;

impl Origin {
    /// What a run began with that goes on now: what can no longer be seen stays as it was before.
    #[must_use]
    pub fn after(self, before: Option<Self>) -> Self {
        let (weights, shape, source) =
            before.map_or((None, None, None), |it| (it.weights, it.shape, it.source));
        Self {
            weights: self.weights.or(weights),
            shape: self.shape.or(shape),
            source: self.source.or(source),
            ..self
        }
    }

    /// What there is now; `source` is what `source_digest` says of it. The weights of a model's folder count only
    /// for a run that has none of its own yet.
    ///
    /// # Errors
    /// [`Failure`] for files that cannot be read.
    pub fn of(
        files: &dyn Files,
        config: &RunConfig,
        model_json: &str,
        (data, tokens): (&RunData, &Path),
        has_weights: bool,
        source: Option<Digest>,
    ) -> Result<Self, Failure> {
        let digest = |path: &Path| Digest::of_file(files, path);
        let (weights, shape) = match &config.model.source {
            ModelSource::Folder(folder) if !has_weights => (
                Some(weights_digest(files, folder)?),
                Some(digest(&folder.join("config.json"))?),
            ),
            _ => (None, None),
        };
        Ok(Self {
            model: Digest::of(model_json.as_bytes()),
            data: data_digest(files, config, (data, tokens))?,
            source,
            tokenizer: config.model.tokenizer.as_deref().map(digest).transpose()?,
            weights,
            shape,
        })
    }
}

impl Origin {
    /// That the run's own tokens are as they were, and what they were made of too. Tokens of other data are no
    /// damage: `changed` says that they are wanted, and those that are there go.
    ///
    /// # Errors
    /// [`Failure`] where they are not.
    pub fn check_tokens(
        &self,
        files: &dyn Files,
        dir: &RunDir,
        (config, source): (&RunConfig, Option<&Digest>),
        changed: bool,
    ) -> Result<(), Failure> {
        let path = dir.tokens();
        if files.metadata(&path)?.is_none() {
            return Ok(());
        }
        // Data that is gone was read when its tokens were made.
        let both = source.zip(self.source.as_ref());
        let same_source = both.is_none_or(|(now, before)| now == before);
        let same = Digest::of_file(files, &path)? == self.data;
        if same && same_source {
            return Ok(());
        }
        if changed {
            return Ok(files.remove_file(&path)?);
        }
        if !same_source {
            return Err(not_as_before(&described(config).unwrap_or_default()));
        }
        let message = format!("{} was edited after the run began", path.display());
        let hint = "remove it: it is created again from the text, which must not have changed";
        Err(Failure::new(Code::Files, message).hint(hint))
    }

    /// That what a run goes on with is what it began with.
    ///
    /// # Errors
    /// [`Failure`], with the name of what has changed.
    pub fn check(&self, now: &Self, config: &RunConfig) -> Result<(), Failure> {
        let name = |path: &Path| path.display().to_string();
        let data = described(config).unwrap_or_else(|| "the built-in guide".to_owned());
        let tokenizer = config.model.tokenizer.as_deref();
        let parts = [
            (self.data == now.data, data),
            (
                self.tokenizer == now.tokenizer,
                tokenizer.map_or_else(String::new, name),
            ),
            (
                (now.weights.is_none() || self.weights == now.weights)
                    && (now.shape.is_none() || self.shape.is_none() || self.shape == now.shape),
                config.model.source.to_string(),
            ),
        ];
        let Some((_, name)) = parts.into_iter().find(|(same, _)| !same) else {
            return Ok(());
        };
        Err(not_as_before(&name))
    }
}

/// The data of a run, by its paths.
fn described(config: &RunConfig) -> Option<String> {
    let path = config.data.path.as_deref()?.display();
    Some(match &config.data.eval_data {
        Some(held_out) => format!("{path} or {}", held_out.display()),
        None => path.to_string(),
    })
}

fn not_as_before(name: &str) -> Failure {
    let message = format!("{name} has changed since the run began");
    let hint = "restore it, or pass --data-changed ok to continue with the data as it is now";
    Failure::new(Code::Files, message).hint(hint)
}

/// Of the text or the records that tokens are made of: of what the files are called within the data and hold. None
/// where no tokens are made, or the data is gone.
///
/// # Errors
/// [`Failure`] for files that cannot be read.
pub(crate) fn source_digest(
    files: &dyn Files,
    config: &RunConfig,
) -> Result<Option<Digest>, Failure> {
    let Some(path) = tokenizer::text_to_tokenize(files, config)? else {
        return Ok(None);
    };
    let Some(parts) = held_out::parts_of_data(files, &config.data)? else {
        return Ok(None);
    };
    let told = |error| Failure::new(Code::Internal, error);
    let mut all = Vec::new();
    for (file, _) in parts.train.iter().chain(&parts.held_out) {
        let digest = Digest::of_file(files, file)?;
        let name = file.strip_prefix(path).unwrap_or(file).to_string_lossy();
        serde_json::to_writer(&mut all, &(name, digest)).map_err(told)?;
    }
    Ok(Some(Digest::of(&all)))
}

fn data_digest(
    files: &dyn Files,
    config: &RunConfig,
    (data, tokens): (&RunData, &Path),
) -> Result<Digest, Failure> {
    if tokenizer::text_to_tokenize(files, config)?.is_some() {
        return Ok(Digest::of_file(files, tokens)?);
    }
    data.digest()
}
