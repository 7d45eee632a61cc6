//! Saved state: everything that a run needs to go on bit for bit.

use std::num::NonZeroUsize;
use std::path::Path;

use highwater::optim::GradScaler;
use highwater::{DType, Parameter};
use highwater_memory::files::Draft;
use highwater_memory::saved::{
    SaveWriter, Saved, SavedError, keep_last, latest_complete, remove_newer, write_atomic,
};
use highwater_memory::spill::free_bytes;
use highwater_memory::{Bytes, FileWrite, Files};
use highwater_models::adapter::{CONFIG as ADAPTER_CONFIG, WEIGHTS};
use highwater_models::module_file::{read_tensor, write_tensors};
use highwater_models::weights::INDEX;
use highwater_models::{Cursor, WeightsFolder, save_folder};
use serde::{Deserialize, Serialize};

use crate::config::{ModelSource, RunConfig};
use crate::error::{Code, Failure};
use crate::run_dir::RunDir;
use crate::session::Session;
use crate::task::Model;
use crate::{lora, output};

/// File of the parameters, with Hugging Face's or torchvision's names.
pub const MODEL: &str = "model.safetensors";
/// File of the optimizer's moments.
const OPTIMIZER: &str = "optimizer.safetensors";
/// File of the counters.
const COUNTERS: &str = "state.json";
/// The files of a saved state.
pub const STATE_FILES: [&str; 3] = [MODEL, OPTIMIZER, COUNTERS];
/// Files are copied in pieces of so many bytes.
const COPY_BYTES: usize = 64 << 10;
/// The most bytes that the file of counters may have.
const COUNTERS_MAX: u64 = 1 << 16;

/// What is counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Steps taken.
    pub step: u64,
    /// Steps that the optimizer counts.
    pub optimizer_steps: u64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// How many random streams were drawn.
    pub random_offset: u64,
    /// Where the next batch starts.
    pub cursor: Cursor,
    /// The scale of the loss, the steps since it changed, and how many were skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaler: Option<(f64, u64, u64)>,
}

/// Saves the state after `step` steps, atomically, and drops all but the newest `keep`.
///
/// # Errors
/// [`Failure`] if a file cannot be written, or the engine stopped halfway through a step.
pub fn save(
    files: &dyn Files,
    dir: &Path,
    session: &Session,
    step: u64,
    cursor: Cursor,
) -> Result<(), Failure> {
    session.engine.check_poison()?;
    let name = name(step);
    let mut writer = match SaveWriter::begin(files, dir, &name) {
        Err(SavedError::AlreadySaved(_)) => return Ok(()),
        other => other?,
    };
    let model = session.model.saved();
    write_tensors(writer.file(MODEL)?, &dir.join(&name).join(MODEL), &model)??;
    let moments = session.optimizer.state_dict();
    write_tensors(
        writer.file(OPTIMIZER)?,
        &dir.join(&name).join(OPTIMIZER),
        &moments,
    )??;
    let (seed, random_offset) = session.engine.rng_state();
    let optimizer_steps = session.optimizer.steps();
    let counters = Counters {
        step,
        optimizer_steps,
        seed,
        random_offset,
        cursor,
        scaler: session.scaler.as_ref().map(GradScaler::state),
    };
    let json = serde_json::to_vec_pretty(&counters)
        .map_err(|error| Failure::new(Code::Internal, error))?;
    let mut file = writer.file(COUNTERS)?;
    file.write_all(&json)?;
    file.close()?;
    writer.finish()?;
    let keep = NonZeroUsize::new(session.config().output.keep).unwrap_or(NonZeroUsize::MIN);
    keep_last(files, dir, keep)?;
    Ok(())
}

/// What the folder of the state after so many steps is called.
pub fn name(step: u64) -> String {
    format!("step-{step:06}")
}

/// Loads the newest complete saved state, says which it skipped, and removes newer ones that are
/// damaged. `None` if there is none.
///
/// # Errors
/// [`Failure`] if a state is there but none can be used, or it does not fit the model.
pub fn load(
    files: &dyn Files,
    dir: &Path,
    session: &mut Session,
) -> Result<Option<Counters>, Failure> {
    let Some(saved) = newest(files, dir)? else {
        return Ok(None);
    };
    read_tensors(
        &mut WeightsFolder::of_file(files, &saved.path().join(MODEL))?,
        &session.model.saved(),
        session.model.base_prefix(),
    )?;
    let counters = counters(files, &saved)?;
    session.optimizer.set_steps(counters.optimizer_steps)?;
    read_tensors(
        &mut WeightsFolder::of_file(files, &saved.path().join(OPTIMIZER))?,
        &session.optimizer.state_dict(),
        "",
    )?;
    if let (Some(scaler), Some(state)) = (&mut session.scaler, counters.scaler) {
        scaler.load_state(state)?;
    }
    session
        .engine
        .set_rng_state(counters.seed, counters.random_offset);
    session.engine.clear_poison();
    remove_newer(files, dir, saved.number())?;
    Ok(Some(counters))
}

