//! Adapters: what a run trains beside a frozen model, its files, and merging them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use highwater::nn::{LoraOptions, add_adapters};
use highwater::op::WeightFormat;
use highwater::{Bytes, Engine, Module};
use highwater_memory::files::Draft;
use highwater_memory::saved::write_atomic;
use highwater_memory::{DiskFiles, Files};
use highwater_models::adapter::{CONFIG, WEIGHTS};
use highwater_models::module_file::file_dtype;
use highwater_models::{CausalLm, Merge, SHARD_BYTES};
use serde::{Deserialize, Serialize};

use crate::config::{ModelSource, RunConfig, SettingsError};
use crate::engine_error::without_lines;
use crate::error::{Code, Failure};
use crate::export::check_new;
use crate::merging::{MergedDtype, check_memory, untied};
use crate::newest::Which;
use crate::provenance::weights_digest;
use crate::signals::end_tidily;
use crate::task::Blueprint;
use crate::trained::trained;
use crate::{final_model, output, state};

/// Flags of adapters. Not a doc comment for people: clap shows the fields'.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct LoraArgs {
    /// Train adapters of this rank beside the model's linear layers, which are frozen, as PEFT's LoRA; `final` has
    /// them in PEFT's files then
    #[arg(long, aliases = ["lora-rank", "lora-r"], value_name = "RANK", help_heading = "Adapters")]
    pub lora: Option<usize>,

    /// What adapters answer is multiplied by ALPHA / RANK [default: twice the rank]
    #[arg(long, value_name = "ALPHA", help_heading = "Adapters")]
    pub lora_alpha: Option<f64>,

    /// Probability of dropout of what adapters read [default: 0]
    #[arg(long, value_name = "P", help_heading = "Adapters")]
    pub lora_dropout: Option<f64>,

    /// The layers that get one, such as q_proj,v_proj [default: all-linear]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    #[arg(help_heading = "Adapters")]
    pub lora_targets: Option<Vec<String>>,

    /// Divide ALPHA by the root of the rank (rsLoRA)
    #[arg(
        long,
        num_args = 0,
        default_missing_value = "true",
        help_heading = "Adapters"
    )]
    pub lora_rs: Option<bool>,

    /// Train the lengths of the rows of weight and adapter by themselves too (DoRA)
    #[arg(
        long,
        num_args = 0,
        default_missing_value = "true",
        help_heading = "Adapters"
    )]
    pub lora_dora: Option<bool>,

    /// Hold the frozen weights in few bits (QLoRA): nf4 takes 4.5 of them for each, int8 8.5
    #[arg(long, value_name = "FORMAT", help_heading = "Adapters")]
    pub quantize: Option<Quantize>,
}

/// How frozen weights are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantize {
    /// The 16 numbers of NF4, in blocks of 64.
    Nf4,
    /// Steps of 1/127, in blocks of 64.
    Int8,
}

impl Quantize {
    /// As the library has it.
    pub fn format(self) -> WeightFormat {
        match self {
            Self::Nf4 => WeightFormat::Nf4,
            Self::Int8 => WeightFormat::Int8,
        }
    }
}

/// Adapters of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// Their rank.
    pub rank: usize,
    /// What they answer is multiplied by this over the rank.
    pub alpha: f64,
    /// Dropout of what they read.
    pub dropout: f64,
    /// The layers that have one.
    pub targets: Vec<String>,
    /// Whether the root of the rank is meant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rs: bool,
    /// Whether the lengths of rows train by themselves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dora: bool,
    /// How the frozen weights are held, if not as floats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantize: Option<Quantize>,
}

impl LoraArgs {
    /// That no flag of adapters stands alone.
    ///
    /// # Errors
    /// [`Failure`] for the first that does.
    pub fn check(&self) -> Result<(), Failure> {
        let given = [
            ("lora-alpha", self.lora_alpha.is_some()),
            ("lora-dropout", self.lora_dropout.is_some()),
            ("lora-targets", self.lora_targets.is_some()),
            ("lora-rs", self.lora_rs == Some(true)),
            ("lora-dora", self.lora_dora == Some(true)),
            ("quantize", self.quantize.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) if self.lora.is_none() => {
                let message = format!("--{flag} has no effect without --lora");
                Err(Failure::usage(message).hint("say --lora RANK, or leave it out"))
            }
            _ => Ok(()),
        }
    }

    /// The settings, if adapters are asked for.
    pub fn config(&self) -> Option<LoraConfig> {
        let rank = self.lora?;
        let all = || vec!["all-linear".to_owned()];
        Some(LoraConfig {
            rank,
            alpha: self.lora_alpha.unwrap_or(2.0 * rank as f64),
            dropout: self.lora_dropout.unwrap_or(0.0),
            targets: self.lora_targets.clone().unwrap_or_else(all),
            rs: self.lora_rs == Some(true),
            dora: self.lora_dora == Some(true),
            quantize: self.quantize,
        })
    }
}

impl LoraConfig {
    /// As the library has them.
    pub fn options(&self) -> LoraOptions {
        LoraOptions {
            r: self.rank,
            lora_alpha: self.alpha,
            lora_dropout: self.dropout,
            target_modules: self.targets.clone(),
            use_rslora: self.rs,
            use_dora: self.dora,
        }
    }

    /// That they are possible.
    ///
    /// # Errors
    /// [`SettingsError`] for the first that is not.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let range = |setting, value: String, expected: &str| SettingsError::Range {
            setting,
            value,
            expected: expected.to_owned(),
        };
        if !(1..=1 << 14).contains(&self.rank) {
            return Err(range("lora", self.rank.to_string(), "1 to 16384"));
        }
        if !(self.alpha > 0.0 && self.alpha <= 1e6) {
            return Err(range(
                "lora-alpha",
                self.alpha.to_string(),
                "a number above 0, at most 1e6",
            ));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(range(
                "lora-dropout",
                self.dropout.to_string(),
                "a number from 0 to below 1",
            ));
        }
        Ok(())
    }
}

impl LoraConfig {
    /// Freezes a model and gives it adapters.
    ///
    /// # Errors
    /// [`Failure`] where no layer has one of the names, or there is no room.
    pub fn adapt(&self, model: &dyn Module) -> Result<Vec<String>, Failure> {
        let adapted = add_adapters(model, &self.options());
        adapted.map_err(|error| {
            of_layers(
                error,
                "name layers of the model by --lora-targets, or leave it out for all of them",
            )
        })
    }
}

/// Why a model has no such adapters: its user named layers that it does not have.
fn of_layers(error: highwater::Error, hint: &str) -> Failure {
    match error {
        highwater::Error::Usage { .. } => Failure::usage(without_lines(&error.to_string()).0)
            .id("HW1041")
            .hint(hint),
        error => error.into(),
    }
}

/// Gives a model the adapters of a folder.
///
/// # Errors
/// [`Failure`] for adapters that are not for the model, and files that cannot be read.
pub fn load(files: &dyn Files, folder: &Path, model: &dyn CausalLm) -> Result<(), Failure> {
    let loaded = highwater_models::load_adapter(files, folder, model);
    let hint = "these adapters are for another model, or their adapter_config.json was changed";
    loaded.map(drop).map_err(|error| match error {
        error @ highwater::Error::Saved(_) => Failure::of_weights(error),
        error => of_layers(error, hint),
    })
}

/// Writes a run's adapters as PEFT loads them.
///
/// # Errors
/// [`Failure`] if a file cannot be written.
pub fn export(
    files: &dyn Files,
    folder: &Path,
    model: &dyn CausalLm,
    (lora, source): (&LoraConfig, &ModelSource),
) -> Result<(), Failure> {
    let base = match source {
        ModelSource::Folder(path) => path.to_str(),
        ModelSource::Preset(_) | ModelSource::Config(_) => None,
    };
    highwater_models::save_adapter(files, folder, model, &lora.options(), base)?;
    Ok(())
}

/// `merge`.
#[derive(Args, Debug)]
pub struct MergeArgs {
    /// The folder of a run that trained adapters, or a folder of adapters in PEFT's files
    pub dir: PathBuf,