/// The newest complete saved state, with a word on each that was skipped.
///
/// # Errors
/// [`Failure`] if states are there but none is whole.
pub fn newest(files: &dyn Files, dir: &Path) -> Result<Option<Saved>, Failure> {
    let found = latest_complete(files, dir)?;
    for skipped in &found.skipped {
        output::news(&format!(
            "skipped a saved state that is not whole: {}",
            skipped.why
        ));
    }
    if found.saved.is_none() && !found.skipped.is_empty() {
        let message = format!("{}: none of the saved states is whole", dir.display());
        return Err(Failure::new(Code::Files, message));
    }
    Ok(found.saved)
}

fn counters(files: &dyn Files, saved: &Saved) -> Result<Counters, Failure> {
    let mut reader = saved.read(files, COUNTERS)?;
    let damaged = |why: String| {
        let path = saved.path().join(COUNTERS);
        Failure::new(Code::Files, format!("{}: {why}", path.display()))
    };
    if reader.remaining() > COUNTERS_MAX {
        return Err(damaged("too large".to_owned()));
    }
    let mut json = vec![0; reader.remaining() as usize];
    reader.read_exact(&mut json)?;
    reader.finish()?;
    serde_json::from_slice(&json).map_err(|error| damaged(error.to_string()))
}

/// Reads tensors straight to where they lie.
///
/// # Errors
/// [`Failure`] if the file is damaged or its tensors are not these.
pub fn read_tensors(
    weights: &mut WeightsFolder<'_>,
    tensors: &[(String, Parameter)],
    base_prefix: &str,
) -> Result<(), Failure> {
    for (name, parameter) in tensors {
        // Hugging Face's base models leave out the prefix.
        let short = name.strip_prefix(base_prefix).unwrap_or(name);
        let name: &str = if weights.has(name) { name } else { short };
        read_tensor(weights.reader(name)?, name, parameter)??;
    }
    Ok(())
}

/// Whether a folder has weights of a whole model, in one file or as an index says.
///
/// # Errors
/// [`Failure`] where it cannot be looked at.
pub fn has_weights(files: &dyn Files, folder: &Path) -> Result<bool, Failure> {
    let has = |name: &str| files.metadata(&folder.join(name));
    Ok(has(MODEL)?.is_some() || has(INDEX)?.is_some())
}

/// Refuses a model folder whose weights are there in a form that is not read, with a word about it.
///
/// # Errors
/// [`Failure`] for weights in another format, or none.
pub fn check_weights(files: &dyn Files, folder: &Path) -> Result<(), Failure> {
    let has = |name: &str| Ok::<_, Failure>(files.metadata(&folder.join(name))?.is_some());
    if has(MODEL)? {
        return Ok(());
    }
    if has(INDEX)? {
        for path in WeightsFolder::open(files, folder)?.paths() {
            if files.metadata(&path)?.is_none() {
                let message = format!("{}: it is missing, though {INDEX} names it", path.display());
                return Err(Failure::new(Code::Files, message).id("HW1013"));
            }
        }
        return Ok(());
    }
    let folder_name = folder.display();
    let other = if has("pytorch_model.bin")? || has("pytorch_model.bin.index.json")? {
        "its weights are pickled (pytorch_model.bin), which is not read here"
    } else if has(WEIGHTS)? {
        let message = format!("{folder_name}: adapters, without the model that they are for");
        let hint = "name the folder of the run that trained them, or add them to the model by `highwater merge`";
        return Err(Failure::usage(message).id("HW1041").hint(hint));
    } else {
        let message = format!("{folder_name}: there is no {MODEL}");
        return Err(Failure::new(Code::Files, message).id("HW1013"));
    };
    let message = format!("{folder_name}: {other}");
    let hint = "make safetensors of them: in Python, \
                `AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OTHER)`";
    Err(Failure::usage(message).id("HW1034").hint(hint))
}