    /// Which model of a run.
    #[command(flatten)]
    pub which: Which,

    /// The model that they were trained for [default: the run's, or the one that the adapters name]
    #[arg(long, value_name = "FOLDER")]
    pub model: Option<PathBuf>,

    /// The new folder, which transformers loads
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// Bytes of weights in each of its files, at most [default: 50GB]
    #[arg(long, value_name = "SIZE")]
    pub max_shard_size: Option<Bytes>,

    /// Element type of the merged weights [default: each keeps the one that it has in the model's files]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<MergedDtype>,

    /// Memory for the whole process [default: what it needs, which is little: weights are read in pieces]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,
}

/// Where adapters are, and the model that they are for.
///
/// # Errors
/// [`Failure`] where there are none.
pub fn adapters(files: &dyn Files, dir: &Path) -> Result<Option<PathBuf>, Failure> {
    for folder in [dir.join("final"), dir.to_owned()] {
        if files.metadata(&folder.join(WEIGHTS))?.is_some() {
            return Ok(Some(folder));
        }
    }
    Ok(None)
}

/// The folder of the model that adapters are for: of a run, or that their file names.
fn base(files: &dyn Files, dir: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    if let Ok(run) = RunConfig::read(files, &dir.join("config.toml"))
        && let ModelSource::Folder(base) = &run.model.source
    {
        check_base(files, &run)?;
        return Ok(base.clone());
    }
    let (path, named) = settings(files, folder)?;
    let unnamed = || {
        Failure::usage(format!("{}: it names no model", path.display()))
            .hint("name the folder of the model that the adapters were trained for: --model FOLDER")
    };
    match named {
        Some(named) if files.metadata(&named)?.is_some() => Ok(named),
        // A name of the hub.
        Some(named) => Err(Failure::usage(format!(
            "{}: there is no such folder here",
            named.display()
        ))
        .hint("name the folder of the model that the adapters were trained for: --model FOLDER")),
        None => Err(unnamed()),
    }
}

/// The settings' file of adapters, and the model that it names.
fn settings(files: &dyn Files, folder: &Path) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    let path = folder.join(CONFIG);
    let mut file = files.open(&path)?;
    let mut json = vec![0; file.bytes().min(1 << 20) as usize];
    file.read_exact_at(0, &mut json)?;
    let fields = serde_json::from_slice::<serde_json::Value>(&json).ok();
    let named =
        fields.and_then(|fields| Some(PathBuf::from(fields["base_model_name_or_path"].as_str()?)));
    Ok((path, named))
}

/// That a run's model is the one that its adapters were trained beside.
///
/// # Errors
/// [`Failure`] where it is not there, or its weights are others.
pub fn check_base(files: &dyn Files, run: &RunConfig) -> Result<(), Failure> {
    if let ModelSource::Folder(base) = &run.model.source {
        if files.metadata(base)?.is_none() {
            let name = base.display();
            let message =
                format!("{name}: the model that the adapters were trained for is not there");
            return Err(Failure::new(Code::Files, message)
                .hint("`highwater merge RUN --model FOLDER --out NEW` adds them to it where it is now, and `highwater resume RUN --model FOLDER` goes on with it"));
        }
        state::check_weights(files, base)?;
    }
    let before = run
        .origin
        .as_ref()
        .and_then(|origin| origin.weights.as_ref());
    if let (ModelSource::Folder(base), Some(before)) = (&run.model.source, before)
        && weights_digest(files, base)? != *before
    {
        let message = format!(
            "{} has changed since the adapters were trained",
            base.display()
        );
        return Err(Failure::usage(message)
            .id("HW1041")
            .hint("put back the weights that were there"));
    }
    Ok(())
}

/// That a folder that was named has the model that adapters were trained beside, as far as anything says.
fn check_named(files: &dyn Files, dir: &Path, folder: &Path, named: &Path) -> Result<(), Failure> {
    if let Ok(mut run) = RunConfig::read(files, &dir.join("config.toml")) {
        run.model.source = ModelSource::Folder(named.to_owned());
        return check_base(files, &run);
    }
    let (_, trained) = settings(files, folder)?;
    let last = |path: &Path| path.file_name().map(std::ffi::OsStr::to_owned);
    if let Some(trained) = trained.filter(|trained| last(trained) != last(named)) {
        output::news(&format!(
            "note: these adapters name {} as their model, and it is {} that they are added to",
            trained.display(),
            named.display()
        ));
    }
    Ok(())
}

/// Why there is nothing to merge.
fn missing(files: &dyn Files, dir: &Path) -> Failure {
    let name = dir.display();
    let what = match files.metadata(dir) {
        Ok(None) => "there is no such folder".to_owned(),
        _ => format!("there are no adapters ({WEIGHTS})"),
    };
    let failure = Failure::usage(format!("{name}: {what}"));
    match RunConfig::read(files, &dir.join("config.toml")) {
        Ok(run) if run.model.lora.is_some() => failure.hint(format!(
            "the run has not saved anything yet: `highwater resume {name}` goes on with it"
        )),
        Ok(_) => failure.hint("the run trained the whole model: there is nothing to merge"),
        Err(_) => failure
            .hint("name the folder of a run with --lora that has ended, or one that PEFT wrote"),
    }
}

/// Adds adapters to the weights of their model and writes that as a model folder.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn merge(args: &MergeArgs) -> Result<ExitCode, Failure> {
    let files = DiskFiles;
    let missing = || missing(&files, &args.dir);
    let (trained, folder) = trained(&files, &args.dir, args.which)?.ok_or_else(missing)?;
    let from = match &args.model {
        Some(from) => {
            check_named(&files, &args.dir, &folder, from)?;
            from.clone()
        }
        None => base(&files, &args.dir, &folder)?,
    };
    state::check_weights(&files, &from)?;
    check_new(&args.out)?;
    let blueprint = Blueprint::read(&files, &from.join("config.json"))?;
    let config = blueprint.text()?;
    // Of the model its names and shapes are asked for, no numbers.
    let engine = Engine::builder().arena(1 << 50).dry_run().build()?;
    let model = config.build(&engine)?;
    end_tidily().map_err(|error| Failure::system("listen to signals", &error))?;
    // What a saved state has is written as PEFT's files first, beside the new folder.
    if let Some(parent) = args.out.parent() {
        files.create_dir_all(parent)?;
    }
    let (peft, _draft) = trained.as_folder(&files, config, &args.out)?;
    let dtype = args.dtype.map(MergedDtype::of);
    let merge = Merge::new(&files, [&from, &peft], &*model, dtype.map(file_dtype))?;
    check_memory(&merge, args.memory)?;
    if let Some(note) = merge.note() {
        output::news(note);
    }
    // All of it or nothing.
    let new = Draft::folder(&files, &args.out)?;
    let draft = new.path();
    let most = args.max_shard_size.map_or(SHARD_BYTES, |most| most.0);
    merge.write(draft, most)?;
    let json = match dtype {
        Some(dtype) => final_model::with_dtype(&config.to_json(), dtype)?,
        None => config.to_json(),
    };
    let json = if merge.unties() { untied(&json)? } else { json };
    write_atomic(&files, &draft.join("config.json"), json.as_bytes())?;
    final_model::copy_beside(&files, &from, draft)?;
    // What the run took, where that was something else.
    final_model::copy_beside(&files, &folder, draft)?;
    files.sync_dir(draft)?;
    // Another process may have made it meanwhile.
    check_new(&args.out)?;
    new.persist()?;
    if merge.unties() {
        output::news(
            "note: the head was the token embedding, and is a tensor of its own now: the adapters changed one of them",
        );
    }
    let (layers, whole) = (merge.layers(), merge.replaced());
    let whole = match whole {
        0 => String::new(),
        whole => format!(", {whole} tensors in place of the model's"),
    };
    output::result(&format!(
        "merged {layers} layers{whole}: {}",
        args.out.display()
    ));
    Ok(ExitCode::SUCCESS)
}