/// After which step the model in a run's folder `final` is.
#[derive(Debug, Serialize, Deserialize)]
struct FinalStep {
    step: u64,
}

/// What a file says of the step that the folder `final` is of; none where that is not known, or not all of the folder
/// is written.
///
/// # Errors
/// [`Failure`] for a file that cannot be read.
pub fn final_step(files: &dyn Files, path: &Path) -> Result<Option<u64>, Failure> {
    if files
        .metadata(path)?
        .is_none_or(|found| found.is_dir || found.bytes > COUNTERS_MAX)
    {
        return Ok(None);
    }
    let mut file = files.open(path)?;
    let mut json = vec![0; file.bytes() as usize];
    file.read_exact_at(0, &mut json)?;
    let found = serde_json::from_slice::<FinalStep>(&json).ok();
    Ok(found.map(|found| found.step))
}

/// Writes the model that a run ends with after `step` steps, as its folder `final`.
///
/// # Errors
/// [`Failure`] if a file cannot be written.
pub fn finish(
    files: &dyn Files,
    run: &RunDir,
    session: &Session,
    step: u64,
) -> Result<(), Failure> {
    // Until all of it is written it is of no step.
    let (dir, path) = (run.final_model(), run.final_step());
    if files.metadata(&path)?.is_some() {
        files.remove_file(&path)?;
    }
    let names = export(files, &dir, session)?;
    let names = names.iter().map(|name| dir.join(name));
    run.own(files, names.chain([path.clone()]))?;
    let json = serde_json::to_vec(&FinalStep { step })
        .map_err(|error| Failure::new(Code::Internal, error))?;
    Ok(write_atomic(files, &path, &json)?)
}

/// Writes the model as `transformers` loads it: `config.json`, `model.safetensors`, and the
/// tokenizer if there is one. The weights of a classifier have torchvision's names. Returns the names of its files.
///
/// # Errors
/// [`Failure`] if a file cannot be written.
fn export(files: &dyn Files, dir: &Path, session: &Session) -> Result<Vec<String>, Failure> {
    files.create_dir_all(dir)?;
    let config = session.config();
    if let (Some(lora), Model::Text(model)) = (&config.model.lora, &session.model) {
        lora::export(files, dir, &**model, (lora, &config.model.source))?;
        let mut names = vec![WEIGHTS.to_owned(), ADAPTER_CONFIG.to_owned()];
        names.extend(beside_model(files, config, dir)?);
        files.sync_dir(dir)?;
        return Ok(names);
    }
    let most = match session.model {
        Model::Text(_) => config.output.shard_bytes(),
        // torchvision knows single files.
        Model::Images(..) => u64::MAX,
    };
    let mut names = save_folder(files, dir, &session.model.saved(), most)?;
    write_atomic(
        files,
        &dir.join("config.json"),
        config_json(session)?.as_bytes(),
    )?;
    names.push("config.json".to_owned());
    names.extend(beside_model(files, config, dir)?);
    files.sync_dir(dir)?;
    Ok(names)
}

/// What a model's folder has for its tokenizer.
const OF_TOKENIZER: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
];
/// What else it has beside its weights.
const OF_MODEL: [&str; 1] = ["generation_config.json"];

/// Copies what a model's folder has beside its weights.
///
/// # Errors
/// [`Failure`] of the files.
pub fn copy_beside(files: &dyn Files, from: &Path, to: &Path) -> Result<Vec<String>, Failure> {
    copy_some(files, from, to, OF_TOKENIZER.iter().chain(&OF_MODEL))
}

fn copy_some<'a>(
    files: &dyn Files,
    from: &Path,
    to: &Path,
    names: impl IntoIterator<Item = &'a &'a str>,
) -> Result<Vec<String>, Failure> {
    let mut copied = Vec::new();
    for name in names {
        if files.metadata(&from.join(name))?.is_some() {
            copy(files, &from.join(name), &to.join(name))?;
            copied.push((*name).to_owned());
        }
    }
    Ok(copied)
}

/// Copies what belongs beside a run's model into a folder in the run's: its tokenizer and the template that it took.
///
/// # Errors
/// [`Failure`] of the files.
pub fn beside_model(
    files: &dyn Files,
    config: &RunConfig,
    dir: &Path,
) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    if let ModelSource::Folder(folder) = &config.model.source {
        names.extend(copy_some(files, folder, dir, &OF_MODEL)?);
    }
    if let Some(tokenizer) = &config.model.tokenizer {
        if let Some(folder) = tokenizer.parent() {
            names.extend(copy_some(files, folder, dir, &OF_TOKENIZER)?);
        }
        copy(files, tokenizer, &dir.join("tokenizer.json"))?;
        names.push("tokenizer.json".to_owned());
    }
    // The run's own copy: the file that was named may be another one by now.
    let template = dir.parent().map(RunDir::template_of);
    if let (Some(template), Some(_)) = (template, config.chat_template()) {
        copy(files, &template, &dir.join("chat_template.jinja"))?;
        names.push("chat_template.jinja".to_owned());
    }
    Ok(names)
}

/// The model's `config.json`, which says of what its weights are.
fn config_json(session: &Session) -> Result<String, Failure> {
    with_dtype(&session.model.to_json(), session.weights_dtype())
}

/// A `config.json` that says of what its weights are, by whichever name it has for that.
///
/// # Errors
/// [`Failure`] for what is no JSON.
pub fn with_dtype(json: &str, dtype: DType) -> Result<String, Failure> {
    let told = |error| Failure::new(Code::Internal, error);
    let mut config: serde_json::Value = serde_json::from_str(json).map_err(told)?;
    let name = match config.get("dtype") {
        Some(_) => "dtype",
        None if dtype == DType::F32 && config.get("torch_dtype").is_none() => {
            return Ok(json.to_owned());
        }
        None => "torch_dtype",
    };
    if config.get(name).is_some_and(|said| said == dtype.name())
        && config
            .get("torch_dtype")
            .is_none_or(|said| said == dtype.name())
    {
        return Ok(json.to_owned());
    }
    config[name] = dtype.name().into();
    if name == "dtype"
        && let Some(fields) = config.as_object_mut()
    {
        fields.remove("torch_dtype");
    }
    Ok(serde_json::to_string_pretty(&config).map_err(told)? + "\n")
}

/// Copies a file in pieces, all of it or nothing.
///
/// # Errors
/// [`Failure`] if one cannot be read or the other written.
pub fn copy(files: &dyn Files, from: &Path, to: &Path) -> Result<(), Failure> {
    let mut source = files.open(from)?;
    let (draft, mut target) = Draft::file(files, to)?;
    let (mut at, mut piece) = (0, vec![0; COPY_BYTES]);
    while at < source.bytes() {
        let len = (source.bytes() - at).min(COPY_BYTES as u64) as usize;
        source.read_exact_at(at, &mut piece[..len])?;
        FileWrite::write_all(&mut *target, &piece[..len])?;
        at += len as u64;
    }
    target.sync_all()?;
    drop(target);
    Ok(draft.persist()?)
}

/// Bytes of all files of a saved state, and of a trained model.
pub fn saved_bytes(session: &Session) -> (u64, u64) {
    let bytes = |tensors: &[(String, Parameter)]| -> u64 {
        let bytes = |parameter: &Parameter| parameter.dtype().bytes(parameter.shape());
        tensors.iter().map(|(_, parameter)| bytes(parameter)).sum()
    };
    let model = bytes(&session.model.saved());
    (model + bytes(&session.optimizer.state_dict()), model)
}

/// That the disk has room for what a run of so many steps more will save.
///
/// # Errors
/// [`Failure`] where it has not.
pub fn check_space(
    files: &dyn Files,
    dir: &RunDir,
    session: &Session,
    steps: u64,
) -> Result<(), Failure> {
    let Some(free) = free_bytes(dir.path()) else {
        return Ok(());
    };
    let (state, model) = saved_bytes(session);
    let output = &session.config().output;
    let there = match files.metadata(&dir.checkpoints())? {
        Some(_) => {
            let entries = files.list_dir(&dir.checkpoints())?;
            entries.iter().filter(|entry| entry.is_dir).count() as u64
        }
        None => 0,
    };
    // One more than is kept is there while it is written.
    let most = (output.keep as u64).saturating_add(1);
    let saves = steps
        .div_ceil(output.save_every)
        .saturating_add(there)
        .min(most);
    let needed = state
        .saturating_mul(saves.saturating_sub(there).max(1))
        .saturating_add(model);
    if needed <= free {
        return Ok(());
    }
    let message = format!(
        "{}: what the run will save takes {}, and {} are free there",
        dir.path().display(),
        Bytes(needed),
        Bytes(free)
    );
    let hint = format!(
        "free some space, name a folder on another disk with --out, or keep fewer states: each takes {}, \
         and --keep is {}",
        Bytes(state),
        output.keep
    );
    Err(Failure::new(Code::Files, message).hint(hint))
}
